// Passes over whole arrays: conversions between stored and computed numbers, and norms.
#pragma once

#include "native/kernels.hpp"
#include "native/storage.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Numbers of a task that writes them to memory which may be new: the system clears it page by page when
// it is first written to, pages of 2 MiB where it can, and two threads should not wait for one page.
template <class S> std::int64_t grain_of(std::int64_t n, int threads) {
    constexpr std::int64_t page = (1 << 21) / static_cast<std::int64_t>(sizeof(S));
    return n / page >= 2 * threads ? page : 1 << 17;
}

template <class S, class T> void narrow_array(std::int64_t n, const T* x, S* y, int threads) {
    const auto body = [=](std::int64_t begin, std::int64_t end) {
        constexpr int lanes = Lanes<T>::count;
        std::int64_t i = begin;
        for (; i + lanes <= end; i += lanes)
            narrow<S, lanes, T>(load_pack<PackOf<T, lanes>>(x + i), y + i);
        if (i == end) return;
        S tail[lanes];
        narrow<S, lanes, T>(widen_first<T, lanes>(x + i, end - i), tail);
        std::memcpy(y + i, tail, static_cast<std::size_t>(end - i) * sizeof(S));
    };
    share_range(n, grain_of<S>(n, threads), threads_for<T>(n, threads), body);
}

template <class S, class T> void widen_array(std::int64_t n, const S* x, T* y, int threads) {
    const auto body = [=](std::int64_t begin, std::int64_t end) {
        constexpr int lanes = Lanes<T>::count;
        std::int64_t i = begin;
        for (; i + lanes <= end; i += lanes) {
            const auto wide = widen<T, lanes>(x + i);
            std::memcpy(y + i, &wide, sizeof wide);
        }
        if (i == end) return;
        const auto wide = widen_first<T, lanes>(x + i, end - i);
        std::memcpy(y + i, &wide, static_cast<std::size_t>(end - i) * sizeof(T));
    };
    share_range(n, grain_of<T>(n, threads), threads_for<T>(n, threads), body);
}

template <class T> void copy_array(std::int64_t n, const T* x, T* y, int threads) {
    share_range(n, grain_of<T>(n, threads), threads_for<T>(n, threads),
                [=](std::int64_t begin, std::int64_t end) {
        std::memcpy(y + begin, x + begin, static_cast<std::size_t>(end - begin) * sizeof(T));
    });
}

constexpr std::int64_t symmetric_tile = 32;

// Whether A equals its transpose; ends early where it does not. NaN equals nothing.
template <class T> bool symmetric(std::int64_t n, const T* a, int threads) {
    const std::int64_t tiles = (n + symmetric_tile - 1) / symmetric_tile;
    int differs = 0;
    share_range(tiles, 1, threads_for<T>(n * n, threads), [&](std::int64_t row, std::int64_t) {
        const std::int64_t i = row * symmetric_tile;
        const std::int64_t bottom = i + symmetric_tile < n ? i + symmetric_tile : n;
        for (std::int64_t j = 0; j <= i; j += symmetric_tile) {
            if (__atomic_load_n(&differs, __ATOMIC_RELAXED)) return;
            const std::int64_t right = j + symmetric_tile < n ? j + symmetric_tile : n;
            int different = 0;
            for (std::int64_t l = j; l < right; ++l)
                for (std::int64_t k = i; k < bottom; ++k) different |= !(a[k + l * n] == a[l + k * n]);
            if (different) __atomic_store_n(&differs, 1, __ATOMIC_RELAXED);
        }
    });
    return differs == 0;
}

// The larger of both, or NaN if one is NaN.
inline double larger(double a, double b) { return a > b || a != a ? a : b; }

