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
constexpr std::int64_t phase_block = 256;     // columns of one phase, at most
constexpr std::int64_t task_columns = 16;

// Columns of one phase, and rows of a task. While a thread solves with a block on the diagonal the others
// wait, so that small matrices have small blocks.
inline std::int64_t phase_columns(std::int64_t n) { return n < 1500 ? 128 : phase_block; }
inline std::int64_t task_rows(std::int64_t n) { return n < 1500 ? 64 : 128; }

// Which of the two triangles of a packed matrix of order n, and how it is used.
struct TriangleKind {
    std::int64_t n;
    bool lower, unit, transpose;
    bool forward() const { return lower != transpose; }
};

template <class S> struct Triangle : TriangleKind {
    const S* a;

    // Subtracts from rows top..top + rows of B (n x C) the products of columns first..first + size of
    // the matrix with the rows of B that have these numbers.
    template <int C, class T>
    void subtract(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size, T* b) const {
        subtract_product<C>(rows, size, a + top + first * n, n, b + first, n, b + top, n);
    }

    // The same with the transpose: rows first..first + size of B change.
    template <int C, class T>
    void subtract_transposed(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size,
                             T* b) const {
        dot_columns<C>(rows, size, a + top + first * n, n, b + top, n,
                       [&](std::int64_t j, int c, T value) { b[first + j + c * n] -= value; });
    }
};

// Copies a small block of a triangle on its diagonal, or its transpose, column by column.
template <class T, class S>
inline void copy_diagonal(const TriangleKind& triangle, const S* a, std::int64_t a_step, std::int64_t begin,
                          std::int64_t count, T (&block)[diagonal_block * diagonal_block]) {
    for (std::int64_t j = 0; j < count; ++j) {
        T column[diagonal_block];
        const S* source = a + begin + (begin + j) * a_step;
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
}

// Calls step(k, first, last) for k in the order of substitution within a block of `count` rows: row k
// is to be divided by its pivot, and then subtracted from rows first..last.
template <class Step>
inline void for_each_row(const TriangleKind& triangle, std::int64_t count, const Step& step) {
    for (std::int64_t l = 0; l < count; ++l) {
        const std::int64_t k = triangle.forward() ? l : count - 1 - l;
        step(k, triangle.forward() ? k + 1 : 0, triangle.forward() ? count : k);
    }
}

// In place X (count x C) = T^-1 X for the triangle's block of rows and columns begin..begin + count.
template <int C, class T, class S>
inline void solve_diagonal(const Triangle<S>& triangle, std::int64_t begin, std::int64_t count, T* x,
                           std::int64_t x_step) {
    T block[diagonal_block * diagonal_block];
    copy_diagonal(triangle, triangle.a, triangle.n, begin, count, block);
    for (int c = 0; c < C; ++c, x += x_step)
        for_each_row(triangle, count, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
            const T* column = block + k * diagonal_block;
            if (!triangle.unit) x[k] /= column[k];
            for (std::int64_t i = first; i < last; ++i) x[i] -= column[i] * x[k];
        });
}

// Calls body(first, size) for the blocks of columns begin..begin + count, in the order of
// substitution.
template <class Body>
inline void for_each_block(const TriangleKind& triangle, std::int64_t begin, std::int64_t count,
                           std::int64_t size, const Body& body) {
    const std::int64_t blocks = (count + size - 1) / size;
    for (std::int64_t step = 0; step < blocks; ++step) {
        const std::int64_t offset = (triangle.forward() ? step : blocks - 1 - step) * size;
        body(begin + offset, count - offset < size ? count - offset : size);
    }
}

