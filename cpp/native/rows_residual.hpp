// Residuals of small systems in twice the precision of double (exact.hpp says how), for columns that lie side
// by side: lanes are columns, so that no sum goes over lanes, and A is read number by number.
#pragma once

#include "native/exact.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// R rows from row i on, and a vector of columns from c on. `count` numbers of a row are multiplied before
// their sums in double are joined.
template <int R, int parts, bool exact>
inline void residual_tile(std::int64_t n, const double* a, std::int64_t width, const double* x, const double* b,
                          double* r, std::int64_t i, std::int64_t c, std::int64_t count) {
    using V = Vector<double>;
    const std::int64_t plane = n * width;
    TwiceSum<V> sums[R][parts];  // of A x - b
    for (int k = 0; k < R; ++k)
        for (int part = 0; part < parts; ++part)
            sums[k][part] = {-load(b + part * plane + (i + k) * width + c), V{}};
    for (std::int64_t j = 0; j < n;) {
        V joined[R][parts] = {};
        const std::int64_t end = n - j < count ? n : j + count;
        for (; j < end; ++j) {
            V row[parts];
            for (int part = 0; part < parts; ++part) row[part] = load(x + part * plane + j * width + c);
            for (int k = 0; k < R; ++k) {
                const auto add = [&](int part, double factor, V value) {
                    const V factors = factor - V{};
                    if constexpr (exact) sums[k][part].add_product(factors, value);
                    else joined[k][part] = multiply_add(factors, value, joined[k][part]);
                };
                const double* number = a + ((i + k) * n + j) * parts;
                add(0, number[0], row[0]);
                if constexpr (parts == 2) {
                    add(0, number[1], -row[1]);
                    add(1, number[0], row[1]);
                    add(1, number[1], row[0]);
                }
            }
        }
        if constexpr (!exact)
            for (int k = 0; k < R; ++k)
                for (int part = 0; part < parts; ++part) sums[k][part].add(joined[k][part]);
    }
    for (int k = 0; k < R; ++k)
        for (int part = 0; part < parts; ++part)
            store(r + part * plane + (i + k) * width + c, -(sums[k][part].high + sums[k][part].low));
}

// As many rows at a time as have their sums in registers, then half as many, ...
template <int R, int parts, bool exact>
inline void residual_rows(std::int64_t n, const double* a, std::int64_t width, const double* x, const double* b,
                          double* r, std::int64_t i, std::int64_t count) {
    for (; i + R <= n; i += R)
        for (std::int64_t c = 0; c < width; c += Lanes<double>::count)
            residual_tile<R, parts, exact>(n, a, width, x, b, r, i, c, count);
    if constexpr (R > 1) residual_rows<R / 2, parts, exact>(n, a, width, x, b, r, i, count);
}

template <int parts>
void residual_of_rows(std::int64_t n, const double* a, std::int64_t columns, const double* x, const double* b,
                      double* r, std::int64_t block) {
    constexpr int R = (ROUNDWISE_VECTOR_BYTES == 64 ? 8 : 4) / parts;
    const std::int64_t width = padded<double>(columns);
    if (block == 0) residual_rows<R, parts, true>(n, a, width, x, b, r, 0, n);
    else residual_rows<R, parts, false>(n, a, width, x, b, r, 0, block / parts < 1 ? 1 : block / parts);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
