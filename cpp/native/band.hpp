// LU of a band with partial pivoting, its substitution, and residuals that read only the band.
//
// A row of the factors begins at the first diagonal below, so that rows overlap in memory, and a panel of a line of
// columns, with all rows that have entries there, is a part of a dense matrix: express.hpp factorizes it. Interchanges
// of later panels do not reach back into L. Tridiagonal bands are eliminated number by number.
//
// Compiled with -ffp-contract=off, as exact.hpp.
#pragma once

#include "native/express.hpp"
#include "native/triangle.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// The last column that rows up to those with entries in a panel of `width` columns from j on have, and the last row.
struct BandPanel {
    std::int64_t width, bottom, end;

    BandPanel(std::int64_t n, std::int64_t below, std::int64_t above, std::int64_t j) {
        width = n - j < line_of<double> ? n - j : line_of<double>;
        bottom = n - j < width + below ? n : j + width + below;
        const std::int64_t right = j + width + below + above;
        end = padded<double>(right < n ? right : n);
    }
};

template <int parts> Number<parts, double> inverse_of(const Number<parts, double>& x) {
    Number<parts, double> inverse = {{1}};
    divide(inverse, x);
    return inverse;
}

// Where the factors of a tridiagonal matrix are: multipliers, inverse pivots, and the two diagonals above.
template <int parts> struct TridiagonalFactors {
    double* data;
    std::int64_t step;  // from one of the four to the next; parts are 4 steps apart

    Number<parts, double> at(int which, std::int64_t i) const {
        Number<parts, double> x;
        for (int p = 0; p < parts; ++p) x.part[p] = data[(4 * p + which) * step + i];
        return x;
    }
    void set(int which, std::int64_t i, const Number<parts, double>& x) const {
        for (int p = 0; p < parts; ++p) data[(4 * p + which) * step + i] = x.part[p];
    }
};

template <int parts>
double tridiagonal_factorize(std::int64_t n, std::int64_t below, std::int64_t above, const double* band,
                             double* factors, std::int32_t* swaps) {
    using N = Number<parts, double>;
    const std::int64_t step = diagonal_step(n), plane = (below + above + 1) * step;
    const TridiagonalFactors<parts> f = {factors, padded<double>(n)};
    const auto diagonal = [=](std::int64_t offset, std::int64_t i) {
        N x = {};
        if (offset >= -below && offset <= above)
            for (int p = 0; p < parts; ++p) x.part[p] = band[p * plane + (offset + below) * step + i];
        return x;
    };
    double smallest = __builtin_huge_val(), largest = 0;
    N pivot = diagonal(0, 0), right = diagonal(1, 0);
    for (std::int64_t i = 0; i < n; ++i) {
        N next = {}, next_right = {}, first = {}, farther = {};
        if (i + 1 < n) first = diagonal(-1, i + 1), next = diagonal(0, i + 1), next_right = diagonal(1, i + 1);
        swaps[i] = 0;
        if (magnitude(first) > magnitude(pivot)) {
            const N kept = first;
            first = pivot, pivot = kept;
            const N kept_right = right;
            right = next, next = kept_right;
            farther = next_right, next_right = {};
            swaps[i] = 1;
        }
        const double size = magnitude(pivot);
        if (!(size > 0)) return 0;
        if (size < smallest) smallest = size;
        if (size > largest) largest = size;
        const N inverse = inverse_of(pivot), factor = product(first, inverse);
        f.set(0, i, factor), f.set(1, i, inverse), f.set(2, i, right), f.set(3, i, farther);
        subtract(next, factor, right);
        subtract(next_right, factor, farther);
        pivot = next, right = next_right;
    }
    return smallest / largest;
}

