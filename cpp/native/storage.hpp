// Conversions of vectors between the stored formats (BF16, FP16, float32, float64) and the types that
// kernels compute with (float32, float64). Numbers of a 16-bit format are held in std::uint16_t.
#pragma once

#include "common/carrier.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Stored types. The two 16-bit formats have types of their own, so that templates can tell them
// apart.
struct Bf16 { std::uint16_t bits; };
struct Fp16 { std::uint16_t bits; };

// A double of which only the magnitude counts.
struct Magnitude { double value; };

// A vector of `count` numbers of type E, which may be shorter or longer than a register.
template <class E, int count> struct Pack {
    typedef E type __attribute__((vector_size(count * sizeof(E))));
};
template <class E, int count> using PackOf = typename Pack<E, count>::type;

template <int count> using Halves = PackOf<std::uint16_t, count>;
template <int count> using Bits = PackOf<std::uint32_t, count>;
template <int count> using Floats = PackOf<float, count>;
template <int count> using Doubles = PackOf<double, count>;

template <class V> inline V load_pack(const void* source) {
    V v;
    std::memcpy(&v, source, sizeof v);
    return v;
}

// c ? a : b for a mask of all ones or zeros in each lane.
template <class V> inline V choose(V mask, V a, V b) { return (mask & a) | (~mask & b); }

// --- 16 bits to float32: exact

template <int count> inline Floats<count> widen_bf16(Halves<count> h) {
    return bit_cast<Floats<count>>(__builtin_convertvector(h, Bits<count>) << 16);
}

template <int count> inline Floats<count> widen_fp16(Halves<count> h) {
#if defined(__AVX512F__)
    if constexpr (count == 16) return _mm512_maskz_cvtph_ps(0xffff, bit_cast<__m256i>(h));
#endif
#if defined(__F16C__)
    if constexpr (count == 8) return _mm256_cvtph_ps(bit_cast<__m128i>(h));
    if constexpr (count == 4) return _mm_cvtph_ps(_mm_cvtsi64_si128(bit_cast<std::int64_t>(h)));
#endif
    // Move the exponent to where float32 has it; multiply by 2^112 to correct its bias, which is
    // right for subnormal numbers too; set the exponent of infinity and NaN again.
    using B = Bits<count>;
    const B wide = __builtin_convertvector(h, B);
    const B magnitude = (wide & 0x7fffu) << 13;
    const Floats<count> scaled = bit_cast<Floats<count>>(magnitude) * 0x1p112f;
    const B special = (B)(magnitude >= (0x7c00u << 13));
    return bit_cast<Floats<count>>(bit_cast<B>(scaled) | (special & 0x7f800000u) |
                                   (wide & 0x8000u) << 16);
}

// --- float32 to 16 bits: to nearest, ties to even; overflow to infinity; NaN stays (quiet) NaN

template <int count> inline Halves<count> narrow_bf16(Floats<count> x) {
    using B = Bits<count>;
    const B bits = bit_cast<B>(x), nan = (B)(x != x);
    const B rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return __builtin_convertvector(choose<B>(nan, bits >> 16 | 0x40u, rounded), Halves<count>);
}

template <int count> inline Halves<count> narrow_fp16(Floats<count> x) {
#if defined(__AVX512F__)
    if constexpr (count == 16)
        return bit_cast<Halves<16>>(_mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
    if constexpr (count == 8)
        return bit_cast<Halves<8>>(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    if constexpr (count == 4)
        return bit_cast<Halves<4>>(
            _mm_cvtsi128_si64(_mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)));
#endif
    using B = Bits<count>;
    const B bits = bit_cast<B>(x), magnitude = bits & 0x7fffffffu;
    // Normal: subtract 112 from the exponent, and round to the 10 bits of the fraction that stay.
    const B normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    // Below 2^-14: adding 1/2 rounds to a multiple of 2^-24.
    const B subnormal =
        bit_cast<B>(bit_cast<Floats<count>>(magnitude) + 0.5f) - bit_cast<std::uint32_t>(0.5f);
    B half = choose<B>((B)(magnitude < 0x38800000u), subnormal, normal);
    half = choose<B>((B)(magnitude >= 0x477ff000u), B{} + 0x7c00u, half);  // 65520 and above
    half = choose<B>((B)(x != x), 0x7e00u | (magnitude >> 13 & 0x3ffu), half);
    return __builtin_convertvector(half | (bits >> 16 & 0x8000u), Halves<count>);
}

// float64 to float32 on the way to 16 bits. The significand is cut to 13 bits, and its last bit
// becomes 1 if a bit that was cut off is 1 (rounding to odd). Rounding the result to 8 (bf16) or 11
// bits (fp16) then equals rounding x once. Numbers of 13 bits are exact in float32 down to 2^-137,
// which is enough: half of bf16's smallest number is 2^-134.
template <int count> inline Floats<count> narrow_to_odd(Doubles<count> x) {
    using Wide = PackOf<std::uint64_t, count>;
    constexpr std::uint64_t cut = (std::uint64_t{1} << 40) - 1;
    const Wide bits = bit_cast<Wide>(x);
    const Wide sticky = (bits & cut) + cut;  // carries into the last bit kept unless all cut bits are 0
    return __builtin_convertvector(bit_cast<Doubles<count>>((bits | sticky) & ~cut), Floats<count>);
}

// --- Any stored type S and computed type T: widen loads `count` numbers, narrow stores them

template <class T, int count, class S> inline PackOf<T, count> widen(const S* source) {
    if constexpr (sizeof(S) == 2) {
        const auto halves = load_pack<Halves<count>>(source);
        Floats<count> x;
        if constexpr (__is_same(S, Bf16)) x = widen_bf16<count>(halves);
        else x = widen_fp16<count>(halves);
        if constexpr (sizeof(T) == 4) return x;
        else return __builtin_convertvector(x, Doubles<count>);
    } else if constexpr (__is_same(S, Magnitude)) {
        return bit_cast<Doubles<count>>(load_pack<PackOf<std::int64_t, count>>(source) & 0x7fffffffffffffff);
    } else {
        const auto x = load_pack<PackOf<S, count>>(source);
        if constexpr (sizeof(S) == sizeof(T)) return x;
        else return __builtin_convertvector(x, PackOf<T, count>);
    }
}

template <class S, int count, class T> inline void narrow(PackOf<T, count> x, S* target) {
    if constexpr (sizeof(S) == 2) {
        Floats<count> y;
        if constexpr (sizeof(T) == 8) y = narrow_to_odd<count>(x);
        else y = x;
        Halves<count> halves;
        if constexpr (__is_same(S, Bf16)) halves = narrow_bf16<count>(y);
        else halves = narrow_fp16<count>(y);
        std::memcpy(target, &halves, sizeof halves);
    } else {
        const auto y = __builtin_convertvector(x, PackOf<S, count>);
        std::memcpy(target, &y, sizeof y);
    }
}

// Loads only the first `valid` numbers; the other lanes are zero.
template <class T, int count, class S>
inline PackOf<T, count> widen_first(const S* source, std::int64_t valid) {
    if constexpr (__is_same(S, T) && count == Lanes<T>::count) return load_first(source, valid);
    S padded[count] = {};
    std::memcpy(padded, source, static_cast<std::size_t>(valid) * sizeof(S));
    return widen<T, count>(padded);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