// The same as solve_diagonal for a block of any size, in place in b (n x C).
template <int C, class T, class Shape>
inline void solve_block(const Shape& triangle, std::int64_t begin, std::int64_t count, T* b) {
    const std::int64_t n = triangle.n, end = begin + count;
    for_each_block(triangle, begin, count, diagonal_block, [&](std::int64_t first, std::int64_t size) {
        // The rows below (lower) or above (upper) the small block; solved already if transposed.
        const std::int64_t top = triangle.lower ? first + size : begin;
        const std::int64_t rows = triangle.lower ? end - top : first - begin;
        if (triangle.transpose) triangle.template subtract_transposed<C>(top, rows, first, size, b);
        solve_diagonal<C>(triangle, first, size, b + first, n);
        if (!triangle.transpose) triangle.template subtract<C>(top, rows, first, size, b);
    });
}

// T X = B. Each phase subtracts the product with the block solved last from all rows that are not
// solved yet, then solves with the next block. The first phase has nothing to subtract, and one task.
template <int C, class T, class Shape>
inline void substitute(const Shape& triangle, T* b, Phase*& phase) {
    const std::int64_t n = triangle.n;
    std::int64_t solved = 0, size = 0;
    const std::int64_t most = task_rows(n);
    for_each_block(triangle, 0, n, phase_columns(n), [&](std::int64_t begin, std::int64_t count) {
        const std::int64_t top = triangle.lower ? begin : 0;  // the first row not solved yet
        const std::int64_t rows = size == 0 ? 0 : triangle.lower ? n - begin : begin + count;
        const std::int64_t tasks = rows == 0 ? 1 : (rows + most - 1) / most;
        share(*phase++, tasks,
              [&](std::int64_t task) {
                  const std::int64_t i = task * most, height = rows - i < most ? rows - i : most;
                  triangle.template subtract<C>(top + i, height, solved, size, b);
              },
              [&] { solve_block<C>(triangle, begin, count, b); });
        solved = begin;
        size = count;
    });
}

// T' X = B. Each phase subtracts from its block the products with everything that is solved, as dot
// products with columns, then solves with the block.
template <int C, class T, class Shape>
inline void substitute_transposed(const Shape& triangle, T* b, Phase*& phase) {
    const std::int64_t n = triangle.n;
    for_each_block(triangle, 0, n, phase_columns(n), [&](std::int64_t begin, std::int64_t count) {
        const std::int64_t top = triangle.lower ? begin + count : 0;
        const std::int64_t rows = triangle.lower ? n - top : begin;
        share(*phase++, (count + task_columns - 1) / task_columns,
              [&](std::int64_t task) {
                  const std::int64_t j = begin + task * task_columns, end = begin + count;
                  triangle.template subtract_transposed<C>(
                      top, rows, j, end - j < task_columns ? end - j : task_columns, b);
              },
              [&] { solve_block<C>(triangle, begin, count, b); });
    });
}

// Solves for C columns of B.
template <int C, class T, class S>
inline void solve_columns(Factors factors, std::int64_t n, const S* a, bool transpose, T* b,
                          Phase*& phase) {
    const bool cholesky = factors == Factors::cholesky;
    const Triangle<S> lower{{n, true, !cholesky, false}, a}, lower_transposed{{n, true, !cholesky, true}, a};
    if (cholesky || !transpose) substitute<C>(lower, b, phase);
    if (!cholesky) {
        const Triangle<S> upper{{n, false, false, transpose}, a};
        if (transpose) substitute_transposed<C>(upper, b, phase);
        else substitute<C>(upper, b, phase);
    }
    if (cholesky || transpose) substitute_transposed<C>(lower_transposed, b, phase);
}

// Bytes of the phases that all columns of B need: `group` at a time, the rest one at a time, each time
// with two triangles.
inline std::int64_t bytes_of_phases(std::int64_t n, std::int64_t columns, std::int64_t group) {
    const std::int64_t phases = 2 * ((n + phase_columns(n) - 1) / phase_columns(n));
    return (columns / group + columns % group) * phases * static_cast<std::int64_t>(sizeof(Phase));
}

inline std::int64_t solve_workspace(std::int64_t n, std::int64_t columns) {
    return bytes_of_phases(n, columns, 4);
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
