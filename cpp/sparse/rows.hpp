// A square sparse matrix in compressed rows, made of what callers have: rows, columns or coordinates.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// A complex number whose products are plain: no NaN is looked for.
struct Complex {
    double re = 0, im = 0;

    Complex& operator+=(Complex y) { return re += y.re, im += y.im, *this; }
    Complex& operator-=(Complex y) { return re -= y.re, im -= y.im, *this; }
    friend Complex operator*(Complex x, Complex y) {
        return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
    }
    friend Complex operator*(Complex x, double y) { return {x.re * y, x.im * y}; }
    friend bool operator==(Complex x, double y) { return x.re == y && x.im == 0; }
};

// 1 / x. Intermediate results are about as large as the result (Smith, Commun. ACM 5(8), 1962).
inline double inverse(double x) { return 1 / x; }
inline Complex inverse(Complex x) {
    if ((x.re < 0 ? -x.re : x.re) >= (x.im < 0 ? -x.im : x.im)) {
        const double ratio = x.im / x.re, divisor = x.re + x.im * ratio;
        return {1 / divisor, -ratio / divisor};
    }
    const double ratio = x.re / x.im, divisor = x.im + x.re * ratio;
    return {ratio / divisor, -1 / divisor};
}

// |x|, or |Re x| + |Im x|, by which pivots are compared.
inline double size_of(double x) { return x < 0 ? -x : x; }
inline double size_of(Complex x) { return size_of(x.re) + size_of(x.im); }

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
