// Residuals B - A X in twice the precision of double: what the gate of a solve rests on.
//
// A sum is kept as high + low. The error of an addition is a double itself and is added to low (Knuth's
// TwoSum); so is that of a product (a fused multiply-add gives it; without that instruction, Dekker's
// splitting does). Only the additions to low are rounded: after n products the sum is off by at most
// 4 (n + 8)^2 u^2 sum_j |a_ij| |x_j|, u = 2^-53 (docs/accuracy.md; after Ogita, Rump & Oishi, SIAM J.
// Sci. Comput. 26(6), 2005).
//
// There is a cheaper way, which large dense systems take: `block` products, at least least_block, are
// summed in double before they are added to high + low. That adds (block + 1) u sum_j |a_ij| |x_j| to
// the error. For many columns there is a way at the rate of products: no number is rounded more than block + 1
// times (`residual_by_short_sums`).
//
// This file must be compiled with -ffp-contract=off: a compiler that fuses high + a x loses the error.
#pragma once

#include <cstdlib>

#include "common/carrier.hpp"
#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "native/kernels.hpp"
#include "native/storage.hpp"
#include "native/strips.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr bool has_fused = true;
#else
constexpr bool has_fused = false;
#endif

// a b + c, rounded once or twice.
template <class V> inline V multiply_add(V a, V b, V c) {
    if constexpr (has_fused) return fused(a, b, c);
    else return a * b + c;
}

// The upper half of a's bits (Veltkamp); the rest fits into as many.
template <class V> inline V upper_half(V a) {
    const V scaled = a * 134217729.0;  // 2^27 + 1
    return scaled - (scaled - a);
}

// a b - product, exactly, for product = a b rounded.
template <class V> inline V product_error(V a, V b, V product) {
    if constexpr (has_fused) return fused(a, b, -product);
    const V a1 = upper_half(a), a2 = a - a1, b1 = upper_half(b), b2 = b - b1;
    return a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2);
}

// A sum in twice the precision; V is double or a vector of them.
template <class V> struct TwiceSum {
    V high, low;

    void add(V term) {
        const V sum = high + term, part = sum - high;
        low += (high - (sum - part)) + (term - part);
        high = sum;
    }

    void add_product(V a, V b) {
        const V product = a * b, error = product_error(a, b, product);
        const V sum = high + product, part = sum - high;
        low += error + ((high - (sum - part)) + (product - part));
        high = sum;
    }
};

// The sum over all lanes.
inline TwiceSum<double> over_lanes(const TwiceSum<Vector<double>>& sums) {
    TwiceSum<double> total = {0.0, 0.0};
    for (int lane = 0; lane < Lanes<double>::count; ++lane) {
        total.add(sums.high[lane]);
        total.low += sums.low[lane];
    }
    return total;
}

// b - sum
inline double subtracted_from(double b, TwiceSum<double> sum) {
    TwiceSum<double> left = {b, 0.0};
    left.add(-sum.high);
    return left.high + (left.low - sum.low);
}

// The first `count` numbers of a matrix that is stored in double or in float, as doubles.
inline Vector<double> load_wide(const double* source, std::int64_t count) { return load_some(source, count); }
inline Vector<double> load_wide(const float* source, std::int64_t count) {
    constexpr int lanes = Lanes<double>::count;
    return count >= lanes ? widen<double, lanes>(source) : widen_first<double, lanes>(source, count);
}

