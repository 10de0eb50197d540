// Scaling a matrix by powers of two, one for each row and one for each column: the exponents that do it,
// the scaled matrix, and the row sums of its magnitudes.
#pragma once

#include "native/array.hpp"
#include "native/matvec.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using Integers = Vector<std::int64_t>;

constexpr std::int64_t smallest_normal = std::int64_t{1} << 52;  // the bits of 2**-1022
constexpr std::int64_t exponent_bits = std::int64_t{0x7ff} << 52;
constexpr std::int64_t no_exponent = -(std::int64_t{1} << 40);  // of a zero: below all others

inline Integers magnitude_of(Vector<double> x) { return bit_cast<Integers>(x) & 0x7fffffffffffffff; }

// Of numbers that are not negative. AVX2 has no such shift for signed vectors.
inline Integers shifted_right(Integers x, int bits) {
    return bit_cast<Integers>(bit_cast<Vector<std::uint64_t>>(x) >> bits);
}

// x = fraction 2**exponent with a fraction in [1/2, 1), of numbers that are finite and not zero.
struct Parts {
    Vector<double> fraction;
    Integers exponent;
};

inline Parts parts_of(Vector<double> x) {
    const Integers subnormal = (Integers)(magnitude_of(x) < smallest_normal);
    const Integers bits = bit_cast<Integers>(subnormal ? x * 0x1p54 : x);
    const Integers exponent = shifted_right(bits & exponent_bits, 52);
    return {bit_cast<Vector<double>>((bits & ~exponent_bits) | std::int64_t{1022} << 52),
            exponent - 1022 - (subnormal & 54)};
}

// 2**power x, rounded once. The fraction times half of the power is exact, times the rest it is rounded.
// Powers beyond 1100 change no result: it is infinite, or zero.
inline Vector<double> times_power(Vector<double> x, Integers power) {
    const Parts parts = parts_of(x);
    Integers sum = parts.exponent + power;
    sum = sum < -1100 ? Integers{} - 1100 : sum;
    sum = sum > 1100 ? Integers{} + 1100 : sum;
    const Integers both = sum + 2046, half = shifted_right(both, 1);  // exponents as they are stored: 1023 more
    const Vector<double> y = parts.fraction * bit_cast<Vector<double>>(half << 52) *
                             bit_cast<Vector<double>>((both - half) << 52);
    const Integers is_finite = (Integers)(magnitude_of(x) < exponent_bits);
    return (Integers)(x != 0) & is_finite ? y : x;
}

inline std::int64_t padded_rows(std::int64_t rows) {
    constexpr std::int64_t lanes = Lanes<double>::count;
    return (rows + lanes - 1) / lanes * lanes;
}

// The exponents of rows, and maxima of rows for each of norm_parts parts.
inline std::int64_t scaling_workspace(std::int64_t rows) { return (norm_parts + 1) * padded_rows(rows); }

// Exponents of rows as vectors read them: 64 bits each, and some zeros at the end.
inline void widen_exponents(std::int64_t rows, const std::int32_t* exponents, std::int64_t* wide) {
    for (std::int64_t i = 0; i < padded_rows(rows); ++i) wide[i] = i < rows ? exponents[i] : 0;
}

// Calls use(i, x, count) for the `count` entries x of a column from row i on, a vector at a time; the last
// is filled up with zeros.
template <class Use> inline void for_vectors(std::int64_t rows, const double* column, const Use& use) {
    constexpr std::int64_t lanes = Lanes<double>::count;
    std::int64_t i = 0;
    for (; i + lanes <= rows; i += lanes) use(i, load(column + i), lanes);
    if (i < rows) use(i, load_first(column + i, rows - i), rows - i);
}

