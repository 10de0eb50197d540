// Operations on vectors: y += alpha x, and one step of modified Gram-Schmidt.
#pragma once

#include "common/carrier.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// The sum of n terms, which term(i, count) returns a vector at a time: terms i..i + count, other
// lanes zero. There are four partial sums, so that an addition need not wait for the one before it.
// The order depends on n and the level alone.
template <class T, class Term> inline T sum_of(std::int64_t n, const Term& term) {
    constexpr std::int64_t lanes = Lanes<T>::count;
    Vector<T> sum[4] = {};
    std::int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes)
        for (int part = 0; part < 4; ++part) sum[part] += term(i + part * lanes, lanes);
    for (; i + lanes <= n; i += lanes) sum[0] += term(i, lanes);
    if (i < n) sum[1] += term(i, n - i);
    const Vector<T> all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    T total = 0;
    for (int lane = 0; lane < lanes; ++lane) total += all[lane];
    return total;
}

// Zeros, but NaN where x is infinite or NaN: their sum is zero if and only if all of x is finite.
template <class T> inline Vector<T> zero_if_finite(Vector<T> x) { return x * T(0); }

template <class T> bool axpy(std::int64_t n, T alpha, const T* x, T* y) {
    return sum_of<T>(n, [=](std::int64_t i, std::int64_t count) {
               const Vector<T> sum = load_some(y + i, count) + load_some(x + i, count) * alpha;
               store_some<T>(y + i, sum, count);
               return zero_if_finite<T>(sum);
           }) == 0;
}

// One pass over w for each column v_i: it subtracts h_i v_i and, while w is in registers, computes
// v_(i+1)' w, the next coefficient. The last pass checks that w is finite instead. This covers V and
// h too: an infinity or NaN in either makes a coefficient infinite or NaN, and then all of w.
template <class T>
bool orthogonalize(std::int64_t n, std::int64_t columns, const T* v, T* w, T* h) {
    if (columns == 0)
        return sum_of<T>(n, [=](std::int64_t i, std::int64_t count) {
                   return zero_if_finite<T>(load_some(w + i, count));
               }) == 0;
    T next = sum_of<T>(n, [=](std::int64_t i, std::int64_t count) {
        return load_some(v + i, count) * load_some(w + i, count);
    });
    for (std::int64_t j = 0; j < columns; ++j, v += n) {
        const T coefficient = h[j] = next;
        const auto subtract = [=](std::int64_t i, std::int64_t count) {
            const Vector<T> left = load_some(w + i, count) - load_some(v + i, count) * coefficient;
            store_some<T>(w + i, left, count);
            return left;
        };
        if (j + 1 < columns)
            next = sum_of<T>(n, [=](std::int64_t i, std::int64_t count) {
                return load_some(v + n + i, count) * subtract(i, count);
            });
        else
            next = sum_of<T>(n, [=](std::int64_t i, std::int64_t count) {
                return zero_if_finite<T>(subtract(i, count));
            });
    }
    return next == 0;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
