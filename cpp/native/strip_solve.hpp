// Triangular solves for many columns, in strips (strips.hpp). A thread solves for some strips by itself: it waits
// for nobody.
#pragma once

#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "native/strips.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// One triangle of a packed n x n matrix, and how it is used. A column of a complex one (parts = 2) has n real parts,
// then n imaginary ones.
template <class T, int parts> struct StripTriangle {
    const T* a;
    std::int64_t n;
    bool lower, unit, transpose;

    bool forward() const { return lower != transpose; }
    std::int64_t step() const { return parts * n; }
    std::int64_t row_step() const { return transpose ? step() : 1; }
    std::int64_t column_step() const { return transpose ? 1 : step(); }
    const T* at(std::int64_t i, std::int64_t j) const { return a + i * row_step() + j * column_step(); }
    bool packs() const { return !transpose || rows_collide<T>(step()); }
};

// x / y, with intermediate results of about the size of x (Smith, Commun. ACM 5(8), 1962); x may be a vector.
template <class X, class T> inline void divide_complex(X& re, X& im, T y_re, T y_im) {
    const X x_re = re, x_im = im;
    if (__builtin_fabs(y_re) >= __builtin_fabs(y_im)) {
        const T ratio = y_im / y_re, divisor = y_re + y_im * ratio;
        re = (x_re + x_im * ratio) / divisor;
        im = (x_im - x_re * ratio) / divisor;
    } else {
        const T ratio = y_re / y_im, divisor = y_re * ratio + y_im;
        re = (x_re * ratio + x_im) / divisor;
        im = (x_im * ratio - x_re) / divisor;
    }
}

// Solves for S rows of a strip: subtracts the products with `count` solved rows x, then solves with the triangle of
// S rows, of which `corner` is a copy by rows, imaginary parts after all real ones.
template <int S, int V, bool packed, class T, int parts>
inline void solve_strip_rows(const StripTriangle<T, parts>& triangle, std::int64_t count, const T* m, const T* x,
                             const T* corner, T* rows) {
    constexpr int lanes = Lanes<T>::count;
    StripSums<S, V, T> sums = {};
    if constexpr (parts == 2) add_complex_strip<S, packed>(count, m, triangle.step(), triangle.n, x, sums);
    else add_strip<S, V, packed>(count, m, triangle.step(), x, sums);
    Vector<T> left[S][V];
    for (int s = 0; s < S; ++s)
        for (int v = 0; v < V; ++v) left[s][v] = load(rows + (s * V + v) * lanes) - sums.of[s][v];
    const auto eliminate = [&](int s, int begin, int end) {
        if constexpr (parts == 2) {
            const T* imaginary = corner + S * S;
            Vector<T> &re = left[s][0], &im = left[s][1];
            if (!triangle.unit) divide_complex(re, im, corner[s * S + s], imaginary[s * S + s]);
            for (int t = begin; t < end; ++t) {
                const T &l_re = corner[t * S + s], &l_im = imaginary[t * S + s];
                fused_subtract<T>(left[t][0], re, l_re);
                fused_subtract<T>(left[t][1], im, l_re);
                fused_add<T>(left[t][0], im, l_im);
                fused_subtract<T>(left[t][1], re, l_im);
            }
            return;
        }
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
template <class T, int parts, class At>
inline void solve_strips(const StripTriangle<T, parts>& triangle, const Strips<T>& strips, std::int64_t begin,
                         std::int64_t end, const At& at, T* packed) {
    struct Group {
        std::int64_t first, solved, count;  // its first row, the first of the solved ones and how many there are
        int rows;
        const T* m;
        T corner[parts * strip_rows * strip_rows];
    };
    constexpr int most = 20;
    const std::int64_t n = triangle.n, together = rows_of_block<T>(triangle.step()) / strip_rows;
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
                    for (int part = 0; part < parts; ++part)
                        group.corner[(part * group.rows + s) * group.rows + t] =
                            triangle.at(group.first + s, group.first + t)[part * n];
            group.m = triangle.at(group.first, group.solved);
            if (triangle.packs()) {
                pack_rows<parts>(group.rows, group.count, group.m, triangle.row_step(), triangle.column_step(), room, n);
                group.m = room;
                room += parts * group.rows * group.count;
            }
        }
        for (std::int64_t k = begin; k < end; ++k)
            with_vectors<T>(parts * strips.width(k), [&](auto vectors) {
                constexpr int V = decltype(vectors)::rows;
                if constexpr (V % parts == 0) {  // of complex numbers a strip has both parts
                    T* strip = at(k);
                    for (std::int64_t g = 0; g < size; ++g)
                        with_rows(block[g].rows, [&](auto rows) {
                            constexpr int S = decltype(rows)::rows;
                            const Group& group = block[g];
                            constexpr int width = V * Lanes<T>::count;
                            const T* x = strip + group.solved * width;
                            T* target = strip + group.first * width;
                            if (triangle.packs())
                                solve_strip_rows<S, V, true>(triangle, group.count, group.m, x, group.corner, target);
                            else
                                solve_strip_rows<S, V, false>(triangle, group.count, group.m, x, group.corner, target);
                        });
                }
            });
    }
}

// A task solves for so many strips: they share the packed rows.
template <class T> inline std::int64_t strips_of_task(const Strips<T>& strips, int threads) {
    const std::int64_t even = ceil_div(strips.count, threads);
    return even < 4 ? even : 4;
}

template <class T>
inline std::int64_t strip_solve_numbers(std::int64_t n, const Strips<T>& strips, int threads, int parts = 1) {
    return parts * n * (strips.total() + threads * rows_of_block<T>(parts * n));
}

// In place T2 T1 X = B for the two triangles of packed factors; of complex columns of B, real parts and imaginary parts
// are columns in turn. `numbers` has strip_solve_numbers.
template <class T, int parts>
inline void solve_in_strips(const StripTriangle<T, parts>& first, const StripTriangle<T, parts>& second,
                            const Strips<T>& strips, T* b, int threads, Phase& phase, T* numbers) {
    const std::int64_t n = first.n, together = strips_of_task(strips, threads), column = parts * n;
    const std::int64_t packed_rows = column * rows_of_block<T>(column);
    T* packed = numbers + column * strips.total();
    const auto at = [&](std::int64_t k) { return numbers + column * strips.first(k); };
    auto body = [&](int member) {
        share(phase, ceil_div(strips.count, together), [&](std::int64_t task) {
            const std::int64_t begin = task * together;
            const std::int64_t end = strips.count - begin < together ? strips.count : begin + together;
            const auto each_part = [&](const auto& body) {
                for (std::int64_t k = begin; k < end; ++k)
                    for (int part = 0; part < parts; ++part)
                        body(k, b + strips.first(k) * column + part * n, at(k) + part * strips.width(k));
            };
            each_part([&](std::int64_t k, const T* columns, T* strip) {
                const std::int64_t width = strips.width(k);
                to_strip(n, strips.used(k), columns, column, width, strip, parts * width);
            });
            T* room = packed + member * packed_rows;
            solve_strips(first, strips, begin, end, at, room);
            solve_strips(second, strips, begin, end, at, room);
            each_part([&](std::int64_t k, T* columns, const T* strip) {
                from_strip(n, strips.used(k), strip, parts * strips.width(k), columns, column);
            });
        });
    };
    run_together(threads, body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
