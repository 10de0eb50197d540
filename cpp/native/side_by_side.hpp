// Tiny systems of a stack, as many at a time as a vector has lanes: each lane is a system. Copy, LU, solution and
// residual are done by the operations of express.hpp in their order, so that x has the same bits.
#pragma once

#include "native/exact.hpp"
#include "native/structured.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A number of each system: its real part, and its imaginary part if there are two.
template <int parts> struct LaneNumbers {
    Vector<double> part[parts];

    static LaneNumbers at(const double* from) {
        LaneNumbers x;
        for (int p = 0; p < parts; ++p) x.part[p] = load(from + p * Lanes<double>::count);
        return x;
    }
};

// y - factor x and y + factor x, and their like for numbers, as in express.hpp.
inline Vector<double> less(Vector<double> y, Vector<double> factor, Vector<double> x) { return fused(-x, factor, y); }
inline Vector<double> more(Vector<double> y, Vector<double> factor, Vector<double> x) { return fused(factor, x, y); }

template <int parts>
inline void subtract(LaneNumbers<parts>& y, const LaneNumbers<parts>& factor, const LaneNumbers<parts>& x) {
    y.part[0] = less(y.part[0], factor.part[0], x.part[0]);
    if constexpr (parts == 2) {
        y.part[0] = more(y.part[0], factor.part[1], x.part[1]);
        y.part[1] = less(less(y.part[1], factor.part[0], x.part[1]), factor.part[1], x.part[0]);
    }
}

template <int parts> inline LaneNumbers<parts> product(const LaneNumbers<parts>& a, const LaneNumbers<parts>& b) {
    if constexpr (parts == 1) return {{a.part[0] * b.part[0]}};
    else
        return {{less(a.part[0] * b.part[0], a.part[1], b.part[1]), more(a.part[0] * b.part[1], a.part[1], b.part[0])}};
}

template <int parts> inline void divide(LaneNumbers<parts>& x, const LaneNumbers<parts>& y) {
    if constexpr (parts == 1) {
        x.part[0] = x.part[0] / y.part[0];
    } else {  // Smith's way: by the larger part, whichever that is in a lane
        using V = Vector<double>;
        const V re = x.part[0], im = x.part[1], a = y.part[0], b = y.part[1];
        const auto first = magnitude(a) >= magnitude(b);
        const V large = first ? a : b, small = first ? b : a, ratio = small / large, divisor = more(large, small, ratio);
        const V here = first ? re : im, other = first ? im : re;
        x.part[0] = more(here, ratio, other) / divisor;
        x.part[1] = less(other, ratio, here) / (first ? divisor : -divisor);
    }
}

// |Re x| + |Im x|, by which pivots are compared, and the square of the modulus (of a real number the modulus).
template <int parts> inline Vector<double> pivot_size(const LaneNumbers<parts>& x) {
    Vector<double> size = magnitude(x.part[0]);
    if constexpr (parts == 2) size += magnitude(x.part[1]);
    return size;
}
template <int parts> inline Vector<double> square(const LaneNumbers<parts>& x) {
    if constexpr (parts == 1) return magnitude(x.part[0]);
    else return fused(x.part[0], x.part[0], x.part[1] * x.part[1]);
}
template <int parts> inline Vector<double> modulus_of(Vector<double> square) {
    if constexpr (parts == 2)
        for (int lane = 0; lane < Lanes<double>::count; ++lane) square[lane] = square_root(square[lane]);
    return square;
}

inline Vector<double> larger(Vector<double> most, Vector<double> size) {
    return (size > most) | (size != size) ? size : most;  // NaN if there is one
}

template <class Mask, int parts> inline void exchange(Mask chosen, LaneNumbers<parts>& x, LaneNumbers<parts>& y) {
    for (int p = 0; p < parts; ++p) {
        const Vector<double> kept = x.part[p];
        x.part[p] = chosen ? y.part[p] : kept;
        y.part[p] = chosen ? kept : y.part[p];
    }
}

// P A = L U in place by partial pivoting. Row c was interchanged with row swaps[c], which differs from lane to lane.
// The smallest pivot over the largest.
template <int n, int parts>
inline Vector<double> factorize_lanes(LaneNumbers<parts> (&a)[n][n], Vector<double> (&swaps)[n]) {
    using V = Vector<double>;
    V smallest = V{} + __builtin_huge_val(), largest = {};
    for (int c = 0; c < n; ++c) {
        V size = pivot_size(a[c][c]), pivot = V{} + static_cast<double>(c);
        for (int i = c + 1; i < n; ++i) {
            const V here = pivot_size(a[i][c]);
            const auto exceeds = here > size;
            pivot = exceeds ? V{} + static_cast<double>(i) : pivot;
            size = exceeds ? here : size;
        }
        swaps[c] = pivot;
        smallest = size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
        for (int i = c + 1; i < n; ++i) {
            const auto chosen = pivot == V{} + static_cast<double>(i);
            for (int j = 0; j < n; ++j) exchange(chosen, a[c][j], a[i][j]);
        }
        LaneNumbers<parts> inverse = {};
        inverse.part[0] = V{} + 1.0;
        divide(inverse, a[c][c]);
        for (int i = c + 1; i < n; ++i) {
            a[i][c] = product(a[i][c], inverse);
            for (int j = c + 1; j < n; ++j) subtract(a[i][j], a[i][c], a[c][j]);
        }
    }
    return smallest / largest;
}

