// Dense emulated kernels; what each computes is stated in kernels.hpp.
#pragma once

#include "emulated/kernels.hpp"
#include "common/parallel.hpp"
#include "emulated/update.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t block_size = 32;
constexpr std::int64_t operations_per_thread = std::int64_t{1} << 18;

// At most `threads`, and so few that each has at least operations_per_thread operations: less work
// would not be worth the start of a thread.
inline int useful_threads(int threads, double operations) {
    const double most = operations / static_cast<double>(operations_per_thread);
    return most < threads ? (most < 1 ? 1 : static_cast<int>(most)) : threads;
}

template <class T> inline bool is_finite(T x) {
    return (bit_cast<typename Carrier<T>::Unsigned>(x) & Carrier<T>::infinity) != Carrier<T>::infinity;
}

// y -= alpha x.
template <class T, class Round>
inline void subtract_multiple(const Round& round, std::int64_t n, T alpha, const T* x, T* y) {
    const View<T> factor{&alpha, 0, 0};
    update_unit_stride<T, Sign::minus>(round, n, 1, 1, x, 0, factor, y, 0);
}

// A diagonal block of a triangular matrix, for substitution. The block is used in place if its
// columns are contiguous and full (block_size entries); otherwise it is copied, with zeros below row
// `size`.
template <class T> class TriangularBlock {
    T copy_[block_size * block_size];
    const T* entry_;
    std::int64_t step_, size_;
    bool lower_, unit_;

  public:
    TriangularBlock(const View<T>& t, std::int64_t size, bool lower, bool unit)
        : entry_(t.data), step_(t.column_stride), size_(size), lower_(lower), unit_(unit) {
        if (t.row_stride == 1 && size == block_size) return;
        for (std::int64_t j = 0; j < size; ++j)
            for (std::int64_t i = 0; i < block_size; ++i)
                copy_[i + j * block_size] = i < size ? *t.at(i, j) : 0;
        entry_ = copy_;
        step_ = block_size;
    }
    TriangularBlock(const TriangularBlock&) = delete;  // entry_ may point to copy_

    template <class Round> void solve(const Round& round, T* b) const {
        using S = typename Carrier<T>::Signed;
        constexpr int width = Lanes<T>::count;
        T x[block_size] = {};
        std::memcpy(x, b, static_cast<std::size_t>(size_) * sizeof(T));
        Vector<S> lane;
        for (int l = 0; l < width; ++l) lane[l] = l;
        for (std::int64_t step = 0; step < size_; ++step) {
            const std::int64_t j = lower_ ? step : size_ - 1 - step;
            const T* column = entry_ + j * step_;
            if (!unit_) x[j] = round(x[j] / column[j]);
            const std::int64_t begin = lower_ ? (j + 1) / width * width : 0;
            const std::int64_t end = lower_ ? block_size : j;
            for (std::int64_t i = begin; i < end; i += width) {
                const Vector<T> old = load(x + i);
                const Vector<T> updated = round(old - round.product(load(column + i), x[j]));
                const Vector<S> row = lane + static_cast<S>(i);
                const Vector<S> remaining =
                    lower_ ? row > static_cast<S>(j) : row < static_cast<S>(j);
                store<T>(x + i, remaining ? updated : old);
            }
        }
        std::memcpy(b, x, static_cast<std::size_t>(size_) * sizeof(T));
    }
};

template <class T, class Round>
void solve_triangular_columns(const Round& round, std::int64_t n, const View<T>& t, bool lower,
                              bool unit, std::int64_t columns, T* b) {
    const std::int64_t blocks = (n + block_size - 1) / block_size;
    for (std::int64_t step = 0; step < blocks; ++step) {
        const std::int64_t begin = (lower ? step : blocks - 1 - step) * block_size;
        const std::int64_t size = n - begin < block_size ? n - begin : block_size;
        const std::int64_t end = begin + size;
        const TriangularBlock<T> diagonal(t.from(begin, begin), size, lower, unit);
        for (std::int64_t j = 0; j < columns; ++j) diagonal.solve(round, b + begin + j * n);
        if (lower) {
            const View<T> x{b + begin, 1, n};
            update<T, Sign::minus>(round, n - end, columns, size, t.from(end, begin), x, b + end, n);
        } else {
            const View<T> x{b, 1, n};
            update<T, Sign::minus>(round, begin, columns, size, t.columns_reversed(begin, size),
                                   x.rows_reversed(begin, size), b, n);
        }
    }
}

