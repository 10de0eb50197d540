// The parts of the LU that work on unpacked memory: the factorization of a tall block of a few
// columns, and solves with a small unit lower triangle. complex_panel.hpp has what differs for complex
// numbers: `Numbers` below are T*, or Planes of the parts of T.
#pragma once

#include "native/fused.hpp"
#include "native/team.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Interchanges row begin + i with row pivots[i], for i = 0, ..., count - 1, in some columns of a.
template <class T>
inline void interchange(std::int64_t begin, std::int64_t count, const std::int32_t* pivots,
                        std::int64_t columns, T* a, std::int64_t step) {
    for (std::int64_t j = 0; j < columns; ++j, a += step)
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t p = pivots[i];
            if (j + 1 < columns) __builtin_prefetch(a + p + step);
            const T kept = a[begin + i];
            a[begin + i] = a[p];
            a[p] = kept;
        }
}

// How many vectors of each of eight columns subtract_strip updates at a time: as many as the
// registers hold.
constexpr int panel_vectors = ROUNDWISE_VECTOR_BYTES == 64 ? 2 : 1;

// The vectors that hold pivot_columns numbers, and how many numbers they hold.
template <class T> constexpr int row_vectors = (pivot_columns + Lanes<T>::count - 1) / Lanes<T>::count;
template <class T> constexpr int row_numbers = row_vectors<T> * Lanes<T>::count;

// C -= A B for one strip of rows and `columns` columns. A and C have `step` numbers from column to
// column. B (k x pivot_columns) is stored by rows, row_numbers apart; k is small.
template <int columns, int vectors, class T>
inline void subtract_strip(std::int64_t k, const T* a, const T* b, T* c, std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    Vector<T> sum[columns][vectors];
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) sum[j][v] = load(c + j * step + v * width);
    for (std::int64_t l = 0; l < k; ++l, a += step, b += row_numbers<T>) {
        Vector<T> column[vectors];
        for (int v = 0; v < vectors; ++v) {
            column[v] = load(a + v * width);
            __builtin_prefetch(a + (vectors + v) * width);  // for the next strip
        }
        for (int j = 0; j < columns; ++j)
            for (int v = 0; v < vectors; ++v) fused_subtract<T>(sum[j][v], column[v], b[j]);
    }
    for (int j = 0; j < columns; ++j)
        for (int v = 0; v < vectors; ++v) store<T>(c + j * step + v * width, sum[j][v]);
}

// The same for the first `valid` rows of one vector.
template <int columns, class T>
inline void subtract_strip_end(std::int64_t valid, std::int64_t k, const T* a, const T* b, T* c,
                               std::int64_t step) {
    Vector<T> sum[columns];
    for (int j = 0; j < columns; ++j) sum[j] = load_some(c + j * step, valid);
    for (std::int64_t l = 0; l < k; ++l, a += step, b += row_numbers<T>) {
        const Vector<T> column = load_some(a, valid);
        for (int j = 0; j < columns; ++j) fused_subtract<T>(sum[j], column, b[j]);
    }
    for (int j = 0; j < columns; ++j) store_some<T>(c + j * step, sum[j], valid);
}

// C (m x columns) -= A (m x k) B, with operands as above.
template <int columns, class T>
inline void subtract_columns(std::int64_t m, std::int64_t k, const T* a, const T* b, T* c,
                             std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    std::int64_t i = 0;
    for (; i + panel_vectors * width <= m; i += panel_vectors * width)
        subtract_strip<columns, panel_vectors>(k, a + i, b, c + i, step);
    for (; i < m; i += width) {
        const std::int64_t valid = m - i < width ? m - i : width;
        subtract_strip_end<columns>(valid, k, a + i, b, c + i, step);
    }
}

// The order of the triangles with which rows of U are solved for, and of the blocks of columns
// that are factorized without packing.
constexpr std::int64_t block_order = 64;

// Memory for some rows of pivot_columns numbers each, as subtract_columns takes them.
template <class Numbers> struct RowsOfEight;
template <class T> struct RowsOfEight<T*> {
    static constexpr int step = row_numbers<T>;
    T memory[block_order * step];
    T* numbers() { return memory; }
};

