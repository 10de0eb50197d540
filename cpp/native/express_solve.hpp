// Small dense systems, solved and verified on the calling thread: copy, LU, substitution, residual in twice
// the precision, corrections, gate; and all that again with rows and columns scaled by powers of two if the
// entries of A or b are badly scaled. What is compared with the tolerance is an upper bound of the backward
// error (docs/accuracy.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

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

    // Calls store(i, j, part, value) for each part of each number, for j in columns `begin` to `end` - 1.
    template <class Store> void read(std::int64_t begin, std::int64_t end, const Store& store) const {
        if (is_single) read_as<float>(begin, end, store);
        else read_as<double>(begin, end, store);
    }
    template <class Store> void read(const Store& store) const { read(0, columns, store); }

  private:
    template <class T, class Store>
    void read_as(std::int64_t begin, std::int64_t end, const Store& store) const {
        if (is_complex) read_parts<T, 2>(begin, end, store);
        else read_parts<T, 1>(begin, end, store);
    }
    template <class T, int count, class Store>
    void read_parts(std::int64_t begin, std::int64_t end, const Store& store) const {
        constexpr std::int64_t size = count * sizeof(T);
        const auto number = [&](std::int64_t i, std::int64_t j, const char* from) {
            T values[count];  // they may not be aligned
            std::memcpy(values, from, size);
            for (int part = 0; part < count; ++part) store(i, j, part, static_cast<double>(values[part]));
        };
        for (std::int64_t i = 0; i < rows; ++i) {
            const char* row = data + i * row_step;
            if (column_step == size)  // a loop of its own, for the compiler
                for (std::int64_t j = begin; j < end; ++j) number(i, j, row + j * size);
            else
                for (std::int64_t j = begin; j < end; ++j) number(i, j, row + j * column_step);
        }
    }
};

enum class ExpressStatus : int { accepted = 0, suspicious = 1, above_tolerance = 2 };

struct ExpressResult {
    ExpressStatus status;
    double backward_error;  // its upper bound; infinite where there is none
    double pivot_ratio;
    int corrections;  // the most of any column
};

// Hands out parts of a block of memory, each aligned to a cache line.
class Portions {
    char* memory_;
    std::int64_t used_ = 0;

  public:
    explicit Portions(char* memory) : memory_(memory) {}
    template <class T> void take(T*& pointer, std::int64_t count) {
        pointer = reinterpret_cast<T*>(memory_ + used_);
        used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    }
    std::int64_t used() const { return used_; }
};