template <class T>
void solve_triangular(const Format& f, std::int64_t n, const T* a, bool lower, bool unit,
                      bool transpose, std::int64_t columns, T* b, int threads) {
    const View<T> t{a, transpose ? n : 1, transpose ? 1 : n};
    const bool forward = lower != transpose;
    with_rounder<T>(f, [&](const auto& round) {
        auto some_columns = [&](std::int64_t begin, std::int64_t end) {
            solve_triangular_columns(round, n, t, forward, unit, end - begin, b + begin * n);
        };
        const double operations = 0.5 * static_cast<double>(n) * n * columns;
        parallel_for(columns, 1, useful_threads(threads, operations), some_columns);
    });
}

// Factorizes rows begin..n of columns begin..end of a. Records the pivots, and interchanges rows in
// these columns only.
template <class T, class Round>
Verdict factor_panel(const Round& round, std::int64_t n, T* a, std::int64_t begin,
                     std::int64_t end, std::int64_t* pivot) {
    for (std::int64_t j = begin; j < end; ++j) {
        T* column = a + j * n;
        std::int64_t largest = j;
        T magnitude = 0;
        for (std::int64_t i = j; i < n; ++i) {
            if (!is_finite(column[i])) return {Status::overflow, j};
            const T candidate = column[i] < 0 ? -column[i] : column[i];
            if (candidate > magnitude) {
                magnitude = candidate;
                largest = i;
            }
        }
        if (magnitude == 0) return {Status::zero_pivot, j};
        pivot[j - begin] = largest;
        if (largest != j)
            for (std::int64_t c = begin; c < end; ++c) {
                const T kept = a[j + c * n];
                a[j + c * n] = a[largest + c * n];
                a[largest + c * n] = kept;
            }
        for (std::int64_t i = j + 1; i < n; ++i) column[i] = round(column[i] / column[j]);
        for (std::int64_t c = j + 1; c < end; ++c)
            subtract_multiple(round, n - j - 1, a[j + c * n], column + j + 1, a + j + 1 + c * n);
    }
    return {Status::ok, 0};
}

template <class T>
Verdict lu(const Format& f, std::int64_t n, T* a, std::int32_t* perm, int threads) {
    for (std::int64_t i = 0; i < n; ++i) perm[i] = static_cast<std::int32_t>(i);
    return with_rounder<T>(f, [&](const auto& round) -> Verdict {
        for (std::int64_t begin = 0; begin < n; begin += block_size) {
            const std::int64_t end = n - begin < block_size ? n : begin + block_size;
            std::int64_t pivot[block_size];
            const Verdict verdict = factor_panel(round, n, a, begin, end, pivot);
            if (verdict.status != Status::ok) return verdict;
            const auto swap_rows = [&](auto* column) {
                for (std::int64_t j = begin; j < end; ++j) {
                    const auto kept = column[j];
                    column[j] = column[pivot[j - begin]];
                    column[pivot[j - begin]] = kept;
                }
            };
            swap_rows(perm);
            for (std::int64_t c = 0; c < begin; ++c) swap_rows(a + c * n);

            const TriangularBlock<T> l11(View<T>{a + begin + begin * n, 1, n}, end - begin, true, true);
            auto trailing = [&](std::int64_t first, std::int64_t last) {
                T* rest = a + (end + first) * n;
                for (std::int64_t c = 0; c < last - first; ++c) {
                    swap_rows(rest + c * n);
                    l11.solve(round, rest + begin + c * n);
                }
                update_unit_stride<T, Sign::minus>(round, n - end, last - first, end - begin,
                                                   a + end + begin * n, n,
                                                   View<T>{rest + begin, 1, n}, rest + end, n);
            };
            const double operations = static_cast<double>(n - end) * (n - end) * block_size;
            parallel_for(n - end, 4, useful_threads(threads, operations), trailing);
        }
        for (std::int64_t j = 0; j < n; ++j)
            for (std::int64_t i = 0; i <= j; ++i)
                if (!is_finite(a[i + j * n])) return {Status::overflow, j};
        return {Status::ok, 0};
    });
}