// One column, or a line of them, of type V.
template <int parts, class V>
void tridiagonal_substitute(std::int64_t n, const TridiagonalFactors<parts>& f, const std::int32_t* swaps,
                            bool diagonal, double* b, std::int64_t width, std::int64_t plane) {
    struct Column {
        V part[parts];
    };
    const auto get = [=](std::int64_t i) {
        Column x;
        for (int p = 0; p < parts; ++p) __builtin_memcpy(&x.part[p], b + p * plane + i * width, sizeof(V));
        return x;
    };
    const auto put = [=](std::int64_t i, const Column& x) {
        for (int p = 0; p < parts; ++p) __builtin_memcpy(b + p * plane + i * width, &x.part[p], sizeof(V));
    };
    const auto multiplied = [](const Column& x, const Number<parts, double>& a) {
        Column y;
        y.part[0] = x.part[0] * a.part[0];
        if constexpr (parts == 2) {
            y.part[0] = y.part[0] - x.part[1] * a.part[1];
            y.part[1] = x.part[0] * a.part[1] + x.part[1] * a.part[0];
        }
        return y;
    };
    const auto less = [](Column& y, const Number<parts, double>& a, const Column& x) {
        y.part[0] = y.part[0] - x.part[0] * a.part[0];
        if constexpr (parts == 2) {
            y.part[0] = y.part[0] + x.part[1] * a.part[1];
            y.part[1] = (y.part[1] - x.part[1] * a.part[0]) - x.part[0] * a.part[1];
        }
    };
    if (diagonal) {
        for (std::int64_t i = 0; i < n; ++i) put(i, multiplied(get(i), f.at(1, i)));
        return;
    }
    Column here = get(0);
    for (std::int64_t i = 0; i + 1 < n; ++i) {
        Column next = get(i + 1);
        if (swaps[i]) {
            const Column kept = here;
            here = next, next = kept;
        }
        put(i, here);
        less(next, f.at(0, i), here);
        here = next;
    }
    Column after = multiplied(here, f.at(1, n - 1)), farther = {};
    put(n - 1, after);
    for (std::int64_t i = n - 2; i >= 0; --i) {
        Column x = get(i);
        less(x, f.at(3, i), farther);
        less(x, f.at(2, i), after);
        x = multiplied(x, f.at(1, i));
        put(i, x);
        farther = after, after = x;
    }
}

// The numbers of a band in rows of factors, which hold zeros.
template <int parts>
void spread_band(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, double* factors) {
    const std::int64_t step = band_step(below, above), plane = band_plane(n, below, above);
    const std::int64_t diagonals = below + above + 1, from_step = diagonal_step(n);
    constexpr std::int64_t together = 64;  // rows: what is read and written stays in the caches
    for (int p = 0; p < parts; ++p)
        for (std::int64_t begin = 0; begin < n; begin += together) {
            const std::int64_t end = n - begin < together ? n : begin + together;
            for (std::int64_t d = 0; d < diagonals; ++d) {
                const double* from = band + (p * diagonals + d) * from_step;
                double* to = factors + p * plane + d - below;
                const std::int64_t least = below - d > begin ? below - d : begin;
                const std::int64_t most = n + below - d < end ? n + below - d : end;
                for (std::int64_t i = least; i < most; ++i) to[i * step + i] = from[i];
            }
        }
}

template <int parts>
double band_factorize(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, double* factors,
                      std::int32_t* swaps) {
    if (below <= 1 && above <= 1) return tridiagonal_factorize<parts>(n, below, above, band, factors, swaps);
    const std::int64_t plane = band_plane(n, below, above);
    __builtin_memset(factors, 0, static_cast<std::size_t>(parts * plane) * sizeof *factors);
    spread_band<parts>(n, below, above, band, factors);
    const Rows<parts, double> a = {factors, band_step(below, above), plane};
    Pivots<double> pivots = {swaps, __builtin_huge_val(), 0, 0, 0, 0};
    for (std::int64_t j = 0; j < n; j += line_of<double>) {
        const BandPanel panel(n, below, above, j);
        pivots.begin = j, pivots.end = panel.end;
        if (!factorize_panel(a, panel.bottom, j, static_cast<int>(panel.width), pivots)) return 0;
        const std::int64_t right = j + line_of<double>;
        if (right >= panel.end) continue;
        substitute_forward(a, a, j, panel.width, right, panel.end);
        subtract_product(a, a, a, j + panel.width, panel.bottom, j, panel.width, right, panel.end);
    }
    return pivots.ratio();
}

template <int parts>
void band_substitute(std::int64_t n, std::int64_t below, std::int64_t above, double* factors,
                     const std::int32_t* swaps, std::int64_t columns, double* b) {
    const std::int64_t width = padded<double>(columns);
    if (below <= 1 && above <= 1) {
        const TridiagonalFactors<parts> f = {factors, padded<double>(n)};
        const bool diagonal = below + above == 0;
        if (columns == 1)
            return tridiagonal_substitute<parts, double>(n, f, swaps, diagonal, b, width, n * width);
        for (std::int64_t c = 0; c < width; c += strip_lanes)
            tridiagonal_substitute<parts, Vector<double>>(n, f, swaps, diagonal, b + c, width, n * width);
        return;
    }
    const Rows<parts, double> lu = {factors, band_step(below, above), band_plane(n, below, above)};
    const Rows<parts, double> y = {b, width, n * width};
    for (std::int64_t j = 0; j < n; j += line_of<double>) {
        const BandPanel panel(n, below, above, j);
        for (std::int64_t i = j; i < j + panel.width; ++i)
            if (swaps[i] != i) y.interchange(i, swaps[i], 0, width);
        substitute_forward(lu, y, j, panel.width, 0, width);
        subtract_product(lu, y, y, j + panel.width, panel.bottom, j, panel.width, 0, width);
    }
    for (std::int64_t j = padded<double>(n) - line_of<double>; j >= 0; j -= line_of<double>) {
        substitute_backward(lu, y, j, rows_from<double>(j, n), 0, width);
        const std::int64_t top = j - below - above > 0 ? j - below - above : 0;
        subtract_product(lu, y, y, top, j, j, rows_from<double>(j, n), 0, width);
    }
}

