// Triangular solves with packed factors; see NativeKernels::solve in kernels.hpp.
//
// The rows of B are cut into blocks. The thread that claims a block subtracts the products with all blocks
// that are solved before it, in the order of substitution and each as soon as it is solved, and then solves
// with the block's triangle on the diagonal. A thread waits only for blocks that others have claimed, and the
// results do not depend on the number of threads.
#pragma once

#include <type_traits>

#include "native/kernels.hpp"
#include "native/matvec.hpp"
#include "native/strip_solve.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t diagonal_block = 32;  // solved entry by entry
constexpr std::int64_t block_rows = 64;      // of B, which a thread claims at a time
static_assert(block_rows % diagonal_block == 0, "a block has whole small ones, but for the last");

// How many solved blocks one product is with, of those that are left. Long products read the matrix faster,
// short ones can begin sooner.
inline std::int64_t taken_together(std::int64_t left) { return left >= 16 ? 16 : left >= 4 ? 4 : 1; }

// Which of the two triangles of a packed matrix of order n, and how it is used.
struct TriangleKind {
    std::int64_t n;
    bool lower, unit, transpose;
    bool forward() const { return lower != transpose; }
    std::int64_t blocks() const { return (n + block_rows - 1) / block_rows; }
};

struct BlockRows {
    std::int64_t begin, count;
};

// The rows of B in blocks first..last, numbered in the order of substitution.
inline BlockRows rows_of_blocks(const TriangleKind& triangle, std::int64_t first, std::int64_t last) {
    const std::int64_t blocks = triangle.blocks();
    const std::int64_t begin = (triangle.forward() ? first : blocks - last) * block_rows;
    const std::int64_t end = (triangle.forward() ? last : blocks - first) * block_rows;
    return {begin, (end < triangle.n ? end : triangle.n) - begin};
}

// Starts reading a part of a matrix into the second cache. Columns need not begin with a cache line.
template <class S> inline void prefetch(const S* a, std::int64_t a_step, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t line = 64 / sizeof(S);
    for (std::int64_t j = 0; j < columns; ++j) {
        const S* column = a + j * a_step;
        for (std::int64_t i = 0; i < rows; i += line) __builtin_prefetch(column + i, 0, 2);
        __builtin_prefetch(column + rows - 1, 0, 2);
    }
}

// A small block of a triangle on its diagonal, or its transpose, column by column.
template <class T> struct DiagonalCopy {
    T values[diagonal_block * diagonal_block];

    // The block at `a` that has count rows and columns.
    template <class S> void take(const S* a, std::int64_t a_step, std::int64_t count, bool transpose) {
        constexpr int lanes = Lanes<T>::count;
        for (std::int64_t j = 0; j < count; ++j) {
            T column[diagonal_block];
            const S* source = a + j * a_step;
            T* target = transpose ? column : values + j * diagonal_block;
            for (std::int64_t i = 0; i < count; i += lanes) {
                const std::int64_t valid = count - i < lanes ? count - i : lanes;
                store_first<T>(target + i, valid == lanes ? widen<T, lanes>(source + i)
                                                          : widen_first<T, lanes>(source + i, valid), valid);
            }
            if (transpose)
                for (std::int64_t i = 0; i < count; ++i) values[j + i * diagonal_block] = column[i];
        }
    }
};

