// Triangular solves with packed factors; see NativeKernels::solve in kernels.hpp.
//
// A triangle is cut into blocks of columns, taken in the order of substitution. Each block is a
// phase. Its large part, the product with the block's entries off the diagonal, is cut into tasks.
// The thread that completes the last task solves with the block's triangle on the diagonal.
#pragma once

#include "native/kernels.hpp"
#include "native/matvec.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t diagonal_block = 32;   // solved entry by entry
constexpr std::int64_t phase_block = 256;     // columns of one phase
constexpr std::int64_t task_rows = 256, task_columns = 16;

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

// Calls body(first, size) for the blocks of columns begin..begin + count, in the order of
// substitution.
template <class S, class Body>
inline void for_each_block(const Triangle<S>& triangle, std::int64_t begin, std::int64_t count,
                           std::int64_t size, const Body& body) {
    const std::int64_t blocks = (count + size - 1) / size;
    for (std::int64_t step = 0; step < blocks; ++step) {
        const std::int64_t offset = (triangle.forward() ? step : blocks - 1 - step) * size;
        body(begin + offset, count - offset < size ? count - offset : size);
    }
}

// The same as solve_diagonal for a block of any size, in place in b (n x C).
template <int C, class T, class S>
inline void solve_block(const Triangle<S>& triangle, std::int64_t begin, std::int64_t count, T* b) {
    const std::int64_t n = triangle.n, end = begin + count;
    for_each_block(triangle, begin, count, diagonal_block, [&](std::int64_t first, std::int64_t size) {
        // The rows below (lower) or above (upper) the small block; solved already if transposed.
        const std::int64_t top = triangle.lower ? first + size : begin;
        const std::int64_t rows = triangle.lower ? end - top : first - begin;
        const S* a = triangle.a + top + first * n;
        if (triangle.transpose)
            dot_columns<C>(rows, size, a, n, b + top, n,
                           [&](std::int64_t j, int c, T value) { b[first + j + c * n] -= value; });
        solve_diagonal<C>(triangle, first, size, b + first, n);
        if (!triangle.transpose) subtract_product<C>(rows, size, a, n, b + first, n, b + top, n);
    });
}

// T X = B. Each phase subtracts the product with the block solved last from all rows that are not
// solved yet, then solves with the next block. The first phase has nothing to subtract, and one task.
template <int C, class T, class S>
inline void substitute(const Triangle<S>& triangle, T* b, Phase*& phase) {
    const std::int64_t n = triangle.n;
    std::int64_t solved = 0, size = 0;
    for_each_block(triangle, 0, n, phase_block, [&](std::int64_t begin, std::int64_t count) {
        const std::int64_t top = triangle.lower ? begin : 0;  // the first row not solved yet
        const std::int64_t rows = size == 0 ? 0 : triangle.lower ? n - begin : begin + count;
        const std::int64_t tasks = rows == 0 ? 1 : (rows + task_rows - 1) / task_rows;
        share(*phase++, tasks,
              [&](std::int64_t task) {
                  const std::int64_t i = task * task_rows;
                  const std::int64_t height = rows - i < task_rows ? rows - i : task_rows;
                  subtract_product<C>(height, size, triangle.a + top + i + solved * n, n, b + solved, n,
                                      b + top + i, n);
              },
              [&] { solve_block<C>(triangle, begin, count, b); });
        solved = begin;
        size = count;
    });
}

// T' X = B. Each phase subtracts from its block the products with everything that is solved, as dot
// products with columns, then solves with the block.
template <int C, class T, class S>
inline void substitute_transposed(const Triangle<S>& triangle, T* b, Phase*& phase) {
    const std::int64_t n = triangle.n;
    for_each_block(triangle, 0, n, phase_block, [&](std::int64_t begin, std::int64_t count) {
        const std::int64_t top = triangle.lower ? begin + count : 0;
        const std::int64_t rows = triangle.lower ? n - top : begin;
        share(*phase++, (count + task_columns - 1) / task_columns,
              [&](std::int64_t task) {
                  const std::int64_t j = begin + task * task_columns, end = begin + count;
                  dot_columns<C>(rows, end - j < task_columns ? end - j : task_columns,
                                 triangle.a + top + j * n, n, b + top, n,
                                 [&](std::int64_t l, int c, T value) { b[j + l + c * n] -= value; });
              },
              [&] { solve_block<C>(triangle, begin, count, b); });
    });
}

// Solves for C columns of B.
template <int C, class T, class S>
inline void solve_columns(Factors factors, std::int64_t n, const S* a, bool transpose, T* b,
                          Phase*& phase) {
    const bool cholesky = factors == Factors::cholesky;
    const Triangle<S> lower{n, a, true, !cholesky, false}, lower_transposed{n, a, true, !cholesky, true};
    if (cholesky || !transpose) substitute<C>(lower, b, phase);
    if (!cholesky) {
        const Triangle<S> upper{n, a, false, false, transpose};
        if (transpose) substitute_transposed<C>(upper, b, phase);
        else substitute<C>(upper, b, phase);
    }
    if (cholesky || transpose) substitute_transposed<C>(lower_transposed, b, phase);
}

// Phases that all columns of B need: they are solved for four at a time, the rest one at a time, each
// time with two triangles.
inline std::int64_t phases_of_solve(std::int64_t n, std::int64_t columns) {
    return (columns / 4 + columns % 4) * 2 * ((n + phase_block - 1) / phase_block);
}

inline std::int64_t solve_workspace(std::int64_t n, std::int64_t columns) {
    return phases_of_solve(n, columns) * static_cast<std::int64_t>(sizeof(Phase));
}

template <class T, class S>
inline void solve_stored(Factors factors, std::int64_t n, const S* a, bool transpose,
                         std::int64_t columns, T* b, int threads, Phase* phases) {
    std::memset(phases, 0, static_cast<std::size_t>(solve_workspace(n, columns)));
    auto body = [=](int) {
        Phase* phase = phases;
        std::int64_t j = 0;
        for (; j + 4 <= columns; j += 4) solve_columns<4>(factors, n, a, transpose, b + j * n, phase);
        for (; j < columns; ++j) solve_columns<1>(factors, n, a, transpose, b + j * n, phase);
    };
    run_together(threads_for<S>(n * n, threads), body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
