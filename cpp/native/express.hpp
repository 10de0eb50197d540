// LU with partial pivoting of one small dense matrix on one thread, real or complex, in double or float, and
// solves with it.
//
// Rows are contiguous and consist of whole lines, as many numbers as 64 bytes hold, and so are those of the
// right-hand sides: every operation is one on a line, and no loop has a rest. A line of columns makes a
// panel; as many rows of U are then subtracted from all rows below at once.
// A line has as many numbers on every level, so that AVX2 and AVX-512 give the same bits.
#pragma once

#include <cstdint>

#include "native/fused.hpp"
#include "native/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A line of numbers, in as many of the level's vectors as that takes.
template <class T> struct Line {
    static constexpr int count = line_of<T> / Lanes<T>::count;
    Vector<T> vectors[count];
};

template <class T, class Operation> inline Line<T> each(const Operation& operation) {
    Line<T> result;
    for (int k = 0; k < Line<T>::count; ++k) result.vectors[k] = operation(k);
    return result;
}

// y + factor x and y - factor x
template <class T> inline T sum(T y, T factor, T x) { return fused(factor, x, y); }
template <class T> inline T difference(T y, T factor, T x) { return fused(-x, factor, y); }
template <class T> inline Line<T> sum(const Line<T>& y, T factor, const Line<T>& x) {
    return each<T>([&](int k) { return fused(x.vectors[k], broadcast(factor), y.vectors[k]); });
}
template <class T> inline Line<T> difference(const Line<T>& y, T factor, const Line<T>& x) {
    return each<T>([&](int k) { return fused(-x.vectors[k], broadcast(factor), y.vectors[k]); });
}
template <class T> inline T quotient(T x, T y) { return x / y; }
template <class T> inline Line<T> quotient(const Line<T>& x, T y) {
    return each<T>([&](int k) { return x.vectors[k] / y; });
}

// At most a line of the rows from j to the last one.
template <class T> inline int rows_from(std::int64_t j, std::int64_t last) {
    return last - j < line_of<T> ? static_cast<int>(last - j) : line_of<T>;
}

// A number: its real part, and its imaginary part if there are two. And a line of them.
template <int parts, class T> struct Number {
    T part[parts];
};
template <int parts, class T> struct Numbers {
    Line<T> part[parts];
};

// y -= factor x; both for vectors and for numbers.
template <int parts, class T, class Y>
inline void subtract(Y& y, const Number<parts, T>& factor, const Y& x) {
    const T re = factor.part[0];
    y.part[0] = difference(y.part[0], re, x.part[0]);
    if constexpr (parts == 2) {
        const T im = factor.part[1];
        y.part[0] = sum(y.part[0], im, x.part[1]);
        y.part[1] = difference(difference(y.part[1], re, x.part[1]), im, x.part[0]);
    }
}

// x /= y, with intermediate results of about the size of x (Smith, Commun. ACM 5(8), 1962).
template <int parts, class T, class X> inline void divide(X& x, const Number<parts, T>& y) {
    if constexpr (parts == 1) {
        x.part[0] = quotient(x.part[0], y.part[0]);
    } else {
        const auto re = x.part[0], im = x.part[1];
        const T a = y.part[0], b = y.part[1];
        if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) {
            const T ratio = b / a, divisor = sum(a, b, ratio);
            x.part[0] = quotient(sum(re, ratio, im), divisor);
            x.part[1] = quotient(difference(im, ratio, re), divisor);
        } else {
            const T ratio = a / b, divisor = sum(b, a, ratio);
            x.part[0] = quotient(sum(im, ratio, re), divisor);
            x.part[1] = quotient(difference(re, ratio, im), -divisor);
        }
    }
}

template <int parts, class T>
inline Number<parts, T> product(const Number<parts, T>& a, const Number<parts, T>& b) {
    if constexpr (parts == 1) return {{a.part[0] * b.part[0]}};
    else
        return {{difference(a.part[0] * b.part[0], a.part[1], b.part[1]),
                 sum(a.part[0] * b.part[1], a.part[1], b.part[0])}};
}

// |Re x| + |Im x|, by which pivots are compared.
template <int parts, class T> inline T magnitude(const Number<parts, T>& x) {
    T sum = 0;
    for (int p = 0; p < parts; ++p) sum += x.part[p] < 0 ? -x.part[p] : x.part[p];
    return sum;
}

