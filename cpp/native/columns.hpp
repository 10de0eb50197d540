// What refinement does to blocks of columns beside the products: norms, scaling by powers of two, and
// the permutations and conversions around a triangular solve. One pass each, as a solve of middle size
// would spend more time in the calls of NumPy that do the same than in its products.
//
// On one thread, and compiled once: the blocks are small beside the matrix.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace roundwise {

// Magnitudes as integers have the order of the numbers, infinity after them, and NaN last.
inline std::int64_t magnitude_bits(double x) {
    std::int64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffffffffff;
}

inline double from_bits(std::int64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// max_i weights_i |x_i|; NaN if there is one. Without weights if these are null.
inline double max_norm(std::int64_t n, const double* x, const double* weights) {
    std::int64_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t size = magnitude_bits(weights == nullptr ? x[i] : x[i] * weights[i]);
        largest = size > largest ? size : largest;
    }
    return from_bits(largest);
}

// The same for n complex numbers and their moduli, off by less than 2 units in the last place. The
// weight of number i is weights[2 i].
inline double max_modulus(std::int64_t n, const double* x, const double* weights) {
    const double largest = max_norm(2 * n, x, nullptr);
    double result = 0;
    if (weights == nullptr && largest > 1e-140 && largest < 1e140) {  // squares are in range
        for (std::int64_t i = 0; i < n; ++i) {
            const double square = x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1];
            result = square > result ? square : result;
        }
        return std::sqrt(result);
    }
    for (std::int64_t i = 0; i < n; ++i) {
        const double size = std::hypot(x[2 * i], x[2 * i + 1]);
        const double weighted = weights == nullptr ? size : size * weights[2 * i];
        if (weighted > result || weighted != weighted) result = weighted;
    }
    return largest != largest ? largest : result;  // hypot(inf, NaN) is infinite
}

// y = 2**exponent x, rounded once. Returns whether all of y is finite.
inline bool shift(std::int64_t n, const double* x, int exponent, double* y) {
    const bool in_range = exponent >= -1022 && exponent <= 1023;
    const double power = std::ldexp(1.0, in_range ? exponent : 0);
    double sum = 0;  // 0 times a number is 0 if that is finite, else NaN
    for (std::int64_t i = 0; i < n; ++i) {
        y[i] = in_range ? x[i] * power : std::ldexp(x[i], exponent);
        sum += 0 * y[i];
    }
    return sum == 0;
}

// y = 2**-exponent x with max |y_i| in [1, 2) for a `size` that is max |x_i|; y = x if that is zero, or
// not finite. Returns the exponent.
inline int to_unit_size(std::int64_t n, const double* x, double size, double* y) {
    const int exponent = size > 0 && std::isfinite(size) ? std::ilogb(size) : 0;
    shift(n, x, -exponent, y);
    return exponent;
}

// ||r|| / (||A|| ||x|| + ||b||): 0 if r is, infinite if the divisor is not finite.
inline double backward_error(double r, double norm, double x, double b) {
    const double size = norm * x + b;
    if (!std::isfinite(size)) return HUGE_VAL;
    return r == 0 ? 0 : r / size;
}

// y_i = x[order_i], converted; order may be null.
template <class T>
inline void gather(std::int64_t n, const std::int32_t* order, const double* x, T* y) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(x[order == nullptr ? i : order[i]]);
}

// y[order_i] = x_i, converted. Returns whether all are finite.
template <class T>
inline bool scatter(std::int64_t n, const std::int32_t* order, const T* x, double* y) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const double value = static_cast<double>(x[i]);
        sum += 0 * value;
        y[order == nullptr ? i : order[i]] = value;
    }
    return sum == 0;
}

// The end of a correction. `y` is solved for a column that was divided by 2**exponent; z[order_i] = 2**exponent y_i,
// and sum = x + z.
struct Corrected {
    bool solved, scaled;  // whether y is finite, and z if y is
    double z_norm, sum_norm;
};