template <int n, int parts>
inline void substitute_lanes(const LaneNumbers<parts> (&lu)[n][n], const Vector<double> (&swaps)[n],
                             LaneNumbers<parts> (&y)[n]) {
    for (int c = 0; c < n; ++c)
        for (int i = c + 1; i < n; ++i) exchange(swaps[c] == Vector<double>{} + static_cast<double>(i), y[c], y[i]);
    for (int q = 0; q < n; ++q)
        for (int p = 0; p < q; ++p) subtract(y[q], lu[q][p], y[p]);
    for (int q = n - 1; q >= 0; --q) {
        for (int p = q + 1; p < n; ++p) subtract(y[q], lu[q][p], y[p]);
        divide(y[q], lu[q][q]);
    }
}

// b - A x for a row of A, in twice the precision.
template <int n, int parts>
inline LaneNumbers<parts> row_residual(const double* row, const LaneNumbers<parts>& b, const LaneNumbers<parts> (&x)[n]) {
    using V = Vector<double>;
    TwiceSum<V> left[parts];
    for (int p = 0; p < parts; ++p) left[p] = {b.part[p], V{}};
    for (int j = 0; j < n; ++j) {
        const LaneNumbers<parts> a = LaneNumbers<parts>::at(row + j * parts * Lanes<double>::count);
        left[0].add_product(-a.part[0], x[j].part[0]);
        if constexpr (parts == 2) {
            left[0].add_product(a.part[1], x[j].part[1]);
            left[1].add_product(-a.part[0], x[j].part[1]);
            left[1].add_product(-a.part[1], x[j].part[0]);
        }
    }
    LaneNumbers<parts> r;
    for (int p = 0; p < parts; ++p) r.part[p] = left[p].high + left[p].low;
    return r;
}

template <int n, int parts>
void solve_lanes(std::int64_t columns, const double* a, const double* b, double* x, bool single,
                 const ExpressGate& gate, double* errors) {
    using V = Vector<double>;
    using Number = LaneNumbers<parts>;
    constexpr std::int64_t lanes = Lanes<double>::count, step = parts * lanes;
    constexpr double over_root_2 = 0.7071067811865475;  // not above the inverse of the square root of 2
    Number lu[n][n];
    V swaps[n] = {}, norm = {};
    for (int i = 0; i < n; ++i) {
        V sum = {};
        for (int j = 0; j < n; ++j) lu[i][j] = Number::at(a + (i * n + j) * step), sum += pivot_size(lu[i][j]);
        norm = larger(norm, sum);
    }
    if (parts == 2) norm = norm * over_root_2;
    const V ratio = factorize_lanes<n>(lu, swaps);
    V worst = {};
    for (std::int64_t c = 0; c < columns; ++c) {
        Number y[n];
        V x_norm = {}, b_norm = {}, r_norm = {};
        for (int i = 0; i < n; ++i) y[i] = Number::at(b + (i * columns + c) * step);
        substitute_lanes<n>(lu, swaps, y);
        for (int i = 0; i < n; ++i) {
            for (int p = 0; p < parts; ++p) {
                V& value = y[i].part[p];
                if (single) value = __builtin_convertvector(__builtin_convertvector(value, Floats<lanes>), V);
                store(x + (i * columns + c) * step + p * lanes, value);
            }
            x_norm = larger(x_norm, square(y[i]));
        }
        for (int i = 0; i < n; ++i) {
            const Number right = Number::at(b + (i * columns + c) * step);
            b_norm = larger(b_norm, square(right));
            r_norm = larger(r_norm, square(row_residual<n>(a + i * n * step, right, y)));
        }
        const V size = norm * modulus_of<parts>(x_norm) + modulus_of<parts>(b_norm);
        const V error = modulus_of<parts>(r_norm) / size * gate.growth + gate.exact_error;
        const auto in_range = (size > gate.least) & (size < gate.most);
        worst = larger(worst, in_range ? error : V{} + __builtin_huge_val());
    }
    const auto accepted = (ratio > gate.suspicious) & (worst <= gate.tolerance);
    store(errors, accepted ? worst : V{} + __builtin_huge_val());
}

template <int parts, int most>
void solve_side_by_side(std::int64_t n, std::int64_t columns, const double* a, const double* b, double* x, bool single,
                        const ExpressGate& gate, double* errors) {
    if constexpr (most > 0) {
        if (n == most) solve_lanes<most, parts>(columns, a, b, x, single, gate, errors);
        else solve_side_by_side<parts, most - 1>(n, columns, a, b, x, single, gate, errors);
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
