// Products with a stored matrix for one or several vectors: Y -= A X, and A' X. Both read A from
// memory once, a few columns side by side.
#pragma once

#include "native/storage.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Y (m x C) -= A (m x K) X (K x C). Prefetches the columns `next`: with the few rows of each column
// that are read here, the processor does not recognise the pattern by itself.
template <int K, int C, class T, class S>
inline void subtract_few(std::int64_t m, const S* a, const S* next, std::int64_t a_step, const T* x,
                         std::int64_t x_step, T* y, std::int64_t y_step) {
    constexpr int lanes = Lanes<T>::count;
    std::int64_t i = 0;
    for (; i + lanes <= m; i += lanes) {
        Vector<T> sum[C];
        for (int c = 0; c < C; ++c) sum[c] = load(y + i + c * y_step);
        for (int k = 0; k < K; ++k) {
            __builtin_prefetch(next + i + k * a_step, 0, 2);  // to the second cache
            const Vector<T> column = widen<T, lanes>(a + i + k * a_step);
            for (int c = 0; c < C; ++c) sum[c] -= column * x[k + c * x_step];
        }
        for (int c = 0; c < C; ++c) store<T>(y + i + c * y_step, sum[c]);
    }
    if (i == m) return;
    Vector<T> sum[C];
    for (int c = 0; c < C; ++c) sum[c] = load_first(y + i + c * y_step, m - i);
    for (int k = 0; k < K; ++k) {
        const Vector<T> column = widen_first<T, lanes>(a + i + k * a_step, m - i);
        for (int c = 0; c < C; ++c) sum[c] -= column * x[k + c * x_step];
    }
    for (int c = 0; c < C; ++c) store_first<T>(y + i + c * y_step, sum[c], m - i);
}

template <int columns> struct Group {
    static constexpr int count = columns;
};

// The same for any number k of columns of A.
template <int C, class T, class S>
inline void subtract_product(std::int64_t m, std::int64_t k, const S* a, std::int64_t a_step,
                             const T* x, std::int64_t x_step, T* y, std::int64_t y_step) {
    constexpr int K = C == 1 ? 8 : 4;
    std::int64_t j = 0;
    for (; j + K <= k; j += K) {
        const S* columns = a + j * a_step;
        const S* next = j + 2 * K <= k ? columns + K * a_step : columns;
        subtract_few<K, C>(m, columns, next, a_step, x + j, x_step, y, y_step);
    }
    // Each group passes over Y once. Groups do not change the order of the subtractions.
    const auto subtract = [&](auto group) {
        constexpr int count = decltype(group)::count;
        const S* columns = a + j * a_step;
        subtract_few<count, C>(m, columns, columns, a_step, x + j, x_step, y, y_step);
        j += count;
    };
    if (j + 4 <= k) subtract(Group<4>{});
    if (j + 2 <= k) subtract(Group<2>{});
    if (j < k) subtract(Group<1>{});
}

// out (K x C) = A' X, A m x K and X m x C; lane l sums the rows l, l + lanes, ...
template <int K, int C, class T, class S>
inline void dot_few(std::int64_t m, const S* a, std::int64_t a_step, const T* x,
                    std::int64_t x_step, T (&out)[K][C]) {
    constexpr int lanes = Lanes<T>::count;
    Vector<T> sum[K][C] = {};
    std::int64_t i = 0;
    for (; i + lanes <= m; i += lanes)
        for (int k = 0; k < K; ++k) {
            const Vector<T> column = widen<T, lanes>(a + i + k * a_step);
            for (int c = 0; c < C; ++c) sum[k][c] += column * load(x + i + c * x_step);
        }
    if (i < m)
        for (int k = 0; k < K; ++k) {
            const Vector<T> column = widen_first<T, lanes>(a + i + k * a_step, m - i);
            for (int c = 0; c < C; ++c) sum[k][c] += column * load_first(x + i + c * x_step, m - i);
        }
    for (int k = 0; k < K; ++k)
        for (int c = 0; c < C; ++c) {
            T total = 0;
            for (int lane = 0; lane < lanes; ++lane) total += sum[k][c][lane];
            out[k][c] = total;
        }
}

// Calls use(j, c, value) for each entry (j, c) of A' X; A is m x k.
template <int C, class T, class S, class Use>
inline void dot_columns(std::int64_t m, std::int64_t k, const S* a, std::int64_t a_step, const T* x,
                        std::int64_t x_step, const Use& use) {
    constexpr int K = C == 1 ? 8 : 4;
    std::int64_t j = 0;
    const auto dot = [&](auto group) {
        constexpr int count = decltype(group)::count;
        T out[count][C];
        dot_few<count, C>(m, a + j * a_step, a_step, x, x_step, out);
        for (int l = 0; l < count; ++l)
            for (int c = 0; c < C; ++c) use(j + l, c, out[l][c]);
        j += count;
    };
    while (j + K <= k) dot(Group<K>{});
    if (j + 4 <= k) dot(Group<4>{});
    if (j + 2 <= k) dot(Group<2>{});
    if (j < k) dot(Group<1>{});
}

// y = A x, in strips of rows so short that y stays in the first cache; or y = A' x.
template <class T, class S>
inline void matvec_stored(std::int64_t rows, std::int64_t columns, const S* a, bool transpose,
                          const T* x, T* y, int threads) {
    const int used = threads_for<S>(rows * columns, threads);
    if (transpose)
        share_range(columns, 64, used, [=](std::int64_t begin, std::int64_t end) {
            dot_columns<1>(rows, end - begin, a + begin * rows, rows, x, 0,
                           [=](std::int64_t j, int, T value) { y[begin + j] = value; });
        });
    else {
        const std::int64_t even = (rows / (2 * used) + 63) / 64 * 64;
        const std::int64_t strip = even < 64 ? 64 : even < 1024 ? even : 1024;
        share_range(rows, strip, used, [=](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) y[i] = 0;
            subtract_product<1>(end - begin, columns, a + begin, rows, x, 0, y + begin, 0);
            for (std::int64_t i = begin; i < end; ++i) y[i] = 0 - y[i];
        });
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
