// LU with partial pivoting of one small dense matrix on one thread, real or complex, and solves with it.
//
// Rows are contiguous and padded to a multiple of eight numbers, and so are those of the right-hand sides:
// every operation is one on eight numbers of a row, and no loop has a rest. Eight columns make a panel,
// whose rows are one vector each; eight rows of U are then subtracted from all rows below at once.
// A vector has eight numbers on every level, so that AVX2 and AVX-512 give the same bits.
#pragma once

#include <cstdint>

#include "native/fused.hpp"
#include "native/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr int eight = 8;

// Eight doubles, in as many of the level's vectors as that takes.
struct Eight {
    static constexpr int count = eight / Lanes<double>::count;
    Vector<double> vectors[count];
};

template <class Operation> inline Eight each(const Operation& operation) {
    Eight result;
    for (int k = 0; k < Eight::count; ++k) result.vectors[k] = operation(k);
    return result;
}

// y + factor x and y - factor x
inline double sum(double y, double factor, double x) { return fused(factor, x, y); }
inline double difference(double y, double factor, double x) { return fused(-x, factor, y); }
inline Eight sum(const Eight& y, double factor, const Eight& x) {
    return each([&](int k) { return fused(x.vectors[k], broadcast(factor), y.vectors[k]); });
}
inline Eight difference(const Eight& y, double factor, const Eight& x) {
    return each([&](int k) { return fused(-x.vectors[k], broadcast(factor), y.vectors[k]); });
}
inline double quotient(double x, double y) { return x / y; }
inline Eight quotient(const Eight& x, double y) {
    return each([&](int k) { return x.vectors[k] / y; });
}

// At most eight of the rows from j to the last one.
inline int rows_from(std::int64_t j, std::int64_t last) {
    return last - j < eight ? static_cast<int>(last - j) : eight;
}

// A number: its real part, and its imaginary part if there are two. And eight of them.
template <int parts> struct Number {
    double part[parts];
};
template <int parts> struct Numbers {
    Eight part[parts];
};

// y -= factor x; both for vectors and for numbers.
template <int parts, class Y> inline void subtract(Y& y, const Number<parts>& factor, const Y& x) {
    const double re = factor.part[0];
    y.part[0] = difference(y.part[0], re, x.part[0]);
    if constexpr (parts == 2) {
        const double im = factor.part[1];
        y.part[0] = sum(y.part[0], im, x.part[1]);
        y.part[1] = difference(difference(y.part[1], re, x.part[1]), im, x.part[0]);
    }
}

// x /= y, with intermediate results of about the size of x (Smith, Commun. ACM 5(8), 1962).
template <int parts, class X> inline void divide(X& x, const Number<parts>& y) {
    if constexpr (parts == 1) {
        x.part[0] = quotient(x.part[0], y.part[0]);
    } else {
        const auto re = x.part[0], im = x.part[1];
        const double a = y.part[0], b = y.part[1];
        if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) {
            const double ratio = b / a, divisor = sum(a, b, ratio);
            x.part[0] = quotient(sum(re, ratio, im), divisor);
            x.part[1] = quotient(difference(im, ratio, re), divisor);
        } else {
            const double ratio = a / b, divisor = sum(b, a, ratio);
            x.part[0] = quotient(sum(im, ratio, re), divisor);
            x.part[1] = quotient(difference(re, ratio, im), -divisor);
        }
    }
}

template <int parts> inline Number<parts> product(const Number<parts>& a, const Number<parts>& b) {
    if constexpr (parts == 1) return {{a.part[0] * b.part[0]}};
    else
        return {{difference(a.part[0] * b.part[0], a.part[1], b.part[1]),
                 sum(a.part[0] * b.part[1], a.part[1], b.part[0])}};
}

// |Re x| + |Im x|, by which pivots are compared.
template <int parts> inline double magnitude(const Number<parts>& x) {
    double sum = 0;
    for (int p = 0; p < parts; ++p) sum += x.part[p] < 0 ? -x.part[p] : x.part[p];
    return sum;
}

