// Tiny real systems of a stack, as many at a time as a vector has lanes: each lane is a system. Copy, LU, solution
// and residual are done by the operations of express.hpp in their order, so that x has the same bits.
#pragma once

#include "native/exact.hpp"
#include "native/structured.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// y - factor x, as `difference` of express.hpp has it.
inline Vector<double> less(Vector<double> y, Vector<double> factor, Vector<double> x) { return fused(-x, factor, y); }

inline Vector<double> larger(Vector<double> most, Vector<double> size) {
    return (size > most) | (size != size) ? size : most;  // NaN if there is one
}

// P A = L U in place by partial pivoting. Row c was interchanged with row swaps[c], which differs from lane to lane.
// The smallest pivot over the largest.
template <int n> inline Vector<double> factorize_lanes(Vector<double> (&a)[n][n], Vector<double> (&swaps)[n]) {
    using V = Vector<double>;
    V smallest = V{} + __builtin_huge_val(), largest = {};
    for (int c = 0; c < n; ++c) {
        V size = magnitude(a[c][c]), pivot = V{} + static_cast<double>(c);
        for (int i = c + 1; i < n; ++i) {
            const V here = magnitude(a[i][c]);
            const auto exceeds = here > size;
            pivot = exceeds ? V{} + static_cast<double>(i) : pivot;
            size = exceeds ? here : size;
        }
        swaps[c] = pivot;
        smallest = size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
        for (int i = c + 1; i < n; ++i) {
            const auto chosen = pivot == V{} + static_cast<double>(i);
            for (int j = 0; j < n; ++j) {
                const V upper = a[c][j];
                a[c][j] = chosen ? a[i][j] : upper;
                a[i][j] = chosen ? upper : a[i][j];
            }
        }
        const V inverse = 1.0 / a[c][c];
        for (int i = c + 1; i < n; ++i) {
            a[i][c] = a[i][c] * inverse;
            for (int j = c + 1; j < n; ++j) a[i][j] = less(a[i][j], a[i][c], a[c][j]);
        }
    }
    return smallest / largest;
}

template <int n>
inline void substitute_lanes(const Vector<double> (&lu)[n][n], const Vector<double> (&swaps)[n], Vector<double> (&y)[n]) {
    using V = Vector<double>;
    for (int c = 0; c < n; ++c)
        for (int i = c + 1; i < n; ++i) {
            const auto chosen = swaps[c] == V{} + static_cast<double>(i);
            const V upper = y[c];
            y[c] = chosen ? y[i] : upper;
            y[i] = chosen ? upper : y[i];
        }
    for (int q = 0; q < n; ++q)
        for (int p = 0; p < q; ++p) y[q] = less(y[q], lu[q][p], y[p]);
    for (int q = n - 1; q >= 0; --q) {
        for (int p = q + 1; p < n; ++p) y[q] = less(y[q], lu[q][p], y[p]);
        y[q] = y[q] / lu[q][q];
    }
}

template <int n>
void solve_lanes(std::int64_t columns, const double* a, const double* b, double* x, bool single,
                 const ExpressGate& gate, double* errors) {
    using V = Vector<double>;
    constexpr std::int64_t lanes = Lanes<double>::count;
    V lu[n][n], swaps[n] = {}, norm = {};
    for (int i = 0; i < n; ++i) {
        V sum = {};
        for (int j = 0; j < n; ++j) lu[i][j] = load(a + (i * n + j) * lanes), sum += magnitude(lu[i][j]);
        norm = larger(norm, sum);
    }
    const V ratio = factorize_lanes<n>(lu, swaps);
    V worst = {};
    for (std::int64_t c = 0; c < columns; ++c) {
        V y[n], x_norm = {}, b_norm = {}, r_norm = {};
        for (int i = 0; i < n; ++i) y[i] = load(b + (i * columns + c) * lanes);
        substitute_lanes<n>(lu, swaps, y);
        for (int i = 0; i < n; ++i) {
            if (single) y[i] = __builtin_convertvector(__builtin_convertvector(y[i], Floats<lanes>), V);
            store(x + (i * columns + c) * lanes, y[i]);
            x_norm = larger(x_norm, magnitude(y[i]));
        }
        for (int i = 0; i < n; ++i) {
            const V right = load(b + (i * columns + c) * lanes);
            TwiceSum<V> left = {right, V{}};
            for (int j = 0; j < n; ++j) left.add_product(-load(a + (i * n + j) * lanes), y[j]);
            b_norm = larger(b_norm, magnitude(right));
            r_norm = larger(r_norm, magnitude(left.high + left.low));
        }
        const V size = norm * x_norm + b_norm;
        const V error = r_norm / size * gate.growth + gate.exact_error;
        const auto in_range = (size > gate.least) & (size < gate.most);
        worst = larger(worst, in_range ? error : V{} + __builtin_huge_val());
    }
    const auto accepted = (ratio > gate.suspicious) & (worst <= gate.tolerance);
    store(errors, accepted ? worst : V{} + __builtin_huge_val());
}

template <int most>
void solve_side_by_side(std::int64_t n, std::int64_t columns, const double* a, const double* b, double* x, bool single,
                        const ExpressGate& gate, double* errors) {
    if constexpr (most > 0) {
        if (n == most) solve_lanes<most>(columns, a, b, x, single, gate, errors);
        else solve_side_by_side<most - 1>(n, columns, a, b, x, single, gate, errors);
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
