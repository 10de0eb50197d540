// Gaussian elimination for one small system: what is cheap enough not to need blocks.
//
// Rows are contiguous, as NumPy has them: a multiple of the pivot row is subtracted from each row below
// it, and from the same rows of B.
#pragma once

#include <cstdint>

#include "native/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A size that the compiler knows: it unrolls the loops of tiny systems.
template <int N> struct Fixed {
    constexpr operator std::int64_t() const { return N; }
};

// y -= factor x
template <class Size>
inline void subtract_row(Size count, double factor, const double* __restrict x, double* __restrict y) {
    for (std::int64_t c = 0; c < count; ++c) y[c] -= factor * x[c];
}

// sum_c a_c x_c, in four sums that do not wait for one another.
inline double dot(std::int64_t count, const double* a, const double* x) {
    double sums[4] = {0, 0, 0, 0};
    std::int64_t c = 0;
    for (; c + 4 <= count; c += 4)
        for (int lane = 0; lane < 4; ++lane) sums[lane] += a[c + lane] * x[c + lane];
    for (; c < count; ++c) sums[0] += a[c] * x[c];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class Size, class Columns>
inline double eliminate_sized(Size n, double* a, Columns columns, double* b) {
    double smallest = 0, largest = 0;
    for (std::int64_t j = 0; j < n; ++j) {
        std::int64_t pivot = j;
        double size = 0;
        for (std::int64_t i = j; i < n; ++i) {
            const double entry = a[i * n + j], here = entry < 0 ? -entry : entry;
            if (here > size) size = here, pivot = i;
        }
        if (!(size > 0)) return 0;
        if (j == 0 || size < smallest) smallest = size;
        if (size > largest) largest = size;
        double *row = a + j * n, *right = b + j * columns;
        if (pivot != j) {
            double *other = a + pivot * n, *other_right = b + pivot * columns;
            for (std::int64_t c = j; c < n; ++c) {
                const double kept = row[c];
                row[c] = other[c], other[c] = kept;
            }
            for (std::int64_t c = 0; c < columns; ++c) {
                const double kept = right[c];
                right[c] = other_right[c], other_right[c] = kept;
            }
        }
        const double inverse = 1 / row[j];
        for (std::int64_t i = j + 1; i < n; ++i) {
            const double factor = a[i * n + j] * inverse;
            subtract_row<std::int64_t>(n - j - 1, factor, row + j + 1, a + i * n + j + 1);
            subtract_row<Columns>(columns, factor, right, b + i * columns);
        }
    }
    for (std::int64_t j = n - 1; j >= 0; --j) {
        const double *row = a + j * n, pivot = row[j];
        double* right = b + j * columns;
        if (columns == 1) {
            right[0] = (right[0] - dot(n - j - 1, row + j + 1, right + 1)) / pivot;
            continue;
        }
        for (std::int64_t c = j + 1; c < n; ++c)
            subtract_row<Columns>(columns, row[c], b + c * columns, right);
        for (std::int64_t c = 0; c < columns; ++c) right[c] /= pivot;
    }
    return smallest / largest;
}

template <int N> inline double eliminate_fixed(double* a, std::int64_t columns, double* b) {
    if (columns == 1) return eliminate_sized(Fixed<N>{}, a, Fixed<1>{}, b);
    return eliminate_sized(Fixed<N>{}, a, columns, b);
}

inline double eliminate(std::int64_t n, double* a, std::int64_t columns, double* b) {
    if (n == 2) return eliminate_fixed<2>(a, columns, b);
    if (n == 3) return eliminate_fixed<3>(a, columns, b);
    if (n == 4) return eliminate_fixed<4>(a, columns, b);
    if (n == 6) return eliminate_fixed<6>(a, columns, b);
    if (columns == 1) return eliminate_sized(n, a, Fixed<1>{}, b);
    return eliminate_sized(n, a, columns, b);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
