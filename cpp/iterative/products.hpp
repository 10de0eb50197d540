// The products of kernels.hpp.
#pragma once

#include <type_traits>

#include "iterative/kernels.hpp"
#include "native/storage.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using iterative::Index;
using iterative::SlicesView;

constexpr int lanes = iterative::lanes_of_slice;
template <class T> using Eight = PackOf<T, lanes>;

// Eight numbers as they are computed with.
inline Eight<double> widened(const double* from) { return load_pack<Eight<double>>(from); }
inline Eight<float> widened(const float* from) { return load_pack<Eight<float>>(from); }
inline Eight<float> widened(const iterative::Bf16* from) { return widen_bf16<lanes>(load_pack<Halves<lanes>>(from)); }
inline Eight<float> widened(const iterative::Fp16* from) { return widen_fp16<lanes>(load_pack<Halves<lanes>>(from)); }

inline void narrowed(Eight<double> x, double* to) { std::memcpy(to, &x, sizeof x); }
inline void narrowed(Eight<double> x, float* to) {
    const Eight<float> y = __builtin_convertvector(x, Eight<float>);
    std::memcpy(to, &y, sizeof y);
}
inline void narrowed(Eight<double> x, iterative::Bf16* to) {
    const Halves<lanes> y = narrow_bf16<lanes>(narrow_to_odd<lanes>(x));
    std::memcpy(to, &y, sizeof y);
}
inline void narrowed(Eight<double> x, iterative::Fp16* to) {
    const Halves<lanes> y = narrow_fp16<lanes>(narrow_to_odd<lanes>(x));
    std::memcpy(to, &y, sizeof y);
}

template <class E> void round_all(const double* from, std::int64_t count, E* to) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) narrowed(load_pack<Eight<double>>(from + i), to + i);
    if (i == count) return;
    double rest[lanes] = {};
    E short_rest[lanes];
    for (std::int64_t k = i; k < count; ++k) rest[k - i] = from[k];
    narrowed(load_pack<Eight<double>>(rest), short_rest);
    for (std::int64_t k = i; k < count; ++k) to[k] = short_rest[k - i];
}

template <class E> void widen_all(const E* from, std::int64_t count, double* to) {
    E rest[lanes] = {};
    for (std::int64_t i = 0; i < count; i += lanes) {
        const std::int64_t size = count - i < lanes ? count - i : lanes;
        for (std::int64_t k = 0; k < size; ++k) rest[k] = from[i + k];
        const auto wide = widened(rest);
        for (std::int64_t k = 0; k < size; ++k) to[i + k] = wide[k];
    }
}

inline Eight<double> gathered(const double* x, const Index* at) {
#if defined(__AVX512F__)
    const __m256i places = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return (Eight<double>)_mm512_mask_i32gather_pd(_mm512_setzero_pd(), 0xff, places, x, 8);
#else
    return Eight<double>{x[at[0]], x[at[1]], x[at[2]], x[at[3]], x[at[4]], x[at[5]], x[at[6]], x[at[7]]};
#endif
}
// Eight loads take less time than the instruction that gathers floats (Zen 5).
inline Eight<float> gathered(const float* x, const Index* at) {
    return Eight<float>{x[at[0]], x[at[1]], x[at[2]], x[at[3]], x[at[4]], x[at[5]], x[at[6]], x[at[7]]};
}

template <class E> inline iterative::ComputedIn<E> one_widened(const E& value) {
    if constexpr (std::is_same_v<E, double> || std::is_same_v<E, float>) return value;
    else if constexpr (std::is_same_v<E, iterative::Bf16>) {
        const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
        float wide;
        std::memcpy(&wide, &bits, sizeof wide);
        return wide;
    } else {
        E eight[lanes] = {value};
        return widened(eight)[0];
    }
}

// The sums of rows `row` to `row + 7`, which are one slice.
template <class E> inline Eight<iterative::ComputedIn<E>> slice_sums(const SlicesView<E>& S, const iterative::ComputedIn<E>* x, Index row) {
    Eight<iterative::ComputedIn<E>> sums = {};
    const std::int64_t slice = row / lanes, end = S.starts[slice + 1];
    for (std::int64_t e = S.starts[slice]; e < end; e += lanes) sums += widened(S.values + e) * gathered(x, S.indices + e);
    return sums;
}

