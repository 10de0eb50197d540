// Carriers (float or double: the type in which numbers of a format are held), vectors of them, and
// the few operations on both that the kernels use. Most kernel code is written once for scalars and
// vectors.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "each operation must be rounded to its own type; compile without -ffast-math and without x87"
#endif

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T> struct Carrier;

template <> struct Carrier<float> {
    using Unsigned = std::uint32_t;
    using Signed = std::int32_t;
    static constexpr int precision = 24;
    static constexpr Unsigned abs_mask = 0x7fffffffu;
    static constexpr Unsigned infinity = 0x7f800000u;
    static constexpr Unsigned quiet_nan = 0x7fc00000u;
};

template <> struct Carrier<double> {
    using Unsigned = std::uint64_t;
    using Signed = std::int64_t;
    static constexpr int precision = 53;
    static constexpr Unsigned abs_mask = 0x7fffffffffffffffu;
    static constexpr Unsigned infinity = 0x7ff0000000000000u;
    static constexpr Unsigned quiet_nan = 0x7ff8000000000000u;
};

// Vectors of GCC and Clang, which both compile to the instructions that the target has.
template <class T> struct Lanes {
    static constexpr int count = ROUNDWISE_VECTOR_BYTES / sizeof(T);
    typedef T type __attribute__((vector_size(ROUNDWISE_VECTOR_BYTES)));
};
template <class T> using Vector = typename Lanes<T>::type;

// Integers with as many bits as X, a scalar or vector of carrier T.
template <class X, class T> struct Image {
    using Unsigned = Vector<typename Carrier<T>::Unsigned>;
    using Signed = Vector<typename Carrier<T>::Signed>;
};
template <class T> struct Image<T, T> {
    using Unsigned = typename Carrier<T>::Unsigned;
    using Signed = typename Carrier<T>::Signed;
};

template <class To, class From> inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast needs equal sizes");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class T> inline Vector<T> load(const T* source) {
    Vector<T> v;
    std::memcpy(&v, source, sizeof v);
    return v;
}

template <class T> inline void store(T* target, Vector<T> v) { std::memcpy(target, &v, sizeof v); }

#if defined(__AVX512F__) && ROUNDWISE_VECTOR_BYTES == 64
#define ROUNDWISE_MASKS
template <class T> inline auto mask_of(std::int64_t count) {
    if constexpr (sizeof(T) == 8) return static_cast<__mmask8>((1u << count) - 1);
    else return static_cast<__mmask16>((1u << count) - 1);
}
inline Vector<double> load_masked(const double* x, std::int64_t count) {
    return _mm512_maskz_loadu_pd(mask_of<double>(count), x);
}
inline Vector<float> load_masked(const float* x, std::int64_t count) {
    return _mm512_maskz_loadu_ps(mask_of<float>(count), x);
}
inline void store_masked(double* x, Vector<double> v, std::int64_t count) {
    _mm512_mask_storeu_pd(x, mask_of<double>(count), v);
}
inline void store_masked(float* x, Vector<float> v, std::int64_t count) {
    _mm512_mask_storeu_ps(x, mask_of<float>(count), v);
}
#elif defined(__AVX2__) && ROUNDWISE_VECTOR_BYTES == 32
#define ROUNDWISE_MASKS
template <class T> inline __m256i mask_of(std::int64_t count) {
    static constexpr std::int32_t words[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    const std::int32_t* first = words + 8 - count * static_cast<std::int64_t>(sizeof(T) / 4);
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
}
inline Vector<double> load_masked(const double* x, std::int64_t count) {
    return _mm256_maskload_pd(x, mask_of<double>(count));
}
inline Vector<float> load_masked(const float* x, std::int64_t count) {
    return _mm256_maskload_ps(x, mask_of<float>(count));
}
inline void store_masked(double* x, Vector<double> v, std::int64_t count) {
    _mm256_maskstore_pd(x, mask_of<double>(count), v);
}
inline void store_masked(float* x, Vector<float> v, std::int64_t count) {
    _mm256_maskstore_ps(x, mask_of<float>(count), v);
}
#endif

// The first `count` numbers; other lanes are zero. Memory past them is not touched. A copy of some
// bytes would be the call of a function, where the processor has an instruction for it.
template <class T> inline Vector<T> load_first(const T* source, std::int64_t count) {
#if defined(ROUNDWISE_MASKS)
    return load_masked(source, count);
#else
    Vector<T> v = {};
    std::memcpy(&v, source, static_cast<std::size_t>(count) * sizeof(T));
    return v;
#endif
}

template <class T> inline void store_first(T* target, Vector<T> v, std::int64_t count) {
#if defined(ROUNDWISE_MASKS)
    store_masked(target, v, count);
#else
    std::memcpy(target, &v, static_cast<std::size_t>(count) * sizeof(T));
#endif
}

// The same for a count that may be a whole vector, which is then one instruction.
template <class T> inline Vector<T> load_some(const T* source, std::int64_t count) {
    return count == Lanes<T>::count ? load(source) : load_first(source, count);
}

template <class T> inline void store_some(T* target, Vector<T> v, std::int64_t count) {
    if (count == Lanes<T>::count) store(target, v);
    else store_first(target, v, count);
}

// Compiler built-ins, because std::sqrt and the like may be emitted as functions, of which the linker
// keeps one copy for all levels (see CONTRIBUTING.md).
inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }
inline int exponent_of(float x) { return __builtin_ilogbf(x); }
inline int exponent_of(double x) { return __builtin_ilogb(x); }
template <class T> inline T power_of_two(int e) { return static_cast<T>(__builtin_ldexp(1.0, e)); }

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
