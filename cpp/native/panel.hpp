// The parts of the LU that work on unpacked memory: the factorization of a tall block of a few
// columns, and solves with a small unit lower triangle.
#pragma once

#include "common/carrier.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Interchanges row i with row pivots[i], for i = begin, ..., end - 1, in some columns of a.
template <class T>
inline void interchange(std::int64_t begin, std::int64_t end, const std::int32_t* pivots,
                        std::int64_t columns, T* a, std::int64_t step) {
    for (std::int64_t j = 0; j < columns; ++j, a += step)
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t p = pivots[i];
            if (j + 1 < columns) __builtin_prefetch(a + p + step);
            const T kept = a[i];
            a[i] = a[p];
            a[p] = kept;
        }
}

// How many vectors of each of eight columns subtract_strip updates at a time: as many as the
// registers hold.
constexpr int panel_vectors = ROUNDWISE_VECTOR_BYTES == 64 ? 2 : 1;

// C -= A B for one strip of rows. A (rows x k), B (k x columns) and C are parts of one matrix with
// `step` numbers from column to column; k is small.
template <int columns, int vectors, class T>
inline void subtract_strip(std::int64_t k, const T* a, const T* b, T* c, std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    Vector<T> sum[columns][vectors];
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) sum[j][v] = load(c + j * step + v * width);
    for (std::int64_t l = 0; l < k; ++l) {
        Vector<T> column[vectors];
        for (int v = 0; v < vectors; ++v) column[v] = load(a + l * step + v * width);
        for (int j = 0; j < columns; ++j)
            for (int v = 0; v < vectors; ++v) sum[j][v] -= column[v] * b[l + j * step];
    }
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) store<T>(c + j * step + v * width, sum[j][v]);
}

// C (m x columns) -= A (m x k) B (k x columns), with parts of one matrix as above.
template <int columns, class T>
inline void subtract_columns(std::int64_t m, std::int64_t k, const T* a, const T* b, T* c,
                             std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    std::int64_t i = 0;
    for (; i + panel_vectors * width <= m; i += panel_vectors * width)
        subtract_strip<columns, panel_vectors>(k, a + i, b, c + i, step);
    for (; i + width <= m; i += width) subtract_strip<columns, 1>(k, a + i, b, c + i, step);
    for (; i < m; ++i)
        for (int j = 0; j < columns; ++j) {
            T sum = c[i + j * step];
            for (std::int64_t l = 0; l < k; ++l) sum -= a[i + l * step] * b[l + j * step];
            c[i + j * step] = sum;
        }
}

// The same for any number n of columns.
template <class T>
inline void subtract_thin_product(std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                                  const T* b, T* c, std::int64_t step) {
    std::int64_t j = 0;
    for (; j + 8 <= n; j += 8) subtract_columns<8>(m, k, a, b + j * step, c + j * step, step);
    for (; j < n; ++j) subtract_columns<1>(m, k, a, b + j * step, c + j * step, step);
}

// In place X = L^-1 B, L the unit lower triangle of a, n x n.
template <class T>
inline void solve_unit_lower(std::int64_t n, std::int64_t columns, const T* a, T* b,
                             std::int64_t step) {
    for (std::int64_t j = 0; j < columns; ++j, b += step)
        for (std::int64_t k = 0; k < n; ++k)
            for (std::int64_t i = k + 1; i < n; ++i) b[i] -= a[i + k * step] * b[k];
}

// The order of the triangles with which rows of U are solved for, and of the blocks of columns
// that are factorized without packing.
constexpr std::int64_t block_order = 64;

// Copies the strictly lower triangle of a block, with zeros elsewhere, so that whole vectors can be
// used.
template <class T> inline void copy_triangle(const T* a, std::int64_t step, T* triangle) {
    for (std::int64_t j = 0; j < block_order; ++j)
        for (std::int64_t i = 0; i < block_order; ++i)
            triangle[i + j * block_order] = i > j ? a[i + j * step] : T(0);
}

