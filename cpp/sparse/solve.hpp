// Substitution with supernodal factors, for one or four right-hand sides at a time. The columns of a
// panel are consecutive entries of x; the rows below are gathered or scattered.
//
// Substitution forward goes through the subtrees of all tasks first. They are independent but for
// rows above them, for which each keeps its sums apart. Then come the panels above, forward and
// backward, and then the tasks backward. Threads share the tasks, or groups of right-hand sides.
#pragma once

#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "native/matvec.hpp"
#include "sparse/diagonal.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using sparse::Kind;
using sparse::PlanView;

constexpr std::int64_t side_columns = 4;  // right-hand sides that are solved for together

constexpr double threaded_numbers = 1e6;  // stored; below, starting a thread takes as long as the work

// What each thread needs for itself, for `sides` right-hand sides at a time. `outside` must be zero.
template <class T> struct SideScratch {
    T *below, *block, *unit, *outside, *contributions;
    SideScratch(const PlanView& plan, std::int64_t sides, Arena& arena) {
        outside = arena.take<T>(sides * plan.n);
        below = arena.take<T>(sides * plan.tallest);
        block = arena.take<T>(sparse::widest);
        unit = arena.take<T>(sparse::widest * sparse::widest);
        contributions = arena.take<T>(sides * plan.contributions);
    }
};

