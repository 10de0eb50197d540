// What panel.hpp needs of complex numbers, as Planes of real and imaginary parts.
#pragma once

#include "native/panel.hpp"
#include "native/planes.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Both parts of two columns at a time: in one, an interchange may have to wait for the one before.
template <class T>
inline void interchange(std::int64_t begin, std::int64_t count, const std::int32_t* pivots,
                        std::int64_t columns, Planes<T> a, std::int64_t step) {
    std::int64_t j = 0;
    for (; j + 2 <= columns; j += 2, a = a + 2 * step) {
        T* const parts[4] = {a.re, a.im, a.re + step, a.im + step};
        const bool more = j + 4 <= columns;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t p = pivots[i];
#pragma GCC unroll 4
            for (T* part : parts) {
                if (more) __builtin_prefetch(part + p + 2 * step);
                const T kept = part[begin + i];
                part[begin + i] = part[p];
                part[p] = kept;
            }
        }
    }
    if (j == columns) return;
    interchange(begin, count, pivots, 1, a.re, step);
    interchange(begin, count, pivots, 1, a.im, step);
}

// Columns whose sums the registers hold, two vectors for each.
constexpr int complex_columns = ROUNDWISE_VECTOR_BYTES == 64 ? 8 : 4;

template <int columns, class T>
inline void subtract_columns(std::int64_t m, std::int64_t k, Planes<T> a, Planes<T> b, Planes<T> c,
                             std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    if constexpr (columns > complex_columns) {
        subtract_columns<complex_columns>(m, k, a, b, c, step);
        subtract_columns<columns - complex_columns>(m, k, a, b + complex_columns,
                                                    c + complex_columns * step, step);
    } else {
        const auto strip = [=](std::int64_t i, std::int64_t valid) {
            ComplexVector<T> sum[columns];
            for (int j = 0; j < columns; ++j) sum[j] = load_some(c + (i + j * step), valid);
            for (std::int64_t l = 0; l < k; ++l) {
                const ComplexVector<T> column = load_some(a + (i + l * step), valid);
                for (int j = 0; j < columns; ++j)
                    subtract_multiple<T>(sum[j], column, b[l * row_numbers<T> + j]);
            }
            for (int j = 0; j < columns; ++j) store_some(c + (i + j * step), sum[j], valid);
        };
        std::int64_t i = 0;
        for (; i + width <= m; i += width) strip(i, width);
        if (i < m) strip(i, m - i);
    }
}

template <class T> struct RowsOfEight<Planes<T>> {
    static constexpr int step = row_numbers<T>;
    T re[block_order * step], im[block_order * step];
    Planes<T> numbers() { return {re, im}; }
};

// The real parts of the triangle, then the imaginary ones.
template <class T> inline Planes<T> planes_of_triangle(Complex<T>* triangle) {
    T* re = &triangle->re;
    return {re, re + block_order * block_order};
}

template <class T> inline void copy_triangle(Planes<T> a, std::int64_t step, Complex<T>* triangle) {
    const Planes<T> copy = planes_of_triangle(triangle);
    copy_triangle(a.re, step, copy.re);
    copy_triangle(a.im, step, copy.im);
}

template <int columns, class T>
inline void solve_columns(Planes<T> triangle, Planes<T> b, std::int64_t step) {
    constexpr int width = Lanes<T>::count;
    for (std::int64_t i = 0; i < block_order; i += width) {
        ComplexVector<T> x[columns];
        for (int j = 0; j < columns; ++j) x[j] = load(b + (i + j * step));
        for (std::int64_t k = 0; k < i; ++k) {
            const ComplexVector<T> l = load(triangle + (i + k * block_order));
            for (int j = 0; j < columns; ++j) subtract_multiple<T>(x[j], l, b[k + j * step]);
        }
#pragma GCC unroll 16
        for (int k = 0; k < width; ++k) {
            const ComplexVector<T> l = load(triangle + (i + (i + k) * block_order));
            for (int j = 0; j < columns; ++j)
                subtract_multiple<T>(x[j], l, Complex<T>{x[j].re[k], x[j].im[k]});
        }
        for (int j = 0; j < columns; ++j) store(b + (i + j * step), x[j]);
    }
}

template <class T>
inline void solve_triangle(std::int64_t columns, Complex<T>* triangle, Planes<T> b, std::int64_t step) {
    const Planes<T> l = planes_of_triangle(triangle);
    std::int64_t j = 0;
    for (; j + complex_columns <= columns; j += complex_columns)
        solve_columns<complex_columns>(l, b + j * step, step);
    for (; j < columns; ++j) solve_columns<1>(l, b + j * step, step);
}

// Division by a pivot: 1 / pivot is computed in double, of the pivot times a power of two that keeps it
// from overflowing; entries are multiplied by both.
template <class T> struct Quotient<Complex<T>> {
    T scale, re, im;

    explicit Quotient(Complex<T> pivot) {
        const T x = pivot.re < 0 ? -pivot.re : pivot.re, y = pivot.im < 0 ? -pivot.im : pivot.im;
        constexpr int most = sizeof(T) == 4 ? 126 : 1022;
        const int e = -exponent_of(x > y ? x : y);
        scale = power_of_two<T>(e < -most ? -most : e > most ? most : e);
        const double p = static_cast<double>(pivot.re * scale), q = static_cast<double>(pivot.im * scale);
        const double squared = fused(p, p, q * q);
        re = static_cast<T>(p / squared);
        im = static_cast<T>(-q / squared);
    }

    ComplexVector<T> operator()(const ComplexVector<T>& x) const {
        const Vector<T> p = x.re * scale, q = x.im * scale;
        ComplexVector<T> y = {p * re, q * re};
        fused_subtract<T>(y.re, q, im);
        fused_add<T>(y.im, p, im);
        return y;
    }
};

// |re| + |im|, by which LAPACK chooses a pivot, too: as cheap as it is close to the modulus.
template <class T> inline typename Carrier<T>::Signed magnitude(Complex<T> x) {
    return magnitude(bit_cast<T>(magnitude(x.re)) + bit_cast<T>(magnitude(x.im)));
}

template <class T> inline void prefetch_to_write(Planes<T> x) {
    prefetch_to_write(x.re);
    prefetch_to_write(x.im);
}

template <class T>
inline Vector<typename Carrier<T>::Signed> magnitudes(const ComplexVector<T>& x) {
    const auto absolute = [](const Vector<T>& part) { return bit_cast<Vector<T>>(magnitudes(part)); };
    return magnitudes(absolute(x.re) + absolute(x.im));
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