// A matrix whose rows are contiguous: all real parts, then all imaginary ones.
template <int parts, class T> struct Rows {
    T* data;
    std::int64_t step, plane;  // from row to row, and from part to part

    Number<parts, T> at(std::int64_t i, std::int64_t j) const {
        Number<parts, T> x;
        for (int p = 0; p < parts; ++p) x.part[p] = data[i * step + j + p * plane];
        return x;
    }
    Numbers<parts, T> load(std::int64_t i, std::int64_t j) const {
        Numbers<parts, T> x;
        for (int p = 0; p < parts; ++p) x.part[p] = line_at(i, j, p);
        return x;
    }
    void store(std::int64_t i, std::int64_t j, const Numbers<parts, T>& x) const {
        for (int p = 0; p < parts; ++p) line_at(i, j, p) = x.part[p];
    }
    // Columns `begin` to `end` - 1 of two rows.
    void interchange(std::int64_t i, std::int64_t other, std::int64_t begin, std::int64_t end) const {
        for (std::int64_t j = begin; j < end; j += line_of<T>) {
            const Numbers<parts, T> kept = load(i, j);
            store(i, j, load(other, j));
            store(other, j, kept);
        }
    }

  private:
    Line<T>& line_at(std::int64_t i, std::int64_t j, int part) const {
        return *reinterpret_cast<Line<T>*>(data + i * step + j + part * plane);
    }
};