// Computes columns begin..end of a Cholesky factor, from which the caller has already subtracted the
// products of all earlier columns.
template <class T, class Round>
Verdict cholesky_panel(const Round& round, std::int64_t n, T* a, std::int64_t begin,
                       std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
        T* column = a + j * n;
        for (std::int64_t i = j; i < n; ++i)
            if (!is_finite(column[i])) return {Status::overflow, j};
        if (!(column[j] > 0)) return {Status::not_positive_definite, j};
        column[j] = round(square_root(column[j]));
        for (std::int64_t i = j + 1; i < n; ++i) column[i] = round(column[i] / column[j]);
        for (std::int64_t c = j + 1; c < end; ++c)
            subtract_multiple(round, n - c, column[c], column + c, a + c + c * n);
    }
    return {Status::ok, 0};
}

template <class T> Verdict cholesky(const Format& f, std::int64_t n, T* a, int threads) {
    return with_rounder<T>(f, [&](const auto& round) -> Verdict {
        for (std::int64_t begin = 0; begin < n; begin += block_size) {
            const std::int64_t end = n - begin < block_size ? n : begin + block_size;
            const Verdict verdict = cholesky_panel(round, n, a, begin, end);
            if (verdict.status != Status::ok) return verdict;
            auto trailing = [&](std::int64_t first, std::int64_t last) {
                for (std::int64_t c = end + first; c < end + last; c += 4) {
                    const std::int64_t width = end + last - c < 4 ? end + last - c : 4;
                    const T* panel = a + c + begin * n;
                    update_unit_stride<T, Sign::minus>(round, n - c, width, end - begin, panel, n,
                                                       View<T>{panel, n, 1}, a + c + c * n, n);
                }
            };
            const double operations = 0.5 * static_cast<double>(n - end) * (n - end) * block_size;
            parallel_for(n - end, 4, useful_threads(threads, operations), trailing);
        }
        for (std::int64_t j = 1; j < n; ++j)
            for (std::int64_t i = 0; i < j; ++i) a[i + j * n] = 0;
        return {Status::ok, 0};
    });
}

template <class T>
void matvec(const Format& f, std::int64_t rows, std::int64_t columns, const T* a, bool transpose,
            const T* x, T* y, int threads) {
    const std::int64_t m = transpose ? columns : rows, k = transpose ? rows : columns;
    const View<T> view{a, transpose ? rows : 1, transpose ? 1 : rows};
    with_rounder<T>(f, [&](const auto& round) {
        auto some_rows = [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) y[i] = 0;
            update<T, Sign::plus>(round, end - begin, 1, k, view.from(begin, 0), View<T>{x, 1, k},
                                  y + begin, m);
        };
        const double operations = static_cast<double>(rows) * columns;
        parallel_for(m, 64, useful_threads(threads, operations), some_rows);
    });
}

