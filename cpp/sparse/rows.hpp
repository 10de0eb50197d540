// A square sparse matrix in compressed rows, made of what callers have: rows, columns or coordinates.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// A complex number whose products are plain: no NaN is looked for. Real is double or float.
template <class Real> struct ComplexOf {
    Real re = 0, im = 0;

    ComplexOf& operator+=(ComplexOf y) { return re += y.re, im += y.im, *this; }
    ComplexOf& operator-=(ComplexOf y) { return re -= y.re, im -= y.im, *this; }
    friend ComplexOf operator*(ComplexOf x, ComplexOf y) {
        return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
    }
    friend ComplexOf operator*(ComplexOf x, Real y) { return {x.re * y, x.im * y}; }
    friend bool operator==(ComplexOf x, Real y) { return x.re == y && x.im == 0; }
};
using Complex = ComplexOf<double>;

// The type of a factor's numbers: that of the matrix, or the same in single precision.
template <class T> struct LowOf;
template <> struct LowOf<double> { using Type = float; };
template <> struct LowOf<Complex> { using Type = ComplexOf<float>; };

// x rounded to the type of factors.
template <class F> inline F rounded_to(double x) { return static_cast<F>(x); }
template <class F> inline F rounded_to(Complex x) {
    using Real = decltype(F::re);
    return {static_cast<Real>(x.re), static_cast<Real>(x.im)};
}

// 1 / x. Intermediate results are about as large as the result (Smith, Commun. ACM 5(8), 1962).
inline double inverse(double x) { return 1 / x; }
inline float inverse(float x) { return 1 / x; }
template <class Real> inline ComplexOf<Real> inverse(ComplexOf<Real> x) {
    if ((x.re < 0 ? -x.re : x.re) >= (x.im < 0 ? -x.im : x.im)) {
        const Real ratio = x.im / x.re, divisor = x.re + x.im * ratio;
        return {1 / divisor, -ratio / divisor};
    }
    const Real ratio = x.re / x.im, divisor = x.im + x.re * ratio;
    return {ratio / divisor, -1 / divisor};
}

// |x|, or |Re x| + |Im x|, by which pivots are compared.
inline double size_of(double x) { return x < 0 ? -x : x; }
inline double size_of(float x) { return x < 0 ? -x : x; }
template <class Real> inline double size_of(ComplexOf<Real> x) { return size_of(x.re) + size_of(x.im); }

enum class Form : int { rows, columns, coordinates };

// The places of a caller's entries: `first` and `second` are indptr and indices, or rows and columns.
template <class Index> struct GivenPlaces {
    Form form;
    std::int64_t n, entries;  // as many as the shorter of the arrays of indices and values has
    const Index *first, *second;
};

// Canonical: the places of a row are ascending, each once. T is double or Complex.
template <class T> struct Rows {
    std::int32_t n = 0;
    std::vector<std::int32_t> starts, places;
    std::vector<T> values;
};

// Reads a matrix; entries of one place are added. False if an index is out of range, or if there are more
// entries than 32 bits can count.
template <class T, class Index>
bool read_rows(const GivenPlaces<Index>& given, const T* values, Rows<T>& rows);

// The transpose.
template <class T> Rows<T> transposed(const Rows<T>& rows);

}  // namespace roundwise::sparse
