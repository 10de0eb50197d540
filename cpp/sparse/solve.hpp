// Substitution with supernodal factors, for one or four right-hand sides at a time. The columns of a
// panel are consecutive entries of x; the rows below are gathered or scattered.
#pragma once

#include "native/lu.hpp"
#include "native/matvec.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using sparse::Kind;
using sparse::PlanView;

constexpr std::int64_t side_columns = 4;  // right-hand sides that are solved for together

template <class T> struct SideScratch {
    T *below, *block;
    SideScratch(const PlanView& plan, Arena& arena) {
        below = arena.take<T>(side_columns * plan.tallest);
        block = arena.take<T>(side_columns * sparse::widest);
    }
};

// X (n x C) = T^-1 X for the lower triangle T, or T'^-1 X.
template <int C, bool unit, class T>
inline void solve_lower(std::int64_t n, const T* a, std::int64_t step, T* x, std::int64_t x_step) {
    std::int64_t k = 0;
    for (; k < n; k += 8) {
        const std::int64_t end = k + 8 < n ? k + 8 : n;
        for (int c = 0; c < C; ++c)
            for (std::int64_t j = k; j < end; ++j) {
                if (!unit) x[j + c * x_step] /= a[j + j * step];
                for (std::int64_t i = j + 1; i < end; ++i)
                    x[i + c * x_step] -= a[i + j * step] * x[j + c * x_step];
            }
        if (end < n)
            subtract_product<C>(n - end, end - k, a + end + k * step, step, x + k, x_step, x + end, x_step);
    }
}

template <int C, bool unit, class T>
inline void solve_lower_transposed(std::int64_t n, const T* a, std::int64_t step, T* x, std::int64_t x_step) {
    for (std::int64_t k = (n - 1) / 8 * 8; k >= 0; k -= 8) {
        const std::int64_t end = k + 8 < n ? k + 8 : n;
        if (end < n)
            dot_columns<C>(n - end, end - k, a + end + k * step, step, x + end, x_step,
                           [&](std::int64_t j, int c, T value) { x[k + j + c * x_step] -= value; });
        for (int c = 0; c < C; ++c)
            for (std::int64_t j = end - 1; j >= k; --j) {
                T sum = x[j + c * x_step];
                for (std::int64_t i = j + 1; i < end; ++i) sum -= a[i + j * step] * x[i + c * x_step];
                x[j + c * x_step] = unit ? sum : sum / a[j + j * step];
            }
    }
}

template <class T> struct SparseSolve {
    const PlanView& plan;
    const T* storage;
    const std::int32_t* pivots;
    SideScratch<T> scratch;

    // x[rows] -= A (m x k) y for the rows of a panel below its block on the diagonal.
    template <int C>
    void scatter(std::int64_t m, std::int64_t k, const T* a, std::int64_t step, const std::int32_t* rows,
                 const T* y, std::int64_t y_step, T* x) const {
        if (m == 0) return;
        for (int c = 0; c < C; ++c)
            std::memset(scratch.below + c * m, 0, static_cast<std::size_t>(m) * sizeof(T));
        subtract_product<C>(m, k, a, step, y, y_step, scratch.below, m);
        for (int c = 0; c < C; ++c)
            for (std::int64_t i = 0; i < m; ++i) x[rows[i] + c * plan.n] += scratch.below[i + c * m];
    }

    // y -= A' x[rows].
    template <int C>
    void gather(std::int64_t m, std::int64_t k, const T* a, std::int64_t step, const std::int32_t* rows,
                T* y, std::int64_t y_step, const T* x) const {
        if (m == 0) return;
        for (int c = 0; c < C; ++c)
            for (std::int64_t i = 0; i < m; ++i) scratch.below[i + c * m] = x[rows[i] + c * plan.n];
        dot_columns<C>(m, k, a, step, scratch.below, m,
                       [&](std::int64_t j, int c, T value) { y[j + c * y_step] -= value; });
    }

    template <int C> void forward(std::int32_t p, T* x) const {
        const std::int64_t w = plan.width(p), h = plan.height[p];
        const T* a = storage + plan.place[p];
        T* y = x + plan.first[p];
        solve_lower<C, false>(w, a, h, y, plan.n);
        scatter<C>(h - w, w, a + w, h, plan.rows_of(p) + w, y, plan.n, x);
    }

    template <int C> void backward(std::int32_t p, T* x) const {
        const std::int64_t w = plan.width(p), h = plan.height[p];
        const T* a = storage + plan.place[p];
        T* y = x + plan.first[p];
        gather<C>(h - w, w, a + w, h, plan.rows_of(p) + w, y, plan.n, x);
        solve_lower_transposed<C, false>(w, a, h, y, plan.n);
    }

    template <int C> void run(T* x, bool) const {
        for (std::int32_t p = 0; p < plan.panels; ++p) forward<C>(p, x);
        for (std::int32_t p = plan.panels - 1; p >= 0; --p) backward<C>(p, x);
    }
};

template <class T> std::int64_t sparse_solve_workspace(const PlanView& plan, std::int64_t, int threads) {
    Arena arena{nullptr};
    arena.take<Phase>(1);
    for (int member = 0; member < threads; ++member) SideScratch<T>(plan, arena);
    return arena.used;
}

template <class T>
void sparse_solve(const PlanView& plan, const T* storage, const std::int32_t* pivots, bool transpose,
                  std::int64_t columns, T* b, int threads, void* workspace) {
    if (columns == 0 || plan.n == 0) return;
    Arena arena{static_cast<char*>(workspace)};
    Phase* phase = arena.take<Phase>(1);
    arena.clear();
    Arena one{nullptr};
    SideScratch<T>(plan, one);
    char* base = static_cast<char*>(workspace) + arena.used;
    // Groups of four columns, then single ones.
    const std::int64_t groups = columns / side_columns, tasks = groups + columns % side_columns;
    auto body = [&](int member) {
        Arena part{base + member * one.used};
        const SparseSolve<T> solve{plan, storage, pivots, SideScratch<T>(plan, part)};
        share(*phase, tasks, [&](std::int64_t task) {
            if (task < groups) solve.template run<side_columns>(b + task * side_columns * plan.n, transpose);
            else solve.template run<1>(b + (groups * side_columns + task - groups) * plan.n, transpose);
        });
    };
    run_together(tasks < threads ? static_cast<int>(tasks) : threads, body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
