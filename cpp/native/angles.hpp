// What the angles between a few rows tell, from their inner products: see features/look.py.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>

namespace roundwise {

struct Angles {
    double squares;    // the sum of the squared cosines between all pairs of rows
    double remainder;  // how far the rows, at length 1, are from the span of half of them; 0 if it has all
};

inline double squared(double x) { return x * x; }
inline double squared(std::complex<double> x) { return x.real() * x.real() + x.imag() * x.imag(); }
inline double times_conjugate(double x, double y) { return x * y; }
inline std::complex<double> times_conjugate(std::complex<double> x, std::complex<double> y) {
    return {x.real() * y.real() + x.imag() * y.imag(), x.imag() * y.real() - x.real() * y.imag()};
}

// g is count x count, column by column; its lower triangle holds the inner products, and is overwritten.
// By Cholesky's method with the largest diagonal entry as the next pivot (LAPACK's pstrf), given up
// where this is no more than rounding errors. `lengths` has room for count numbers.
template <class T> inline Angles angles_of(std::int64_t count, T* g, double* lengths) {
    constexpr double unit_roundoff = 1.1102230246251565e-16;
    for (std::int64_t i = 0; i < count; ++i) {
        const double square = std::real(g[i + i * count]);
        lengths[i] = square > 0 ? std::sqrt(square) : 0;
    }
    Angles found = {0, 0};
    for (std::int64_t j = 0; j < count; ++j) {
        // Exactly: else rounding errors would decide which row is the first pivot.
        g[j + j * count] = lengths[j] > 0 ? 1 : 0;
        for (std::int64_t i = j + 1; i < count; ++i) {
            const double size = lengths[i] * lengths[j];
            g[i + j * count] = size > 0 ? g[i + j * count] / size : T(0);
            found.squares += squared(g[i + j * count]);
        }
    }
    const double least = static_cast<double>(count) * unit_roundoff;
    const std::int64_t half = count / 2;
    for (std::int64_t k = 0; k <= half && k < count; ++k) {
        std::int64_t pivot = k;
        for (std::int64_t i = k + 1; i < count; ++i)
            if (std::real(g[i + i * count]) > std::real(g[pivot + pivot * count])) pivot = i;
        const double square = std::real(g[pivot + pivot * count]);
        if (!(square > least)) return found;
        const double length = std::sqrt(square);
        if (k == half) {
            found.remainder = length;
            return found;
        }
        if (pivot != k) {  // rows and columns of the lower triangle of what is left
            g[pivot + pivot * count] = g[k + k * count];
            const auto conjugate = [](T x) { return times_conjugate(T(1), x); };
            for (std::int64_t i = k + 1; i < pivot; ++i) {
                const T kept = conjugate(g[i + k * count]);
                g[i + k * count] = conjugate(g[pivot + i * count]);
                g[pivot + i * count] = kept;
            }
            g[pivot + k * count] = conjugate(g[pivot + k * count]);
            for (std::int64_t i = pivot + 1; i < count; ++i) {
                const T kept = g[i + k * count];
                g[i + k * count] = g[i + pivot * count];
                g[i + pivot * count] = kept;
            }
        }
        T* column = g + k * count;
        for (std::int64_t i = k + 1; i < count; ++i) column[i] /= length;
        for (std::int64_t j = k + 1; j < count; ++j) {
            const T factor = column[j];
            for (std::int64_t i = j; i < count; ++i) g[i + j * count] -= times_conjugate(column[i], factor);
        }
    }
    return found;
}

}  // namespace roundwise
