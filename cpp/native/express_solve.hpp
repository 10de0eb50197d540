// One small dense system, solved and verified on the calling thread: copy, LU, substitution, residual in
// twice the precision, corrections, gate; and all that again with rows and columns scaled by powers of two
// if the entries of A or b are badly scaled. What is compared with the tolerance is an upper bound of the
// backward error (docs/accuracy.md); an answer that does not pass is not written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "native/dispatch.hpp"

namespace roundwise {

// Numbers of the caller's: a matrix in any memory order, in single or double precision, real or complex.
struct GivenNumbers {
    const char* data;
    std::int64_t rows, columns;
    std::int64_t row_step, column_step;  // in bytes
    bool is_single, is_complex;

    int parts() const { return is_complex ? 2 : 1; }

    // Whether row after row of doubles lies in memory without gaps.
    bool is_plain() const {
        const std::int64_t size = 8 * parts();
        return !is_single && (columns == 1 || column_step == size) &&
               (rows == 1 || row_step == columns * size) && reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
    }

    // Calls store(i, j, part, value) for each part of each number.
    template <class Store> void read(const Store& store) const {
        if (is_single) read_as<float>(store);
        else read_as<double>(store);
    }

  private:
    template <class T, class Store> void read_as(const Store& store) const {
        const int count = parts();
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t j = 0; j < columns; ++j)
                for (int part = 0; part < count; ++part) {
                    T value;  // it may not be aligned
                    std::memcpy(&value, data + i * row_step + j * column_step + part * sizeof(T), sizeof(T));
                    store(i, j, part, static_cast<double>(value));
                }
    }
};

// What the gate asks of an answer.
struct ExpressGate {
    double tolerance;           // the largest backward error that is accepted
    double growth;              // the backward error is at most e growth + c for the computed e,
    double block_error;         // c of residuals summed in blocks,
    double exact_error;         // c of residuals in twice the precision
    double suspicious;          // the ratio of pivots from which x is likely to have right digits
    double least, most;         // products of a system whose divisor is between them are in range
    std::int64_t block;         // products of a block (exact.hpp)
};

enum class ExpressStatus : int { accepted = 0, suspicious = 1, above_tolerance = 2 };

struct ExpressResult {
    ExpressStatus status;
    double backward_error;  // its upper bound; infinite where there is none
    double pivot_ratio;
};