template <class T>
inline Corrected correct(std::int64_t n, const std::int32_t* order, const T* y, int exponent, const double* x,
                         double* sum) {
    const bool in_range = exponent >= -1022 && exponent <= 1023;
    const double power = std::ldexp(1.0, in_range ? exponent : 0);
    std::int64_t largest_y = 0, largest_z = 0, largest_sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const double value = static_cast<double>(y[i]);
        const double z = in_range ? value * power : std::ldexp(value, exponent);
        const std::int64_t place = order == nullptr ? i : order[i];
        sum[place] = x[place] + z;
        const std::int64_t sizes[3] = {magnitude_bits(value), magnitude_bits(z), magnitude_bits(sum[place])};
        largest_y = sizes[0] > largest_y ? sizes[0] : largest_y;
        largest_z = sizes[1] > largest_z ? sizes[1] : largest_z;
        largest_sum = sizes[2] > largest_sum ? sizes[2] : largest_sum;
    }
    const double z_norm = from_bits(largest_z);
    return {std::isfinite(from_bits(largest_y)), std::isfinite(z_norm), z_norm, from_bits(largest_sum)};
}

// The same for complex numbers, whose parts `re` and `im` lie apart, to pairs in x, which become their sums; conjugated
// if `sign` is -1. Norms are those of moduli.
template <class T>
inline Corrected correct_pairs(std::int64_t n, const std::int32_t* order, double sign, const T* re, const T* im,
                               int exponent, double* x) {
    const double power = std::ldexp(1.0, exponent);
    double largest = 0, lost = 0;  // lost: 0 times a number is 0 if that is finite, else NaN
    for (std::int64_t i = 0; i < n; ++i) {
        const double p = power * static_cast<double>(re[i]), q = sign * power * static_cast<double>(im[i]);
        double* pair = x + 2 * (order == nullptr ? i : order[i]);
        pair[0] += p;
        pair[1] += q;
        const double square = p * p + q * q;
        largest = square > largest ? square : largest;
        lost += 0 * p + 0 * q;
    }
    const double z_norm = std::sqrt(largest);
    return {lost == 0, std::isfinite(z_norm), z_norm, max_modulus(n, x, nullptr)};
}

// Between pairs of real and imaginary parts and a column of each; conjugated if `sign` is -1. The numbers are
// multiplied with a `power` of two.
template <class T>
inline void gather_pairs(std::int64_t n, const std::int32_t* order, double sign, const double* x, T* re,
                         T* im, double power = 1) {
    for (std::int64_t i = 0; i < n; ++i) {
        const double* pair = x + 2 * (order == nullptr ? i : order[i]);
        re[i] = static_cast<T>(power * pair[0]);
        im[i] = static_cast<T>(sign * power * pair[1]);
    }
}

template <class T>
inline bool scatter_pairs(std::int64_t n, const std::int32_t* order, double sign, const T* re, const T* im,
                          double* y) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        double* pair = y + 2 * (order == nullptr ? i : order[i]);
        pair[0] = static_cast<double>(re[i]);
        pair[1] = sign * static_cast<double>(im[i]);
        sum += 0 * pair[0] + 0 * pair[1];
    }
    return sum == 0;
}

// From the pairs (x, y) of complex numbers, (x, -y) and (y, x): their inner products with the pairs
// (p, q) of other numbers are the real and the imaginary parts of (p + iq)(x + iy).
inline void turn_pairs(std::int64_t n, const double* pairs, double* for_re, double* for_im) {
    for (std::int64_t i = 0; i < 2 * n; i += 2) {
        for_re[i] = for_im[i + 1] = pairs[i];
        for_re[i + 1] = -pairs[i + 1];
        for_im[i] = pairs[i + 1];
    }
}

// The columns of `points` (size x count) nearest to `place`, at most `most` of them and none at a squared
// distance above `reach`, nearest first, of two alike the first one. Returns how many there are.
inline std::int64_t nearest(std::int64_t size, std::int64_t count, const double* points, const double* place,
                            double reach, std::int64_t most, std::int64_t* found, double* squares) {
    std::int64_t known = 0;
    for (std::int64_t j = 0; j < count; ++j) {
        double square = 0;
        for (std::int64_t i = 0; i < size; ++i) {
            const double away = points[i + j * size] - place[i];
            square += away * away;
        }
        if (!(square <= reach) || (known == most && !(square < squares[known - 1]))) continue;
        std::int64_t at = known < most ? known++ : known - 1;
        for (; at > 0 && square < squares[at - 1]; --at) {
            squares[at] = squares[at - 1];
            found[at] = found[at - 1];
        }
        squares[at] = square;
        found[at] = j;
    }
    return known;
}

}  // namespace roundwise