// Norm and largest entry by columns, which need no sums of rows: sums and tops have a number for each. Unless
// `rounded` is null, all numbers rounded to float go there in the same pass.
template <class T>
Norms column_norms(std::int64_t rows, std::int64_t columns, const T* a, int threads, double* workspace,
                   float* rounded) {
    constexpr int lanes = Lanes<double>::count;
    using Numbers = PackOf<double, lanes>;
    // Columns of a task: some 256 KiB, or what one that writes to new memory should have.
    const std::int64_t numbers = rounded == nullptr ? 1 << 15 : grain_of<float>(rows * columns, threads);
    const std::int64_t wanted = numbers / (rows + 1) + 1;
    share_range(columns, wanted, threads_for<T>(rows * columns, threads),
                [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) {
            Numbers sum = {}, most = {};
            const auto add = [&](Numbers x) {
                using Integers = PackOf<std::int64_t, lanes>;
                x = bit_cast<Numbers>(bit_cast<Integers>(x) & 0x7fffffffffffffff);
                sum += x;
                most = x > most ? x : most;
            };
            const T* column = a + j * rows;
            std::int64_t i = 0;
            if (rounded == nullptr)
                for (; i + lanes <= rows; i += lanes) add(widen<double, lanes>(column + i));
            else
                for (; i + lanes <= rows; i += lanes) {
                    const Numbers x = widen<double, lanes>(column + i);
                    add(x);
                    narrow<float, lanes, double>(x, rounded + j * rows + i);
                }
            if (i < rows) {
                const Numbers x = widen_first<double, lanes>(column + i, rows - i);
                add(x);
                float tail[lanes];
                narrow<float, lanes, double>(x, tail);
                if (rounded != nullptr)
                    std::memcpy(rounded + j * rows + i, tail, static_cast<std::size_t>(rows - i) * sizeof(float));
            }
            double total = 0, top = 0;
            for (int lane = 0; lane < lanes; ++lane) {
                total += sum[lane];
                top = larger(top, most[lane]);
            }
            workspace[j] = total;
            workspace[columns + j] = top;
        }
    });
    Norms result = {0, 0, 0};
    for (std::int64_t j = 0; j < columns; ++j) {
        result.one = larger(result.one, workspace[j]);
        result.max_abs = larger(result.max_abs, workspace[columns + j]);
    }
    // The vector comparison above skips NaN; the sums do not.
    if (result.one != result.one) result.max_abs = result.one;
    return result;
}

// The columns are cut into norm_parts parts, whatever the number of threads. Each part has its own
// row sums, which are added up in order at the end.
template <class T>
Norms norms(std::int64_t rows, std::int64_t columns, const T* a, int threads, double* workspace) {
    constexpr int lanes = Lanes<double>::count;
    double one[norm_parts] = {}, top[norm_parts] = {};
    const auto body = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t part = begin; part < end; ++part) {
            double* row_sums = workspace + part * rows;
            for (std::int64_t i = 0; i < rows; ++i) row_sums[i] = 0;
            const std::int64_t last = columns * (part + 1) / norm_parts;
            for (std::int64_t j = columns * part / norm_parts; j < last; ++j) {
                PackOf<double, lanes> sum = {}, most = {};
                const auto add = [&](std::int64_t i, PackOf<double, lanes> x, std::int64_t valid) {
                    using Integers = PackOf<std::int64_t, lanes>;
                    x = bit_cast<PackOf<double, lanes>>(bit_cast<Integers>(x) & 0x7fffffffffffffff);
                    sum += x;
                    most = x > most ? x : most;
                    if (valid == lanes) {
                        x += load_pack<PackOf<double, lanes>>(row_sums + i);
                        std::memcpy(row_sums + i, &x, sizeof x);
                    } else {
                        for (std::int64_t l = 0; l < valid; ++l) row_sums[i + l] += x[l];
                    }
                };
                const T* column = a + j * rows;
                std::int64_t i = 0;
                for (; i + lanes <= rows; i += lanes) add(i, widen<double, lanes>(column + i), lanes);
                if (i < rows) add(i, widen_first<double, lanes>(column + i, rows - i), rows - i);
                double total = 0;
                for (int lane = 0; lane < lanes; ++lane) {
                    total += sum[lane];
                    top[part] = larger(top[part], most[lane]);
                }
                one[part] = larger(one[part], total);
            }
        }
    };
    share_range(norm_parts, 1, threads_for<T>(rows * columns, threads), body);
    Norms result = {0, 0, 0};
    for (std::int64_t part = 0; part < norm_parts; ++part) {
        result.one = larger(result.one, one[part]);
        result.max_abs = larger(result.max_abs, top[part]);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (std::int64_t part = 0; part < norm_parts; ++part) sum += workspace[i + part * rows];
        result.inf = larger(result.inf, sum);
    }
    // The vector comparison above skips NaN; the sums do not.
    if (result.one != result.one) result.max_abs = result.one;
    return result;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
