// Complex numbers whose real and imaginary parts lie apart: vectors of either are read and multiplied
// without shuffling.
#pragma once

#include "native/fused.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T> struct Complex {
    T re = 0, im = 0;
    Complex operator-() const { return {-re, -im}; }
};

template <class T> struct Carrier<Complex<T>> : Carrier<T> {};

// c + a b, in the order of operations of the vectors below.
template <class T> inline Complex<T> fused(Complex<T> a, Complex<T> b, Complex<T> c) {
    return {fused(-a.im, b.im, fused(a.re, b.re, c.re)), fused(a.im, b.re, fused(a.re, b.im, c.im))};
}

// Stands for a pointer to Complex<T>.
template <class T> struct Planes {
    T *re, *im;

    struct Reference {
        T &re, &im;
        operator Complex<T>() const { return {re, im}; }
        void operator=(Complex<T> x) const {
            re = x.re;
            im = x.im;
        }
    };

    Planes operator+(std::int64_t i) const { return {re + i, im + i}; }
    Reference operator[](std::int64_t i) const { return {re[i], im[i]}; }
    Reference operator*() const { return {*re, *im}; }
};

// A vector of complex numbers.
template <class T> struct ComplexVector {
    Vector<T> re, im;
};

template <class T> inline ComplexVector<T> load_some(Planes<T> x, std::int64_t count) {
    return {load_some(x.re, count), load_some(x.im, count)};
}
template <class T> inline ComplexVector<T> load(Planes<T> x) { return {load(x.re), load(x.im)}; }

template <class T> inline void store_some(Planes<T> x, const ComplexVector<T>& v, std::int64_t count) {
    store_some<T>(x.re, v.re, count);
    store_some<T>(x.im, v.im, count);
}
template <class T> inline void store(Planes<T> x, const ComplexVector<T>& v) {
    store<T>(x.re, v.re);
    store<T>(x.im, v.im);
}

// c -= a b by four real products.
template <class T>
inline void subtract_multiple(ComplexVector<T>& c, const ComplexVector<T>& a, const Complex<T>& b) {
    fused_subtract<T>(c.re, a.re, b.re);
    fused_subtract<T>(c.im, a.re, b.im);
    fused_add<T>(c.re, a.im, b.im);
    fused_subtract<T>(c.im, a.im, b.re);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
