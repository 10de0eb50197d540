// One dense least squares problem, solved and verified in one call: copy, scaling, QR, rank,
// solution, residuals in twice the precision, corrections, gate. docs/least-squares.md has the formulas and
// what is proved; an answer that does not pass is not written.
//
// With T the tall one of A and A' (m x n) the problem is [I T; T' 0] [p; q] = [f; g]. A tall A has f = b,
// g = 0, and q is x; a wide one f = 0, g = b, and p is x.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "native/dispatch.hpp"
#include "native/express_solve.hpp"

namespace roundwise {

struct TallGate {
    double tolerance;                 // the largest backward error that is accepted
    double rcond;                     // singular values up to rcond times the largest count as zero
    double resolution;                // of the factors: condition numbers are known up to its inverse
    double block_error_n, block_error_m;  // c of residuals with rows of n and of m, summed in blocks,
    double exact_error_n, exact_error_m;  // and in twice the precision
    std::int64_t block_n, block_m;    // products of a block (exact.hpp)
};

// In doubt: the singular values near rcond times the largest are to be computed.
enum class TallStatus : int { accepted = 0, in_doubt = 1, above_tolerance = 2, not_finite = 3 };

struct TallResult {
    TallStatus status;
    double backward_error;  // its upper bound
    double condition;       // about that of T
    std::int64_t rank;
    int steps;              // corrections
};

template <class F> class TallSolve {
  public:
    TallSolve(std::int64_t m, std::int64_t n, std::int64_t k, bool wide, bool single, const TallGate& gate,
              int threads)
        : m_(m), n_(n), k_(k), step_(padded_to_eight(n)), width_(padded_to_eight(k)), wide_(wide), single_(single),
          threads_(threads), gate_(gate) {}

    std::int64_t scratch_bytes() const {
        TallSolve measured = *this;
        return measured.place(nullptr);
    }

    // x has room for the unknowns of A times k numbers, row by row, in the answer's type, and `norms` for the
    // k lengths of b - A x.
    TallResult solve(const GivenNumbers& a, const GivenNumbers& b, void* x, double* norms, void* scratch) {
        place(static_cast<char*>(scratch));
        given_ = reinterpret_cast<const double*>(a.data);
        if (wide_ || !a.is_plain()) {
            if (wide_) a.read([&](std::int64_t i, std::int64_t j, int, double v) { copy_[j * n_ + i] = v; });
            else a.read([&](std::int64_t i, std::int64_t j, int, double v) { copy_[i * n_ + j] = v; });
            given_ = copy_;
        }
        const std::int64_t rows = wide_ ? n_ : m_;
        b.read([&](std::int64_t i, std::int64_t c, int, double v) { rights_[c * rows + i] = v; });
        if (!measure(rows)) return refused(TallStatus::not_finite);
        // Columns of about the same length are left as they are: what is found of the rank holds for A.
        TallResult result = attempt(columns_differ_);
        if (result.status == TallStatus::in_doubt && columns_differ_) result = attempt(false);
        if (result.status == TallStatus::accepted) {
            write(x);
            residual_norms(norms);
        }
        return result;
    }

  private:
    static constexpr int most_steps = sizeof(F) == 4 ? 8 : 3;
    // Largest ratio of columns' lengths for which A is taken as it is.
    static constexpr int same_length = 3;
    static constexpr int moderate = 20;  // exponents of lengths whose squares need no scaling
    static constexpr int of_zero = -5000;
    // Of the condition number of the columns that are kept: its inverse is what the shortest solution is
    // off by at most, at half the digits of double.
    static constexpr double best_known = 1e8;

    std::int64_t m_, n_, k_, step_, width_;
    bool wide_, single_;
    int threads_;
    TallGate gate_;
    const double *given_ = nullptr, *matrix_ = nullptr;
    double *copy_, *scaled_, *rights_, *f_, *g_, *p_, *q_, *top_, *bottom_, *difference_, *rest_, *errors_;
    double *squares_, *weights_, *gram_;
    F *work_, *panels_, *triangles_, *tall_block_, *short_block_, *r_, *y_, *vectors_;
    std::int32_t *kept_, *order_, *tops_, *left_, *exponents_, *of_rights_;
    bool columns_differ_ = false, deficient_ = false;
    double norm_ = 0;
    std::int64_t rank_ = 0;

    std::int64_t place(char* scratch) {
        std::int64_t used = 0;
        const auto take = [&](auto*& pointer, std::int64_t count) {
            pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(scratch + used);
            used += (count * static_cast<std::int64_t>(sizeof(*pointer)) + 63) / 64 * 64;
        };
        take(work_, m_ * step_);
        take(panels_, m_ * step_);
        take(triangles_, 8 * step_);
        take(tall_block_, m_ * width_);
        take(short_block_, n_ * width_);
        take(r_, n_ * step_);
        take(y_, n_ * step_);
        take(vectors_, n_ * 8);
        take(copy_, m_ * n_);
        take(scaled_, m_ * n_);
        for (double** block : {&f_, &p_, &top_, &difference_, &rest_, &rights_}) take(*block, m_ * k_);
        for (double** block : {&g_, &q_, &bottom_}) take(*block, n_ * k_);
        take(errors_, k_);
        take(squares_, n_);
        take(weights_, n_);
        take(gram_, n_ * n_);
        take(kept_, n_);
        take(order_, n_);
        take(tops_, step_);
        take(left_, n_);
        take(exponents_, n_);
        take(of_rights_, k_);
        return used;
    }

    static TallResult refused(TallStatus status) { return {status, HUGE_VAL, HUGE_VAL, 0, 0}; }

    // value 2^power, rounded once: by a product where that power is a normal number.
    static double times_power(double value, int power) {
        if (power == 0) return value;
        if (power < -1022 || power > 1023) return std::ldexp(value, power);
        const std::uint64_t bits = static_cast<std::uint64_t>(power + 1023) << 52;
        double factor;
        std::memcpy(&factor, &bits, sizeof factor);
        return value * factor;
    }

    static int exponent(double value) {  // of 2^e > |value|
        if (value == 0) return of_zero;
        int e;
        std::frexp(value, &e);
        return e;
    }

    // Lengths of columns and the exponents of the largest entries; b scaled to entries of about 1. False if a
    // number is not finite.
    bool measure(std::int64_t rows) {
        sums_of_squares(given_);
        double least = HUGE_VAL, most = 0, sum = 0;
        for (std::int64_t j = 0; j < n_; ++j) {
            least = std::min(least, squares_[j]), most = std::max(most, squares_[j]);
            sum += squares_[j];
        }
        const bool in_range = least >= std::ldexp(1, -2 * moderate) && most <= std::ldexp(1, 2 * moderate) &&
                              std::isfinite(sum);
        columns_differ_ = false;
        std::fill_n(exponents_, n_, 0);
        if (in_range) {
            columns_differ_ = most > std::ldexp(least, 2 * same_length);
        }
        if (!in_range || columns_differ_) {
            std::fill_n(squares_, n_, 0.0);
            bool finite = true;
            for (std::int64_t i = 0; i < m_; ++i)
                for (std::int64_t j = 0; j < n_; ++j) {
                    const double size = std::fabs(given_[i * n_ + j]);
                    finite = finite && size < HUGE_VAL;
                    squares_[j] = std::max(squares_[j], size);
                }
            if (!finite) return false;
            int smallest = 1 << 20, largest = of_zero;
            for (std::int64_t j = 0; j < n_; ++j) {
                exponents_[j] = exponent(squares_[j]);
                largest = std::max(largest, exponents_[j]);
                if (exponents_[j] != of_zero) smallest = std::min(smallest, exponents_[j]);
            }
            columns_differ_ = largest - smallest > same_length;
        }
        for (std::int64_t c = 0; c < k_; ++c)
            for (std::int64_t i = 0; i < rows; ++i)
                if (!std::isfinite(rights_[c * rows + i])) return false;
        return true;
    }

    void sums_of_squares(const double* t) {
        std::fill_n(squares_, n_, 0.0);
        for (std::int64_t i = 0; i < m_; ++i)
            for (std::int64_t j = 0; j < n_; ++j) squares_[j] += t[i * n_ + j] * t[i * n_ + j];
    }

    // T with its columns, or as a whole, divided by powers of two, and b with it.
    void scale(bool by_columns) {
        int whole = of_zero;
        for (std::int64_t j = 0; j < n_; ++j) whole = std::max(whole, exponents_[j]);
        if (whole == of_zero) whole = 0;
        bool changes = false;
        for (std::int64_t j = 0; j < n_; ++j) {
            left_[j] = !by_columns ? whole : exponents_[j] == of_zero ? 0 : exponents_[j];
            changes = changes || left_[j] != 0;
        }
        matrix_ = given_;
        if (changes) {
            for (std::int64_t i = 0; i < m_; ++i)
                for (std::int64_t j = 0; j < n_; ++j)
                    scaled_[i * n_ + j] = times_power(given_[i * n_ + j], -left_[j]);
            matrix_ = scaled_;
        }
        sums_of_squares(matrix_);
        double sum = 0;
        for (std::int64_t j = 0; j < n_; ++j) {
            weights_[j] = squares_[j] == 0 ? 1 : std::ldexp(1.0, exponent(std::sqrt(squares_[j])));
            sum += squares_[j] / (weights_[j] * weights_[j]);
        }
        norm_ = std::sqrt(sum);
        const std::int64_t rows = wide_ ? n_ : m_;
        double* const right = wide_ ? g_ : f_;
        std::fill_n(wide_ ? f_ : g_, (wide_ ? m_ : n_) * k_, 0.0);
        for (std::int64_t c = 0; c < k_; ++c) {
            int most = of_zero;
            for (std::int64_t i = 0; i < rows; ++i) {
                const double value = rights_[c * rows + i];
                if (value != 0) most = std::max(most, exponent(value) - (wide_ ? left_[i] : 0));
            }
            of_rights_[c] = most == of_zero ? 0 : most;
            for (std::int64_t i = 0; i < rows; ++i)
                right[c * rows + i] =
                    times_power(rights_[c * rows + i], -(of_rights_[c] + (wide_ ? left_[i] : 0)));
        }
    }

    // Blocks of columns, column after column, to rows of padded numbers in the factors' type, and back.
    void pack(const double* from, std::int64_t rows, F* to) const {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t c = 0; c < k_; ++c) to[i * width_ + c] = static_cast<F>(from[c * rows + i]);
            for (std::int64_t c = k_; c < width_; ++c) to[i * width_ + c] = 0;
        }
    }
    void unpack(const F* from, std::int64_t rows, double* to) const {
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t c = 0; c < k_; ++c) to[c * rows + i] = from[i * width_ + c];
    }

    TallResult attempt(bool by_columns) {
        scale(by_columns);
        double longest = 0, sum = 0;
        for (std::int64_t j = 0; j < n_; ++j) longest = std::max(longest, squares_[j]), sum += squares_[j];
        longest = std::sqrt(longest);
        for (std::int64_t i = 0; i < m_; ++i) {
            F* const row = work_ + i * step_;
            for (std::int64_t j = 0; j < n_; ++j) row[j] = static_cast<F>(matrix_[i * n_ + j]);
            for (std::int64_t j = n_; j < step_; ++j) row[j] = 0;
        }
        const OrthogonalKernels<F>& kernels = orthogonal_kernels<F>();
        double left_out = 0;
        const double least = std::max(gate_.rcond, gate_.resolution) * longest;
        rank_ = kernels.factorize(m_, n_, work_, least, kept_, panels_, triangles_, tops_, &left_out, threads_);
        left_out = std::sqrt(left_out);
        deficient_ = rank_ < n_;
        // A triangle of the columns that are kept.
        const F* triangle = work_;
        std::int64_t step = step_;
        if (deficient_) {
            step = padded_to_eight(rank_);
            for (std::int64_t i = 0; i < rank_; ++i)
                for (std::int64_t j = 0; j < rank_; ++j) r_[i * step + j] = work_[i * step_ + kept_[j]];
            triangle = r_;
        }
        bool is_known = rank_ == 0;
        const double most = 1 / std::max(gate_.rcond, gate_.resolution);
        const double condition = rank_ == 0 ? 1 : condition_of(triangle, step, std::sqrt(sum), most, is_known);
        if (!is_known) return {TallStatus::in_doubt, HUGE_VAL, condition, rank_, 0};
        if (!deficient_) return refine(triangle, step, condition);
        // The singular values that are left out are at most left_out, and the largest one at least `longest`.
        // Columns of A that are scaled to the same length change the ratio by the ratio of their lengths.
        const double ratio = by_columns ? 1 : length_ratio();
        if (by_columns || sizeof(F) == 4 || !(left_out * ratio <= gate_.rcond * longest) ||
            !(condition < best_known))
            return {TallStatus::in_doubt, HUGE_VAL, condition, rank_, 0};
        return shortest(triangle, step, left_out > 0 ? longest / left_out : HUGE_VAL);
    }

    double length_ratio() const {
        double least = HUGE_VAL, most = 0;
        for (std::int64_t j = 0; j < n_; ++j)
            if (squares_[j] > 0) least = std::min(least, squares_[j]), most = std::max(most, squares_[j]);
        const double ratio = most > 0 ? std::sqrt(most / least) : 1;
        return ratio > (1 << same_length) ? 1 : ratio;  // such columns were scaled before, and left one out
    }

    // About ||R^-1||_2, or ||R||_2, from below: with B = (R'R)^-1, or R'R, the largest (x' B^k x)^(1 / 2k) over
    // eight random x of length 1. The square of one is off by more than a factor t with a probability of at
    // most 0.8 sqrt(n) t^(-k/2), that of all eight with that to the power of eight (Dixon, SIAM J. Numer. Anal.
    // 20(4), 1983).
    double norm_estimate(const F* r, std::int64_t step, bool of_inverse, int k) {
        std::uint64_t state = 0x9e3779b97f4a7c15;
        double logarithms[8] = {}, lengths[8] = {};
        for (std::int64_t i = 0; i < rank_ * 8; ++i) {
            double sum = 0;  // nearly normal
            for (int part = 0; part < 3; ++part) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                sum += static_cast<double>(static_cast<std::int64_t>(state)) * 0x1p-63;
            }
            vectors_[i] = static_cast<F>(sum);
        }
        const OrthogonalKernels<F>& kernels = orthogonal_kernels<F>();
        for (int s = 0; s <= k; ++s) {
            if (s > 0) (of_inverse ? kernels.substitute : kernels.multiply)(rank_, r, step, of_inverse == (s % 2 == 1), 8, vectors_);
            std::fill_n(lengths, 8, 0.0);
            for (std::int64_t i = 0; i < rank_ * 8; ++i) lengths[i % 8] += static_cast<double>(vectors_[i]) * vectors_[i];
            for (int q = 0; q < 8; ++q) {
                if (!(lengths[q] > 0 && lengths[q] < HUGE_VAL)) return HUGE_VAL;
                lengths[q] = std::sqrt(lengths[q]);
                if (s > 0) logarithms[q] += std::log(lengths[q]);
            }
            for (std::int64_t i = 0; i < rank_ * 8; ++i) vectors_[i] = static_cast<F>(vectors_[i] / lengths[i % 8]);
        }
        return std::exp(*std::max_element(logarithms, logarithms + 8) / k);
    }

    // About the condition number of R; whether it is certainly below `most`.
    double condition_of(const F* r, std::int64_t step, double norm, double most, bool& is_below) {
        double condition = norm * norm_estimate(r, step, true, few);
        is_below = condition * few_margin < most;
        if (is_below || !(condition / std::sqrt(static_cast<double>(rank_)) < most)) return condition;
        condition = norm_estimate(r, step, true, many) * norm_estimate(r, step, false, many);
        is_below = condition * many_margin < most;
        return condition;
    }

    // Steps, and by which factor the condition number is off at most: the square of a norm by t = 100, or by
    // t = 1.5 each, but for a probability below 1e-7 (n = 256).
    static constexpr int few = 3, many = 25;
    static constexpr double few_margin = 10, many_margin = 1.5;

    // p and q for the right-hand sides f and g, by factors: with Q' f = [d; e] and h = R'^-1 g it is
    // q = R^-1 (d - h), p = Q [h; e].
    void correct(const F* r, std::int64_t step, const double* f, const double* g, double* p, double* q) {
        const OrthogonalKernels<F>& kernels = orthogonal_kernels<F>();
        project(f);
        const auto is_zero = [](double value) { return value == 0; };
        if (!std::all_of(g, g + n_ * k_, is_zero)) {
            pack(g, n_, short_block_);
            kernels.substitute(n_, r, step, true, k_, short_block_);
        } else {
            std::fill_n(short_block_, n_ * width_, F(0));
        }
        for (std::int64_t i = 0; i < n_ * width_; ++i) {
            const F d = tall_block_[i], h = short_block_[i];
            tall_block_[i] = h;
            short_block_[i] = d - h;
        }
        kernels.substitute(n_, r, step, false, k_, short_block_);
        kernels.reflect(m_, n_, panels_, triangles_, tops_, false, k_, tall_block_, threads_);
        unpack(tall_block_, m_, p);
        unpack(short_block_, n_, q);
    }

    // tall_block_ = Q' f
    void project(const double* f) {
        pack(f, m_, tall_block_);
        if (std::all_of(f, f + m_ * k_, [](double value) { return value == 0; })) return;
        orthogonal_kernels<F>().reflect(m_, n_, panels_, triangles_, tops_, true, k_, tall_block_, threads_);
    }

    // Whether x alone passes, its residual being the witness s: that saves Q [0; e]. It mostly does, unless the
    // residual is small beside A x.
    bool passes_alone(double tolerance, double& worst) {
        product_residual(false, q_, f_, p_, gate_.block_n);
        product_residual(true, p_, g_, bottom_, gate_.block_m);
        std::fill_n(top_, m_ * k_, 0.0);
        worst = 0;
        for (std::int64_t c = 0; c < k_; ++c) {
            // p is off by its last rounding, and by what block_error_n stands for.
            const double p = length(p_ + c * m_, m_), f = 0x1p-53 * p, h = weighed(bottom_ + c * n_, weights_, n_, true);
            const double q = weighed(q_ + c * n_, weights_, n_, false), b = length(f_ + c * m_, m_);
            const double error = growth() * least_squares_error(f, h, q, p, b, gate_.block_error_n, gate_.block_error_m);
            if (!(error <= worst)) worst = error;
        }
        return worst <= tolerance;
    }

    TallResult refine(const F* r, std::int64_t step, double condition) {
        if (!wide_ && sizeof(F) == 8) {
            project(f_);
            std::copy_n(tall_block_, n_ * width_, short_block_);
            std::fill_n(tall_block_, n_ * width_, F(0));
            orthogonal_kernels<F>().substitute(n_, r, step, false, k_, short_block_);
            unpack(short_block_, n_, q_);
            as_returned();
            double worst;
            if (passes_alone(gate_.tolerance, worst)) return {TallStatus::accepted, worst, condition, n_, 0};
            orthogonal_kernels<F>().reflect(m_, n_, panels_, triangles_, tops_, false, k_, tall_block_, threads_);
            unpack(tall_block_, m_, p_);
        } else {
            correct(r, step, f_, g_, p_, q_);
        }
        double before = HUGE_VAL;
        for (int steps = 0;; ++steps) {
            as_returned();
            const double worst = judge(gate_.tolerance);
            if (worst <= gate_.tolerance) return {TallStatus::accepted, worst, condition, n_, steps};
            if (steps == most_steps || !(worst <= 0.5 * before))
                return {TallStatus::above_tolerance, worst == worst ? worst : HUGE_VAL, condition, n_, steps};
            before = worst;
            correct(r, step, top_, bottom_, difference_, rest_);
            for (std::int64_t c = 0; c < k_; ++c) {
                if (errors_[c] <= gate_.tolerance) continue;  // stays as it is, whoever is beside it
                for (std::int64_t i = 0; i < m_; ++i) p_[c * m_ + i] += difference_[c * m_ + i];
                for (std::int64_t i = 0; i < n_; ++i) q_[c * n_ + i] += rest_[c * n_ + i];
            }
        }
    }

    // The answer in the given scale, and in its type.
    double answer(std::int64_t i, std::int64_t c) const {
        const double value = times_power(wide_ ? p_[c * m_ + i] : q_[c * n_ + i], shift(i, c));
        return single_ ? static_cast<double>(static_cast<float>(value)) : value;
    }
    int shift(std::int64_t i, std::int64_t c) const {
        return wide_ ? of_rights_[c] : of_rights_[c] - left_[i];  // rows of a wide A are scaled with b
    }
    // x becomes what is returned, in the scale of the system.
    void as_returned() {
        double* const x = wide_ ? p_ : q_;
        const std::int64_t rows = wide_ ? m_ : n_;
        for (std::int64_t c = 0; c < k_; ++c)
            for (std::int64_t i = 0; i < rows; ++i) x[c * rows + i] = times_power(answer(i, c), -shift(i, c));
    }
    void write(void* x) const {
        const std::int64_t rows = wide_ ? m_ : n_;
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t c = 0; c < k_; ++c) {
                if (single_) static_cast<float*>(x)[i * k_ + c] = static_cast<float>(answer(i, c));
                else static_cast<double*>(x)[i * k_ + c] = answer(i, c);
            }
    }

    // R = B - s - T x, or with T', in which s and B are subtracted without an error.
    void residual(bool transpose, const double* x, const double* b, const double* s, double* r,
                  std::int64_t block) {
        const std::int64_t rows = transpose ? n_ : m_;
        for (std::int64_t i = 0; i < rows * k_; ++i) {
            const double sum = b[i] - s[i], part = sum - b[i];
            difference_[i] = sum;
            rest_[i] = (b[i] - (sum - part)) - (s[i] + part);
        }
        product_residual(transpose, x, difference_, r, block);
        for (std::int64_t i = 0; i < rows * k_; ++i) r[i] += rest_[i];
    }
    // R = B - T x, or B - T' x. The rows of T are contiguous.
    void product_residual(bool transpose, const double* x, const double* b, double* r, std::int64_t block) {
        exact_kernels().residual(n_, m_, matrix_, !transpose, k_, x, b, r, block, threads_);
    }

    static double length(const double* x, std::int64_t count) {
        double sum = 0;
        for (std::int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
        return std::sqrt(sum);
    }
    static double weighed(const double* x, const double* weights, std::int64_t count, bool divide) {
        double sum = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const double value = divide ? x[i] / weights[i] : x[i] * weights[i];
            sum += value * value;
        }
        return std::sqrt(sum);
    }
    static double quotient(double size, double divisor) {
        if (!(divisor < HUGE_VAL)) return HUGE_VAL;
        return size == 0 ? 0 : size / divisor;
    }

    // The largest bound over the columns (algorithms/least_squares/error.py has the formulas).
    double judge(double tolerance) {
        if (gate_.block_n != 0 || gate_.block_m != 0) {
            const double worst = judged(false);
            if (worst <= tolerance) return worst;
        }
        return judged(true);
    }
    double judged(bool exact) {
        const bool swapped = wide_ && deficient_;  // p is x, q the residual s of A = T'
        if (swapped) {
            product_residual(false, q_, f_, top_, exact ? 0 : gate_.block_n);
            residual(true, p_, g_, q_, bottom_, exact ? 0 : gate_.block_m);
        } else {
            residual(false, q_, f_, p_, top_, exact ? 0 : gate_.block_n);
            product_residual(true, p_, g_, bottom_, exact ? 0 : gate_.block_m);
        }
        const double c_n = exact ? gate_.exact_error_n : gate_.block_error_n;
        const double c_m = exact ? gate_.exact_error_m : gate_.block_error_m;
        double worst = 0;
        for (std::int64_t c = 0; c < k_; ++c) {
            const double p = length(p_ + c * m_, m_), q = weighed(q_ + c * n_, weights_, n_, false);
            const double f = length(top_ + c * m_, m_), h = weighed(bottom_ + c * n_, weights_, n_, true);
            const double b = wide_ ? weighed(g_ + c * n_, weights_, n_, true) : length(f_ + c * m_, m_);
            const double error = swapped ? least_squares_error(h, f, p, q, b, c_m, c_n)
                                 : wide_ ? minimum_norm_error(f, h, p, q, b, c_n, c_m)
                                         : least_squares_error(f, h, q, p, b, c_n, c_m);
            errors_[c] = growth() * error;
            if (!(errors_[c] <= worst)) worst = errors_[c];
        }
        return worst;
    }
    double growth() const { return 1 + (static_cast<double>(m_) * n_ + 8.0 * (m_ + n_) + 64) * 0x1p-53; }

    double least_squares_error(double f, double h, double x, double s, double b, double c1, double c2) const {
        const double size = norm_ * x + b;
        f += c1 * (size + s);
        const double first = quotient(f, size), second = quotient(h, norm_ * s) + c2;
        const double with = std::sqrt(first * first + second * second), without = quotient(f + s, size);
        if (with != with || without != without) return HUGE_VAL;
        return std::min(with, without);
    }
    double minimum_norm_error(double g, double r, double x, double y, double b, double c1, double c2) const {
        if (b == 0 && x == 0) return 0;
        const double size = norm_ * x + b;
        g += c1 * (norm_ * y + x), r += c2 * size;
        const double tau = g / x + (y / x) * (r / x);
        if (!(tau < 0.5)) return HUGE_VAL;
        const double delta = tau / (1 - tau), first = quotient(r, size);
        const double second = (delta * x + (1 + delta) * g) / ((1 - delta) * norm_ * y);
        return first == first && second == second ? std::sqrt(first * first + second * second) : HUGE_VAL;
    }

    // Where columns depend on others, T = Q R [I Y] with the columns that are kept first. N = [-Y; I] spans the
    // vectors that [I Y] takes to zero.
    TallResult shortest(const F* r, std::int64_t step, double condition) {
        const OrthogonalKernels<F>& kernels = orthogonal_kernels<F>();
        const std::int64_t rest = n_ - rank_;
        std::int64_t next = 0, other = rank_;
        for (std::int64_t j = 0; j < n_; ++j) {
            if (next < rank_ && kept_[next] == j) order_[next++] = static_cast<std::int32_t>(j);
            else order_[other++] = static_cast<std::int32_t>(j);
        }
        const std::int64_t padded = padded_to_eight(rest);
        for (std::int64_t i = 0; i < rank_; ++i)
            for (std::int64_t j = 0; j < padded; ++j)
                // Below its first row R has what is left of the column, which counts as zero.
                y_[i * padded + j] = j < rest && kept_[i] < order_[rank_ + j] ? work_[i * step_ + order_[rank_ + j]] : 0;
        kernels.substitute(rank_, r, step, false, rest, y_);
        factorize_gram(rest, padded);
        weights_are_one();
        const double allowed = gate_.tolerance + std::sqrt(static_cast<double>(rest)) * gate_.rcond;
        pack(wide_ ? g_ : f_, wide_ ? n_ : m_, tall_block_);
        if (wide_) {  // s is the part N w of b; what is left of b is [I Y]' c, and x = Q [R'^-1 c; 0]
            split(tall_block_, true, q_, rest, padded);
            std::fill(tall_block_ + rank_ * width_, tall_block_ + m_ * width_, F(0));
            for (std::int64_t i = 0; i < rank_ * width_; ++i) tall_block_[i] = short_block_[i];
            kernels.substitute(rank_, r, step, true, k_, tall_block_);
            kernels.reflect(m_, n_, panels_, triangles_, tops_, false, k_, tall_block_, threads_);
        } else {  // Q' b = [c; d], x is [R^-1 c; 0] without its part N w, and s = Q [0; d]
            kernels.reflect(m_, n_, panels_, triangles_, tops_, true, k_, tall_block_, threads_);
            std::copy_n(tall_block_, rank_ * width_, short_block_);
            std::fill_n(tall_block_, rank_ * width_, F(0));
            std::fill(short_block_ + rank_ * width_, short_block_ + n_ * width_, F(0));
            kernels.substitute(rank_, r, step, false, k_, short_block_);
            split(short_block_, false, q_, rest, padded);
            as_returned();
            double worst;
            if (passes_alone(allowed, worst)) return {TallStatus::accepted, worst, condition, rank_, 0};
            kernels.reflect(m_, n_, panels_, triangles_, tops_, false, k_, tall_block_, threads_);
        }
        unpack(tall_block_, m_, p_);
        as_returned();
        const double worst = judge(allowed);
        return {worst <= allowed ? TallStatus::accepted : TallStatus::above_tolerance, worst, condition, rank_, 0};
    }

    void weights_are_one() {
        double sum = 0;
        for (std::int64_t j = 0; j < n_; ++j) weights_[j] = 1, sum += squares_[j];
        norm_ = std::sqrt(sum);
    }

    // Cholesky's L of I + Y'Y, in rows.
    void factorize_gram(std::int64_t rest, std::int64_t padded) {
        std::fill_n(gram_, rest * rest, 0.0);
        for (std::int64_t i = 0; i < rank_; ++i)
            for (std::int64_t a = 0; a < rest; ++a)
                for (std::int64_t b = 0; b <= a; ++b)
                    gram_[a * rest + b] += static_cast<double>(y_[i * padded + a]) * y_[i * padded + b];
        for (std::int64_t a = 0; a < rest; ++a)
            for (std::int64_t b = 0; b <= a; ++b) {
                double sum = gram_[a * rest + b] + (a == b);
                for (std::int64_t l = 0; l < b; ++l) sum -= gram_[a * rest + l] * gram_[b * rest + l];
                gram_[a * rest + b] = a == b ? std::sqrt(sum) : sum / gram_[b * rest + b];
            }
    }

    // Of the columns c = [c1; c2] the part N w, w = (I + Y'Y)^-1 (c2 - Y' c1), and c - N w, which is orthogonal
    // to N: one goes to `to`, in the order of T's columns, that of N if `of_kernel`, and the other one to
    // short_block_, with the kept columns first. c is in the order of T's columns if `of_kernel`.
    void split(const F* c, bool of_kernel, double* to, std::int64_t rest, std::int64_t padded) {
        const auto row = [&](std::int64_t i) { return c + (of_kernel ? order_[i] : i) * width_; };
        const auto add = [&](double factor, const auto* x, double* y) {
            for (std::int64_t k = 0; k < k_; ++k) y[k] += factor * static_cast<double>(x[k]);
        };
        const auto divide = [&](double* x, double divisor) {
            for (std::int64_t k = 0; k < k_; ++k) x[k] /= divisor;
        };
        double* const w = difference_;  // rest x k, rows contiguous
        for (std::int64_t j = 0; j < rest; ++j)
            for (std::int64_t k = 0; k < k_; ++k) w[j * k_ + k] = static_cast<double>(row(rank_ + j)[k]);
        for (std::int64_t i = 0; i < rank_; ++i)
            for (std::int64_t j = 0; j < rest; ++j) add(-static_cast<double>(y_[i * padded + j]), row(i), w + j * k_);
        for (std::int64_t j = 0; j < rest; ++j) {
            for (std::int64_t l = 0; l < j; ++l) add(-gram_[j * rest + l], w + l * k_, w + j * k_);
            divide(w + j * k_, gram_[j * rest + j]);
        }
        for (std::int64_t j = rest - 1; j >= 0; --j) {
            for (std::int64_t l = j + 1; l < rest; ++l) add(-gram_[l * rest + j], w + l * k_, w + j * k_);
            divide(w + j * k_, gram_[j * rest + j]);
        }
        double* const kernel = rest_;  // a row of N w
        for (std::int64_t i = 0; i < n_; ++i) {
            std::fill_n(kernel, k_, 0.0);
            if (i >= rank_) std::copy_n(w + (i - rank_) * k_, k_, kernel);
            for (std::int64_t j = 0; i < rank_ && j < rest; ++j) add(-static_cast<double>(y_[i * padded + j]), w + j * k_, kernel);
            F* const left = short_block_ + i * width_;
            const F* const all = row(i);
            for (std::int64_t k = 0; k < k_; ++k) {
                const double difference = static_cast<double>(all[k]) - kernel[k];
                to[k * n_ + order_[i]] = of_kernel ? kernel[k] : difference;
                left[k] = static_cast<F>(difference);
            }
            for (std::int64_t k = k_; k < width_; ++k) left[k] = 0;
        }
    }

    // ||b - A x|| of each column in the given scale; top_ and bottom_ are the residuals of p and q.
    void residual_norms(double* norms) const {
        const bool of_bottom = wide_ && !deficient_;
        const std::int64_t rows = wide_ ? n_ : m_;
        for (std::int64_t c = 0; c < k_; ++c) {
            const auto entry = [&](std::int64_t i) {
                if (of_bottom) return bottom_[c * n_ + i];
                return wide_ ? q_[c * n_ + i] + bottom_[c * n_ + i] : p_[c * m_ + i] + top_[c * m_ + i];
            };
            const auto power = [&](std::int64_t i) { return wide_ ? left_[i] : 0; };
            int most = of_zero;
            for (std::int64_t i = 0; i < rows; ++i)
                if (entry(i) != 0) most = std::max(most, exponent(entry(i)) + power(i));
            double sum = 0;
            for (std::int64_t i = 0; i < rows; ++i) {
                const double share = std::ldexp(entry(i), power(i) - most);
                sum += share * share;
            }
            norms[c] = std::ldexp(std::sqrt(sum), most + of_rights_[c]);
        }
    }
};

}  // namespace roundwise