// In place X = L^-1 B for such a copy of L. Several columns at a time: in one column, each entry has
// to wait for the one before.
template <int columns, class T>
inline void solve_columns(const T* triangle, T* b, std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    for (std::int64_t i = 0; i < block_order; i += width) {
        Vector<T> x[columns];
        for (int j = 0; j < columns; ++j) x[j] = load(b + i + j * step);
        for (std::int64_t k = 0; k < i; ++k) {
            const Vector<T> l = load(triangle + i + k * block_order);
            for (int j = 0; j < columns; ++j) x[j] -= l * b[k + j * step];
        }
#pragma GCC unroll 16
        for (int k = 0; k < width; ++k) {
            const Vector<T> l = load(triangle + i + (i + k) * block_order);
            for (int j = 0; j < columns; ++j) x[j] -= l * x[j][k];
        }
        for (int j = 0; j < columns; ++j) store<T>(b + i + j * step, x[j]);
    }
}

template <class T>
inline void solve_triangle(std::int64_t columns, const T* triangle, T* b, std::int64_t step) {
    std::int64_t j = 0;
    for (; j + 8 <= columns; j += 8) solve_columns<8>(triangle, b + j * step, step);
    for (; j < columns; ++j) solve_columns<1>(triangle, b + j * step, step);
}

// The bits of |x| as an integer. These integers have the order of the numbers; infinity and then NaN
// are the largest.
template <class T> inline typename Carrier<T>::Signed magnitude(T x) {
    return bit_cast<typename Carrier<T>::Unsigned>(x) & Carrier<T>::abs_mask;
}

// The index of the first entry of largest magnitude; NaN counts as largest.
template <class T> inline std::int64_t find_pivot(std::int64_t n, const T* x) {
    using Integer = typename Carrier<T>::Signed;
    using Integers = Vector<Integer>;
    constexpr auto mask = static_cast<Integer>(Carrier<T>::abs_mask);
    constexpr int width = Lanes<T>::count;
    Integers largest[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * width <= n; i += 4 * width)
        for (int v = 0; v < 4; ++v) {
            const Integers m = bit_cast<Integers>(load(x + i + v * width)) & mask;
            largest[v] = m > largest[v] ? m : largest[v];
        }
    Integer top = 0;
    for (; i < n; ++i) top = magnitude(x[i]) > top ? magnitude(x[i]) : top;
    for (int v = 0; v < 4; ++v)
        for (int lane = 0; lane < width; ++lane)
            top = largest[v][lane] > top ? largest[v][lane] : top;
    i = 0;
    while (magnitude(x[i]) != top) ++i;
    return i;
}

// LU of rows begin..n and columns begin..begin + width of a square matrix of order n. Interchanges
// rows in these columns only. Returns what LuKernels::lu returns.
//
// Takes eight columns at a time. All columns to their left update them first (left-looking), so that
// they are written once; then the same is done column by column within the eight.
template <class T>
inline int factorize_block(std::int64_t n, std::int64_t begin, std::int64_t width, T* a,
                           std::int32_t* pivots) {
    const auto at = [=](std::int64_t i, std::int64_t j) { return a + i + j * n; };
    for (std::int64_t block = begin; block < begin + width; block += 8) {
        const std::int64_t end = block + 8 < begin + width ? block + 8 : begin + width;
        interchange(begin, block, pivots, end - block, at(0, block), n);
        solve_unit_lower(block - begin, end - block, at(begin, begin), at(begin, block), n);
        subtract_thin_product(n - block, end - block, block - begin, at(block, begin),
                              at(begin, block), at(block, block), n);
        for (std::int64_t j = block; j < end; ++j) {
            interchange(block, j, pivots, 1, at(0, j), n);
            solve_unit_lower(j - block, 1, at(block, block), at(block, j), n);
            subtract_columns<1>(n - j, j - block, at(j, block), at(block, j), at(j, j), n);
            const std::int64_t pivot = j + find_pivot(n - j, at(j, j));
            const auto size = magnitude(*at(pivot, j));
            if (size == 0) return static_cast<int>(j + 1);
            if (size >= static_cast<decltype(size)>(Carrier<T>::infinity)) return -static_cast<int>(j + 1);
            pivots[j] = static_cast<std::int32_t>(pivot);
            interchange(j, j + 1, pivots, j + 1 - block, at(0, block), n);
            const T divisor = *at(j, j);
            T* column = at(0, j);
            for (std::int64_t i = j + 1; i < n; ++i) column[i] /= divisor;  // keeps |l| <= 1
        }
        interchange(block, end, pivots, block - begin, at(0, begin), n);
    }
    return 0;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