// Adds A' X to K x C sums, for K columns of A, which are contiguous, and their m rows. block = 0:
// every product exactly.
template <int K, int C, bool exact, class S>
inline void add_dots(std::int64_t m, const S* a, std::int64_t a_step, const double* x,
                     std::int64_t x_step, TwiceSum<Vector<double>> (&sums)[K][C],
                     std::int64_t block) {
    constexpr int lanes = Lanes<double>::count;
    using V = Vector<double>;
    // Adds the products of rows i to i + lanes - 1, the first `valid` of which exist.
    const auto add = [&](std::int64_t i, std::int64_t valid, V (&parts)[K][C]) {
        V xs[C];
        for (int c = 0; c < C; ++c) xs[c] = load_some(x + i + c * x_step, valid);
        for (int k = 0; k < K; ++k) {
            const V column = load_wide(a + i + k * a_step, valid);
            for (int c = 0; c < C; ++c)
                if constexpr (exact) sums[k][c].add_product(column, xs[c]);
                else parts[k][c] = multiply_add(column, xs[c], parts[k][c]);
        }
    };
    std::int64_t i = 0;
    while (i < m) {
        V parts[K][C] = {};
        // Not m - i < block * lanes, which overflows for a huge block.
        const std::int64_t end = exact || (m - i) / lanes < block ? m : i + block * lanes;
        for (; i + lanes <= end; i += lanes) add(i, lanes, parts);
        if (end == m && i < m) {
            add(i, m - i, parts);
            i = m;
        }
        if constexpr (!exact)
            for (int k = 0; k < K; ++k)
                for (int c = 0; c < C; ++c) sums[k][c].add(parts[k][c]);
    }
}

// R (K x C) = B - sums
template <int K, int C>
inline void subtract_sums(const TwiceSum<Vector<double>> (&sums)[K][C], const double* b, double* r,
                          std::int64_t step) {
    for (int k = 0; k < K; ++k)
        for (int c = 0; c < C; ++c)
            r[k + c * step] = subtracted_from(b[k + c * step], over_lanes(sums[k][c]));
}

// high + low (m x C) -= A X, for K columns of A: row i of A is in lane i.
template <int K, int C, bool exact, class S>
inline void subtract_columns(std::int64_t m, const S* a, std::int64_t a_step, const double* x,
                             std::int64_t x_step, double* high, double* low, std::int64_t step) {
    constexpr int lanes = Lanes<double>::count;
    using V = Vector<double>;
    for (std::int64_t i = 0; i < m; i += lanes) {
        const std::int64_t valid = m - i < lanes ? m - i : lanes;
        TwiceSum<V> sums[C];
        V parts[C] = {};
        for (int c = 0; c < C; ++c)
            sums[c] = {load_some(high + i + c * step, valid), load_some(low + i + c * step, valid)};
        for (int k = 0; k < K; ++k) {
            const V column = load_wide(a + i + k * a_step, valid);
            for (int c = 0; c < C; ++c) {
                const V factor = V{} - x[k + c * x_step];
                if constexpr (exact) sums[c].add_product(column, factor);
                else parts[c] = multiply_add(column, factor, parts[c]);
            }
        }
        for (int c = 0; c < C; ++c) {
            if constexpr (!exact) sums[c].add(parts[c]);
            store_some(high + i + c * step, sums[c].high, valid);
            store_some(low + i + c * step, sums[c].low, valid);
        }
    }
}

// Rows of A that are treated together. Where many columns of X need them, they should stay in the
// second cache.
constexpr std::int64_t exact_strip = 64;

// Rows of A and X that are multiplied before the next are: for several columns of X, they should stay
// in the first cache.
constexpr std::int64_t exact_chunk = 512;

// A of m x n: columns of A are contiguous, n is at most exact_strip, and R = B - A' X has n rows. The
// K C sums of a group fit into registers.
template <int C, bool exact, class S>
inline void dense_by_dots(std::int64_t m, std::int64_t n, const S* a, const double* x,
                          const double* b, double* r, std::int64_t r_step, std::int64_t block) {
    constexpr int K = C == 1 || (!exact && sizeof(Vector<double>) == 64) ? 4 : 2;
    TwiceSum<Vector<double>> sums[exact_strip / K][K][C];
    const std::int64_t groups = n / K, chunk = C == 1 ? m : exact_chunk;
    __builtin_memset(sums, 0, static_cast<std::size_t>(groups) * sizeof sums[0]);
    for (std::int64_t i = 0; i < m; i += chunk)
        for (std::int64_t g = 0; g < groups; ++g)
            add_dots<K, C, exact>(m - i < chunk ? m - i : chunk, a + i + g * K * m, m, x + i, m,
                                  sums[g], block);
    for (std::int64_t g = 0; g < groups; ++g) subtract_sums(sums[g], b + g * K, r + g * K, r_step);
    for (std::int64_t j = groups * K; j < n; ++j) {
        TwiceSum<Vector<double>> rest[1][C] = {};
        add_dots<1, C, exact>(m, a + j * m, m, x, m, rest, block);
        subtract_sums(rest, b + j, r + j, r_step);
    }
}