// The columns are cut into norm_parts parts, each with maxima of its own for the rows.
inline void largest_exponents(std::int64_t rows, std::int64_t columns, const double* a,
                              const std::int32_t* row_scale, const std::int32_t* column_scale,
                              std::int32_t* largest_of_rows, std::int32_t* largest_of_columns, int threads,
                              std::int64_t* workspace) {
    const std::int64_t step = padded_rows(rows);
    std::int64_t* tops = workspace + step;
    widen_exponents(rows, row_scale, workspace);
    share_range(norm_parts, 1, threads_for<double>(rows * columns, threads),
                [=](std::int64_t part, std::int64_t) {
        std::int64_t* top = tops + part * step;
        for (std::int64_t i = 0; i < step; ++i) top[i] = no_exponent;
        const std::int64_t last = columns * (part + 1) / norm_parts;
        for (std::int64_t j = columns * part / norm_parts; j < last; ++j) {
            const std::int64_t scale = column_scale[j];
            Integers most = Integers{} + no_exponent;
            for_vectors(rows, a + j * rows, [&](std::int64_t i, Vector<double> x, std::int64_t) {
                Integers exponent = parts_of(x).exponent - load(workspace + i) - scale;
                exponent = x == 0 ? Integers{} + no_exponent : exponent;
                const Integers before = load(top + i);
                store<std::int64_t>(top + i, exponent > before ? exponent : before);
                most = exponent > most ? exponent : most;
            });
            std::int64_t largest = no_exponent;
            for (int lane = 0; lane < Lanes<double>::count; ++lane)
                largest = most[lane] > largest ? most[lane] : largest;
            largest_of_columns[j] = largest == no_exponent ? 0 : static_cast<std::int32_t>(largest);
        }
    });
    for (std::int64_t i = 0; i < rows; ++i) {
        std::int64_t largest = no_exponent;
        for (std::int64_t part = 0; part < norm_parts; ++part)
            largest = tops[i + part * step] > largest ? tops[i + part * step] : largest;
        largest_of_rows[i] = largest == no_exponent ? 0 : static_cast<std::int32_t>(largest);
    }
}

inline bool scale(std::int64_t rows, std::int64_t columns, const double* a, const std::int32_t* row_scale,
                  const std::int32_t* column_scale, double* scaled, int threads, std::int64_t* workspace) {
    widen_exponents(rows, row_scale, workspace);
    int is_lost = 0;
    const std::int64_t wanted = grain_of<double>(rows * columns, threads) / (rows + 1) + 1;
    share_range(columns, wanted, threads_for<double>(rows * columns, threads),
                [&](std::int64_t begin, std::int64_t end) {
        Integers lost = {};
        for (std::int64_t j = begin; j < end; ++j) {
            const std::int64_t power = column_scale[j];
            for_vectors(rows, a + j * rows, [&](std::int64_t i, Vector<double> x, std::int64_t count) {
                const Vector<double> y = times_power(x, -power - load(workspace + i));
                lost |= (Integers)(x != 0) & (Integers)(magnitude_of(y) < smallest_normal);
                store_some<double>(scaled + i + j * rows, y, count);
            });
        }
        for (int lane = 0; lane < Lanes<double>::count; ++lane)
            if (lost[lane]) __atomic_store_n(&is_lost, 1, __ATOMIC_RELAXED);
    });
    return is_lost == 0;
}

// The sum of w_i |x_i| in NumPy's order, which no level changes: halves, down to 128 terms, of which
// every eighth is added to the same sum.
inline double magnitude_sum(std::int64_t n, const double* x, const double* weights) {
    if (n > 128) {
        const std::int64_t half = n / 2 / 8 * 8;
        return magnitude_sum(half, x, weights) + magnitude_sum(n - half, x + half, weights + half);
    }
    PackOf<double, 8> sum = {};
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        sum += widen<double, 8>(reinterpret_cast<const Magnitude*>(x + i)) *
               load_pack<PackOf<double, 8>>(weights + i);
    double total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    for (; i < n; ++i) total += __builtin_fabs(x[i]) * weights[i];
    return total;
}

inline void magnitude_sums(std::int64_t rows, std::int64_t columns, const double* a, bool transpose,
                           const double* weights, double* sums, int threads) {
    if (!transpose)
        return matvec_stored(rows, columns, reinterpret_cast<const Magnitude*>(a), false, weights, sums,
                             threads);
    share_range(columns, 64, threads_for<double>(rows * columns, threads),
                [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) sums[j] = magnitude_sum(rows, a + j * rows, weights);
    });
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