// R rows and 8 C columns of Y, from row i and column c: Y -= L X for `width` columns of L and rows of X
// that begin at j.
template <int R, int C, int parts, class T>
inline void subtract_tile(const Rows<parts, T>& l, const Rows<parts, T>& x, const Rows<parts, T>& y, std::int64_t i,
                          std::int64_t j, std::int64_t width, std::int64_t c) {
    Numbers<parts, T> sums[R][C];
    for (int r = 0; r < R; ++r)
        for (int q = 0; q < C; ++q) sums[r][q] = y.load(i + r, c + line_of<T> * q);
    for (std::int64_t p = 0; p < width; ++p) {
        Numbers<parts, T> row[C];
        for (int q = 0; q < C; ++q) row[q] = x.load(j + p, c + line_of<T> * q);
        for (int r = 0; r < R; ++r) {
            const Number<parts, T> factor = l.at(i + r, j + p);
            for (int q = 0; q < C; ++q) subtract(sums[r][q], factor, row[q]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int q = 0; q < C; ++q) y.store(i + r, c + line_of<T> * q, sums[r][q]);
}

template <int R, int parts, class T>
inline void subtract_rows(const Rows<parts, T>& l, const Rows<parts, T>& x, const Rows<parts, T>& y, std::int64_t i,
                          std::int64_t j, std::int64_t width, std::int64_t c, std::int64_t end) {
    for (; c + 2 * line_of<T> <= end; c += 2 * line_of<T>) subtract_tile<R, 2>(l, x, y, i, j, width, c);
    if (c < end) subtract_tile<R, 1>(l, x, y, i, j, width, c);
}

// The same for rows `top` to `bottom` - 1 and columns `begin` to `end` - 1. Sums stay in registers.
template <int parts, class T>
inline void subtract_product(const Rows<parts, T>& l, const Rows<parts, T>& x, const Rows<parts, T>& y,
                             std::int64_t top, std::int64_t bottom, std::int64_t j, std::int64_t width,
                             std::int64_t begin, std::int64_t end) {
    constexpr int R = ROUNDWISE_VECTOR_BYTES == 64 ? 8 / parts : 2 / parts;
    std::int64_t i = top;
    for (; i + R <= bottom; i += R) subtract_rows<R>(l, x, y, i, j, width, begin, end);
    for (; i < bottom; ++i) subtract_rows<1>(l, x, y, i, j, width, begin, end);
}

// Rows j to j + width - 1 of Y become L^-1 Y for the unit lower triangle of L there.
template <int parts, class T>
inline void substitute_forward(const Rows<parts, T>& l, const Rows<parts, T>& y, std::int64_t j,
                               std::int64_t width, std::int64_t begin, std::int64_t end) {
    for (const std::int64_t last = j + width; j < last; j += line_of<T>) {
        const int count = rows_from<T>(j, last);
        for (std::int64_t c = begin; c < end; c += line_of<T>) {
            Numbers<parts, T> rows[line_of<T>];
            for (int q = 0; q < count; ++q) {
                rows[q] = y.load(j + q, c);
                for (int p = 0; p < q; ++p) subtract(rows[q], l.at(j + q, j + p), rows[p]);
                y.store(j + q, c, rows[q]);
            }
        }
        subtract_product(l, y, y, j + count, last, j, count, begin, end);
    }
}

// Rows j to j + count - 1 of Y, at most a line, become U^-1 Y for the upper triangle of U there.
template <int parts, class T>
inline void substitute_backward(const Rows<parts, T>& u, const Rows<parts, T>& y, std::int64_t j, int count,
                                std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += line_of<T>) {
        Numbers<parts, T> rows[line_of<T>];
        for (int q = count - 1; q >= 0; --q) {
            rows[q] = y.load(j + q, c);
            for (int p = q + 1; p < count; ++p) subtract(rows[q], u.at(j + q, j + p), rows[p]);
            divide(rows[q], u.at(j + q, j + q));
            y.store(j + q, c, rows[q]);
        }
    }
}

// What is known of the pivots so far. Rows are interchanged in the columns `begin` to `end` - 1.
template <class T> struct Pivots {
    std::int32_t* swaps;
    T smallest, largest;
    std::int64_t begin, end;
    double suspicious;  // the ratio of the two from which on a factorization is of use

    bool take(T size) {
        if (size < smallest) smallest = size;
        if (size > largest) largest = size;
        return ratio() > suspicious;
    }
    double ratio() const { return static_cast<double>(smallest) / static_cast<double>(largest); }
};

// Eliminates at most a line of columns, from j on, in all rows below their pivots. False if a pivot is zero or
// suspiciously small beside another.
template <int parts, class T>
inline bool factorize_panel(const Rows<parts, T>& a, std::int64_t n, std::int64_t j, int width,
                            Pivots<T>& pivots) {
    std::int64_t pivot = j;
    T size = 0;
    const auto compare = [&](std::int64_t i, T here) {
        if (here > size) size = here, pivot = i;
    };
    for (std::int64_t i = j; i < n; ++i) compare(i, magnitude(a.at(i, j)));
    for (int p = 0; p < width; ++p) {
        const std::int64_t row = j + p;
        if (!(size > 0 && pivots.take(size))) return false;
        pivots.swaps[row] = static_cast<std::int32_t>(pivot);
        if (pivot != row) a.interchange(row, pivot, pivots.begin, pivots.end);
        // Rows become keep x - l u: what is left of the pivot stays, and l takes its place.
        Number<parts, T> inverse = {{1}};
        divide(inverse, a.at(row, row));
        alignas(64) T kept[line_of<T>], rows[parts][line_of<T>];
        for (int q = 0; q < line_of<T>; ++q) {
            kept[q] = q != p;
            for (int part = 0; part < parts; ++part)
                rows[part][q] = q > p ? a.at(row, j + q).part[part] : q == p && part == 0 ? -1 : 0;
        }
        const Line<T> keep = *reinterpret_cast<const Line<T>*>(kept);
        Numbers<parts, T> u;
        for (int part = 0; part < parts; ++part) u.part[part] = *reinterpret_cast<const Line<T>*>(rows[part]);
        const Number<parts, T> next = p + 1 < width ? a.at(row, row + 1) : Number<parts, T>{};
        size = 0;
        for (std::int64_t i = row + 1; i < n; ++i) {
            const Number<parts, T> factor = product(a.at(i, row), inverse);
            if (p + 1 < width) {
                Number<parts, T> entry = a.at(i, row + 1);
                subtract(entry, factor, next);
                compare(i, magnitude(entry));
            }
            Numbers<parts, T> x = a.load(i, j);
            for (int q = 0; q < parts; ++q)
                x.part[q] = each<T>([&](int k) { return keep.vectors[k] * x.part[q].vectors[k]; });
            subtract(x, factor, u);
            a.store(i, j, x);
        }
    }
    return true;
}

// The same for any number of columns: the left half, its effect on the right half, the right half.
template <int parts, class T>
bool factorize_columns(const Rows<parts, T>& a, std::int64_t n, std::int64_t j, std::int64_t width,
                       Pivots<T>& pivots) {
    if (width <= line_of<T>) return factorize_panel(a, n, j, static_cast<int>(width), pivots);
    const std::int64_t half = padded<T>(width / 2), middle = j + half;
    const std::int64_t end = j + padded<T>(width);
    if (!factorize_columns(a, n, j, half, pivots)) return false;
    substitute_forward(a, a, j, half, middle, end);
    subtract_product(a, a, a, middle, n, j, half, middle, end);
    return factorize_columns(a, n, middle, width - half, pivots);
}

template <int parts, class T>
double express_factorize(std::int64_t n, T* matrix, std::int32_t* swaps, double suspicious) {
    const std::int64_t step = row_step<T>(n);
    const Rows<parts, T> a = {matrix, step, n * step};
    Pivots<T> pivots = {swaps, static_cast<T>(__builtin_huge_val()), 0, 0, step, suspicious};
    return factorize_columns(a, n, 0, n, pivots) ? pivots.ratio() : 0;
}

template <int parts, class T>
void express_substitute(std::int64_t n, T* factors, const std::int32_t* swaps, std::int64_t columns, T* b) {
    const std::int64_t step = row_step<T>(n), width = padded<T>(columns);
    const Rows<parts, T> lu = {factors, step, n * step}, y = {b, width, n * width};
    for (std::int64_t i = 0; i < n; ++i)
        if (swaps[i] != i) y.interchange(i, swaps[i], 0, width);
    substitute_forward(lu, y, 0, n, 0, width);
    for (std::int64_t j = padded<T>(n) - line_of<T>; j >= 0; j -= line_of<T>) {
        const int count = rows_from<T>(j, n);
        substitute_backward(lu, y, j, count, 0, width);
        subtract_product(lu, y, y, 0, j, j, count, 0, width);
    }
}

// Rows of U and of L are contiguous: each number that is found is subtracted, times its row, from those that
// are left. Numbers of other rows, and of the padding, stay.
template <int parts, class T>
void express_transposed(std::int64_t n, T* factors, const std::int32_t* swaps, T* b) {
    const std::int64_t step = row_step<T>(n);
    const Rows<parts, T> lu = {factors, step, n * step}, y = {b, 0, step};
    const auto set = [&](std::int64_t i, const Number<parts, T>& value) {
        for (int p = 0; p < parts; ++p) b[i + p * step] = value.part[p];
    };
    const auto subtract_row = [&](std::int64_t i, const Number<parts, T>& factor, std::int64_t begin,
                                  std::int64_t end) {
        std::int64_t j = begin;
        const auto one = [&] {
            Number<parts, T> left = y.at(0, j);
            subtract(left, factor, lu.at(i, j));
            set(j++, left);
        };
        while (j < end && j % line_of<T> != 0) one();
        for (; j + line_of<T> <= end; j += line_of<T>) {
            Numbers<parts, T> left = y.load(0, j);
            subtract(left, factor, lu.load(i, j));
            y.store(0, j, left);
        }
        while (j < end) one();
    };
    for (std::int64_t i = 0; i < n; ++i) {
        Number<parts, T> value = y.at(0, i);
        divide(value, lu.at(i, i));
        set(i, value);
        subtract_row(i, value, i + 1, n);
    }
    for (std::int64_t i = n - 1; i > 0; --i) subtract_row(i, y.at(0, i), 0, i);
    for (std::int64_t i = n - 1; i >= 0; --i)
        if (swaps[i] != i) {
            const Number<parts, T> kept = y.at(0, i);
            set(i, y.at(0, swaps[i]));
            set(swaps[i], kept);
        }
}

// The largest modulus of each column, squared if there are two parts; NaN if there is one.
template <int parts>
void express_largest(std::int64_t n, std::int64_t columns, const double* numbers, double* largest) {
    constexpr int lanes = Lanes<double>::count;
    const std::int64_t width = padded<double>(columns);
    for (std::int64_t c = 0; c < width; c += lanes) {
        Vector<double> most = {};
        for (std::int64_t i = 0; i < n; ++i) {
            Vector<double> size = load(numbers + i * width + c);
            if constexpr (parts == 1) {
                size = size < 0 ? -size : size;
            } else {
                const Vector<double> other = load(numbers + (n + i) * width + c);
                size = fused(size, size, other * other);
            }
            most = (size > most) | (size != size) ? size : most;
        }
        store(largest + c, most);
    }
}

constexpr double smallest_normal = 0x1p-1022;

// 2^power, for -1022 <= power <= 1023.
inline double two_to(int power) {
    const std::uint64_t bits = static_cast<std::uint64_t>(power + 1023) << 52;
    double result;
    __builtin_memcpy(&result, &bits, sizeof result);
    return result;
}

// The e of 2^e > size >= 2^(e - 1), of a normal number.
inline int exponent_above(double size) {
    std::uint64_t bits;
    __builtin_memcpy(&bits, &size, sizeof bits);
    return static_cast<int>(bits >> 52 & 0x7ff) - 1022;
}

// Calls body(j, count) for the numbers of a row, a vector's `count` or fewer at a time.
template <class Body> inline void by_vectors(std::int64_t length, const Body& body) {
    constexpr std::int64_t lanes = Lanes<double>::count;
    std::int64_t j = 0;
    for (; j + lanes <= length; j += lanes) body(j, lanes);
    if (j < length) body(j, length - j);
}

template <int parts>
bool express_scale(std::int64_t n, const double* a, double* scaled, std::int32_t* row_exponents,
                   std::int32_t* column_exponents, double* work) {
    constexpr int lanes = Lanes<double>::count;
    using V = Vector<double>;
    const std::int64_t length = parts * n;
    for (std::int64_t j = 0; j < length; ++j) work[j] = 0;
    double lost = 0;  // how many numbers lose bits
    for (std::int64_t i = 0; i < n; ++i) {
        const double* row = a + i * length;
        double* to = scaled + i * length;
        V most = {};
        by_vectors(length, [&](std::int64_t j, std::int64_t count) {
            V size = load_some(row + j, count);
            size = size < 0 ? -size : size;
            most = (size > most) | (size != size) ? size : most;
        });
        double largest = 0;
        for (int lane = 0; lane < lanes; ++lane) {
            if (!(most[lane] <= __DBL_MAX__)) return false;
            if (most[lane] > largest) largest = most[lane];
        }
        if (!(largest >= smallest_normal)) return false;
        row_exponents[i] = exponent_above(largest);
        const int half = -row_exponents[i] / 2;  // two powers are in range
        const double first = two_to(half), second = two_to(-row_exponents[i] - half);
        V vanishing = {};
        by_vectors(length, [&](std::int64_t j, std::int64_t count) {
            const V given = load_some(row + j, count), value = given * first * second;
            store_some<double>(to + j, value, count);
            const V size = value < 0 ? -value : value, before = load_some(work + j, count);
            store_some<double>(work + j, size > before ? size : before, count);
            vanishing += (size < smallest_normal) & (given != 0) ? V{} + 1.0 : V{};
        });
        for (int lane = 0; lane < lanes; ++lane) lost += vanishing[lane];
    }
    if (lost > 0) return false;
    for (std::int64_t j = 0; j < n; ++j) {
        double most = work[parts * j];
        if (parts == 2 && work[parts * j + 1] > most) most = work[parts * j + 1];
        if (!(most >= smallest_normal)) return false;
        column_exponents[j] = exponent_above(most);
        for (int part = 0; part < parts; ++part) work[parts * j + part] = two_to(-column_exponents[j]);
    }
    for (std::int64_t i = 0; i < n; ++i)
        by_vectors(length, [&](std::int64_t j, std::int64_t count) {
            double* place = scaled + i * length + j;
            store_some<double>(place, load_some(place, count) * load_some(work + j, count), count);
        });
    return true;
}

template <int parts>
double express_weighted_row_sum(std::int64_t n, const double* a, const double* weights, const double* row_weights) {
    constexpr int lanes = Lanes<double>::count;
    using V = Vector<double>;
    double largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        V sums = {};
        by_vectors(parts * n, [&](std::int64_t j, std::int64_t count) {
            const V value = load_some(a + i * parts * n + j, count);
            sums += (value < 0 ? -value : value) * load_some(weights + j, count);
        });
        double sum = 0;
        for (int lane = 0; lane < lanes; ++lane) sum += sums[lane];
        sum *= row_weights[i];
        if (!(sum <= largest)) largest = sum;
    }
    return largest;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