// R = B - A X for a strip of at most exact_strip rows.
template <int C, bool exact, class S>
inline void dense_by_columns(std::int64_t rows, std::int64_t n, const S* a, std::int64_t a_step,
                             const double* x, const double* b, double* r, std::int64_t r_step,
                             std::int64_t block) {
    double high[C * exact_strip], low[C * exact_strip] = {};
    for (int c = 0; c < C; ++c)
        for (std::int64_t i = 0; i < rows; ++i) high[i + c * exact_strip] = b[i + c * r_step];
    std::int64_t k = 0;
    if (exact || block >= 8)
        for (; k + 8 <= n; k += 8)
            subtract_columns<8, C, exact>(rows, a + k * a_step, a_step, x + k, n, high, low, exact_strip);
    for (; k + 4 <= n; k += 4)
        subtract_columns<4, C, exact>(rows, a + k * a_step, a_step, x + k, n, high, low, exact_strip);
    for (; k < n; ++k)
        subtract_columns<1, C, exact>(rows, a + k * a_step, a_step, x + k, n, high, low, exact_strip);
    for (int c = 0; c < C; ++c)
        for (std::int64_t i = 0; i < rows; ++i)
            r[i + c * r_step] = high[i + c * exact_strip] + low[i + c * exact_strip];
}

template <bool exact, class S>
void dense_residual(std::int64_t rows, std::int64_t columns, const S* a, bool transpose,
                    std::int64_t count, const double* x, const double* b, double* r,
                    std::int64_t block, int threads) {
    const std::int64_t m = transpose ? columns : rows, n = transpose ? rows : columns;  // of the product
    share_range(m, exact_strip, threads_for<S>(rows * columns, threads),
                [=](std::int64_t begin, std::int64_t end) {
        std::int64_t c = 0;
        if (transpose) {
            const S* strip = a + begin * rows;
            for (; c + 4 <= count; c += 4)
                dense_by_dots<4, exact>(rows, end - begin, strip, x + c * n, b + begin + c * m,
                                        r + begin + c * m, m, block);
            for (; c < count; ++c)
                dense_by_dots<1, exact>(rows, end - begin, strip, x + c * n, b + begin + c * m,
                                        r + begin + c * m, m, block);
        } else {
            for (; c < count; ++c)
                dense_by_columns<1, exact>(end - begin, n, a + begin, rows, x + c * n,
                                           b + begin + c * m, r + begin + c * m, m, block);
        }
    });
}

// How the products of a row are summed for many columns: sums of `products` of them in double, 2^joins of these
// joined pairwise, and the rest in twice the precision. A product is rounded products + joins times before that.
struct ShortSums {
    std::int64_t products;
    int joins;

    explicit ShortSums(std::int64_t roundings) : joins(roundings > 10 ? 3 : 2) { products = roundings - joins; }
};