// X = L^-1 B for B n x count, n a multiple of pivot_columns, and L the unit lower triangle of a. X is
// stored by rows in x, B by columns in b. A row of X is computed as one vector, so that all members of a
// team can compute all of X in less time than it takes them to share it.
template <class T, class Numbers>
inline void solve_by_rows(std::int64_t n, std::int64_t count, Numbers a, Numbers b, std::int64_t step,
                          RowsOfEight<Numbers>& rows) {
    constexpr std::int64_t x_step = RowsOfEight<Numbers>::step, width = Lanes<typename Carrier<T>::Signed>::count;
    constexpr int vectors = x_step / width, together = vectors < pivot_columns ? pivot_columns / vectors : 1;
    const Numbers x = rows.numbers();
    for (std::int64_t j = 0; j < count; ++j)
        for (std::int64_t l = 0; l < n; ++l) x[l * x_step + j] = T(b[l + j * step]);
    for (std::int64_t i = 0; i < n; i += together) {
        decltype(load(x)) sum[together][vectors];
        const auto subtract = [&](int r, std::int64_t l, int v) {
            subtract_multiple(sum[r][v], load(x + (l * x_step + v * width)), T(a[i + r + l * step]));
        };
        for (int r = 0; r < together; ++r)
            for (int v = 0; v < vectors; ++v) sum[r][v] = load(x + ((i + r) * x_step + v * width));
        for (std::int64_t l = 0; l < i; ++l)
            for (int r = 0; r < together; ++r)
                for (int v = 0; v < vectors; ++v) subtract(r, l, v);
        for (int r = 0; r < together; ++r)
            for (int v = 0; v < vectors; ++v) {
                for (int l = 0; l < r; ++l) subtract(r, i + l, v);
                store(x + ((i + r) * x_step + v * width), sum[r][v]);
            }
    }
}

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
            for (int j = 0; j < columns; ++j) fused_subtract<T>(x[j], l, b[k + j * step]);
        }