template <class E> inline iterative::ComputedIn<E> row_sum(const SlicesView<E>& S, const iterative::ComputedIn<E>* x, Index row) {
    iterative::ComputedIn<E> sum = 0;
    for (std::int64_t e = S.starts[row]; e < S.starts[row + 1]; ++e) sum += one_widened(S.values[e]) * x[S.indices[e]];
    return sum;
}

// Calls eight(row, sums) for whole slices, and one(row, sum) for each other row, from begin to end.
template <class E, class Slice, class One>
inline void each_sum(const SlicesView<E>& S, const iterative::ComputedIn<E>* x, Index begin, Index end, const Slice& eight, const One& one) {
    using T = iterative::ComputedIn<E>;
    if (S.lanes == 1) {
        for (Index i = begin; i < end; ++i) one(i, row_sum(S, x, i));
        return;
    }
    Index i = begin;
    for (; i + lanes <= end; i += lanes) eight(i, slice_sums(S, x, i));
    if (i == end) return;
    const Eight<T> sums = slice_sums(S, x, i);
    for (Index k = i; k < end; ++k) one(k, sums[k - i]);
}

template <class E, bool add>
void row_products(const SlicesView<E>& S, const iterative::ComputedIn<E>* x, iterative::ComputedIn<E>* y, Index begin, Index end) {
    using T = iterative::ComputedIn<E>;
    each_sum(
        S, x, begin, end,
        [&](Index i, Eight<T> sums) {
            const Eight<T> whole = add ? load_pack<Eight<T>>(y + i) + sums : sums;
            std::memcpy(y + i, &whole, sizeof whole);
        },
        [&](Index i, T sum) { y[i] = add ? y[i] + sum : sum; });
}

template <class E>
void residual_of(const SlicesView<E>& S, const iterative::ComputedIn<E>* diagonal, const iterative::ComputedIn<E>* b,
                 const iterative::ComputedIn<E>* x, iterative::ComputedIn<E>* r, Index begin, Index end) {
    using T = iterative::ComputedIn<E>;
    each_sum(
        S, x, begin, end,
        [&](Index i, Eight<T> sums) {
            using L = Eight<T>;
            const L left = load_pack<L>(b + i) - (load_pack<L>(diagonal + i) * load_pack<L>(x + i) + sums);
            std::memcpy(r + i, &left, sizeof left);
        },
        [&](Index i, T sum) { r[i] = b[i] - (diagonal[i] * x[i] + sum); });
}

template <class E>
void smooth_rows(const SlicesView<E>& S, const iterative::Smoothing<iterative::ComputedIn<E>>& s, Index begin, Index end) {
    using T = iterative::ComputedIn<E>;
    each_sum(
        S, s.x, begin, end,
        [&](Index i, Eight<T> sums) {
            using L = Eight<T>;
            const L x = load_pack<L>(s.x + i);
            const L left = load_pack<L>(s.b + i) - (load_pack<L>(s.diagonal + i) * x + sums);
            L d = s.beta * (load_pack<L>(s.inverse + i) * left);
            if (s.alpha != 0) d = s.alpha * load_pack<L>(s.d + i) + d;
            std::memcpy(s.d + i, &d, sizeof d);
            const L y = x + d;
            std::memcpy(s.y + i, &y, sizeof y);
        },
        [&](Index i, T sum) {
            const T left = s.b[i] - (s.diagonal[i] * s.x[i] + sum);
            T d = s.beta * (s.inverse[i] * left);
            if (s.alpha != 0) d = s.alpha * s.d[i] + d;
            s.d[i] = d;
            s.y[i] = s.x[i] + d;
        });
}

template <class E>
void substitute_rows(const SlicesView<E>& S, const iterative::ComputedIn<E>* inverse, const Index* order,
                     iterative::ComputedIn<E>* x, Index begin, Index end) {
    for (Index k = begin; k < end; ++k) {
        const Index i = order[k];
        const iterative::ComputedIn<E> left = x[i] - row_sum(S, x, i);
        x[i] = inverse ? left * inverse[i] : left;
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
