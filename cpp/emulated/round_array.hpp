// Rounding arrays, in every mode.
#pragma once

#include "common/parallel.hpp"
#include "emulated/rounders.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Steele, Lea & Flood's SplitMix64 as a counter-based generator: number `counter` of stream
// `key`. The random bits of element i depend on (key, i) alone, not on threads or vectors.
inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
    std::uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Rounds to one of the two neighbours in the format: directed() by the mode, stochastic() by chance.
template <class T> class NeighbourRounder {
    using U = typename Carrier<T>::Unsigned;
    using S = typename Carrier<T>::Signed;
    using V = Vector<T>;
    using B = Vector<U>;
    using C = Vector<S>;
    Limits<T> limits_;
    Mode mode_;

    // The largest multiple of the quantum that is at most a, for a below min_normal.
    V floor_tiny(V a) const {
        const V nearest = (a + limits_.anchor) - limits_.anchor;
        return nearest > a ? nearest - limits_.quantum : nearest;
    }

    // Puts the result together: `tiny` below min_normal, else `normal`; `too_large` above max;
    // infinity and NaN; and the sign of `bits`.
    V finish(B bits, B magnitude, B normal, V tiny, B too_large) const {
        B r = bit_cast<C>(magnitude) < static_cast<S>(limits_.min_normal) ? bit_cast<B>(tiny) : normal;
        r = bit_cast<C>(r) > static_cast<S>(limits_.max) ? too_large : r;
        // An infinite x was not rounded, so it does not depend on the mode.
        r = bit_cast<C>(magnitude) == static_cast<S>(Carrier<T>::infinity) ? B{} + limits_.overflowed : r;
        r = bit_cast<C>(magnitude) > static_cast<S>(Carrier<T>::infinity) ? magnitude : r;
        return bit_cast<V>(r | (bits & ~Carrier<T>::abs_mask));
    }

  public:
    NeighbourRounder(const Format& f, Mode mode) : limits_(f), mode_(mode) {}

    V directed(V x) const {
        const B bits = bit_cast<B>(x);
        const B magnitude = bits & Carrier<T>::abs_mask;
        const C negative = bit_cast<C>(bits) < 0;
        const C away = mode_ == Mode::up ? ~negative : mode_ == Mode::down ? negative : C{};
        const B normal = (magnitude + (bit_cast<B>(away) & limits_.low)) & ~limits_.low;
        const V a = bit_cast<V>(magnitude);
        const V below = floor_tiny(a);
        const V above = below < a ? below + limits_.quantum : below;
        return finish(bits, magnitude, normal, away ? above : below,
                      away ? B{} + limits_.overflowed : B{} + limits_.max);
    }

    // Up with probability (distance from the lower neighbour) / (distance of the neighbours).
    V stochastic(V x, B random) const {
        const B bits = bit_cast<B>(x);
        const B magnitude = bits & Carrier<T>::abs_mask;
        const B normal = (magnitude + (random & limits_.low)) & ~limits_.low;
        const V a = bit_cast<V>(magnitude);
        const V below = floor_tiny(a);
        constexpr int precision = Carrier<T>::precision;
        // In [0, 1), a multiple of 2^-precision.
        const V uniform =
            __builtin_convertvector(bit_cast<C>(random >> (8 * sizeof(T) - precision)), V) /
            static_cast<T>(U{1} << precision);
        const V tiny = uniform < (a - below) / limits_.quantum ? below + limits_.quantum : below;
        return finish(bits, magnitude, normal, tiny, B{} + limits_.overflowed);
    }
};

template <class T, class Step>
void for_each_vector(std::int64_t begin, std::int64_t end, const T* x, T* y, Step step) {
    constexpr int lanes = Lanes<T>::count;
    std::int64_t i = begin;
    for (; i + lanes <= end; i += lanes) store<T>(y + i, step(load(x + i), i));
    if (i < end) store_first<T>(y + i, step(load_first(x + i, end - i), i), end - i);
}

template <class T>
void round_range(const Format& f, Mode mode, std::uint64_t key,
                 std::int64_t begin, std::int64_t end, const T* x, T* y) {
    using V = Vector<T>;
    if (mode == Mode::nearest) {
        // AnyRange and not the faster SameRange, which is wrong for some NaNs that x may hold.
        const AnyRange<T> round(f);
        for_each_vector(begin, end, x, y, [&](V v, std::int64_t) { return round(v); });
        return;
    }
    const NeighbourRounder<T> round(f, mode);
    if (mode != Mode::stochastic) {
        for_each_vector(begin, end, x, y, [&](V v, std::int64_t) { return round.directed(v); });
        return;
    }
    for_each_vector(begin, end, x, y, [&](V v, std::int64_t i) {
        Vector<typename Carrier<T>::Unsigned> random;
        for (int lane = 0; lane < Lanes<T>::count; ++lane)
            random[lane] = static_cast<typename Carrier<T>::Unsigned>(
                random_bits(key, static_cast<std::uint64_t>(i + lane)));
        return round.stochastic(v, random);
    });
}

template <class T>
void round_array(const Format& f, Mode mode, std::uint64_t key,
                 std::int64_t n, const T* x, T* y, int threads) {
    auto range = [&](std::int64_t begin, std::int64_t end) {
        round_range(f, mode, key, begin, end, x, y);
    };
    parallel_for(n, std::int64_t{1} << 18, threads, range);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
