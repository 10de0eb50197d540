// Rounding a scalar or a vector, held in a carrier, to a format: the inner step of every kernel.
// To nearest, ties to even; the other modes are in round_array.hpp.
#pragma once

#include "common/carrier.hpp"
#include "emulated/format.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Constants of a format in a carrier, shared by all rounders.
template <class T> struct Limits {
    using U = typename Carrier<T>::Unsigned;
    int shift;        // carrier bits below the format's last one
    U low;            // mask of those bits
    U min_normal;     // bit patterns, to compare magnitudes as integers
    U max;
    U overflowed;     // what a too large magnitude becomes
    T quantum;        // spacing below min_normal
    T anchor;         // a power of two whose ulp in the carrier is the quantum

    explicit Limits(const Format& f)
        : shift(Carrier<T>::precision - f.p),
          low((U{1} << shift) - 1),
          min_normal(bit_cast<U>(static_cast<T>(f.min_normal))),
          max(bit_cast<U>(static_cast<T>(f.max))),
          overflowed(f.overflow == Overflow::inf   ? Carrier<T>::infinity
                     : f.overflow == Overflow::nan ? Carrier<T>::quiet_nan
                                                   : max),
          quantum(static_cast<T>(f.quantum)),
          anchor(static_cast<T>(f.quantum * static_cast<double>(U{1} << (Carrier<T>::precision - 1)))) {}
};

// A rounder is called with the result of an operation in the carrier. Products have a function of
// their own, because SameRangeGuarded needs the factors. A vector times a scalar is a vector.
template <class X, class Y> using Wider = decltype(X() * Y());

// The format is the carrier itself.
template <class T> struct NoRounding {
    explicit NoRounding(const Format&) {}
    template <class X> X operator()(X x) const { return x; }
    template <class X, class Y> Wider<X, Y> product(X x, Y y) const { return x * y; }
};

// The format has the carrier's exponent range (as bf16 in float). Its numbers, subnormal ones too,
// are those of the carrier whose low bits are zero. To round, add to the bit pattern a little less
// than half of the last place kept (exactly half if that place is odd) and clear the low bits. A
// carry out of the largest binade gives infinity. NaNs made by arithmetic have zero low bits, so they
// never carry into the sign; other NaNs are not rounded right here.
template <class T> class SameRange {
    using U = typename Carrier<T>::Unsigned;
    int shift_;
    U below_half_, keep_;

  public:
    explicit SameRange(const Format& f)
        : shift_(Carrier<T>::precision - f.p),
          below_half_((U{1} << (shift_ - 1)) - 1),
          keep_(~((U{1} << shift_) - 1)) {}

    template <class X> X operator()(X x) const {
        using B = typename Image<X, T>::Unsigned;
        B bits = bit_cast<B>(x);
        bits += below_half_ + ((bits >> shift_) & 1);
        return bit_cast<X>(bits & keep_);
    }
    template <class X, class Y> Wider<X, Y> product(X x, Y y) const { return (*this)(x * y); }
};

// The same for tf32 in float. Float would round a subnormal product before we round it to tf32 (see
// src/roundwise/backends/emulated/carriers.py). So such a product is computed 2^64 times too large,
// where float holds it exactly, rounded there to a multiple of the scaled quantum, and scaled back. A
// product that still underflows is far below half the quantum and becomes 0, as it should. A product
// that is 0 without scaling stays 0: one of its factors, scaled, may be infinite.
class SameRangeGuarded : public SameRange<float> {
    static constexpr float up = 0x1p64f, down = 0x1p-64f;
    float anchor_;  // its last place is the scaled quantum

  public:
    explicit SameRangeGuarded(const Format& f)
        : SameRange<float>(f), anchor_(static_cast<float>(f.quantum * 0x1p64 * 0x1p23)) {}

    using SameRange<float>::operator();
    template <class X, class Y> Wider<X, Y> product(X x, Y y) const {
        using V = Wider<X, Y>;
        using B = typename Image<V, float>::Unsigned;
        using C = typename Image<V, float>::Signed;
        const V plain = x * y;
        const B magnitude = bit_cast<B>(plain) & Carrier<float>::abs_mask;
        const V scaled = bit_cast<V>(bit_cast<B>((x * up) * y) & Carrier<float>::abs_mask);
        const V tiny = ((scaled + anchor_) - anchor_) * down;
        const B sign = bit_cast<B>(plain) & ~Carrier<float>::abs_mask;
        constexpr std::int32_t min_normal = 0x00800000;
        const auto is_tiny = (bit_cast<C>(magnitude) > 0) & (bit_cast<C>(magnitude) < min_normal);
        return bit_cast<V>(is_tiny ? bit_cast<B>(tiny) | sign : bit_cast<B>((*this)(plain)));
    }
};

// Any format whose numbers are all numbers of the carrier.
template <class T> class AnyRange {
    using U = typename Carrier<T>::Unsigned;
    using S = typename Carrier<T>::Signed;
    Limits<T> limits_;
    U below_half_, odd_;

  public:
    explicit AnyRange(const Format& f)
        : limits_(f),
          below_half_(limits_.shift > 0 ? (U{1} << (limits_.shift - 1)) - 1 : 0),
          odd_(limits_.shift > 0 ? 1 : 0) {}

    template <class X> X operator()(X x) const {
        using B = typename Image<X, T>::Unsigned;
        using C = typename Image<X, T>::Signed;  // AVX2 compares signed integers only
        const B bits = bit_cast<B>(x);
        const B magnitude = bits & Carrier<T>::abs_mask;
        const B normal =
            (magnitude + below_half_ + ((magnitude >> limits_.shift) & odd_)) & ~limits_.low;
        // Below min_normal the carrier's own addition rounds to a multiple of the quantum.
        const X a = bit_cast<X>(magnitude);
        const B tiny = bit_cast<B>((a + limits_.anchor) - limits_.anchor);
        B r = bit_cast<C>(magnitude) < static_cast<S>(limits_.min_normal) ? tiny : normal;
        r = bit_cast<C>(r) > static_cast<S>(limits_.max) ? r - r + limits_.overflowed : r;
        r = bit_cast<C>(magnitude) > static_cast<S>(Carrier<T>::infinity) ? magnitude : r;
        return bit_cast<X>(r | (bits & ~Carrier<T>::abs_mask));
    }
    template <class X, class Y> Wider<X, Y> product(X x, Y y) const { return (*this)(x * y); }
};

// Calls body(rounder) with the fastest rounder that is correct for the format.
template <class T, class Body> auto with_rounder(const Format& f, Body body) {
    const Limits<T> limits(f);
    const T carrier_quantum = bit_cast<T>(typename Carrier<T>::Unsigned{1});
    const bool same_range = f.overflow == Overflow::inf &&
                            limits.max == Carrier<T>::infinity - (limits.low + 1) &&
                            limits.quantum == carrier_quantum * static_cast<T>(limits.low + 1);
    if (same_range && limits.shift == 0) return body(NoRounding<T>(f));
    if constexpr (Carrier<T>::precision == 24)
        if (same_range && 3 * f.p > 24) return body(SameRangeGuarded(f));
    if (same_range) return body(SameRange<T>(f));
    return body(AnyRange<T>(f));
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
