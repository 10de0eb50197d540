// Products and triangular solves with small dense blocks, for supernodal factorizations. Blocks are
// column-major; `step` is the distance from a column to the next.
//
// Both operands of C = A B' are read down columns, so that nothing needs to be packed: for each of
// the k products, vectors of A's column are multiplied by single numbers of B's. Only where a strip of
// A is used for many columns of C is it packed first, because its columns lie in many memory pages.
#pragma once

#include "common/carrier.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A strip of rows: `vectors` vectors, of which the last has `last` numbers.
template <int vectors, bool whole, class T> struct Strip {
    static constexpr int count = vectors;
    int last;
    Vector<T> get(const T* x, int v) const {
        constexpr int width = Lanes<T>::count;
        return whole || v + 1 < vectors ? load(x + v * width) : load_first(x + v * width, last);
    }
    void put(T* x, int v, Vector<T> value) const {
        constexpr int width = Lanes<T>::count;
        if (whole || v + 1 < vectors) store<T>(x + v * width, value);
        else store_first<T>(x + v * width, value, last);
    }
};

// Calls body(strip, i) for strips that cover rows begin..end, two vectors at a time.
template <class T, class Body>
inline void for_each_strip(std::int64_t begin, std::int64_t end, const Body& body) {
    constexpr std::int64_t width = Lanes<T>::count;
    std::int64_t i = begin;
    for (; i + 2 * width <= end; i += 2 * width) body(Strip<2, true, T>{}, i);
    if (i + width < end) body(Strip<2, false, T>{static_cast<int>(end - i - width)}, i);
    else if (i < end) body(Strip<1, false, T>{static_cast<int>(end - i)}, i);
}

template <int columns> struct Columns {
    static constexpr int count = columns;
};

// As many columns as accumulators fit into registers, two vectors each.
constexpr int most_columns = ROUNDWISE_VECTOR_BYTES == 64 ? 12 : ROUNDWISE_VECTOR_BYTES == 32 ? 6 : 4;

// Calls body(Columns, j) for groups of at most `most` columns that cover begin..end.
template <int most, class Body>
inline void for_each_group(std::int64_t begin, std::int64_t end, const Body& body) {
    std::int64_t j = begin;
    for (; j + most <= end; j += most) body(Columns<most>{}, j);
    if constexpr (most > 8)
        for (; j + 8 <= end; j += 8) body(Columns<8>{}, j);
    if constexpr (most > 4)
        for (; j + 4 <= end; j += 4) body(Columns<4>{}, j);
    if (j + 2 <= end) body(Columns<2>{}, j), j += 2;
    if (j < end) body(Columns<1>{}, j);
}

// sum += A B' for one strip of A and a few rows of B.
template <int columns, int vectors, bool whole, class T>
inline void add_products(std::int64_t k, Strip<vectors, whole, T> strip, const T* a, std::int64_t a_step,
                         const T* b, std::int64_t b_step, Vector<T> (&sum)[columns][vectors]) {
    for (std::int64_t l = 0; l < k; ++l, a += a_step, b += b_step) {
        Vector<T> column[vectors];
        for (int v = 0; v < vectors; ++v) column[v] = strip.get(a, v);
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) sum[j][v] += column[v] * b[j];
    }
}

// C = A B' for one strip, or C -= A B'.
template <bool subtract, int columns, int vectors, bool whole, class T>
inline void multiply_strip(std::int64_t k, Strip<vectors, whole, T> strip, const T* a,
                           std::int64_t a_step, const T* b, std::int64_t b_step, T* c,
                           std::int64_t c_step) {
    Vector<T> sum[columns][vectors] = {};
    if constexpr (subtract)
        for (int j = 0; j < columns; ++j)
            for (int v = 0; v < vectors; ++v)
                __builtin_prefetch(c + j * c_step + v * Lanes<T>::count, 1, 3);
    add_products<columns>(k, strip, a, a_step, b, b_step, sum);
#pragma GCC unroll 12
    for (int j = 0; j < columns; ++j)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
            if constexpr (subtract) strip.put(c + j * c_step, v, strip.get(c + j * c_step, v) - sum[j][v]);
            else store<T>(c + j * c_step + v * Lanes<T>::count, sum[j][v]);  // C has room for it
        }
}

constexpr std::int64_t strip_products = 256;  // the most products of a strip that is packed

// C = A B' or C -= A B', A m x k, B n x k. With C = A B', whole vectors of C are written, and entries
// (i, j) with i + offset < j may be left out: they are not in the lower triangle. `packed` holds
// strip_products times two vectors.
template <bool subtract, class T>
inline void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_step,
                     const T* b, std::int64_t b_step, T* c, std::int64_t c_step, std::int64_t offset,
                     T* packed) {
    constexpr int width = Lanes<T>::count;
    const bool packs = n > 2 * most_columns && k > 16 && k <= strip_products;
    for_each_strip<T>(0, m, [&](auto strip, std::int64_t i) {
        const T* source = a + i;
        std::int64_t step = a_step;
        if (packs) {
            for (std::int64_t l = 0; l < k; ++l) {
                const T* column = source + l * a_step;
                for (int v = 0; v < decltype(strip)::count; ++v) {
                    store<T>(packed + (2 * l + v) * width, strip.get(column, v));
                    // The next strip: the processor does not see the pattern in steps this large.
                    __builtin_prefetch(column + (2 + v) * width, 0, 2);
                }
            }
            source = packed;
            step = 2 * width;
        }
        const std::int64_t last = offset + i + 2 * width;  // no row of the strip reaches this column
        for_each_group<most_columns>(0, n < last ? n : last, [&](auto group, std::int64_t j) {
            multiply_strip<subtract, decltype(group)::count>(k, strip, source, step, b + j, b_step,
                                                             c + i + j * c_step, c_step);
        });
    });
}

// For one strip of X T = B, in place: the next columns of X, when `done` columns are known. T is upper
// triangular, its entry (l, j) is t[j + l * t_step]; `inverse` holds 1 / t_jj unless T is unit.
template <int columns, bool unit, int vectors, bool whole, class T>
inline void solve_strip(std::int64_t done, Strip<vectors, whole, T> strip, T* x, std::int64_t x_step,
                        const T* t, std::int64_t t_step, const T* inverse) {
    Vector<T> sum[columns][vectors] = {};
    add_products<columns>(done, strip, x, x_step, t + done, t_step, sum);
    x += done * x_step;
    t += done + done * t_step;
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
            Vector<T> value = strip.get(x + j * x_step, v) - sum[j][v];
#pragma GCC unroll 8
            for (int i = 0; i < j; ++i) value -= sum[i][v] * t[j + i * t_step];
            if constexpr (!unit) value *= inverse[done + j];
            sum[j][v] = value;
            strip.put(x + j * x_step, v, value);
        }
}

// In place X = B T^-1 for the m rows of B; T as above, n x n.
template <bool unit, class T>
inline void solve_rows(std::int64_t m, std::int64_t n, T* x, std::int64_t x_step, const T* t,
                       std::int64_t t_step, const T* inverse) {
    constexpr int most = most_columns < 8 ? 4 : 8;
    for_each_strip<T>(0, m, [&](auto strip, std::int64_t i) {
        for_each_group<most>(0, n, [&](auto group, std::int64_t j) {
            solve_strip<decltype(group)::count, unit>(j, strip, x + i, x_step, t, t_step, inverse);
        });
    });
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
