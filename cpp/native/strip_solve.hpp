// Triangular solves for many columns, in strips (strips.hpp). A thread solves for some strips by itself: it waits
// for nobody.
#pragma once

#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "native/strips.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// One triangle of a packed n x n matrix, and how it is used.
template <class T> struct StripTriangle {
    const T* a;
    std::int64_t n;
    bool lower, unit, transpose;

    bool forward() const { return lower != transpose; }
    std::int64_t row_step() const { return transpose ? n : 1; }
    std::int64_t column_step() const { return transpose ? 1 : n; }
    const T* at(std::int64_t i, std::int64_t j) const { return a + i * row_step() + j * column_step(); }
    bool packs() const { return !transpose || rows_collide<T>(n); }
};

// Solves for S rows of a strip: subtracts the products with `count` solved rows x, then solves with the triangle of
// S rows, of which `corner` is a copy by rows.
template <int S, int V, bool packed, class T>
inline void solve_strip_rows(const StripTriangle<T>& triangle, std::int64_t count, const T* m, const T* x,
                             const T* corner, T* rows) {
    constexpr int lanes = Lanes<T>::count;
    StripSums<S, V, T> sums = {};
    add_strip<S, V, packed>(count, m, triangle.n, x, sums);
    Vector<T> left[S][V];
    for (int s = 0; s < S; ++s)
        for (int v = 0; v < V; ++v) left[s][v] = load(rows + (s * V + v) * lanes) - sums.of[s][v];
    const auto eliminate = [&](int s, int begin, int end) {
        for (int v = 0; v < V; ++v) {
            if (!triangle.unit) left[s][v] /= corner[s * S + s];
            for (int t = begin; t < end; ++t) fused_subtract<T>(left[t][v], left[s][v], corner[t * S + s]);
        }
    };
    if (triangle.forward())
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s) eliminate(s, s + 1, S);
    else
#pragma GCC unroll 12
        for (int s = S - 1; s >= 0; --s) eliminate(s, 0, s);
    for (int s = 0; s < S; ++s)
        for (int v = 0; v < V; ++v) store<T>(rows + (s * V + v) * lanes, left[s][v]);
}

// Solves for some strips; strip k is at at(k). `packed` has room for rows_of_block rows.
template <class T, class At>
inline void solve_strips(const StripTriangle<T>& triangle, const Strips<T>& strips, std::int64_t begin,
                         std::int64_t end, const At& at, T* packed) {
    struct Group {
        std::int64_t first, solved, count;  // its first row, the first of the solved ones and how many there are
        int rows;
        const T* m;
        T corner[strip_rows * strip_rows];
    };
    constexpr int most = 20;
    const std::int64_t n = triangle.n, together = rows_of_block<T>(n) / strip_rows;
    const std::int64_t whole = n / strip_rows, rest = n % strip_rows, groups = whole + rest / 4 + rest % 4;
    Group block[most];
    for (std::int64_t done = 0; done < groups;) {
        std::int64_t size = 0;
        T* room = packed;
        for (; done < groups && size < together; ++done, ++size) {
            const std::int64_t index = triangle.forward() ? done : groups - 1 - done;
            Group& group = block[size];
            const std::int64_t fours = index - whole < rest / 4 ? index - whole : rest / 4;
            group.first = index < whole ? index * strip_rows
                                        : whole * strip_rows + 4 * fours + (index - whole - fours);
            group.rows = index < whole ? strip_rows : index - whole < rest / 4 ? 4 : 1;
            group.solved = triangle.forward() ? 0 : group.first + group.rows;
            group.count = triangle.forward() ? group.first : n - group.solved;
            for (int s = 0; s < group.rows; ++s)
                for (int t = 0; t < group.rows; ++t)
                    group.corner[s * group.rows + t] = *triangle.at(group.first + s, group.first + t);
            group.m = triangle.at(group.first, group.solved);
            if (triangle.packs()) {
                pack_rows(group.rows, group.count, group.m, triangle.row_step(), triangle.column_step(), room);
                group.m = room;
                room += group.rows * group.count;
            }
        }
        for (std::int64_t k = begin; k < end; ++k)
            with_vectors<T>(strips.width(k), [&](auto vectors) {
                constexpr int V = decltype(vectors)::rows;
                T* strip = at(k);
                for (std::int64_t g = 0; g < size; ++g)
                    with_rows(block[g].rows, [&](auto rows) {
                        constexpr int S = decltype(rows)::rows;
                        const Group& group = block[g];
                        const T* x = strip + group.solved * strips.width(k);
                        T* target = strip + group.first * strips.width(k);
                        if (triangle.packs())
                            solve_strip_rows<S, V, true>(triangle, group.count, group.m, x, group.corner, target);
                        else
                            solve_strip_rows<S, V, false>(triangle, group.count, group.m, x, group.corner, target);
                    });
            });
    }
}

// A task solves for so many strips: they share the packed rows.
template <class T> inline std::int64_t strips_of_task(const Strips<T>& strips, int threads) {
    const std::int64_t even = ceil_div(strips.count, threads);
    return even < 4 ? even : 4;
}

template <class T> inline std::int64_t strip_solve_numbers(std::int64_t n, const Strips<T>& strips, int threads) {
    return n * strips.total() + threads * n * rows_of_block<T>(n);
}

// In place T2 T1 X = B for the two triangles of packed factors. `numbers` has strip_solve_numbers.
template <class T>
inline void solve_in_strips(const StripTriangle<T>& first, const StripTriangle<T>& second, const Strips<T>& strips,
                            T* b, int threads, Phase& phase, T* numbers) {
    const std::int64_t n = first.n, together = strips_of_task(strips, threads);
    T* packed = numbers + n * strips.total();
    const auto at = [&](std::int64_t k) { return numbers + n * strips.first(k); };
    auto body = [&](int member) {
        share(phase, ceil_div(strips.count, together), [&](std::int64_t task) {
            const std::int64_t begin = task * together;
            const std::int64_t end = strips.count - begin < together ? strips.count : begin + together;
            for (std::int64_t k = begin; k < end; ++k)
                to_strip(n, strips.used(k), b + strips.first(k) * n, n, strips.width(k), at(k));
            T* room = packed + member * n * rows_of_block<T>(n);
            solve_strips(first, strips, begin, end, at, room);
            solve_strips(second, strips, begin, end, at, room);
            for (std::int64_t k = begin; k < end; ++k)
                from_strip(n, strips.used(k), at(k), strips.width(k), b + strips.first(k) * n, n);
        });
    };
    run_together(threads, body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