// Some terms of a band's row: those of the diagonals `begin` to `end` - 1. `at(d)` is an entry, `x(d)` what it is
// multiplied with, and `block` counts real products.
template <int parts, class V, class Entry, class Known>
inline void subtract_band_row(TwiceSum<V> (&sums)[parts], std::int64_t begin, std::int64_t end, std::int64_t block,
                              const Entry& at, const Known& x) {
    if (block < 2) {
        for (std::int64_t d = begin; d < end; ++d) {
            const Value<parts, V> entry = at(d), known = x(d);
            sums[0].add_product(V{} - entry.part[0], known.part[0]);
            if constexpr (parts == 2) {
                sums[0].add_product(entry.part[1], known.part[1]);
                sums[1].add_product(V{} - entry.part[0], known.part[1]);
                sums[1].add_product(V{} - entry.part[1], known.part[0]);
            }
        }
        return;
    }
    const std::int64_t together = block / parts;
    while (begin < end) {
        const std::int64_t stop = end - begin < together ? end : begin + together;
        V products[parts] = {};
        for (; begin < stop; ++begin) {
            const Value<parts, V> entry = at(begin), known = x(begin);
            products[0] = fused(entry.part[0], known.part[0], products[0]);
            if constexpr (parts == 2) {
                products[0] = fused(-entry.part[1], known.part[1], products[0]);
                products[1] = fused(entry.part[0], known.part[1], products[1]);
                products[1] = fused(entry.part[1], known.part[0], products[1]);
            }
        }
        for (int p = 0; p < parts; ++p) sums[p].add(-products[p]);
    }
}

template <int parts>
void band_residual(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, std::int64_t width,
                   std::int64_t begin, std::int64_t end, const double* x, const double* b, double* r,
                   std::int64_t block) {
    using V = Vector<double>;
    const std::int64_t step = diagonal_step(n), diagonals = below + above + 1;
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t first = below > i ? below - i : 0;
        const std::int64_t last = n - i + below < diagonals ? n - i + below : diagonals;
        for (std::int64_t c = begin; c < end; c += strip_lanes) {
            TwiceSum<V> sums[parts];
            for (int p = 0; p < parts; ++p) sums[p] = {load(b + (p * n + i) * width + c), V{}};
            subtract_band_row<parts, V>(
                sums, first, last, block,
                [&](std::int64_t d) {
                    Value<parts, V> value;
                    for (int p = 0; p < parts; ++p)
                        value.part[p] = broadcast<double>(band[(p * diagonals + d) * step + i]);
                    return value;
                },
                [&](std::int64_t d) {
                    Value<parts, V> value;
                    for (int p = 0; p < parts; ++p) value.part[p] = load(x + (p * n + i + d - below) * width + c);
                    return value;
                });
            for (int p = 0; p < parts; ++p) store<double>(r + (p * n + i) * width + c, sums[p].high + sums[p].low);
        }
    }
}

template <int parts>
void band_residual_of_one(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, const double* x,
                          std::int64_t x_step, const double* b, double* r, std::int64_t block) {
    using V = Vector<double>;
    const std::int64_t step = diagonal_step(n), diagonals = below + above + 1;
    for (std::int64_t i = 0; i < n; i += strip_lanes) {
        const std::int64_t valid = n - i < strip_lanes ? n - i : strip_lanes;
        TwiceSum<V> sums[parts];
        for (int p = 0; p < parts; ++p) sums[p] = {load_some(b + p * n + i, valid), V{}};
        subtract_band_row<parts, V>(
            sums, 0, diagonals, block,
            [&](std::int64_t d) {
                Value<parts, V> value;
                for (int p = 0; p < parts; ++p) value.part[p] = load(band + (p * diagonals + d) * step + i);
                return value;
            },
            [&](std::int64_t d) {
                Value<parts, V> value;
                for (int p = 0; p < parts; ++p) value.part[p] = load(x + p * x_step + i + d - below);
                return value;
            });
        for (int p = 0; p < parts; ++p) store_some<double>(r + p * n + i, sums[p].high + sums[p].low, valid);
    }
}

inline double band_largest_row_sum(std::int64_t n, std::int64_t lines, const double* band) {
    using V = Vector<double>;
    const std::int64_t step = diagonal_step(n);
    double largest = 0;
    for (std::int64_t i = 0; i < n; i += strip_lanes) {
        V sum = {};
        for (std::int64_t d = 0; d < lines; ++d) sum += magnitude_of(load(band + d * step + i));
        for (int lane = 0; lane < strip_lanes; ++lane) raise(largest, sum[lane]);
    }
    return largest;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
