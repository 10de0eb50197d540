// What the files that bind kernels share: array types, and how a function is bound.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace roundwise {

namespace nb = nanobind;

template <class T> using VectorIn = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using VectorOut = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using MatrixIn = nb::ndarray<const T, nb::ndim<2>, nb::f_contig, nb::device::cpu>;
template <class T> using MatrixOut = nb::ndarray<T, nb::ndim<2>, nb::f_contig, nb::device::cpu>;

// IEEE arithmetic for the length of a call, and so for the threads it starts: any library built
// with -ffast-math may have switched subnormals off for the whole process.
class IeeeArithmetic {
#if defined(__x86_64__) || defined(_M_X64)
    unsigned int saved_ = _mm_getcsr();

  public:
    IeeeArithmetic() { _mm_setcsr(0x1f80); }  // the power-on value: round to nearest, none masked off
    ~IeeeArithmetic() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
    unsigned long saved_;

  public:
    IeeeArithmetic() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" : : "r"(0ul));
    }
    ~IeeeArithmetic() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#endif
};

inline std::int64_t length(std::size_t n) { return static_cast<std::int64_t>(n); }

template <class> auto strict() { return nb::arg().noconvert(); }

template <class F, class R, class... Args>
void define_strictly(nb::module_& m, const char* name, F f, R (F::*)(Args...) const) {
    m.def(name, f, strict<Args>()..., nb::call_guard<IeeeArithmetic>());
}

// Binds a lambda that takes arrays as they are: nanobind would copy one that does not fit, and
// what is written to a copy is lost.
template <class F> void define(nb::module_& m, const char* name, F f) {
    define_strictly(m, name, f, &F::operator());
}

void bind_native(nb::module_& m);  // in native_bindings.cpp

}  // namespace roundwise