template <class S> struct Triangle : TriangleKind {
    const S* a;
    template <class T> using Diagonal = DiagonalCopy<T>;

    void prefetch_part(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size) const {
        prefetch(a + top + first * n, n, rows, size);
    }

    template <class T> void copy_diagonal(std::int64_t begin, std::int64_t count, Diagonal<T>& copy) const {
        copy.take(a + begin + begin * n, n, count, transpose);
    }

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

// Calls step(k, first, last) for k in the order of substitution within a block of `count` rows: row k
// is to be divided by its pivot, and then subtracted from rows first..last.
template <class Step>
inline void for_each_row(const TriangleKind& triangle, std::int64_t count, const Step& step) {
    for (std::int64_t l = 0; l < count; ++l) {
        const std::int64_t k = triangle.forward() ? l : count - 1 - l;
        step(k, triangle.forward() ? k + 1 : 0, triangle.forward() ? count : k);
    }
}

// In place X (count x C) = T^-1 X for a small block of a triangle.
template <int C, class T>
inline void solve_diagonal(const TriangleKind& triangle, const DiagonalCopy<T>& block, std::int64_t count, T* x,
                           std::int64_t x_step) {
    for (int c = 0; c < C; ++c, x += x_step)
        for_each_row(triangle, count, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
            const T* column = block.values + k * diagonal_block;
            if (!triangle.unit) x[k] /= column[k];
            for (std::int64_t i = first; i < last; ++i) x[i] -= column[i] * x[k];
        });
}

// The part of a triangle on the diagonal that belongs to one block of B.
template <class T, class Shape> class DiagonalBlock {
    const Shape& triangle_;
    const BlockRows rows_;
    typename Shape::template Diagonal<T> copies_[block_rows / diagonal_block];

    std::int64_t parts() const { return (rows_.count + diagonal_block - 1) / diagonal_block; }
    BlockRows rows_of(std::int64_t part) const {
        const std::int64_t offset = part * diagonal_block, left = rows_.count - offset;
        return {rows_.begin + offset, left < diagonal_block ? left : diagonal_block};
    }

  public:
    DiagonalBlock(const Shape& triangle, BlockRows rows) : triangle_(triangle), rows_(rows) {
        triangle.prefetch_part(rows.begin, rows.count, rows.begin, rows.count);
        for (std::int64_t part = 0; part < parts(); ++part)
            triangle.template copy_diagonal<T>(rows_of(part).begin, rows_of(part).count, copies_[part]);
    }

    // In place in b (n x C).
    template <int C> void solve(T* b) const {
        for (std::int64_t step = 0; step < parts(); ++step) {
            const std::int64_t part = triangle_.forward() ? step : parts() - 1 - step;
            const auto [first, size] = rows_of(part);
            // The rows below (lower) or above (upper) the small block; solved already if transposed.
            const std::int64_t top = triangle_.lower ? first + size : rows_.begin;
            const std::int64_t rows = triangle_.lower ? rows_.begin + rows_.count - top : first - top;
            if (triangle_.transpose) triangle_.template subtract_transposed<C>(top, rows, first, size, b);
            solve_diagonal<C>(triangle_, copies_[part], size, b + first, triangle_.n);
            if (!triangle_.transpose) triangle_.template subtract<C>(top, rows, first, size, b);
        }
    }
};

// T X = B or T' X = B, in place in b (n x C). phase.completed counts the blocks that are solved. Only the owner of
// the next one changes it.
template <int C, class T, class Shape>
inline void substitute(const Shape& triangle, T* b, Phase& phase) {
    for (;;) {
        const std::int64_t own = __atomic_fetch_add(&phase.claimed, 1, __ATOMIC_ACQ_REL);
        if (own >= triangle.blocks()) break;
        const BlockRows rows = rows_of_blocks(triangle, own, own + 1);
        const DiagonalBlock<T, Shape> diagonal(triangle, rows);
        for (std::int64_t first = 0; first < own;) {
            const std::int64_t last = first + taken_together(own - first);
            const BlockRows solved = rows_of_blocks(triangle, first, last);
            const auto [top, height] = triangle.transpose ? solved : rows;
            const auto [left, width] = triangle.transpose ? rows : solved;
            if (__atomic_load_n(&phase.completed, __ATOMIC_ACQUIRE) < last)  // not solved yet: read the matrix meanwhile
                triangle.prefetch_part(top, height, left, width);
            wait_until(phase.completed, last);
            if (triangle.transpose) triangle.template subtract_transposed<C>(top, height, left, width, b);
            else triangle.template subtract<C>(top, height, left, width, b);
            first = last;
        }
        diagonal.template solve<C>(b);
        __atomic_store_n(&phase.completed, own + 1, __ATOMIC_RELEASE);
    }
    wait_until(phase.completed, triangle.blocks());
}