// Calls add(sums) for sums over all columns of M X, joined as `cut` says; `levels` has room for each join.
template <bool packed, class T, int S, int V, class Add>
inline void for_short_sums(std::int64_t n, ShortSums cut, const T* m, std::int64_t step, const T* x,
                           StripSums<S, V, T>* levels, const Add& add) {
    // Unrolled, so that sums stay in registers.
    const auto for_each = [](auto& ours, const auto& body) {
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s)
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) body(ours.of[s][v], s, v);
    };
    unsigned summed = 0;  // since the last call of add: its bits say which levels are in use
    for (std::int64_t l = 0; l < n; l += cut.products) {
        const std::int64_t count = n - l < cut.products ? n - l : cut.products;
        StripSums<S, V, T> own;
        for_each(own, [](Vector<T>& sum, int, int) { sum = Vector<T>{}; });
        add_strip<S, V, packed>(count, m + (packed ? l * S : l), step, x + l * V * Lanes<T>::count, own);
        int level = 0;
        for (; summed >> level & 1; ++level)
            for_each(own, [&](Vector<T>& sum, int s, int v) { sum += levels[level].of[s][v]; });
        if (level == cut.joins) {
            add(own);
            summed = 0;
        } else {
            for_each(own, [&](Vector<T>& sum, int s, int v) { levels[level].of[s][v] = sum; });
            ++summed;
        }
    }
    for (int level = 0; summed >> level; ++level)
        if (summed >> level & 1) add(levels[level]);
}

// The products of S rows of M with a strip, in twice the precision but for the roundings of short sums.
template <int S, int V, class T> struct StripTotals {
    static_assert(sizeof(T) == 8, "sums of single precision are joined in double");
    static constexpr int width = V * Lanes<double>::count;
    StripSums<S, V, double> high = {}, low = {};

    void add(StripSums<S, V, double>& sums) {
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s)
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) {
                TwiceSum<Vector<double>> total = {high.of[s][v], low.of[s][v]};
                total.add(sums.of[s][v]);
                high.of[s][v] = total.high;
                low.of[s][v] = total.low;
            }
    }
    // Calls body(s, c, sum) for each.
    template <class Body> void read(std::int64_t columns, const Body& body) const {
        double highs[S][width], lows[S][width];
        std::memcpy(highs, &high, sizeof high);
        std::memcpy(lows, &low, sizeof low);
        for (std::int64_t c = 0; c < columns; ++c)
            for (int s = 0; s < S; ++s) body(s, c, TwiceSum<double>{highs[s][c], lows[s][c]});
    }
};

// Short sums in single precision: double is as good as twice their precision.
template <int S, int V> struct StripTotals<S, V, float> {
    static constexpr int width = V * Lanes<float>::count;
    double totals[S][width] = {};

    void add(StripSums<S, V, float>& sums) {
        float values[S][width];
        std::memcpy(values, &sums, sizeof sums);
        for (int s = 0; s < S; ++s)
            for (int c = 0; c < width; ++c) totals[s][c] += static_cast<double>(values[s][c]);
    }
    template <class Body> void read(std::int64_t columns, const Body& body) const {
        for (std::int64_t c = 0; c < columns; ++c)
            for (int s = 0; s < S; ++s) body(s, c, TwiceSum<double>{totals[s][c], 0.0});
    }
};