// The sum of n products, in the order that Kernels::dot states: 32 partial sums, added in a tree. No
// vector unit has more than 32 lanes, so all levels can use this order.
template <class T, class Round, class Product>
T rounded_sum(const Round& round, std::int64_t n, Product product) {
    constexpr int lanes = 32, width = Lanes<T>::count, vectors = lanes / width;
    Vector<T> partial[vectors] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (int v = 0; v < vectors; ++v)
            partial[v] = round(partial[v] + product(i + v * width, std::int64_t{width}));
    T sum[lanes];
    for (int v = 0; v < vectors; ++v) {
        const std::int64_t first = i + v * width;
        const std::int64_t count = n - first < width ? n - first : width;
        if (count > 0) partial[v] = round(partial[v] + product(first, count));
        store<T>(sum + v * width, partial[v]);
    }
    for (int half = lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) sum[l] = round(sum[l] + sum[l + half]);
    return sum[0];
}

template <class T, class Round>
T rounded_dot(const Round& round, std::int64_t n, const T* x, const T* y) {
    return rounded_sum<T>(round, n, [&](std::int64_t i, std::int64_t count) {
        return round.product(load_some(x + i, count), load_some(y + i, count));
    });
}

template <class T> T dot(const Format& f, std::int64_t n, const T* x, const T* y) {
    return with_rounder<T>(f, [&](const auto& round) { return rounded_dot(round, n, x, y); });
}

template <class T> void axpy(const Format& f, std::int64_t n, T alpha, const T* x, T* y) {
    with_rounder<T>(f, [&](const auto& round) {
        for (std::int64_t i = 0; i < n; ++i) y[i] = round(y[i] + round.product(alpha, x[i]));
    });
}

template <class T> void scale(const Format& f, std::int64_t n, T alpha, T* x) {
    with_rounder<T>(f, [&](const auto& round) {
        for (std::int64_t i = 0; i < n; ++i) x[i] = round.product(alpha, x[i]);
    });
}

template <class T, class Round> T rounded_norm2(const Round& round, std::int64_t n, const T* x) {
    T largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        if (!is_finite(x[i])) return x[i] * x[i];  // inf or NaN
        const T magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > largest) largest = magnitude;
    }
    if (largest == 0) return 0;
    constexpr int lowest = sizeof(T) == 4 ? -126 : -1022;  // below it, 2^-e would overflow
    const int e = exponent_of(largest) < lowest ? lowest : exponent_of(largest);
    const T down = power_of_two<T>(-e), up = power_of_two<T>(e);
    const T sum = rounded_sum<T>(round, n, [&](std::int64_t i, std::int64_t count) {
        const Vector<T> scaled = round(load_some(x + i, count) * down);
        return round.product(scaled, scaled);
    });
    return round(round(square_root(sum)) * up);
}

template <class T> T norm2(const Format& f, std::int64_t n, const T* x) {
    return with_rounder<T>(f, [&](const auto& round) { return rounded_norm2(round, n, x); });
}

template <class T>
void orthogonalize(const Format& f, std::int64_t n, std::int64_t columns, const T* v, T* w, T* h) {
    with_rounder<T>(f, [&](const auto& round) {
        for (std::int64_t i = 0; i < columns; ++i) {
            h[i] = rounded_dot(round, n, v + i * n, w);
            subtract_multiple(round, n, h[i], v + i * n, w);
        }
    });
}

template <class T>
void givens(const Format& f, std::int64_t j, T* cosines, T* sines, T* h, T* g) {
    with_rounder<T>(f, [&](const auto& round) {
        const auto rotate = [&](T c, T s, T& x, T& y) {
            const T rotated = round(round.product(c, x) + round.product(s, y));
            y = round(round.product(c, y) - round.product(s, x));
            x = rotated;
        };
        for (std::int64_t i = 0; i < j; ++i) rotate(cosines[i], sines[i], h[i], h[i + 1]);
        const T length = rounded_norm2(round, 2, h + j);
        if (length == 0) {
            cosines[j] = 1;
            sines[j] = 0;
        } else {
            cosines[j] = round(h[j] / length);
            sines[j] = round(h[j + 1] / length);
        }
        h[j] = length;
        h[j + 1] = 0;
        g[j + 1] = 0;
        rotate(cosines[j], sines[j], g[j], g[j + 1]);
    });
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
