// C += A B and C -= A B with every operation rounded. Dense kernels spend nearly all their time here.
#pragma once

#include "emulated/rounders.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A strided view of a matrix. Swapped strides give the transpose, a negative one reverses the order.
template <class T> struct View {
    const T* data;
    std::int64_t row_stride, column_stride;
    const T* at(std::int64_t i, std::int64_t j) const {
        return data + i * row_stride + j * column_stride;
    }
    View from(std::int64_t i, std::int64_t j) const { return {at(i, j), row_stride, column_stride}; }
    // The k columns from column j on, last first.
    View columns_reversed(std::int64_t j, std::int64_t k) const {
        return {at(0, j + k - 1), row_stride, -column_stride};
    }
    View rows_reversed(std::int64_t i, std::int64_t k) const {
        return {at(i + k - 1, 0), -row_stride, column_stride};
    }
};

enum class Sign { plus, minus };
enum class Edge { none, first, last };  // a whole vector, its first lanes, or its last lanes

// Updates a tile of C that fits into registers, `vectors` vectors of rows by `columns` columns, with
// all k products. With Edge::first only the first `lanes` rows exist. With Edge::last only the last
// `lanes` are stored: the rows before them belong to the tile above and are updated already.
template <class T, Sign sign, int columns, int vectors, Edge edge, class Round>
inline void update_tile(const Round& round, std::int64_t k, const T* a, std::int64_t a_step,
                        const View<T>& b, T* c, std::int64_t c_step, std::int64_t lanes) {
    constexpr int width = Lanes<T>::count;
    Vector<T> sum[columns][vectors];
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) {
            const T* source = c + j * c_step + v * width;
            sum[j][v] = edge == Edge::first ? load_first(source, lanes) : load(source);
        }
    for (std::int64_t l = 0; l < k; ++l, a += a_step) {
        Vector<T> column[vectors];
        for (int v = 0; v < vectors; ++v)
            column[v] = edge == Edge::first ? load_first(a, lanes) : load(a + v * width);
        for (int j = 0; j < columns; ++j) {
            const T factor = *b.at(l, j);
            for (int v = 0; v < vectors; ++v) {
                const Vector<T> product = round.product(column[v], factor);
                sum[j][v] = round(sign == Sign::plus ? sum[j][v] + product : sum[j][v] - product);
            }
        }
    }
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) {
            T* target = c + j * c_step + v * width;
            if (edge == Edge::none) {
                store<T>(target, sum[j][v]);
            } else if (edge == Edge::first) {
                store_first<T>(target, sum[j][v], lanes);
            } else {
                T all[width];
                store<T>(all, sum[j][v]);
                std::memcpy(target + width - lanes, all + width - lanes,
                            static_cast<std::size_t>(lanes) * sizeof(T));
            }
        }
}

// A strip of rows of C against all its columns.
template <class T, Sign sign, int vectors, Edge edge, class Round>
inline void update_strip(const Round& round, std::int64_t n, std::int64_t k, const T* a,
                         std::int64_t a_step, const View<T>& b, T* c, std::int64_t c_step,
                         std::int64_t lanes) {
    std::int64_t j = 0;
    if constexpr (vectors <= 2)
        for (; j + 4 <= n; j += 4)
            update_tile<T, sign, 4, vectors, edge>(round, k, a, a_step, b.from(0, j),
                                                   c + j * c_step, c_step, lanes);
    for (; j < n; ++j)
        update_tile<T, sign, 1, vectors, edge>(round, k, a, a_step, b.from(0, j), c + j * c_step,
                                               c_step, lanes);
}

// C (m x n, column-major with leading dimension c_step) plus or minus A (m x k) times B (k x n),
// c_ij updated for l = 0, 1, ..., k-1. A has unit row stride here.
template <class T, Sign sign, class Round>
void update_unit_stride(const Round& round, std::int64_t m, std::int64_t n, std::int64_t k,
                        const T* a, std::int64_t a_step, const View<T>& b, T* c,
                        std::int64_t c_step) {
    constexpr int width = Lanes<T>::count;
    std::int64_t i = 0;
    if (n == 1)  // a tall tile, so that enough independent sums hide the latency of each
        for (; i + 8 * width <= m; i += 8 * width)
            update_strip<T, sign, 8, Edge::none>(round, n, k, a + i, a_step, b, c + i, c_step, 0);
    for (; i + 2 * width <= m; i += 2 * width)
        update_strip<T, sign, 2, Edge::none>(round, n, k, a + i, a_step, b, c + i, c_step, 0);
    for (; i + width <= m; i += width)
        update_strip<T, sign, 1, Edge::none>(round, n, k, a + i, a_step, b, c + i, c_step, 0);
    if (i == m) return;
    if (m >= width)
        update_strip<T, sign, 1, Edge::last>(round, n, k, a + m - width, a_step, b, c + m - width,
                                             c_step, m - i);
    else
        update_strip<T, sign, 1, Edge::first>(round, n, k, a, a_step, b, c, c_step, m);
}

// The same for any strides of A: copies blocks of A to unit stride first.
template <class T, Sign sign, class Round>
void update(const Round& round, std::int64_t m, std::int64_t n, std::int64_t k, const View<T>& a,
            const View<T>& b, T* c, std::int64_t c_step) {
    if (a.row_stride == 1) {
        update_unit_stride<T, sign>(round, m, n, k, a.data, a.column_stride, b, c, c_step);
        return;
    }
    constexpr std::int64_t rows = 64, depth = 64;
    T block[rows * depth];
    for (std::int64_t i = 0; i < m; i += rows) {
        const std::int64_t height = m - i < rows ? m - i : rows;
        for (std::int64_t l = 0; l < k; l += depth) {
            const std::int64_t width = k - l < depth ? k - l : depth;
            for (std::int64_t row = 0; row < height; ++row)
                for (std::int64_t column = 0; column < width; ++column)
                    block[row + column * rows] = *a.at(i + row, l + column);
            update_unit_stride<T, sign>(round, height, n, width, block, rows, b.from(l, 0), c + i,
                                        c_step);
        }
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