// R = B - A X for many columns, by short sums of products in T in registers. A is stored in S. False if there is no
// memory.
template <class T, class S>
bool residual_by_short_sums(std::int64_t rows, std::int64_t columns, const S* a, bool transpose,
                            std::int64_t count, const double* x, const double* b, double* r,
                            ShortSums cut, int threads) {
    const std::int64_t m = transpose ? columns : rows, n = transpose ? rows : columns;  // of the product
    const std::int64_t row_step = transpose ? rows : 1, column_step = transpose ? 1 : rows;
    const bool packs = sizeof(S) != sizeof(T) || !transpose || rows_collide<T>(rows);
    threads = strip_threads(m < n ? m : n, count, threads);
    const Strips<T> strips(count, 1);
    const std::int64_t together = rows_of_block<T>(n), own = packs ? together * n : 0;
    const std::int64_t numbers = n * strips.total() + threads * own + 64 / static_cast<std::int64_t>(sizeof(T));
    void* memory = std::malloc(static_cast<std::size_t>(numbers) * sizeof(T));
    if (memory == nullptr) return false;
    T* packed_x = reinterpret_cast<T*>(aligned(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(memory))));
    T* rooms = packed_x + n * strips.total();
    Phase phases[2] = {};
    auto body = [&](int member) {
        T* packed = rooms + member * own;
        share(phases[0], strips.count, [&](std::int64_t k) {
            const std::int64_t first = strips.first(k), width = strips.width(k);
            to_strip(n, strips.used(k), x + first * n, n, width, packed_x + n * first, width);
        });
        share(phases[1], ceil_div(m, together), [&](std::int64_t task) {
            const std::int64_t begin = task * together, end = m - begin < together ? m : begin + together;
            if (packs)
                for (std::int64_t i = begin; i < end;) {
                    const int size = rows_of_group(end - i);
                    pack_rows(size, n, a + i * row_step, row_step, column_step, packed + (i - begin) * n);
                    i += size;
                }
            for (std::int64_t k = 0; k < strips.count; ++k)
                with_vectors<T>(strips.width(k), [&](auto vectors) {
                    constexpr int V = decltype(vectors)::rows;
                    const T* strip = packed_x + n * strips.first(k);
                    for (std::int64_t i = begin; i < end;)
                        with_rows(rows_of_group(end - i), [&](auto group) {
                            constexpr int R = decltype(group)::rows;
                            StripSums<R, V, T> levels[3];
                            StripTotals<R, V, T> totals;
                            const auto add = [&](StripSums<R, V, T>& sums) { totals.add(sums); };
                            if (packs)
                                for_short_sums<true>(n, cut, packed + (i - begin) * n, 0, strip, levels, add);
                            else if constexpr (sizeof(S) == sizeof(T))
                                for_short_sums<false>(n, cut, a + i * row_step, row_step, strip, levels, add);
                            totals.read(strips.used(k), [&](int s, std::int64_t c, TwiceSum<double> sum) {
                                const std::int64_t at = i + s + (strips.first(k) + c) * m;
                                r[at] = subtracted_from(b[at], sum);
                            });
                            i += R;
                        });
                });
        });
    };
    run_together(threads, body);
    std::free(memory);
    return true;
}

// Columns from which vectors across them gain time.
constexpr std::int64_t least_strip = 6;

template <class S>
void exact_residual(std::int64_t rows, std::int64_t columns, const S* a, bool transpose,
                           std::int64_t count, const double* x, const double* b, double* r,
                           std::int64_t block, int threads) {
    if (block > 0 && count >= least_strip &&
        residual_by_short_sums<double>(rows, columns, a, transpose, count, x, b, r, ShortSums(block + 1), threads))
        return;
    if (block == 0) dense_residual<true>(rows, columns, a, transpose, count, x, b, r, block, threads);
    else dense_residual<false>(rows, columns, a, transpose, count, x, b, r, block, threads);
}

// The same for an A in single precision with X rounded to single precision: products and short sums are, too.
inline bool short_residual_in_single(std::int64_t rows, std::int64_t columns, const float* a, bool transpose,
                                     std::int64_t count, const double* x, const double* b, double* r,
                                     std::int64_t block, int threads) {
    return count >= least_strip && residual_by_short_sums<float>(rows, columns, a, transpose, count, x, b, r,
                                                                 ShortSums(block + 1), threads);
}

inline Vector<double> magnitude(Vector<double> x) {
    using Bits = Image<Vector<double>, double>::Unsigned;
    return bit_cast<Vector<double>>(bit_cast<Bits>(x) & Carrier<double>::abs_mask);
}