#pragma GCC unroll 16
        for (int k = 0; k < width; ++k) {
            const Vector<T> l = load(triangle + i + (i + k) * block_order);
            for (int j = 0; j < columns; ++j) fused_subtract<T>(x[j], l, x[j][k]);
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

// Divides by a pivot, whose magnitude is not less than that of what is divided, so that |l| <= 1.
//
// A division takes as long as a dozen multiply-adds. q + (x - q p) / p from q = x (1/p) takes three, and
// rounds as a division does (Markstein, 1990), where nothing underflows.
template <class T> struct Quotient {
    T pivot, inverse;
    bool quick;

    explicit Quotient(T divisor) : pivot(divisor), inverse(1 / divisor), quick(false) {
#if defined(__FMA__) || defined(__aarch64__)
        const int e = exponent_of(divisor);
        constexpr int most = sizeof(T) == 4 ? 100 : 900;
        quick = -most < e && e < most;
#endif
    }

    Vector<T> operator()(Vector<T> x) const {
        if (!quick) return x / pivot;
        const Vector<T> q = x * inverse;
        Vector<T> rest = x;
        fused_subtract<T>(rest, q, pivot);
        return fused(rest, broadcast<T>(inverse), q);
    }
};

template <class T> inline void prefetch_to_write(const T* x) { __builtin_prefetch(x, 1); }

// The same for vectors.
inline Vector<std::int32_t> magnitudes(const Vector<float>& x) {
    return bit_cast<Vector<std::int32_t>>(x) & static_cast<std::int32_t>(Carrier<float>::abs_mask);
}
inline Vector<std::int64_t> magnitudes(const Vector<double>& x) {
    return bit_cast<Vector<std::int64_t>>(x) & static_cast<std::int64_t>(Carrier<double>::abs_mask);
}

// One pass over rows begin..end of the columns a, a + step, ... that are factorized one by one. Divides
// column k - 1 by its pivot, subtracts from column k the products of the columns before it with u, and
// finds the first entry of largest magnitude in column k. With k = 0 it only does the last. On the way it
// prefetches what lies `ahead` of column k: other threads have updated the next columns, so that they come
// from the caches of other cores.
template <int k, class T, class Numbers>
inline void advance_column(std::int64_t begin, std::int64_t end, Numbers a, std::int64_t step, T pivot,
                           const T* u, std::int64_t ahead, Candidate<T>& found) {
    using Integer = typename Carrier<T>::Signed;
    constexpr std::int64_t width = Lanes<Integer>::count;
    found.size = -1;
    if (begin >= end) return;
    const Quotient<T> quotient(k > 0 ? pivot : T{1});
    const Numbers target = a + k * step;
    Vector<Integer> largest = Vector<Integer>{} - 1, where = {};  // of each lane, and how many vectors before
    Integer vectors = 0;
    const auto advance = [&](std::int64_t i, std::int64_t valid) {
        prefetch_to_write(target + (i + ahead));
        auto sum = load_some(target + i, valid);
        if constexpr (k > 0) {
            for (int l = 0; l < k - 1; ++l) subtract_multiple(sum, load_some(a + (l * step + i), valid), u[l]);
            const Numbers divided = a + ((k - 1) * step + i);
            const auto quotients = quotient(load_some(divided, valid));
            store_some(divided, quotients, valid);
            subtract_multiple(sum, quotients, u[k - 1]);
            store_some(target + i, sum, valid);
            if (valid < width) sum = load_some(target + i, valid);  // without 0 times infinity
        }
        const Vector<Integer> m = magnitudes(sum);
        where = m > largest ? vectors + Vector<Integer>{} : where;
        largest = m > largest ? m : largest;
        ++vectors;
    };
    std::int64_t i = begin;
    for (; i + width <= end; i += width) advance(i, width);
    if (i < end) advance(i, end - i);
    for (int lane = 0; lane < width && begin + lane < end; ++lane) {
        const auto row = static_cast<std::int32_t>(begin + where[lane] * width + lane);
        if (largest[lane] < found.size || (largest[lane] == found.size && row > found.row)) continue;
        found.size = largest[lane];
        found.row = row;
    }
}

template <class T, class Numbers>
inline void advance_column(std::int64_t k, std::int64_t begin, std::int64_t end, Numbers a, std::int64_t step,
                           T pivot, const T* u, std::int64_t ahead, Candidate<T>& found) {
    switch (k) {
    case 0: return advance_column<0>(begin, end, a, step, pivot, u, ahead, found);
    case 1: return advance_column<1>(begin, end, a, step, pivot, u, ahead, found);
    case 2: return advance_column<2>(begin, end, a, step, pivot, u, ahead, found);
    case 3: return advance_column<3>(begin, end, a, step, pivot, u, ahead, found);
    case 4: return advance_column<4>(begin, end, a, step, pivot, u, ahead, found);
    case 5: return advance_column<5>(begin, end, a, step, pivot, u, ahead, found);
    case 6: return advance_column<6>(begin, end, a, step, pivot, u, ahead, found);
    default: return advance_column<7>(begin, end, a, step, pivot, u, ahead, found);
    }
}

template <class T, class Numbers>
inline void divide(std::int64_t begin, std::int64_t end, Numbers x, T divisor) {
    constexpr std::int64_t width = Lanes<typename Carrier<T>::Signed>::count;
    const Quotient<T> quotient(divisor);
    for (std::int64_t i = begin; i < end; i += width) {
        const std::int64_t valid = end - i < width ? end - i : width;
        store_some(x + i, quotient(load_some(x + i, valid)), valid);
    }
}

// LU of `count` columns (at most pivot_columns) from row and column `block` on, by the members of a
// team, each with its rows. All members find the same pivots. The rows above the pivot's are kept by
// each member in `top`, as they were when they became pivot rows. Returns what LuKernels::lu returns.
template <class T, class Numbers>
inline int factorize_columns(std::int64_t block, std::int64_t count, Numbers a, std::int64_t step, Rows own,
                             std::int64_t ahead, std::int32_t* pivots, Member<T>& member) {
    T top[pivot_columns][pivot_columns], u[pivot_columns] = {}, pivot = {};
    const Numbers columns = a + block * step;
    for (std::int64_t j = 0; j < count; ++j) {
        for (std::int64_t l = 0; l < j; ++l) {
            u[l] = top[l][j];
            for (std::int64_t q = 0; q < l; ++q) u[l] = fused(-top[l][q], u[q], u[l]);
        }
        const std::int64_t row = block + j;
        Candidate<T>& mine = member.mine();
        advance_column(j, own.begin < row ? row : own.begin, own.end, columns, step, pivot, u, ahead,
                       mine);
        if (mine.size >= 0)
            for (std::int64_t c = 0; c < count; ++c) mine.numbers[c] = columns[mine.row + c * step];
        if (member.index == 0) {
            for (std::int64_t l = 0; l < j; ++l) columns[block + l + j * step] = u[l];
            for (std::int64_t c = 0; c < count; ++c) member.next_top()[c] = columns[row + c * step];
        }
        member.meet();
        int winner = 0;
        for (int other = 1; other < member.size; ++other)
            if (member.of(other).size > member.of(winner).size) winner = other;
        const Candidate<T>& best = member.of(winner);
        if (best.size == 0) return static_cast<int>(row + 1);
        if (best.size >= static_cast<typename Carrier<T>::Signed>(Carrier<T>::infinity))
            return -static_cast<int>(row + 1);
        pivots[j] = best.row;
        for (std::int64_t c = 0; c < count; ++c) {
            top[j][c] = best.numbers[c];
            if (winner == member.index) columns[best.row + c * step] = member.top()[c];
            if (member.index == 0) columns[row + c * step] = best.numbers[c];
        }
        pivot = best.numbers[j];
    }
    const std::int64_t below = block + count;
    divide(own.begin < below ? below : own.begin, own.end, columns + (count - 1) * step, pivot);
    return 0;
}

// LU of rows begin..n and columns begin..begin + width of a square matrix of order n, by the members of
// a team; there are `step` numbers from column to column. Interchanges rows in these columns only. Returns what LuKernels::lu returns.
//
// Takes eight columns at a time. All columns to their left update them first (left-looking), so that
// they are written once; then the same is done column by column within the eight.
template <class T, class Numbers>
inline int factorize_block(std::int64_t n, std::int64_t begin, std::int64_t width, Numbers a,
                           std::int64_t step, std::int32_t* pivots, Member<T>& member) {
    const auto at = [=](std::int64_t i, std::int64_t j) { return a + (i + j * step); };
    const Rows own = member.rows(begin, n);
    RowsOfEight<Numbers> u = {};  // where there are fewer than eight columns, the others are computed in vain
    for (std::int64_t block = begin; block < begin + width; block += pivot_columns) {
        const std::int64_t k = block - begin, left = begin + width - block;
        const std::int64_t count = left < pivot_columns ? left : pivot_columns;
        if (k > 0) {
            solve_by_rows<T>(k, count, at(begin, begin), at(begin, block), step, u);
            const std::int64_t first = own.begin < block ? block : own.begin;
            if (first < own.end) {
                if (count == pivot_columns)
                    subtract_columns<pivot_columns>(own.end - first, k, at(first, begin), u.numbers(),
                                                    at(first, block), step);
                else
                    for (std::int64_t j = 0; j < count; ++j)
                        subtract_columns<1>(own.end - first, k, at(first, begin), u.numbers() + j,
                                            at(first, block + j), step);
            }
        }
        const std::int64_t ahead = left >= 2 * pivot_columns ? pivot_columns * step : 0;
        std::int32_t found[pivot_columns];
        const int code = factorize_columns(block, count, a, step, own, ahead, found, member);
        if (code != 0) return code;
        // Nobody reads what is written here before the next meeting: all have met since they computed u.
        if (member.index == 0) {
            for (std::int64_t j = 0; j < count; ++j) pivots[block + j] = found[j];
            for (std::int64_t j = 0; j < count; ++j)
                for (std::int64_t l = 0; l < k; ++l)
                    *at(begin + l, block + j) = T(u.numbers()[l * RowsOfEight<Numbers>::step + j]);
        }
        // Interchange in the other columns, those left of the eight and those right of them.
        const Rows part = member.share_of(width - count);
        const std::int64_t middle = k < part.begin ? part.begin : k < part.end ? k : part.end;
        interchange(block, count, found, middle - part.begin, at(0, begin + part.begin), step);
        interchange(block, count, found, part.end - middle, at(0, begin + middle + count), step);
        member.meet();
    }
    return 0;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