// Solves for C columns of B.
template <int C, class T, class S>
inline void solve_columns(Factors factors, std::int64_t n, const S* a, bool transpose, T* b,
                          Phase*& phase) {
    const bool cholesky = factors == Factors::cholesky;
    const Triangle<S> lower{{n, true, !cholesky, transpose && !cholesky}, a}, upper{{n, false, false, transpose}, a};
    const Triangle<S> lower_transposed{{n, true, false, true}, a};
    substitute<C>(!cholesky && transpose ? upper : lower, b, *phase++);
    substitute<C>(cholesky ? lower_transposed : transpose ? lower : upper, b, *phase++);
}

// Whether a solve is cut into strips of columns. It does not depend on threads, so that results do not. Fewer columns
// take less time together than in strips of which most is empty, real ones by fours, complex ones (parts = 2) by twos.
inline bool solves_in_strips(std::int64_t columns, int parts = 1) { return columns >= 8 / parts; }

// Bytes of two phases, one for each triangle, for every column of B: columns that are solved for together need
// fewer.
inline std::int64_t phases_of_solve(std::int64_t columns) {
    return 2 * columns * static_cast<std::int64_t>(sizeof(Phase));
}

// The same for real numbers (parts = 1) and for complex ones, which take four products each.
template <class T, int parts>
inline std::int64_t solve_workspace(std::int64_t n, std::int64_t columns, int threads) {
    const std::int64_t phases = phases_of_solve(columns);
    if (!solves_in_strips(columns, parts)) return phases;
    threads = strip_threads(parts * n, columns, threads);
    const std::int64_t numbers = strip_solve_numbers(n, Strips<T>(columns, threads, parts), threads, parts);
    return phases + numbers * static_cast<std::int64_t>(sizeof(T));
}

template <int parts, class T>
inline void solve_by_strips(Factors factors, std::int64_t n, const T* a, bool transpose, std::int64_t columns, T* b,
                            int threads, void* workspace) {
    using Shape = StripTriangle<T, parts>;
    Arena arena{static_cast<char*>(workspace)};
    Phase* phase = arena.take<Phase>(1);
    *phase = {};
    threads = strip_threads(parts * n, columns, threads);
    const Strips<T> strips(columns, threads, parts);
    T* numbers = arena.take<T>(strip_solve_numbers(n, strips, threads, parts));
    const bool cholesky = factors == Factors::cholesky;
    const Shape lower{a, n, true, !cholesky, transpose && !cholesky}, upper{a, n, false, false, transpose};
    const Shape lower_transposed{a, n, true, false, true};
    solve_in_strips(!cholesky && transpose ? upper : lower,
                    cholesky ? lower_transposed : transpose ? lower : upper, strips, b, threads, *phase, numbers);
}

template <class T, class S>
inline void solve_stored(Factors factors, std::int64_t n, const S* a, bool transpose,
                         std::int64_t columns, T* b, int threads, void* workspace) {
    if constexpr (std::is_same_v<S, T>)
        if (solves_in_strips(columns))
            return solve_by_strips<1>(factors, n, a, transpose, columns, b, threads, workspace);
    Phase* phases = static_cast<Phase*>(workspace);
    std::memset(phases, 0, static_cast<std::size_t>(phases_of_solve(columns)));
    auto body = [=](int) {
        Phase* phase = phases;
        std::int64_t j = 0;
        for (; j + 4 <= columns; j += 4) solve_columns<4>(factors, n, a, transpose, b + j * n, phase);
        for (; j + 2 <= columns; j += 2) solve_columns<2>(factors, n, a, transpose, b + j * n, phase);
        for (; j < columns; ++j) solve_columns<1>(factors, n, a, transpose, b + j * n, phase);
    };
    run_together(threads_for<S>(n * n, threads), body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
