// Householder's QR of one tall dense matrix, for least squares problems.
//
// Rows are contiguous and padded to a multiple of eight numbers, and so are those of right-hand sides: every
// operation is one on eight numbers of a row. Eight columns make a panel. Its reflections I - v v' are kept
// apart, eight numbers a row, and joined to I - V S V' with a triangle S (Schreiber & Van Loan, SIAM J. Sci.
// Stat. Comput. 10(1), 1989), so that columns to the right are read twice for eight reflections.
//
// A column of which nothing is left beside the reflections before it gets none, as Heath (Linear Algebra
// Appl. 46, 1982) does with dependent columns: R has a row for each column that is kept.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/parallel.hpp"
#include "native/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr int eight_columns = 8;

template <class F> struct RowOfEight {
    typedef F type __attribute__((vector_size(eight_columns * sizeof(F))));
};
template <class F> using EightOf = typename RowOfEight<F>::type;

template <class F> inline EightOf<F> eight_at(const F* from) {
    EightOf<F> x;
    std::memcpy(&x, from, sizeof x);
    return x;
}
template <class F> inline void store_eight(F* to, const EightOf<F>& x) { std::memcpy(to, &x, sizeof x); }

// The next reflection of a panel, rows of eight numbers: the inner products of its column with all of them.
template <class F> inline EightOf<F> panel_products(std::int64_t top, std::int64_t m, const F* panel, int p) {
    EightOf<F> sums[4] = {};
    std::int64_t i = top;
    for (; i + 4 <= m; i += 4)
        for (int q = 0; q < 4; ++q)
            sums[q] += eight_at(panel + (i + q) * eight_columns) * panel[(i + q) * eight_columns + p];
    for (; i < m; ++i) sums[0] += eight_at(panel + i * eight_columns) * panel[i * eight_columns + p];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The rows below `top` become keep x - (scale x_p) u, and the products of column p + 1 are summed.
template <class F>
inline EightOf<F> reflect_panel(std::int64_t top, std::int64_t m, F* panel, int p, F scale,
                                const EightOf<F>& keep, const EightOf<F>& u) {
    constexpr int last = eight_columns - 1;
    const int next = p < last ? p + 1 : last;
    const F of_next = p < last ? u[next] : F(0);
    EightOf<F> sums[4] = {};
    const auto row = [&](std::int64_t i, EightOf<F>& sum) {
        F* const x = panel + i * eight_columns;
        const F v = scale * x[p], entry = x[next] - v * of_next;
        const EightOf<F> changed = keep * eight_at(x) - v * u;
        store_eight(x, changed);
        sum += entry * changed;
    };
    std::int64_t i = top;
    for (; i + 4 <= m; i += 4)
        for (int q = 0; q < 4; ++q) row(i + q, sums[q]);
    for (; i < m; ++i) row(i, sums[0]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// S of the panel's reflections, row by row.
template <class F> inline void join(std::int64_t top, std::int64_t m, const F* panel, F* triangle) {
    EightOf<F> products[eight_columns] = {};
    for (std::int64_t i = top; i < m; ++i) {
        const EightOf<F> row = eight_at(panel + i * eight_columns);
        for (int p = 0; p < eight_columns; ++p) products[p] += row * panel[i * eight_columns + p];
    }
    for (int k = 0; k < eight_columns * eight_columns; ++k) triangle[k] = 0;
    for (int p = 0; p < eight_columns; ++p) {
        triangle[p * eight_columns + p] = 1;
        for (int i = 0; i < p; ++i) {
            F sum = 0;
            for (int k = i; k < p; ++k) sum += triangle[i * eight_columns + k] * products[p][k];
            triangle[i * eight_columns + p] = -sum;
        }
    }
}

// B -= V S V' B, or V S' V' B, for rows from `top` on and 8 C columns of B.
template <int C, class F>
inline void reflect_tile(std::int64_t top, std::int64_t m, const F* panel, const F* triangle, bool transpose,
                         F* b, std::int64_t step) {
    EightOf<F> sums[eight_columns][C] = {};
    for (std::int64_t i = top; i < m; ++i) {
        EightOf<F> row[C];
        for (int c = 0; c < C; ++c) row[c] = eight_at(b + i * step + eight_columns * c);
        for (int p = 0; p < eight_columns; ++p)
            for (int c = 0; c < C; ++c) sums[p][c] += row[c] * panel[i * eight_columns + p];
    }
    EightOf<F> parts[eight_columns][C] = {};
    for (int p = 0; p < eight_columns; ++p)
        for (int k = 0; k < eight_columns; ++k) {
            const F factor = triangle[transpose ? k * eight_columns + p : p * eight_columns + k];
            for (int c = 0; c < C; ++c) parts[p][c] += sums[k][c] * factor;
        }
    for (std::int64_t i = top; i < m; ++i) {
        EightOf<F> row[C];
        for (int c = 0; c < C; ++c) row[c] = eight_at(b + i * step + eight_columns * c);
        for (int p = 0; p < eight_columns; ++p)
            for (int c = 0; c < C; ++c) row[c] -= parts[p][c] * panel[i * eight_columns + p];
        for (int c = 0; c < C; ++c) store_eight(b + i * step + eight_columns * c, row[c]);
    }
}

template <class F>
inline void reflect_columns(std::int64_t top, std::int64_t m, const F* panel, const F* triangle,
                            bool transpose, F* b, std::int64_t step, std::int64_t begin, std::int64_t end) {
    constexpr int C = ROUNDWISE_VECTOR_BYTES == 64 ? 2 : 1;
    std::int64_t c = begin;
    for (; c + C * eight_columns <= end; c += C * eight_columns)
        reflect_tile<C>(top, m, panel, triangle, transpose, b + c, step);
    for (; c < end; c += eight_columns) reflect_tile<1>(top, m, panel, triangle, transpose, b + c, step);
}

// Columns whose panels are applied to the others together, and how many of these at a time: strips of some
// thousand rows fit into the cache of a core.
constexpr std::int64_t block_columns = 64, strip_columns = 2 * eight_columns;

// Applies the panels from `first` to `last` - 1, or back if not `transpose`, to columns `begin` to `end` - 1, strip
// after strip. Threads take strips, whose results do not depend on who computes them.
template <class F>
void reflect_strips(std::int64_t m, std::int64_t first, std::int64_t last, const F* panels, const F* triangles,
                    const std::int32_t* tops, bool transpose, F* b, std::int64_t step, std::int64_t begin,
                    std::int64_t end, int threads) {
    std::int64_t claimed = begin;
    const auto work = [&] {
        for (;;) {
            const std::int64_t c = __atomic_fetch_add(&claimed, strip_columns, __ATOMIC_RELAXED);
            if (c >= end) return;
            for (std::int64_t k = first; k < last; ++k) {
                const std::int64_t q = transpose ? k : first + last - 1 - k;
                reflect_columns(tops[q], m, panels + q * eight_columns * m, triangles + q * 64, transpose, b, step, c,
                                c + strip_columns < end ? c + strip_columns : end);
            }
        }
    };
    if (threads == 1 || end - begin <= strip_columns) {
        work();
        return;
    }
    run_members(
        threads, [](void* context, int) { (*static_cast<decltype(&work)>(context))(); },
        const_cast<void*>(static_cast<const void*>(&work)));
}

template <class F>
std::int64_t orthogonal_factorize(std::int64_t m, std::int64_t n, F* a, double least, std::int32_t* kept,
                                  F* panels, F* triangles, std::int32_t* tops, double* left_out, int threads) {
    const std::int64_t step = padded_to_eight(n);
    std::int64_t rank = 0;
    *left_out = 0;
    for (std::int64_t j = 0; j < n; j += eight_columns) {
        const std::int64_t top = rank;
        const int width = n - j < eight_columns ? static_cast<int>(n - j) : eight_columns;
        F* const panel = panels + j * m;
        F* const triangle = triangles + j * eight_columns;
        tops[j / eight_columns] = static_cast<std::int32_t>(top);
        for (std::int64_t i = top; i < m; ++i) store_eight(panel + i * eight_columns, eight_at(a + i * step + j));
        EightOf<F> products = panel_products(top, m, panel, 0);
        for (int p = 0; p < width; ++p) {
            F* const first = panel + rank * eight_columns;
            const double square = static_cast<double>(products[p]);
            if (!(square > least * least) || rank == m) {
                *left_out += square;
                for (std::int64_t i = rank; i < m; ++i) panel[i * eight_columns + p] = 0;
                if (p + 1 < width) products = panel_products(rank, m, panel, p + 1);
                continue;
            }
            const F alpha = first[p], norm = static_cast<F>(__builtin_sqrt(square));
            const F beta = alpha < 0 ? norm : -norm;
            const F scale = static_cast<F>(1 / __builtin_sqrt(square + static_cast<double>(alpha < 0 ? -alpha : alpha) * norm));
            EightOf<F> u = {}, keep = {};
            for (int q = 0; q < eight_columns; ++q) {
                u[q] = q > p ? scale * (products[q] - beta * first[q]) : q == p ? F(-1) : F(0);
                keep[q] = q != p;
            }
            // The first row is a row of R; what follows it in the panel is not part of the reflection.
            const F v = scale * (alpha - beta);
            F* const r = a + rank * step + j;
            r[p] = beta;
            for (int q = p + 1; q < eight_columns; ++q) r[q] = first[q] - v * u[q], first[q] = 0;
            first[p] = v;
            kept[rank++] = static_cast<std::int32_t>(j + p);
            products = reflect_panel(rank, m, panel, p, scale, keep, u);
        }
        for (std::int64_t i = top; i < m; ++i)
            for (int p = width; p < eight_columns; ++p) panel[i * eight_columns + p] = 0;
        join(top, m, panel, triangle);
        const std::int64_t block = j / block_columns * block_columns, after = block + block_columns;
        const std::int64_t end = after < step ? after : step;
        reflect_columns(top, m, panel, triangle, true, a, step, j + eight_columns, end);
        if (j + eight_columns < end) continue;
        reflect_strips(m, block / eight_columns, j / eight_columns + 1, panels, triangles, tops, true, a, step, end,
                       step, threads);
    }
    return rank;
}

template <class F>
void orthogonal_reflect(std::int64_t m, std::int64_t n, const F* panels, const F* triangles,
                        const std::int32_t* tops, bool transpose, std::int64_t columns, F* b, int threads) {
    const std::int64_t count = (n + eight_columns - 1) / eight_columns, width = padded_to_eight(columns);
    reflect_strips(m, 0, count, panels, triangles, tops, transpose, b, width, 0, width, threads);
}

// X = R^-1 B, or R'^-1 B, in place, for eight columns of B at a time.
template <class F>
void orthogonal_substitute(std::int64_t n, const F* r, std::int64_t step, bool transpose, std::int64_t columns,
                           F* b) {
    const std::int64_t width = padded_to_eight(columns), blocks = (n + eight_columns - 1) / eight_columns;
    for (std::int64_t k = 0; k < blocks; ++k) {
        const std::int64_t j = eight_columns * (transpose ? k : blocks - 1 - k);
        const int count = n - j < eight_columns ? static_cast<int>(n - j) : eight_columns;
        const std::int64_t begin = transpose ? 0 : j + count, end = transpose ? j : n;
        const auto entry = [&](std::int64_t i, std::int64_t l) { return transpose ? r[l * step + i] : r[i * step + l]; };
        for (std::int64_t c = 0; c < width; c += eight_columns) {
            EightOf<F> rows[eight_columns];
            for (int q = 0; q < count; ++q) rows[q] = eight_at(b + (j + q) * width + c);
            for (int q = count; q < eight_columns; ++q) rows[q] = EightOf<F>{};
            if (count == eight_columns) {
                for (std::int64_t l = begin; l < end; ++l) {
                    const EightOf<F> x = eight_at(b + l * width + c);
                    for (int q = 0; q < eight_columns; ++q) rows[q] -= x * entry(j + q, l);
                }
            } else {
                for (std::int64_t l = begin; l < end; ++l) {
                    const EightOf<F> x = eight_at(b + l * width + c);
                    for (int q = 0; q < count; ++q) rows[q] -= x * entry(j + q, l);
                }
            }
            for (int s = 0; s < count; ++s) {
                const int q = transpose ? s : count - 1 - s;
                rows[q] /= r[(j + q) * step + j + q];
                store_eight(b + (j + q) * width + c, rows[q]);
                for (int t = 0; t < count; ++t)
                    if (transpose ? t > q : t < q) rows[t] -= rows[q] * entry(j + t, j + q);
            }
        }
    }
}

// R X, or R' X, in place: a row of the result takes the rows of X from, or up to, its own.
template <class F>
void orthogonal_multiply(std::int64_t n, const F* r, std::int64_t step, bool transpose, std::int64_t columns,
                         F* b) {
    const std::int64_t width = padded_to_eight(columns);
    for (std::int64_t c = 0; c < width; c += eight_columns)
        for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t i = transpose ? n - 1 - k : k, end = transpose ? i + 1 : n;
            EightOf<F> sums[4] = {};
            const auto add = [&](std::int64_t l, int q) {
                sums[q] += eight_at(b + l * width + c) * (transpose ? r[l * step + i] : r[i * step + l]);
            };
            std::int64_t l = transpose ? 0 : i;
            for (; l + 4 <= end; l += 4)
                for (int q = 0; q < 4; ++q) add(l + q, q);
            for (; l < end; ++l) add(l, 0);
            store_eight(b + i * width + c, (sums[0] + sums[1]) + (sums[2] + sums[3]));
        }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
