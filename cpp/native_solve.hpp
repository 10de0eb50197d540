// Triangular solves with packed factors; see StorageKernels::solve in native.hpp.
//
// Blocks of columns, in the order of substitution. All members of the team solve with the small
// triangle on the diagonal, each for itself, and share what is large: one wait per block.
#pragma once

#include "native.hpp"
#include "native_matvec.hpp"
#include "parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t diagonal_block = 32;

// One of the two triangles of a packed matrix of order n.
template <class S> struct Triangle {
    std::int64_t n;
    const S* a;
    bool lower, unit, transpose;
    bool forward() const { return lower != transpose; }
};

// In place X (count x C) = T^-1 X for the triangle's block of rows and columns begin..begin + count.
template <int C, class T, class S>
inline void solve_diagonal(const Triangle<S>& triangle, std::int64_t begin, std::int64_t count, T* x,
                           std::int64_t x_step) {
    T block[diagonal_block * diagonal_block];  // the triangle, or its transpose, column by column
    for (std::int64_t j = 0; j < count; ++j) {
        T column[diagonal_block];
        const S* source = triangle.a + begin + (begin + j) * triangle.n;
        T* target = triangle.transpose ? column : block + j * diagonal_block;
        constexpr int lanes = Lanes<T>::count;
        for (std::int64_t i = 0; i < count; i += lanes) {
            const std::int64_t valid = count - i < lanes ? count - i : lanes;
            store_first<T>(target + i, valid == lanes ? widen<T, lanes>(source + i)
                                                      : widen_first<T, lanes>(source + i, valid), valid);
        }
        if (triangle.transpose)
            for (std::int64_t i = 0; i < count; ++i) block[j + i * diagonal_block] = column[i];
    }
    for (int c = 0; c < C; ++c, x += x_step)
        for (std::int64_t step = 0; step < count; ++step) {
            const std::int64_t k = triangle.forward() ? step : count - 1 - step;
            const T* column = block + k * diagonal_block;
            if (!triangle.unit) x[k] /= column[k];
            const std::int64_t first = triangle.forward() ? k + 1 : 0;
            const std::int64_t last = triangle.forward() ? count : k;
            for (std::int64_t i = first; i < last; ++i) x[i] -= column[i] * x[k];
        }
}

// The part of begin..end that is one member's; bounds inside are multiples of grain from begin on.
struct Share {
    std::int64_t begin, end;
    Share(std::int64_t first, std::int64_t last, std::int64_t grain, const Team& team, int member) {
        const std::int64_t grains = (last - first + grain - 1) / grain, size = team_size(team);
        const auto bound = [=](std::int64_t part) {
            const std::int64_t b = first + grains * part / size * grain;
            return b < last ? b : last;
        };
        begin = bound(member);
        end = bound(member + 1);
    }
};

// T X = B: a solved block is subtracted from all rows that it still concerns.
template <int C, class T, class S>
inline void substitute(const Triangle<S>& triangle, T* b, Team& team, int member) {
    const std::int64_t n = triangle.n, blocks = (n + diagonal_block - 1) / diagonal_block;
    for (std::int64_t step = 0; step < blocks; ++step) {
        const std::int64_t begin = (triangle.lower ? step : blocks - 1 - step) * diagonal_block;
        const std::int64_t count = n - begin < diagonal_block ? n - begin : diagonal_block;
        T x[C * diagonal_block];
        for (int c = 0; c < C; ++c)
            for (std::int64_t i = 0; i < count; ++i) x[i + c * diagonal_block] = b[begin + i + c * n];
        solve_diagonal<C>(triangle, begin, count, x, diagonal_block);
        const Share rows(triangle.lower ? begin + count : 0, triangle.lower ? n : begin, 64, team, member);
        if (rows.begin < rows.end)
            subtract_product<C>(rows.end - rows.begin, count, triangle.a + rows.begin + begin * n, n, x,
                                diagonal_block, b + rows.begin, n);
        team_wait(team);
        if (member == 0)  // now that all have read the block
            for (int c = 0; c < C; ++c)
                for (std::int64_t i = 0; i < count; ++i)
                    b[begin + i + c * n] = x[i + c * diagonal_block];
    }
    team_wait(team);
}

// T' X = B: a block first gets all that is solved subtracted, by dot products down the columns.
// Each member keeps the solution in an x of its own.
template <int C, class T, class S>
inline void substitute_transposed(const Triangle<S>& triangle, T* b, T* x, Team& team, int member) {
    const std::int64_t n = triangle.n, blocks = (n + diagonal_block - 1) / diagonal_block;
    for (std::int64_t step = 0; step < blocks; ++step) {
        const std::int64_t begin = (triangle.lower ? blocks - 1 - step : step) * diagonal_block;
        const std::int64_t count = n - begin < diagonal_block ? n - begin : diagonal_block;
        const std::int64_t top = triangle.lower ? begin + count : 0;
        const std::int64_t rows = triangle.lower ? n - top : begin;
        const Share columns(begin, begin + count, 8, team, member);
        dot_columns<C>(rows, columns.end - columns.begin, triangle.a + top + columns.begin * n, n,
                       x + top, n, [&](std::int64_t j, int c, T value) {
                           b[columns.begin + j + c * n] -= value;
                       });
        team_wait(team);
        for (int c = 0; c < C; ++c)
            for (std::int64_t i = begin; i < begin + count; ++i) x[i + c * n] = b[i + c * n];
        solve_diagonal<C>(triangle, begin, count, x + begin, n);
    }
    team_wait(team);
    if (member == 0)
        for (int c = 0; c < C; ++c)
            for (std::int64_t i = 0; i < n; ++i) b[i + c * n] = x[i + c * n];
    team_wait(team);
}

template <int C, class T, class S>
inline void solve_columns(Factors factors, std::int64_t n, const S* a, bool transpose, T* b, T* x,
                          Team& team, int member) {
    const bool cholesky = factors == Factors::cholesky;
    const Triangle<S> lower{n, a, true, !cholesky, false}, lower_transposed{n, a, true, !cholesky, true};
    if (cholesky || !transpose) substitute<C>(lower, b, team, member);
    if (!cholesky) {
        const Triangle<S> upper{n, a, false, false, transpose};
        if (transpose) substitute_transposed<C>(upper, b, x, team, member);
        else substitute<C>(upper, b, team, member);
    }
    if (cholesky || transpose) substitute_transposed<C>(lower_transposed, b, x, team, member);
}

template <class T, class S>
inline void solve_stored(Factors factors, std::int64_t n, const S* a, bool transpose,
                         std::int64_t columns, T* b, int threads, T* workspace) {
    auto body = [&](Team& team, int member) {
        T* x = workspace + member * 4 * n;
        std::int64_t j = 0;
        for (; j + 4 <= columns; j += 4)
            solve_columns<4>(factors, n, a, transpose, b + j * n, x, team, member);
        for (; j < columns; ++j)
            solve_columns<1>(factors, n, a, transpose, b + j * n, x, team, member);
    };
    run_together(threads_for<S>(n * n, threads), body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