inline std::int64_t sides_of(std::int64_t columns) { return columns < side_columns ? 1 : side_columns; }

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
inline void solve_lower_transposed(std::int64_t n, const T* a, std::int64_t step, T* x,
                                   std::int64_t x_step) {
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

// The same for the upper triangle.
template <int C, class T>
inline void solve_upper(std::int64_t n, const T* a, std::int64_t step, T* x, std::int64_t x_step) {
    for (std::int64_t k = (n - 1) / 8 * 8; k >= 0; k -= 8) {
        const std::int64_t end = k + 8 < n ? k + 8 : n;
        for (int c = 0; c < C; ++c)
            for (std::int64_t j = end - 1; j >= k; --j) {
                x[j + c * x_step] /= a[j + j * step];
                for (std::int64_t i = k; i < j; ++i)
                    x[i + c * x_step] -= a[i + j * step] * x[j + c * x_step];
            }
        if (k > 0) subtract_product<C>(k, end - k, a + k * step, step, x + k, x_step, x, x_step);
    }
}

template <int C, class T>
inline void solve_upper_transposed(std::int64_t n, const T* a, std::int64_t step, T* x,
                                   std::int64_t x_step) {
    for (std::int64_t k = 0; k < n; k += 8) {
        const std::int64_t end = k + 8 < n ? k + 8 : n;
        if (k > 0)
            dot_columns<C>(k, end - k, a + k * step, step, x, x_step,
                           [&](std::int64_t j, int c, T value) { x[k + j + c * x_step] -= value; });
        for (int c = 0; c < C; ++c)
            for (std::int64_t j = k; j < end; ++j) {
                T sum = x[j + c * x_step];
                for (std::int64_t i = k; i < j; ++i) sum -= a[i + j * step] * x[i + c * x_step];
                x[j + c * x_step] = sum / a[j + j * step];
            }
    }
}

template <class T> struct SparseSolve {
    const PlanView& plan;
    const T* storage;
    const std::int32_t* pivots;
    SideScratch<T> scratch;

    // x[rows] -= A (m x k) y for the rows of panel p below its block on the diagonal; sums for rows
    // above its task go into scratch.outside.
    template <int C>
    void scatter(std::int32_t p, const T* a, std::int64_t step, const T* y, T* x) const {
        const std::int64_t k = plan.width(p), m = plan.height[p] - k, inside = plan.inside[p] - k;
        const std::int32_t* rows = plan.rows_of(p) + k;
        if (m == 0) return;
        for (int c = 0; c < C; ++c)
            std::memset(scratch.below + c * m, 0, static_cast<std::size_t>(m) * sizeof(T));
        subtract_product<C>(m, k, a, step, y, plan.n, scratch.below, m);
        for (int c = 0; c < C; ++c) {
            const T* sums = scratch.below + c * m;
            for (std::int64_t i = 0; i < inside; ++i) x[rows[i] + c * plan.n] += sums[i];
            for (std::int64_t i = inside; i < m; ++i) scratch.outside[rows[i] + c * plan.n] += sums[i];
        }
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

    // y[i] = y[perm[i]], or back.
    template <int C> void permute(std::int32_t p, bool back, T* y) const {
        const std::int64_t w = plan.width(p);
        const std::int32_t* perm = pivots + plan.first[p];
        for (int c = 0; c < C; ++c, y += plan.n) {
            for (std::int64_t i = 0; i < w; ++i) scratch.block[i] = y[i];
            for (std::int64_t i = 0; i < w; ++i) {
                const std::int32_t j = perm[i] < 0 ? ~perm[i] : perm[i];
                (back ? y[j] : y[i]) = scratch.block[back ? i : j];
            }
        }
    }

    // A panel's part of the factor that is applied first or last: L (or U' of lu), or its transpose.
    template <int C, Kind kind, bool transpose> void forward(std::int32_t p, T* x) const {
        const std::int64_t w = plan.width(p), h = plan.height[p];
        const T *a = storage + plan.place[p], *upper = a + w * h;
        T* y = x + plan.first[p];
        if constexpr (kind == Kind::cholesky) {
            solve_lower<C, false>(w, a, h, y, plan.n);
        } else if constexpr (kind == Kind::ldl) {
            permute<C>(p, false, y);
            solve_lower<C, true>(w, unit_block(p), w, y, plan.n);
        } else if constexpr (transpose) {
            solve_upper_transposed<C>(w, a, h, y, plan.n);
            scatter<C>(p, upper, h - w, y, x);
            return;
        } else {
            permute<C>(p, false, y);
            solve_lower<C, true>(w, a, h, y, plan.n);
        }
        scatter<C>(p, a + w, h, y, x);
        if constexpr (kind == Kind::ldl) divide<C>(p, y);
    }

    template <int C, Kind kind, bool transpose> void backward(std::int32_t p, T* x) const {
        const std::int64_t w = plan.width(p), h = plan.height[p];
        const T *a = storage + plan.place[p], *upper = a + w * h;
        const std::int32_t* rows = plan.rows_of(p) + w;
        T* y = x + plan.first[p];
        if constexpr (kind == Kind::lu && !transpose) {
            gather<C>(h - w, w, upper, h - w, rows, y, plan.n, x);
            solve_upper<C>(w, a, h, y, plan.n);
            return;
        }
        gather<C>(h - w, w, a + w, h, rows, y, plan.n, x);
        if constexpr (kind == Kind::cholesky) {
            solve_lower_transposed<C, false>(w, a, h, y, plan.n);
        } else if constexpr (kind == Kind::ldl) {
            solve_lower_transposed<C, true>(w, unit_block(p), w, y, plan.n);
            permute<C>(p, true, y);
        } else {
            solve_lower_transposed<C, true>(w, a, h, y, plan.n);
            permute<C>(p, true, y);
        }
    }

    // The block of L on the diagonal, without the entries of D below it.
    const T* unit_block(std::int32_t p) const {
        const std::int64_t w = plan.width(p), h = plan.height[p];
        const T* a = storage + plan.place[p];
        const std::int32_t* perm = pivots + plan.first[p];
        for (std::int64_t j = 0; j < w; ++j) {
            std::memcpy(scratch.unit + j * w, a + j * h, static_cast<std::size_t>(w) * sizeof(T));
            if (perm[j] < 0) scratch.unit[j + 1 + j * w] = 0;
        }
        return scratch.unit;
    }

    template <int C> void divide(std::int32_t p, T* y) const {
        const std::int64_t w = plan.width(p);
        // As one row of X D^-1 for each column of y.
        for (int c = 0; c < C; ++c)
            divide_by_pivots<T>(1, w, storage + plan.place[p], plan.height[p], pivots + plan.first[p],
                                y + c * plan.n, 1);
    }

    template <int C, Kind kind, bool transpose> void forward_task(std::int64_t task, T* x, T* kept) const {
        for (std::int32_t i = plan.task_start[task]; i < plan.task_start[task + 1]; ++i) {
            const std::int32_t p = plan.task_panels[i];
            forward<C, kind, transpose>(p, x);
            if (plan.contribution[p] < 0) continue;
            T* target = kept + plan.contribution[p] * C;
            for (std::int64_t row = plan.inside[p]; row < plan.height[p]; ++row)
                for (int c = 0; c < C; ++c) {
                    T& sum = scratch.outside[plan.rows_of(p)[row] + c * plan.n];
                    *target++ = sum;
                    sum = 0;
                }
        }
    }

    // The panels that have no task.
    template <int C, Kind kind, bool transpose> void above_tasks(T* x, const T* kept) const {
        for (std::int32_t p = 0; p < plan.panels; ++p) {
            if (plan.contribution[p] < 0) continue;
            const T* source = kept + plan.contribution[p] * C;
            for (std::int64_t row = plan.inside[p]; row < plan.height[p]; ++row)
                for (int c = 0; c < C; ++c) x[plan.rows_of(p)[row] + c * plan.n] += *source++;
        }
        const std::int32_t begin = plan.task_start[plan.tasks], end = plan.task_start[plan.tasks + 1];
        for (std::int32_t i = begin; i < end; ++i) forward<C, kind, transpose>(plan.task_panels[i], x);
        for (std::int32_t i = end - 1; i >= begin; --i)
            backward<C, kind, transpose>(plan.task_panels[i], x);
    }

    template <int C, Kind kind, bool transpose> void backward_task(std::int64_t task, T* x) const {
        for (std::int32_t i = plan.task_start[task + 1] - 1; i >= plan.task_start[task]; --i)
            backward<C, kind, transpose>(plan.task_panels[i], x);
    }

    // By one thread if `phases` is null, else by all that call this with the same memory `kept`.
    template <int C, Kind kind, bool transpose> void run_as(T* x, T* kept, Phase* phases) const {
        const auto each = [&](int which, const auto& run, const auto& finish) {
            if (phases == nullptr) {
                for (std::int64_t task = 0; task < plan.tasks; ++task) run(task);
                finish();
            } else if (plan.tasks > 0) {
                share(phases[which], plan.tasks, run, finish);
            } else {
                share(phases[which], 1, [&](std::int64_t) { finish(); });
            }
        };
        each(0, [&](std::int64_t task) { forward_task<C, kind, transpose>(task, x, kept); },
             [&] { above_tasks<C, kind, transpose>(x, kept); });
        each(1, [&](std::int64_t task) { backward_task<C, kind, transpose>(task, x); }, [] {});
    }

    template <int C> void run(T* x, bool transpose, T* kept, Phase* phases) const {
        if (plan.kind == Kind::cholesky) run_as<C, Kind::cholesky, false>(x, kept, phases);
        else if (plan.kind == Kind::ldl) run_as<C, Kind::ldl, false>(x, kept, phases);
        else if (transpose) run_as<C, Kind::lu, true>(x, kept, phases);
        else run_as<C, Kind::lu, false>(x, kept, phases);
    }
};

template <class T>
std::int64_t sparse_solve_workspace(const PlanView& plan, std::int64_t columns, int threads) {
    Arena arena{nullptr};
    arena.take<Phase>(1 + 2 * columns);
    Arena one{nullptr};
    SideScratch<T>(plan, sides_of(columns), one);
    return arena.used + threads * one.used;
}

template <class T>
void sparse_solve(const PlanView& plan, const T* storage, const std::int32_t* pivots, bool transpose,
                  std::int64_t columns, T* b, int threads, void* workspace) {
    if (columns == 0 || plan.n == 0) return;
    Arena arena{static_cast<char*>(workspace)};
    Phase* phase = arena.take<Phase>(1 + 2 * columns);
    arena.clear();
    Arena one{nullptr};
    SideScratch<T>(plan, sides_of(columns), one);
    char* base = static_cast<char*>(workspace) + arena.used;
    // Groups of four columns, then single ones. Enough of them are a task each; else threads share
    // the subtrees of one after the other.
    const std::int64_t groups = columns / side_columns, tasks = groups + columns % side_columns;
    const auto numbers = static_cast<double>(plan.place[plan.panels] * columns);
    const int used = numbers < threaded_numbers ? 1 : threads;
    const bool share_groups = tasks >= used;
    Arena first{base};
    T* kept = SideScratch<T>(plan, sides_of(columns), first).contributions;  // where threads share a group
    auto body = [&](int member) {
        Arena part{base + member * one.used};
        const SparseSolve<T> solve{plan, storage, pivots, SideScratch<T>(plan, sides_of(columns), part)};
        const auto numbers_outside = static_cast<std::size_t>(sides_of(columns) * plan.n);
        std::memset(solve.scratch.outside, 0, numbers_outside * sizeof(T));
        const auto run = [&](std::int64_t task, T* memory, Phase* phases) {
            const std::int64_t j = task < groups ? task * side_columns : groups * side_columns + task - groups;
            T* x = b + j * plan.n;
            if (task < groups) solve.template run<side_columns>(x, transpose, memory, phases);
            else solve.template run<1>(x, transpose, memory, phases);
        };
        if (share_groups)
            share(*phase, tasks,
                  [&](std::int64_t task) { run(task, solve.scratch.contributions, nullptr); });
        else
            for (std::int64_t task = 0; task < tasks; ++task) run(task, kept, phase + 1 + 2 * task);
    };
    run_together(used, body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