inline double power_of_two(int power) {
    const std::uint64_t bits = static_cast<std::uint64_t>(std::clamp(power, -1022, 1023) + 1023) << 52;
    double result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

// value times 2^power, rounded once.
inline double times_power(double value, int power) {
    return power >= -1022 && power <= 1023 ? value * power_of_two(power) : std::ldexp(value, power);
}

// A matrix with `parts` parts, and its factors in T, double or float. Factors in float may be stored in fewer
// bits: they are rounded once they are made.
template <int part_count, class T> class ExpressMatrix {
  public:
    static constexpr int parts = part_count;
    using Factor = T;
    std::int64_t n;
    Storage storage;  // of the factors
    const double* rows = nullptr;  // what is verified: n rows of n numbers, parts side by side
    bool is_scaled = false;
    double norm = 0;  // of A as it was given; of a scaled A, over the largest scale of rows and columns
    double pivot_ratio = 0;
    std::int32_t *row_exponents, *column_exponents;
    double *row_weights, *column_weights;  // what undoes the scaling, of a scaled A

    ExpressMatrix(std::int64_t order, Storage factors) : n(order), storage(factors) {}

    // Takes its memory from there, and returns how many bytes that is.
    std::int64_t place(char* memory) {
        Portions portions(memory);
        portions.take(factors_, parts * n * row_step<T>(n));
        portions.take(swaps_, n);
        portions.take(row_exponents, n);
        portions.take(column_exponents, n);
        portions.take(row_weights, n);
        portions.take(column_weights, n);
        portions.take(weights_, parts * n);
        portions.take(copy_, parts * n * n);
        portions.take(halves_, storage == Storage::bf16 || storage == Storage::fp16 ? parts * n * row_step<T>(n) : 0);
        return portions.used();
    }

    // A as it is given, in its own memory where that is plain, unless it is to be kept.
    void read(const GivenNumbers& a, bool keep) {
        rows = reinterpret_cast<const double*>(a.data);
        if (keep || !(a.is_plain() && a.parts() == parts)) {
            const std::int64_t count = n;
            double* copy = copy_;
            a.read(0, n, [=](std::int64_t i, std::int64_t j, int part, double value) {
                copy[(i * count + j) * parts + part] = value;
            });
            rows = copy_;
        }
        is_scaled = false;
    }

    // False if pivots are zero or suspiciously small.
    bool factorize(double suspicious) {
        const std::int64_t step = row_step<T>(n);
        for (int part = 0; part < parts; ++part)  // rows with the parts apart
            for (std::int64_t i = 0; i < n; ++i) {
                T* row = factors_ + (part * n + i) * step;
                const double* from = rows + i * n * parts + part;
                for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(from[j * parts]);
                for (std::int64_t j = n; j < step; ++j) row[j] = 0;
            }
        pivot_ratio = lu().factorize(n, factors_, swaps_, suspicious);
        if (!(pivot_ratio > suspicious)) return false;
        if constexpr (sizeof(T) == 4) round_factors();
        norm = largest_row_sum();
        return true;
    }

    // Whether no direction is weak, that is, nearly lost in the factors' rounding errors (algorithms/deflation.py):
    // errors of x along such ones neither shrink nor show in corrections. A'^-1 stretches a random vector most in
    // these directions: then the image A' u of what comes of it is tiny, or A'^-1 A' u is not u. Also whether no
    // number of A is so small that products with it lose bits, which pivots tell of rows. `memory` has room for
    // weakness_bytes().
    bool has_weak_direction(char* memory) const {
        const Vectors taken = vectors(n, memory).first;
        double *u = taken.u, *image = taken.image, *zeros = taken.zeros;
        T* work = taken.work;
        if (is_scaled) {
            const auto [least, most] = std::minmax_element(column_exponents, column_exponents + n);
            if (*most - *least > widest || sizeof(T) < 8) return true;
        }
        const std::int64_t step = row_step<T>(n);
        std::uint32_t state = 1;
        std::fill_n(work, parts * step, T(0));
        for (std::int64_t i = 0; i < parts * n; ++i) {
            state = 1664525u * state + 1013904223u;  // a congruential generator
            work[i / n * step + i % n] = static_cast<T>(static_cast<std::int32_t>(state)) * T(0x1p-31);
        }
        lu().substitute_transposed(n, factors_, swaps_, work);
        double most = 0, length = 0, image_length = 0, rest = 0;
        for (std::int64_t i = 0; i < parts * n; ++i) {
            u[i] = work[i / n * step + i % n];
            most = std::max(most, std::fabs(u[i]));
        }
        if (!(most > 0 && most < HUGE_VAL)) return true;
        for (std::int64_t i = 0; i < parts * n; ++i) u[i] /= most, length += u[i] * u[i];
        // Rows of A times the parts of u.
        std::fill_n(zeros, parts * parts * n, 0.0);
        exact_kernels().residual(parts * n, n, rows, false, parts, u, zeros, image, least_block, 1);
        const double* other = image + 2 * n;
        for (std::int64_t j = 0; parts == 2 && j < n; ++j) {
            const double re = image[2 * j] - other[2 * j + 1], im = image[2 * j + 1] + other[2 * j];
            image[2 * j] = re, image[2 * j + 1] = im;
        }
        most = 0;
        for (std::int64_t i = 0; i < parts * n; ++i)
            image_length += image[i] * image[i], most = std::max(most, std::fabs(image[i]));
        const double size = is_scaled ? exact_kernels().largest_row_sum(parts * n, n, rows, true) : norm;
        const double unit = storage == Storage::fp64   ? 0x1p-53
                            : storage == Storage::fp32 ? 0x1p-24
                            : storage == Storage::fp16 ? 0x1p-11
                                                       : 0x1p-8;
        const double noise = 2 * lost * std::sqrt(static_cast<double>(n)) * unit * size;
        if (!(std::sqrt(image_length) > noise * std::sqrt(length))) return true;
        const int power = std::ilogb(most);
        for (std::int64_t i = 0; i < parts * n; ++i)
            work[i % parts * step + i / parts] = static_cast<T>(std::ldexp(-image[i], -power));
        lu().substitute_transposed(n, factors_, swaps_, work);
        for (std::int64_t i = 0; i < parts * n; ++i) {
            const double left = std::ldexp(static_cast<double>(work[i / n * step + i % n]), power) - u[i];
            rest += left * left;
        }
        return !(rest <= enough * enough * length);
    }
    static std::int64_t weakness_bytes(std::int64_t n) { return vectors(n, nullptr).second; }

    // B (n x columns, as kernels take it) becomes about A^-1 B.
    void substitute(std::int64_t columns, T* b) const { lu().substitute(n, factors_, swaps_, columns, b); }

    // R = B - A X for `count` columns in rows of `width` numbers, of which those from `begin` to `end` - 1 are asked
    // for. `alone` has numbers_alone(n, count) numbers.
    void residual(std::int64_t count, std::int64_t width, std::int64_t begin, std::int64_t end, const double* x,
                  const double* b, double* r, std::int64_t block, double* alone) const {
        if (are_few(n, count)) residual_of_few(count, width, x, b, r, block, alone);
        else exact_kernels().residual_of_rows[parts - 1](n, rows, width, begin, end, x, b, r, block);
    }
    static std::int64_t numbers_alone(std::int64_t n, std::int64_t columns) {
        return are_few(n, columns) ? columns * (parts * parts + 2 * parts) * n : 0;
    }

    // Scales A by powers of two, with exponents of rows and columns as `equilibrated` in
    // algorithms/scaling.py chooses them. False if there is nothing to gain: a row or column of zeros,
    // numbers that are not finite, or so small beside others that they would lose bits.
    bool scale() {
        if (!express_kernels<parts>().scale(n, rows, copy_, row_exponents, column_exponents, weights_)) return false;
        rows = copy_;
        for (std::int64_t j = 0; j < parts * n; ++j)  // at most 0, and 0 where |a_ij| is largest
            weights_[j] = power_of_two(column_exponents[j / parts]);
        // Weights are relative to the largest exponents. Those of rows below 2^-1000 are raised to that: no
        // residual vanishes. Those of columns above 2^900 are lowered to that: the norm of x is rather too
        // small, which makes the gate stricter, than infinite. The largest exponent of columns is 0: that of
        // the column with the largest entry of any row.
        const int largest = *std::max_element(row_exponents, row_exponents + n);
        for (std::int64_t i = 0; i < n; ++i) {
            row_weights[i] = std::ldexp(1.0, std::max(row_exponents[i] - largest, -1000));
            column_weights[i] = std::ldexp(1.0, std::min(-column_exponents[i], 900));
        }
        is_scaled = true;
        return true;
    }

    // The e of 2^e > |value|; `none` of 0. Numbers that are not finite, or subnormal, are not regular.
    static int exponent_of(double value, int none, bool& regular) {
        if (value == 0) return none;
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        const int field = static_cast<int>(bits >> 52 & 0x7ff);
        regular = regular && field != 0 && field != 0x7ff;
        return field - 1022;
    }

  private:
    // As in algorithms/deflation.py: LOST (here twice that, where in doubt), ENOUGH, SPAN.
    static constexpr double lost = 16, enough = 1.0 / 16;
    static constexpr int widest = 400;

    T* factors_;
    std::int32_t* swaps_;
    double *copy_, *weights_;
    std::uint16_t* halves_;

    struct Vectors {
        double *u, *image, *zeros;
        T* work;
    };
    static std::pair<Vectors, std::int64_t> vectors(std::int64_t n, char* memory) {
        Portions portions(memory);
        Vectors taken;
        portions.take(taken.u, parts * n);
        portions.take(taken.image, parts * parts * n);
        portions.take(taken.zeros, parts * parts * n);
        portions.take(taken.work, parts * row_step<T>(n));
        return {taken, portions.used()};
    }

    // Factors as they are stored in fewer bits. What overflows, or pivots that vanish, leave no finite answer.
    void round_factors() {
        if (storage != Storage::bf16 && storage != Storage::fp16) return;
        const std::int64_t count = parts * n * row_step<T>(n);
        native_kernels<float>().narrow(storage, count, factors_, halves_, 1);
        native_kernels<float>().widen(storage, count, halves_, factors_, 1);
    }

    static const SmallLu<T>& lu() {
        if constexpr (sizeof(T) == 8) return express_kernels<parts>().double_lu;
        else return express_kernels<parts>().float_lu;
    }

    // A sum over a line of lanes takes as long as about seven products: for so few columns and so many unknowns,
    // lanes are better used for products than for columns.
    static bool are_few(std::int64_t n, std::int64_t columns) {
        constexpr std::int64_t line = line_of<double>;
        return columns < line && columns * (n + 7 * line) <= line * n;
    }

    // The residual of a few columns, each of which is copied together. Re r and Im r are real residuals of rows of
    // pairs.
    void residual_of_few(std::int64_t count, std::int64_t width, const double* x, const double* b, double* residual,
                         std::int64_t block, double* alone) const {
        const std::int64_t size = parts * n;
        double *turned = alone, *right = alone + count * parts * size, *r = right + count * size;
        for (std::int64_t c = 0; c < count; ++c) {
            double* to = turned + c * parts * size;
            for (std::int64_t i = 0; i < n; ++i) {
                const double re = x[i * width + c], im = parts == 1 ? 0 : x[(n + i) * width + c];
                to[parts * i] = re;
                if constexpr (parts == 2) {
                    to[2 * i + 1] = -im;
                    to[2 * (n + i)] = im, to[2 * (n + i) + 1] = re;
                }
            }
            for (std::int64_t i = 0; i < size; ++i) right[c * size + i] = b[i * width + c];
        }
        exact_kernels().residual(size, n, rows, true, parts * count, turned, right, r, block, 1);
        for (std::int64_t c = 0; c < count; ++c)
            for (std::int64_t i = 0; i < size; ++i) residual[i * width + c] = r[c * size + i];
    }

    double largest_row_sum() const {
        const double result =
            is_scaled ? express_kernels<parts>().weighted_row_sum(n, rows, weights_, row_weights)
                      : exact_kernels().largest_row_sum(parts * n, n, rows, true);
        constexpr double over_root_2 = 0.7071067811865475;  // not above the inverse of the square root of 2
        return parts == 1 ? result : result * over_root_2;
    }
};

// Solves for columns of b with a Matrix (ExpressMatrix, or one like it), some at a time. Of a real A and a complex b, `columns` counts
// real and imaginary parts. `single` answers are rounded to float before the gate looks at them.
template <class Matrix> class ExpressColumns {
    static constexpr int parts = Matrix::parts;
    using T = typename Matrix::Factor;

  public:
    // Columns that are solved for together: a few lines. (A taste: their rows stay in the first caches, and A
    // and its factors are read seldom enough.)
    static constexpr std::int64_t at_a_time = 32;

    ExpressColumns(std::int64_t n, std::int64_t columns, bool single, const ExpressGate& gate)
        : n_(n), columns_(columns), single_(single), gate_(gate) {}

    std::int64_t scratch_bytes() const {
        ExpressColumns measured = *this;
        const std::int64_t bytes = measured.place(nullptr, std::min(columns_, at_a_time));
        return gate_.forward ? std::max(bytes, Matrix::weakness_bytes(n_)) : bytes;
    }

    // A factorized here and now; if need be, it is scaled: pivots of very different sizes, and products out
    // of range, may be a matter of units alone.
    ExpressResult solve_anew(Matrix& a, const GivenNumbers& b, void* x, char* scratch) {
        if (a.factorize(gate_.suspicious)) {
            const ExpressResult result = solved_and_sure(a, b, x, scratch);
            if (result.status == ExpressStatus::accepted) return result;
        }
        if (!(a.scale() && a.factorize(gate_.suspicious)))
            return {ExpressStatus::suspicious, HUGE_VAL, a.pivot_ratio, 0};
        return solved_and_sure(a, b, x, scratch);
    }

    // x has room for n x columns numbers, row by row, in the answer's type. Unless the result is `accepted`,
    // it is of no use.
    ExpressResult solve(const Matrix& a, const GivenNumbers& b, void* x, char* scratch) {
        return solve(a, b, x, scratch, 0, columns_);
    }
    // The same for the columns `begin` to `end` - 1; `begin` is a multiple of at_a_time.
    ExpressResult solve(const Matrix& a, const GivenNumbers& b, void* x, char* scratch, std::int64_t begin,
                        std::int64_t end) {
        ExpressResult worst = {ExpressStatus::accepted, 0, a.pivot_ratio, 0};
        for (first_ = begin; first_ < end; first_ += at_a_time) {
            count_ = std::min(end - first_, at_a_time), width_ = padded<double>(count_);
            place(scratch, count_);
            read(b);
            const double error = a.is_scaled && !scale(a) ? HUGE_VAL : gate_.forward ? refined_fully(a) : refined(a);
            if (!(error <= gate_.tolerance)) return {ExpressStatus::above_tolerance, error, a.pivot_ratio, steps_};
            worst.backward_error = std::max(worst.backward_error, error);
            worst.corrections = std::max(worst.corrections, steps_);
            write(a, x);
        }
        return worst;
    }

  private:
    // Where x itself is to be right, it is so only if the factors have lost no direction.
    ExpressResult solved_and_sure(const Matrix& a, const GivenNumbers& b, void* x, char* scratch) {
        ExpressResult result = solve(a, b, x, scratch);
        if (gate_.forward && result.status == ExpressStatus::accepted && a.has_weak_direction(scratch))
            result.status = ExpressStatus::suspicious;
        return result;
    }

    // FP64 factors leave little to correct. Others go on as long as each correction halves the error, but for no
    // more steps than elsewhere (HalvingRule of algorithms/stopping.py).
    static constexpr int corrections = sizeof(T) == 8 ? 2 : 30;

    std::int64_t n_, columns_, first_ = 0, count_ = 0, width_ = 0;
    int steps_ = 0;  // corrections of these columns
    bool single_;  // answers are rounded before they are verified
    ExpressGate gate_;
    double *rates_, *changes_;  // where x itself is to be right: the slowest rate of a column, its last correction
    double *rights_, *y_, *x_, *residual_, *bounds_, *sizes_, *alone_;
    T* work_;
    double* scales_;  // what numbers of each column are multiplied with before and after a solve in float
    std::int32_t* right_exponents_;

    std::int64_t place(char* scratch, std::int64_t columns) {
        const std::int64_t width = padded<double>(columns);
        Portions portions(scratch);
        portions.take(rights_, parts * n_ * width);
        portions.take(y_, parts * n_ * width);
        portions.take(x_, parts * n_ * width);
        portions.take(residual_, parts * n_ * width);
        portions.take(work_, parts * n_ * padded<T>(columns));
        portions.take(bounds_, width);
        portions.take(alone_, Matrix::numbers_alone(n_, columns));
        portions.take(sizes_, 3 * width);
        portions.take(rates_, width);
        portions.take(changes_, width);
        portions.take(right_exponents_, width);
        portions.take(scales_, 2 * width);
        return portions.used();
    }

    double& entry(double* rows, std::int64_t i, std::int64_t c, int part) const {
        return rows[(part * n_ + i) * width_ + c];
    }

    // The columns of b, padded by zeros. The parts of a complex b of a real A are columns of their own.
    void read(const GivenNumbers& b) {
        if (count_ < width_ || parts > b.parts()) std::fill_n(rights_, parts * n_ * width_, 0.0);
        double* rights = rights_;
        const std::int64_t width = width_, plane = n_ * width_, first = first_;
        if (parts == 1 && b.is_complex)
            b.read(first_ / 2, (first_ + count_) / 2, [=](std::int64_t i, std::int64_t c, int part, double value) {
                rights[i * width + 2 * c + part - first] = value;
            });
        else
            b.read(first_, first_ + count_, [=](std::int64_t i, std::int64_t c, int part, double value) {
                rights[part * plane + i * width + c - first] = value;
            });
    }

    // Scales b as A is scaled, each column by a power of its own. False if numbers are out of range.
    bool scale(const Matrix& a) {
        bool regular = true;
        for (std::int64_t c = 0; c < count_; ++c) {
            int most = -5000;  // of a column of zeros
            for (std::int64_t i = 0; i < n_; ++i)
                for (int part = 0; part < parts; ++part) {
                    const double value = entry(rights_, i, c, part);
                    most = std::max(most, a.exponent_of(value, -(1 << 28), regular) - a.row_exponents[i]);
                }
            right_exponents_[c] = most;
            for (std::int64_t i = 0; i < n_; ++i)
                for (int part = 0; part < parts; ++part) {
                    double& value = entry(rights_, i, c, part);
                    value = times_power(value, -(a.row_exponents[i] + most));
                }
        }
        return regular;
    }

    // The largest bound of a backward error, after corrections; infinite if there is none.
    double refined(const Matrix& a) {
        std::fill_n(y_, parts * n_ * width_, 0.0);
        std::fill_n(bounds_, width_, HUGE_VAL);
        const double* right = rights_;
        double before = HUGE_VAL;
        for (steps_ = 0;; ++steps_) {
            correct(a, right);
            verify(a, 0, width_, gate_.block);
            for (std::int64_t c = 0; gate_.block != 0 && c < width_; c += line_of<double>)  // those in doubt
                if (!(largest_bound(c, c + line_of<double>) <= gate_.tolerance))
                    verify(a, c, c + line_of<double>, 0);
            const double error = largest_bound(0, width_);
            if (error <= gate_.tolerance) return error;
            // Rounding to single precision leaves more than a correction of FP64 factors could remove.
            const bool is_last = steps_ == corrections || (single_ && sizeof(T) == 8);
            if (!std::isfinite(error)) return HUGE_VAL;
            if (is_last || (sizeof(T) < 8 && error > before / 2)) return error;
            before = error;
            right = residual_;
        }
    }

    // Refines until all corrections to come would change x by less than its last place, as far as the rates tell at
    // which they shrink: ForwardRule of algorithms/stopping.py, for each column. x, which is not rounded before,
    // is verified then. The largest bound of a backward error, infinite if a column falls short.
    double refined_fully(const Matrix& a) {
        constexpr double unit = 0x1p-53, least_rate = 0x1p-9, slowest = 0.25;
        constexpr int most_steps = 30;
        std::fill_n(y_, parts * n_ * width_, 0.0);
        std::fill_n(bounds_, width_, HUGE_VAL);
        std::fill_n(rates_, width_, 0.0);
        std::fill_n(changes_, width_, 1.0);
        std::fill_n(bounds_ + count_, width_ - count_, 0.0);
        const bool single = single_;
        single_ = false;
        const double* right = rights_;
        bool is_full = false, is_slow = false;
        for (steps_ = 0; !is_full && !is_slow && steps_ <= most_steps; ++steps_) {
            correct(a, right);
            is_full = steps_ > 0;
            for (std::int64_t c = 0; steps_ > 0 && c < count_; ++c) {
                if (!is_above(c)) continue;
                const auto [correction, size] = sizes_of(a, c);
                const double change = correction == 0 ? 0 : correction / size;
                const double rate = change / changes_[c];
                rates_[c] = std::max(rates_[c], rate);
                if (!(rate <= (steps_ == 1 ? 2 * slowest : slowest))) is_slow = true;
                changes_[c] = std::max(change, 0x1p-1000);
                const double coming = std::max(rates_[c], least_rate);
                if (2 * change * coming <= unit * (1 - coming)) bounds_[c] = 0;  // done
                else is_full = false;
            }
            if (is_slow) break;
            right = residual_;
            if (!is_full) a.residual(count_, width_, 0, width_, y_, rights_, residual_, 0, alone_);
        }
        single_ = single;
        if (!is_full) return HUGE_VAL;
        --steps_;
        if (!single_ && a.is_scaled && !is_held(a)) return HUGE_VAL;
        verify(a, 0, width_, 0);
        return largest_bound(0, width_);
    }

    // The largest parts of a column's last correction, and of its x, in the given scale.
    std::pair<double, double> sizes_of(const Matrix& a, std::int64_t c) const {
        const std::int64_t width = padded<T>(count_);
        double correction = 0, size = 0;
        for (std::int64_t i = 0; i < parts * n_; ++i) {
            const double weight = a.is_scaled ? a.column_weights[i % n_] : 1;
            const double z = std::fabs(static_cast<double>(work_[i * width + c])) * weight;
            if (!(z <= correction)) correction = z;
            size = std::max(size, std::fabs(y_[i * width_ + c]) * weight);
        }
        return {sizeof(T) == 8 ? correction : correction * scales_[width_ + c], size};
    }

    // Whether the answer has all bits of y, of which scaling may have taken some.
    bool is_held(const Matrix& a) const {
        for (int part = 0; part < parts; ++part)
            for (std::int64_t i = 0; i < n_; ++i)
                for (std::int64_t c = 0; c < count_; ++c)
                    if (times_power(answer(a, i, c, part), a.column_exponents[i] - right_exponents_[c]) !=
                        entry(y_, i, c, part))
                        return false;
        return true;
    }

    // y += A^-1 r for columns above the tolerance: others stay as they are, whoever is beside them.
    void correct(const Matrix& a, const double* r) {
        if constexpr (sizeof(T) == 8) {
            std::memcpy(work_, r, static_cast<std::size_t>(parts * n_ * width_) * sizeof(T));
            a.substitute(count_, work_);
            for (std::int64_t i = 0; i < parts * n_; ++i)
                for (std::int64_t c = 0; c < width_; ++c)
                    if (is_above(c)) y_[i * width_ + c] += work_[i * width_ + c];
        } else {  // scaled by powers of two, so that float can hold the numbers
            const std::int64_t width = padded<T>(count_);
            double *down = scales_, *up = scales_ + width_;
            std::fill_n(up, width_, 0.0);
            for (std::int64_t i = 0; i < parts * n_; ++i)
                for (std::int64_t c = 0; c < width_; ++c)
                    up[c] = std::max(up[c], std::fabs(r[i * width_ + c]));
            for (std::int64_t c = 0; c < width_; ++c) {
                const int power = up[c] > 0 && up[c] < HUGE_VAL ? std::clamp(std::ilogb(up[c]), -1022, 1022) : 0;
                down[c] = power_of_two(-power), up[c] = power_of_two(power);
            }
            for (std::int64_t i = 0; i < parts * n_; ++i) {
                for (std::int64_t c = 0; c < width_; ++c)
                    work_[i * width + c] = static_cast<T>(r[i * width_ + c] * down[c]);
                std::fill_n(work_ + i * width + width_, width - width_, T(0));
            }
            a.substitute(count_, work_);
            for (std::int64_t c = 0; c < width_; ++c)
                if (!is_above(c)) up[c] = 0;
            for (std::int64_t i = 0; i < parts * n_; ++i)
                for (std::int64_t c = 0; c < width_; ++c)
                    y_[i * width_ + c] += static_cast<double>(work_[i * width + c]) * up[c];
        }
    }

    bool is_above(std::int64_t c) const { return !(bounds_[c] <= gate_.tolerance); }

    double largest_bound(std::int64_t begin, std::int64_t end) const {
        double worst = 0;
        for (std::int64_t c = begin; c < std::min(end, count_); ++c)
            if (bounds_[c] > worst || bounds_[c] != bounds_[c]) worst = bounds_[c];
        return worst;
    }

    // A number of the answer as it is returned.
    double answer(const Matrix& a, std::int64_t i, std::int64_t c, int part) const {
        double value = entry(y_, i, c, part);
        if (a.is_scaled) value = times_power(value, right_exponents_[c] - a.column_exponents[i]);
        return single_ ? static_cast<double>(static_cast<float>(value)) : value;
    }

    void write(const Matrix& a, void* x) const {
        if (single_) write_as<float>(a, static_cast<float*>(x));
        else write_as<double>(a, static_cast<double*>(x));
    }

    // A real A and a complex b: the columns are pairs of parts already.
    template <class Answer> void write_as(const Matrix& a, Answer* x) const {
        for (std::int64_t i = 0; i < n_; ++i)
            for (std::int64_t c = 0; c < count_; ++c)
                for (int part = 0; part < parts; ++part)
                    x[(i * columns_ + first_ + c) * parts + part] = static_cast<Answer>(answer(a, i, c, part));
    }

    // Bounds of the backward errors of some columns of the answer as it is returned, by residuals that are
    // summed in blocks.
    void verify(const Matrix& a, std::int64_t begin, std::int64_t end, std::int64_t block) {
        const double* x = y_;
        if (single_ || a.is_scaled) {
            if (count_ < width_) std::fill_n(x_, parts * n_ * width_, 0.0);
            for (int part = 0; part < parts; ++part)
                for (std::int64_t i = 0; i < n_; ++i)
                    for (std::int64_t c = begin; c < std::min(end, count_); ++c) {
                        double& value = entry(x_, i, c, part);
                        value = answer(a, i, c, part);
                        if (a.is_scaled) value = times_power(value, a.column_exponents[i] - right_exponents_[c]);
                    }
            x = x_;
        }
        a.residual(count_, width_, begin, end, x, rights_, residual_, block, alone_);
        const double* arrays[3] = {x, rights_, residual_};
        for (int k = 0; !a.is_scaled && k < 3; ++k)
            express_kernels<parts>().largest(n_, count_, arrays[k], sizes_ + k * width_);
        const double added = block == 0 ? gate_.exact_error : gate_.block_error;
        for (std::int64_t c = begin; c < std::min(end, count_); ++c)
            bounds_[c] = (a.is_scaled ? scaled_error(a, c) : plain_error(a.norm, c)) * gate_.growth + added;
    }

    // Squares of numbers beyond 1e150 overflow, and of those below 1e-160 vanish: that makes the gate
    // stricter, or is nothing beside `least`.
    double plain_error(double norm, std::int64_t c) const {
        double sizes[3];
        for (int k = 0; k < 3; ++k)
            sizes[k] = parts == 1 ? sizes_[k * width_ + c] : std::sqrt(sizes_[k * width_ + c]);
        const double size = norm * sizes[0] + sizes[1];
        return size > gate_.least && size < gate_.most ? sizes[2] / size : HUGE_VAL;
    }

    // The backward error in the given scale. As in algorithms/scaling.py, a scaled solution below 2^-900 is
    // none, and the norm of x is rather too small than infinite.
    double scaled_error(const Matrix& a, std::int64_t c) const {
        double x_norm = 0, b_norm = 0, r_norm = 0, y_norm = 0;
        const auto compare = [](double& result, double size) {
            if (size > result || size != size) result = size;
        };
        const auto modulus = [&](double* rows, std::int64_t i) {
            if constexpr (parts == 1) return std::fabs(entry(rows, i, c, 0));
            else return std::hypot(entry(rows, i, c, 0), entry(rows, i, c, 1));
        };
        for (std::int64_t i = 0; i < n_; ++i) {
            const double y = modulus(x_, i);
            compare(y_norm, y), compare(x_norm, y * a.column_weights[i]);
            compare(b_norm, modulus(rights_, i) * a.row_weights[i]);
            compare(r_norm, modulus(residual_, i) * a.row_weights[i]);
        }
        if (y_norm < 0x1p-900) x_norm = 0;
        if (r_norm == 0) return 0;
        const double size = a.norm * x_norm + b_norm;
        return size > 0 && size < HUGE_VAL ? r_norm / size : HUGE_VAL;
    }
};

}  // namespace roundwise