// The largest sum_j |a_ij|, or that of A' with `transpose`. Meant for small matrices: on one thread,
// and NaN is skipped (the residual has it, too).
inline double largest_row_sum(std::int64_t rows, std::int64_t columns, const double* a, bool transpose) {
    constexpr int lanes = Lanes<double>::count;
    using V = Vector<double>;
    double largest = 0;
    const auto compare = [&](double sum) { largest = sum > largest ? sum : largest; };
    if (transpose) {
        for (std::int64_t j = 0; j < columns; ++j) {
            const double* column = a + j * rows;
            V sums = {};
            std::int64_t i = 0;
            for (; i + lanes <= rows; i += lanes) sums += magnitude(load(column + i));
            if (i < rows) sums += magnitude(load_first(column + i, rows - i));
            double sum = 0;
            for (int lane = 0; lane < lanes; ++lane) sum += sums[lane];
            compare(sum);
        }
    } else {
        for (std::int64_t i = 0; i < rows; i += lanes) {
            const std::int64_t valid = rows - i < lanes ? rows - i : lanes;
            V sums = {};
            for (std::int64_t j = 0; j < columns; ++j)
                sums += magnitude(load_some(a + i + j * rows, valid));
            for (int lane = 0; lane < valid; ++lane) compare(sums[lane]);
        }
    }
    return largest;
}

// 2^-60 is lost in 1 + 2^-60, and in the square of 1 + 2^-30: `low` must have both. With -fassociative-math, say,
// a compiler may conclude that there are no errors.
inline bool keeps_rounding_errors(double one) {
    using V = Vector<double>;
    const double tiny = one * 0x1p-60, factor = one + 0x1p-30;
    TwiceSum<double> sum = {one, 0.0}, square = {0.0, 0.0};
    sum.add(tiny);
    square.add_product(factor, factor);
    TwiceSum<V> sums = {V{} + one, V{}}, squares = {V{}, V{}};
    sums.add(V{} + tiny);
    squares.add_product(V{} + factor, V{} + factor);
    bool kept = sum.low == tiny && square.low == tiny;
    for (int lane = 0; lane < Lanes<double>::count; ++lane)
        kept = kept && sums.low[lane] == tiny && squares.low[lane] == tiny;
    return kept;
}

// R = B - A X for A in compressed rows; every product exactly. False if an index was out of range.
template <class I>
bool exact_sparse_residual(std::int64_t rows, std::int64_t columns, const I* starts, const I* places,
                           const double* values, std::int64_t count, const double* x, const double* b,
                           double* r, int threads) {
    const std::int64_t entries = starts[rows];
    int invalid = 0;
    share_range(rows, 4096, threads_for<double>(entries, threads),
                [=, &invalid](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = 0; c < count; ++c)
            for (std::int64_t i = begin; i < end; ++i) {
                TwiceSum<double> sum = {b[i + c * rows], 0.0};
                bool valid = starts[i] >= 0 && starts[i + 1] <= entries;
                for (I entry = starts[i]; valid && entry < starts[i + 1]; ++entry) {
                    const I place = places[entry];
                    valid = place >= 0 && place < columns;
                    if (valid) sum.add_product(-values[entry], x[place + c * columns]);
                }
                if (!valid) __atomic_store_n(&invalid, 1, __ATOMIC_RELAXED);
                r[i + c * rows] = sum.high + sum.low;
            }
    });
    return invalid == 0;
}

// The same for A in compressed columns, on one thread; `low` has room for a column of R.
inline void exact_residual_by_columns(std::int64_t n, const std::int32_t* starts,
                                      const std::int32_t* places, const double* values,
                                      std::int64_t count, const double* x, const double* b, double* r,
                                      double* low) {
    for (std::int64_t c = 0; c < count; ++c, x += n, b += n, r += n) {
        for (std::int64_t i = 0; i < n; ++i) r[i] = b[i], low[i] = 0;
        for (std::int64_t j = 0; j < n; ++j)
            for (std::int32_t entry = starts[j]; entry < starts[j + 1]; ++entry) {
                const std::int32_t i = places[entry];
                TwiceSum<double> sum = {r[i], low[i]};
                sum.add_product(-values[entry], x[j]);
                r[i] = sum.high, low[i] = sum.low;
            }
        for (std::int64_t i = 0; i < n; ++i) r[i] += low[i];
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