// A has `parts` parts. Of a real A and a complex b, `columns` counts real and imaginary parts.
template <int parts> class ExpressSolve {
  public:
    ExpressSolve(std::int64_t n, std::int64_t columns, bool single, const ExpressGate& gate)
        : n_(n), columns_(columns), step_(padded_to_eight(n)), width_(padded_to_eight(columns)),
          single_(single), gate_(gate) {}

    std::int64_t scratch_bytes() const {
        ExpressSolve measured = *this;
        return measured.place(nullptr);
    }

    // x has room for n x columns numbers, row by row, in the answer's type.
    ExpressResult solve(const GivenNumbers& a, const GivenNumbers& b, void* x, void* scratch) {
        place(static_cast<char*>(scratch));
        const std::int64_t b_parts = b.parts(), b_columns = parts * columns_;
        if (parts == 2 && b_parts == 1) std::fill_n(rights_, n_ * b_columns, 0.0);
        // Real and imaginary parts are columns of their own.
        const std::int64_t apart = std::max<std::int64_t>(parts, b_parts);
        b.read([&](std::int64_t i, std::int64_t c, int part, double value) {
            rights_[(apart * c + part) * n_ + i] = value;
        });
        matrix_ = reinterpret_cast<const double*>(a.data);
        if (!(a.is_plain() && a.parts() == parts)) {
            a.read([&](std::int64_t i, std::int64_t j, int part, double value) {
                copy_[(i * n_ + j) * parts + part] = value;
            });
            matrix_ = copy_;
        }
        scaled_ = false;
        ExpressResult result = attempt();
        // Pivots of very different sizes, and products out of range, may be a matter of units alone.
        if (result.status != ExpressStatus::accepted && scale()) result = attempt();
        if (result.status == ExpressStatus::accepted) write(x);
        return result;
    }

  private:
    static constexpr int corrections = 2;
    // Not above the inverse of the square root of 2.
    static constexpr double over_root_2 = 0.7071067811865475;

    std::int64_t n_, columns_, step_, width_;
    bool single_, scaled_ = false;
    ExpressGate gate_;
    // Taken once: another thread may set another level meanwhile.
    const ExpressKernels<parts>& kernels_ = express_kernels<parts>();
    const ExactKernels& exact_ = exact_kernels();
    const double* matrix_ = nullptr;  // what is verified: n rows of n numbers, parts side by side
    double *copy_, *factors_, *rights_, *y_, *z_, *x_, *residual_;
    double *errors_, *row_weights_, *column_weights_;
    std::int32_t *swaps_, *row_exponents_, *column_exponents_, *right_exponents_;
    double norm_ = 0;  // of A as it was given; of a scaled A, over the largest scale of rows and columns

    std::int64_t place(char* scratch) {
        std::int64_t used = 0;
        const auto take = [&](auto*& pointer, std::int64_t count) {
            pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(scratch + used);
            used += (count * static_cast<std::int64_t>(sizeof(*pointer)) + 63) / 64 * 64;
        };
        take(factors_, parts * n_ * step_);
        take(y_, parts * n_ * width_);
        take(z_, parts * n_ * width_);
        take(x_, parts * parts * n_ * columns_);
        take(rights_, parts * n_ * columns_);
        take(residual_, parts * n_ * columns_);
        take(copy_, parts * n_ * n_);
        take(errors_, columns_);
        take(row_weights_, n_);
        take(column_weights_, n_);
        take(swaps_, n_);
        take(row_exponents_, n_);
        take(column_exponents_, n_);
        take(right_exponents_, columns_);
        return used;
    }

    double& entry(double* rows, std::int64_t i, std::int64_t c, int part) const {
        return rows[(part * n_ + i) * width_ + c];
    }
    double right(std::int64_t i, std::int64_t c, int part) const { return rights_[(parts * c + part) * n_ + i]; }

    // The rows, padded, with the parts apart.
    void pack() const {
        for (int part = 0; part < parts; ++part)
            for (std::int64_t i = 0; i < n_; ++i) {
                double* row = factors_ + (part * n_ + i) * step_;
                const double* from = matrix_ + i * n_ * parts + part;
                for (std::int64_t j = 0; j < n_; ++j) row[j] = from[j * parts];
                for (std::int64_t j = n_; j < step_; ++j) row[j] = 0;
            }
    }

    void pack_columns(const double* from, double* to) const {
        for (int part = 0; part < parts; ++part)
            for (std::int64_t i = 0; i < n_; ++i) {
                for (std::int64_t c = 0; c < columns_; ++c)
                    entry(to, i, c, part) = from[(parts * c + part) * n_ + i];
                for (std::int64_t c = columns_; c < width_; ++c) entry(to, i, c, part) = 0;
            }
    }

    ExpressResult attempt() {
        pack();
        const double ratio = kernels_.factorize(n_, factors_, swaps_);
        if (!(ratio > gate_.suspicious)) return {ExpressStatus::suspicious, HUGE_VAL, ratio};
        pack_columns(rights_, y_);
        kernels_.substitute(n_, factors_, swaps_, columns_, y_);
        norm_ = norm();
        for (int step = 0;; ++step) {
            double error = backward_error(gate_.block) * gate_.growth + gate_.block_error;
            if (gate_.block != 0 && error > gate_.tolerance)
                error = backward_error(0) * gate_.growth + gate_.exact_error;
            if (error <= gate_.tolerance) return {ExpressStatus::accepted, error, ratio};
            // Rounding to single precision leaves more than a correction could remove.
            if (!std::isfinite(error) || step == corrections || single_)
                return {ExpressStatus::above_tolerance, error == error ? error : HUGE_VAL, ratio};
            pack_columns(residual_, z_);
            kernels_.substitute(n_, factors_, swaps_, columns_, z_);
            for (std::int64_t c = 0; c < columns_; ++c)  // others stay as they are, whoever is beside them
                if (!(errors_[c] * gate_.growth + gate_.exact_error <= gate_.tolerance))
                    for (std::int64_t i = 0; i < parts * n_; ++i) y_[i * width_ + c] += z_[i * width_ + c];
        }
    }

    // A number of the answer as it is returned.
    double answer(std::int64_t i, std::int64_t c, int part) const {
        double value = entry(y_, i, c, part);
        if (scaled_) value = std::ldexp(value, right_exponents_[c] - column_exponents_[i]);
        return single_ ? static_cast<double>(static_cast<float>(value)) : value;
    }

    // What the scaled system has in its place.
    double scaled_answer(std::int64_t i, std::int64_t c, int part) const {
        const double value = answer(i, c, part);
        return scaled_ ? std::ldexp(value, column_exponents_[i] - right_exponents_[c]) : value;
    }

    void write(void* x) const {
        // A real A and a complex b: the columns are pairs of parts already.
        for (std::int64_t i = 0; i < n_; ++i)
            for (std::int64_t c = 0; c < columns_; ++c)
                for (int part = 0; part < parts; ++part) {
                    const std::int64_t k = (i * columns_ + c) * parts + part;
                    if (single_) static_cast<float*>(x)[k] = static_cast<float>(answer(i, c, part));
                    else static_cast<double*>(x)[k] = answer(i, c, part);
                }
    }

    // The largest backward error over the columns, of the answer as it is returned.
    double backward_error(std::int64_t block) {
        for (std::int64_t c = 0; c < columns_; ++c)
            for (std::int64_t i = 0; i < n_; ++i) {
                if constexpr (parts == 1) {
                    x_[c * n_ + i] = scaled_answer(i, c, 0);
                } else {  // Re r and Im r are real residuals of rows of pairs
                    const double re = scaled_answer(i, c, 0), im = scaled_answer(i, c, 1);
                    double *pairs = x_ + 4 * c * n_ + 2 * i, *turned = pairs + 2 * n_;
                    pairs[0] = re, pairs[1] = -im, turned[0] = im, turned[1] = re;
                }
            }
        exact_.residual(parts * n_, n_, matrix_, true, parts * columns_, x_, rights_, residual_, block, 1);
        double worst = 0;
        for (std::int64_t c = 0; c < columns_; ++c) {
            errors_[c] = scaled_ ? scaled_error(c) : plain_error(c);
            if (errors_[c] > worst || errors_[c] != errors_[c]) worst = errors_[c];
        }
        return worst;
    }

    // The largest modulus of n numbers, in columns of parts; NaN if there is one. Squares of numbers beyond
    // 1e150 overflow, and of those below 1e-160 vanish: that makes the gate stricter, or is nothing beside
    // `least`.
    double largest(const double* numbers) const {
        double result = 0;
        for (std::int64_t i = 0; i < n_; ++i) {
            double size;
            if constexpr (parts == 1) size = std::fabs(numbers[i]);
            else size = numbers[i] * numbers[i] + numbers[i + n_] * numbers[i + n_];
            if (size > result || size != size) result = size;
        }
        return parts == 1 ? result : std::sqrt(result);
    }

    double largest_answer(std::int64_t c) const {
        if constexpr (parts == 1) return largest(x_ + c * n_);
        double result = 0;
        const double* pairs = x_ + 4 * c * n_;
        for (std::int64_t i = 0; i < n_; ++i) {
            const double size = pairs[2 * i] * pairs[2 * i] + pairs[2 * i + 1] * pairs[2 * i + 1];
            if (size > result || size != size) result = size;
        }
        return std::sqrt(result);
    }

    double plain_error(std::int64_t c) const {
        const double size = norm_ * largest_answer(c) + largest(rights_ + parts * c * n_);
        if (!(size > gate_.least && size < gate_.most)) return HUGE_VAL;
        return largest(residual_ + parts * c * n_) / size;
    }

    double norm() const {
        double result = 0;
        if (!scaled_) result = exact_.largest_row_sum(parts * n_, n_, matrix_, true);
        for (std::int64_t i = 0; scaled_ && i < n_; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j < parts * n_; ++j) {
                const int power = column_exponents_[j / parts];  // at most 0, and 0 where |a_ij| is largest
                if (power >= -1022) sum += std::fabs(matrix_[i * parts * n_ + j]) * power_of_two(power);
            }
            result = std::max(result, sum * row_weights_[i]);
        }
        return parts == 1 ? result : result * over_root_2;
    }

    // Exponents of rows and columns, as `equilibrated` in algorithms/scaling.py chooses them, and the scaled
    // copies of A and b. False if there is nothing to gain: a row or column of zeros, numbers that are not
    // finite, or that are subnormal, whose exponents are not in their bits.
    bool scale() {
        constexpr int none = -(1 << 28);
        bool regular = true;
        const auto exponent = [&](double value) {  // of 2^e > |value|
            if (value == 0) return none;
            std::uint64_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            const int field = static_cast<int>(bits >> 52 & 0x7ff);
            regular = regular && field != 0 && field != 0x7ff;
            return field - 1022;
        };
        std::fill_n(column_exponents_, n_, none);
        for (std::int64_t i = 0; i < n_; ++i) {
            int most = none;
            for (std::int64_t j = 0; j < parts * n_; ++j)
                most = std::max(most, exponent(matrix_[i * parts * n_ + j]));
            if (most == none || !regular) return false;
            row_exponents_[i] = most;
            for (std::int64_t j = 0; j < parts * n_; ++j) {
                std::int32_t& column = column_exponents_[j / parts];
                column = std::max(column, exponent(matrix_[i * parts * n_ + j]) - most);
            }
        }
        for (std::int64_t j = 0; j < n_; ++j)
            if (column_exponents_[j] < none / 2) return false;
        for (std::int64_t c = 0; c < columns_; ++c) {
            int most = -5000;  // of a column of zeros
            for (std::int64_t i = 0; i < n_; ++i)
                for (int part = 0; part < parts; ++part)
                    most = std::max(most, exponent(right(i, c, part)) - row_exponents_[i]);
            right_exponents_[c] = most;
        }
        if (!regular) return false;
        for (std::int64_t i = 0; i < n_; ++i)
            for (std::int64_t j = 0; j < parts * n_; ++j) {
                // At most 1024 in magnitude where the entry is not zero: two powers are in range.
                const int power = -(row_exponents_[i] + column_exponents_[j / parts]), half = power / 2;
                copy_[i * parts * n_ + j] =
                    matrix_[i * parts * n_ + j] * power_of_two(half) * power_of_two(power - half);
            }
        matrix_ = copy_;
        for (std::int64_t k = 0; k < parts * columns_; ++k)
            for (std::int64_t i = 0; i < n_; ++i)
                rights_[k * n_ + i] =
                    std::ldexp(rights_[k * n_ + i], -(row_exponents_[i] + right_exponents_[k / parts]));
        // What undoes the scaling, relative to the largest exponents. Weights of rows below 2^-1000 are
        // raised to that: no residual vanishes. Weights of columns above 2^900 are lowered to that: the norm
        // of x is rather too small, which makes the gate stricter, than infinite. The largest exponent of
        // columns is 0: that of the column with the largest entry of any row.
        const int rows = *std::max_element(row_exponents_, row_exponents_ + n_);
        for (std::int64_t i = 0; i < n_; ++i) {
            row_weights_[i] = std::ldexp(1.0, std::max(row_exponents_[i] - rows, -1000));
            column_weights_[i] = std::ldexp(1.0, std::min(-column_exponents_[i], 900));
        }
        scaled_ = true;
        return true;
    }

    static double power_of_two(int power) {
        const std::uint64_t bits = static_cast<std::uint64_t>(std::clamp(power, -1022, 1023) + 1023) << 52;
        double result;
        std::memcpy(&result, &bits, sizeof result);
        return result;
    }

    // The backward error in the given scale. As in algorithms/scaling.py, a scaled solution below 2^-900 is
    // none, and the norm of x is rather too small than infinite.
    double scaled_error(std::int64_t c) const {
        double x_norm = 0, b_norm = 0, r_norm = 0, y_norm = 0;
        const auto compare = [](double& result, double size) {
            if (size > result || size != size) result = size;
        };
        for (std::int64_t i = 0; i < n_; ++i) {
            double y, b, r;
            if constexpr (parts == 1) {
                y = std::fabs(x_[c * n_ + i]), b = std::fabs(right(i, c, 0)), r = std::fabs(residual_[c * n_ + i]);
            } else {
                const double* pairs = x_ + 4 * c * n_ + 2 * i;
                y = std::hypot(pairs[0], pairs[1]), b = std::hypot(right(i, c, 0), right(i, c, 1));
                r = std::hypot(residual_[2 * c * n_ + i], residual_[(2 * c + 1) * n_ + i]);
            }
            compare(y_norm, y), compare(x_norm, y * column_weights_[i]);
            compare(b_norm, b * row_weights_[i]), compare(r_norm, r * row_weights_[i]);
        }
        if (y_norm < 0x1p-900) x_norm = 0;
        if (r_norm == 0) return 0;
        const double size = norm_ * x_norm + b_norm;
        return size > 0 && size < HUGE_VAL ? r_norm / size : HUGE_VAL;
    }
};

}  // namespace roundwise
