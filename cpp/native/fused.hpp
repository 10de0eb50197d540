// c - a b and c + a b, rounded once where the level has such an instruction, and twice elsewhere.
//
// The kernels of LU and Cholesky say so by name, because which rows and columns are computed together
// depends on the number of threads. Where it is left to the compiler to fuse `c -= a * b`, it may do so
// in one copy of a loop and not in another (newer versions of GCC do not in a loop with a single sum),
// and the results would depend on the number of threads.
#pragma once

#include "common/carrier.hpp"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Of 64-bit processors only x86-64 before AVX2 has no such instruction: the compiler has none to choose.
// What is neither has it in software, slow and right.
#if defined(__FMA__) || !(defined(__x86_64__) || defined(_M_X64))
#define ROUNDWISE_FUSED
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#endif

#if defined(__AVX512F__) && ROUNDWISE_VECTOR_BYTES == 64
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) {
    return _mm512_fmadd_ps(a, b, c);
}
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) {
    return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__FMA__) && ROUNDWISE_VECTOR_BYTES == 32
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) {
    return _mm256_fmadd_ps(a, b, c);
}
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) {
    return _mm256_fmadd_pd(a, b, c);
}
#elif defined(__aarch64__)
inline Vector<float> fused(Vector<float> a, Vector<float> b, Vector<float> c) {
    return bit_cast<Vector<float>>(
        vfmaq_f32(bit_cast<float32x4_t>(c), bit_cast<float32x4_t>(a), bit_cast<float32x4_t>(b)));
}
inline Vector<double> fused(Vector<double> a, Vector<double> b, Vector<double> c) {
    return bit_cast<Vector<double>>(
        vfmaq_f64(bit_cast<float64x2_t>(c), bit_cast<float64x2_t>(a), bit_cast<float64x2_t>(b)));
}
#elif defined(ROUNDWISE_FUSED)  // ppc64le, s390x, riscv64, ...
template <class V> inline V fused(V a, V b, V c) {
    for (unsigned lane = 0; lane < sizeof(V) / sizeof c[0]; ++lane) c[lane] = fused(a[lane], b[lane], c[lane]);
    return c;
}
#else
template <class V> inline V fused(V a, V b, V c) { return c + a * b; }
#endif

// b in all lanes. b - 0 is b, whatever b is, so that compilers leave a broadcast alone; 0 + b is an
// addition, because it is not -0 for b = -0.
template <class T> inline Vector<T> broadcast(const T& b) { return b - Vector<T>{}; }

// c += a b and c -= a b, for numbers or for vectors times a number.
template <class T> inline void fused_subtract(T& c, T a, T b) { c = fused(-a, b, c); }
template <class T> inline void fused_add(Vector<T>& c, Vector<T> a, const T& b) {
    c = fused(a, broadcast<T>(b), c);
}
template <class T> inline void fused_subtract(Vector<T>& c, Vector<T> a, const T& b) {
    c = fused(-a, broadcast<T>(b), c);
}

// The same under the name that it has for complex numbers (planes.hpp).
inline void subtract_multiple(Vector<float>& c, const Vector<float>& a, const float& b) {
    fused_subtract<float>(c, a, b);
}
inline void subtract_multiple(Vector<double>& c, const Vector<double>& a, const double& b) {
    fused_subtract<double>(c, a, b);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