// A matrix whose rows are contiguous: all real parts, then all imaginary ones.
template <int parts> struct Rows {
    double* data;
    std::int64_t step, plane;  // from row to row, and from part to part

    Number<parts> at(std::int64_t i, std::int64_t j) const {
        Number<parts> x;
        for (int p = 0; p < parts; ++p) x.part[p] = data[i * step + j + p * plane];
        return x;
    }
    Numbers<parts> load(std::int64_t i, std::int64_t j) const {
        Numbers<parts> x;
        for (int p = 0; p < parts; ++p) x.part[p] = eight_at(i, j, p);
        return x;
    }
    void store(std::int64_t i, std::int64_t j, const Numbers<parts>& x) const {
        for (int p = 0; p < parts; ++p) eight_at(i, j, p) = x.part[p];
    }
    void interchange(std::int64_t i, std::int64_t other) const {
        for (std::int64_t j = 0; j < step; j += eight) {
            const Numbers<parts> kept = load(i, j);
            store(i, j, load(other, j));
            store(other, j, kept);
        }
    }

  private:
    Eight& eight_at(std::int64_t i, std::int64_t j, int part) const {
        return *reinterpret_cast<Eight*>(data + i * step + j + part * plane);
    }
};

// R rows and 8 C columns of Y, from row i and column c: Y -= L X for `width` columns of L and rows of X
// that begin at j.
template <int R, int C, int parts>
inline void subtract_tile(const Rows<parts>& l, const Rows<parts>& x, const Rows<parts>& y, std::int64_t i,
                          std::int64_t j, std::int64_t width, std::int64_t c) {
    Numbers<parts> sums[R][C];
    for (int r = 0; r < R; ++r)
        for (int q = 0; q < C; ++q) sums[r][q] = y.load(i + r, c + eight * q);
    for (std::int64_t p = 0; p < width; ++p) {
        Numbers<parts> row[C];
        for (int q = 0; q < C; ++q) row[q] = x.load(j + p, c + eight * q);
        for (int r = 0; r < R; ++r) {
            const Number<parts> factor = l.at(i + r, j + p);
            for (int q = 0; q < C; ++q) subtract(sums[r][q], factor, row[q]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int q = 0; q < C; ++q) y.store(i + r, c + eight * q, sums[r][q]);
}

template <int R, int parts>
inline void subtract_rows(const Rows<parts>& l, const Rows<parts>& x, const Rows<parts>& y, std::int64_t i,
                          std::int64_t j, std::int64_t width, std::int64_t c, std::int64_t end) {
    for (; c + 2 * eight <= end; c += 2 * eight) subtract_tile<R, 2>(l, x, y, i, j, width, c);
    if (c < end) subtract_tile<R, 1>(l, x, y, i, j, width, c);
}

// The same for rows `top` to `bottom` - 1 and columns `begin` to `end` - 1. Sums stay in registers.
template <int parts>
inline void subtract_product(const Rows<parts>& l, const Rows<parts>& x, const Rows<parts>& y,
                             std::int64_t top, std::int64_t bottom, std::int64_t j, std::int64_t width,
                             std::int64_t begin, std::int64_t end) {
    constexpr int R = ROUNDWISE_VECTOR_BYTES == 64 ? 8 / parts : 2 / parts;
    std::int64_t i = top;
    for (; i + R <= bottom; i += R) subtract_rows<R>(l, x, y, i, j, width, begin, end);
    for (; i < bottom; ++i) subtract_rows<1>(l, x, y, i, j, width, begin, end);
}

// Rows j to j + width - 1 of Y become L^-1 Y for the unit lower triangle of L there.
template <int parts>
inline void substitute_forward(const Rows<parts>& l, const Rows<parts>& y, std::int64_t j,
                               std::int64_t width, std::int64_t begin, std::int64_t end) {
    for (const std::int64_t last = j + width; j < last; j += eight) {
        const int count = rows_from(j, last);
        for (std::int64_t c = begin; c < end; c += eight) {
            Numbers<parts> rows[eight];
            for (int q = 0; q < count; ++q) {
                rows[q] = y.load(j + q, c);
                for (int p = 0; p < q; ++p) subtract(rows[q], l.at(j + q, j + p), rows[p]);
                y.store(j + q, c, rows[q]);
            }
        }
        subtract_product(l, y, y, j + count, last, j, count, begin, end);
    }
}

// What is known of the pivots so far.
struct Pivots {
    std::int32_t* swaps;
    double smallest, largest;
};

// Eliminates at most eight columns, from j on, in all rows below their pivots. False if a pivot is zero.
template <int parts>
inline bool factorize_panel(const Rows<parts>& a, std::int64_t n, std::int64_t j, int width,
                            Pivots& pivots) {
    std::int64_t pivot = j;
    double size = 0;
    const auto compare = [&](std::int64_t i, double here) {
        if (here > size) size = here, pivot = i;
    };
    for (std::int64_t i = j; i < n; ++i) compare(i, magnitude(a.at(i, j)));
    for (int p = 0; p < width; ++p) {
        const std::int64_t row = j + p;
        if (!(size > 0)) return false;
        if (size < pivots.smallest) pivots.smallest = size;
        if (size > pivots.largest) pivots.largest = size;
        pivots.swaps[row] = static_cast<std::int32_t>(pivot);
        if (pivot != row) a.interchange(row, pivot);
        // Rows become keep x - l u: what is left of the pivot stays, and l takes its place.
        Number<parts> inverse = {{1.0}};
        divide(inverse, a.at(row, row));
        alignas(64) double kept[eight], rows[parts][eight];
        for (int q = 0; q < eight; ++q) {
            kept[q] = q != p;
            for (int part = 0; part < parts; ++part)
                rows[part][q] = q > p ? a.at(row, j + q).part[part] : q == p && part == 0 ? -1 : 0;
        }
        const Eight keep = *reinterpret_cast<const Eight*>(kept);
        Numbers<parts> u;
        for (int part = 0; part < parts; ++part) u.part[part] = *reinterpret_cast<const Eight*>(rows[part]);
        const Number<parts> next = p + 1 < width ? a.at(row, row + 1) : Number<parts>{};
        size = 0;
        for (std::int64_t i = row + 1; i < n; ++i) {
            const Number<parts> factor = product(a.at(i, row), inverse);
            if (p + 1 < width) {
                Number<parts> entry = a.at(i, row + 1);
                subtract(entry, factor, next);
                compare(i, magnitude(entry));
            }
            Numbers<parts> x = a.load(i, j);
            for (int q = 0; q < parts; ++q)
                x.part[q] = each([&](int k) { return keep.vectors[k] * x.part[q].vectors[k]; });
            subtract(x, factor, u);
            a.store(i, j, x);
        }
    }
    return true;
}

// The same for any number of columns: the left half, its effect on the right half, the right half.
template <int parts>
bool factorize_columns(const Rows<parts>& a, std::int64_t n, std::int64_t j, std::int64_t width,
                       Pivots& pivots) {
    if (width <= eight) return factorize_panel(a, n, j, static_cast<int>(width), pivots);
    const std::int64_t half = padded_to_eight(width / 2), middle = j + half;
    const std::int64_t end = j + padded_to_eight(width);
    if (!factorize_columns(a, n, j, half, pivots)) return false;
    substitute_forward(a, a, j, half, middle, end);
    subtract_product(a, a, a, middle, n, j, half, middle, end);
    return factorize_columns(a, n, middle, width - half, pivots);
}

template <int parts> double express_factorize(std::int64_t n, double* matrix, std::int32_t* swaps) {
    const std::int64_t step = padded_to_eight(n);
    const Rows<parts> a = {matrix, step, n * step};
    Pivots pivots = {swaps, __builtin_huge_val(), 0};
    return factorize_columns(a, n, 0, n, pivots) ? pivots.smallest / pivots.largest : 0;
}

template <int parts>
void express_substitute(std::int64_t n, double* factors, const std::int32_t* swaps, std::int64_t columns,
                        double* b) {
    const std::int64_t step = padded_to_eight(n), width = padded_to_eight(columns);
    const Rows<parts> lu = {factors, step, n * step}, y = {b, width, n * width};
    for (std::int64_t i = 0; i < n; ++i)
        if (swaps[i] != i) y.interchange(i, swaps[i]);
    substitute_forward(lu, y, 0, n, 0, width);
    for (std::int64_t j = padded_to_eight(n) - eight; j >= 0; j -= eight) {
        const int count = rows_from(j, n);
        for (std::int64_t c = 0; c < width; c += eight) {
            Numbers<parts> rows[eight];
            for (int q = count - 1; q >= 0; --q) {
                rows[q] = y.load(j + q, c);
                for (int p = q + 1; p < count; ++p) subtract(rows[q], lu.at(j + q, j + p), rows[p]);
                divide(rows[q], lu.at(j + q, j + q));
                y.store(j + q, c, rows[q]);
            }
        }
        subtract_product(lu, y, y, 0, j, j, count, 0, width);
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
