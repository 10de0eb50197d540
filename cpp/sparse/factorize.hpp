// Left-looking supernodal factorization; see plan_view.hpp for the order of its work and of its numbers.
//
// First, threads claim tasks, which are whole subtrees. Then they work together on one panel after
// the other: on blocks of its rows, which are updated, then on the block on the diagonal (one
// thread), then on the rows below it.
#pragma once

#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "sparse/diagonal.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using sparse::Kind;
using sparse::PlanView;
using sparse::Report;
using sparse::Result;
using sparse::Update;
using sparse::widest;

constexpr std::int64_t product_rows = 256;  // of a product that is computed before it is subtracted
constexpr std::int64_t shared_rows = 192;   // of a panel that one thread works on
constexpr double threaded_flops = 5e6;      // below, starting a thread takes as long as the work
constexpr double shared_work = 2e5;         // operations from which on threads share a panel

// What each thread needs for itself.
template <class T> struct Scratch {
    std::int32_t *position, *relative;  // of each row in the panel `mapped`; of the rows of an update
    std::int64_t mapped = -1;
    T *product, *packed, *columns, *triangle, *inverse;

    Scratch(const PlanView& plan, Arena& arena) {
        constexpr std::int64_t vector = Lanes<T>::count;
        position = arena.take<std::int32_t>(plan.n);
        relative = arena.take<std::int32_t>(plan.tallest);
        product = arena.take<T>((product_rows + 2 * vector) * widest);
        packed = arena.take<T>(2 * vector * strip_products);
        columns = arena.take<T>(widest * widest);
        triangle = arena.take<T>(widest * widest);
        inverse = arena.take<T>(widest);
    }
};

// The two phases of a panel that threads share.
struct Turn {
    Phase update, rows;
};

template <class T, Kind kind> struct SparseFactorization {
    const PlanView& plan;
    const T* values;
    T* storage;
    std::int32_t* pivots;
    T tiny;
    std::int64_t deadline;
    Phase* subtrees;
    Turn* turns;
    std::int32_t failed;  // the first column where a factorization stopped, or n
    Result result = Result::done;
    std::int64_t replaced = 0;

    // A panel, with names for its parts.
    struct Panel {
        std::int64_t width, height;
        const std::int32_t* rows;
        T *lower, *upper;  // upper: the transposed rows of U
        std::int64_t below() const { return height - width; }
    };

    Panel panel(std::int32_t p) const {
        const std::int64_t width = plan.width(p), height = plan.height[p];
        T* lower = storage + plan.place[p];
        return {width, height, plan.rows_of(p), lower, lower + width * height};
    }

    // Sets rows begin..end of a panel to zero.
    void clear(const Panel& j, std::int64_t begin, std::int64_t end) const {
        const auto set_zero = [](T* x, std::int64_t columns, std::int64_t step, std::int64_t from,
                                 std::int64_t to) {
            if (from == 0 && to == step)
                std::memset(x, 0, static_cast<std::size_t>(step * columns) * sizeof(T));
            else
                for (std::int64_t c = 0; c < columns; ++c)
                    std::memset(x + from + c * step, 0, static_cast<std::size_t>(to - from) * sizeof(T));
        };
        set_zero(j.lower, j.width, j.height, begin, end);
        if (kind == Kind::lu && end > j.width)
            set_zero(j.upper, j.width, j.below(), begin > j.width ? begin - j.width : 0, end - j.width);
    }

    void add_entries(const Panel& j, std::int32_t p) const {
        for (std::int64_t e = plan.entry_start[p]; e < plan.entry_start[p + 1]; ++e)
            j.lower[plan.target[e]] += values[plan.source[e]];
    }

    void map_rows(const Panel& j, std::int32_t p, Scratch<T>& scratch) const {
        if (scratch.mapped == p) return;
        for (std::int64_t i = 0; i < j.height; ++i)
            scratch.position[j.rows[i]] = static_cast<std::int32_t>(i);
        scratch.mapped = p;
    }

    // target(relative[i], column[c] - first) -= (A B')(i, c) for the m rows of A; of the lower triangle
    // alone if A's row 0 is row `offset` of B.
    void subtract_update(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_step,
                         const T* b, std::int64_t b_step, const std::int32_t* relative,
                         const std::int32_t* columns, std::int32_t first, T* target,
                         std::int64_t target_step, std::int64_t offset, Scratch<T>& scratch) const {
        if (relative[m - 1] - relative[0] == m - 1 && columns[n - 1] - columns[0] == n - 1) {
            T* c = target + relative[0] + (columns[0] - first) * target_step;
            multiply<true>(m, n, k, a, a_step, b, b_step, c, target_step, offset, scratch.packed);
            return;
        }
        constexpr std::int64_t lanes = 2 * Lanes<T>::count;
        for (std::int64_t begin = 0; begin < m; begin += product_rows) {
            const std::int64_t rows = m - begin < product_rows ? m - begin : product_rows;
            const std::int64_t step = (rows + lanes - 1) / lanes * lanes;
            multiply<false>(rows, n, k, a + begin, a_step, b, b_step, scratch.product, step, offset + begin,
                            scratch.packed);
            const std::int32_t* places = relative + begin;
            for (std::int64_t c = 0; c < n; ++c) {
                T* column = target + (columns[c] - first) * target_step;
                const T* product = scratch.product + c * step;
                const std::int64_t skipped = c - offset - begin;
                for (std::int64_t i = skipped > 0 ? skipped : 0; i < rows; ++i)
                    column[places[i]] -= product[i];
            }
        }
    }

    // The first of the rows begin..end that is not less than `row`.
    static std::int64_t find_row(const std::int32_t* rows, std::int64_t begin, std::int64_t end,
                                 std::int32_t row) {
        while (begin < end) {
            const std::int64_t middle = (begin + end) / 2;
            if (rows[middle] < row) begin = middle + 1;
            else end = middle;
        }
        return begin;
    }

    // Applies all updates to rows begin..end of a panel.
    void update(std::int32_t p, std::int64_t begin, std::int64_t end, Scratch<T>& scratch) const {
        const Panel j = panel(p);
        const std::int32_t first = plan.first[p];
        map_rows(j, p, scratch);
        for (std::int64_t u = plan.update_start[p]; u < plan.update_start[p + 1]; ++u) {
            const Update& source = plan.updates[u];
            const Panel k = panel(source.source);
            const std::int64_t n = source.end - source.begin;
            const std::int64_t low =
                begin == 0 ? source.begin : find_row(k.rows, source.begin, k.height, j.rows[begin]);
            const std::int64_t high =
                end == j.height ? k.height : find_row(k.rows, low, k.height, j.rows[end]);
            if (low >= high) continue;
            for (std::int64_t i = low; i < high; ++i)
                scratch.relative[i - low] = scratch.position[k.rows[i]];
            const std::int32_t* columns = k.rows + source.begin;
            const auto subtract = [&](const T* a, std::int64_t a_step, std::int64_t from, const T* b,
                                      std::int64_t b_step, T* target, std::int64_t step,
                                      std::int64_t offset) {
                if (from < high)
                    subtract_update(high - from, n, k.width, a + from, a_step, b, b_step,
                                    scratch.relative + from - low, columns, first, target, step, offset,
                                    scratch);
            };
            if constexpr (kind == Kind::lu) {
                // Rows of U begin with row `width` of the panel.
                const T* upper = k.upper - k.width;
                subtract(k.lower, k.height, low, upper + source.begin, k.below(), j.lower, j.height, n);
                subtract(upper, k.below(), low < source.end ? source.end : low, k.lower + source.begin,
                         k.height, j.upper - j.width, j.below(), n);
            } else {
                const T* b = k.lower + source.begin;
                if constexpr (kind == Kind::ldl)
                    multiply_by_pivots(n, k.width, k.lower, k.height, pivots + plan.first[source.source], b,
                                       k.height, scratch.columns, n);
                const bool copied = kind == Kind::ldl;
                subtract(k.lower, k.height, low, copied ? scratch.columns : b, copied ? n : k.height,
                         j.lower, j.height, low - source.begin);
            }
        }
    }

    // Factorizes the block on the diagonal.
    bool factorize_diagonal(std::int32_t p, Scratch<T>& scratch) {
        const Panel j = panel(p);
        Pivoting<T> pivoting{tiny, scratch.packed, scratch.columns};
        std::int32_t* perm = pivots + plan.first[p];
        std::int64_t stopped;
        if constexpr (kind == Kind::cholesky)
            stopped = cholesky_diagonal(j.width, j.lower, j.height, pivoting);
        else if constexpr (kind == Kind::ldl)
            stopped = ldl_diagonal(j.width, j.lower, j.height, perm, pivoting);
        else
            stopped = lu_diagonal(j.width, j.lower, j.height, perm, pivoting);
        if (pivoting.replaced > 0) __atomic_add_fetch(&replaced, pivoting.replaced, __ATOMIC_RELAXED);
        if (stopped >= 0) fail(static_cast<std::int32_t>(plan.first[p] + stopped), pivoting.result);
        return stopped < 0;
    }

    // Reorders the columns of the rows of X as the rows of a block were exchanged.
    void permute_columns(std::int64_t m, std::int64_t n, T* x, std::int64_t step, const std::int32_t* perm,
                         Scratch<T>& scratch) const {
        bool changed = false;
        for (std::int64_t c = 0; c < n; ++c) changed = changed || (perm[c] < 0 ? ~perm[c] : perm[c]) != c;
        if (!changed) return;
        for (std::int64_t begin = 0; begin < m; begin += product_rows) {
            const std::int64_t rows = m - begin < product_rows ? m - begin : product_rows;
            const std::size_t bytes = static_cast<std::size_t>(rows) * sizeof(T);
            for (std::int64_t c = 0; c < n; ++c) {
                const std::int64_t from = perm[c] < 0 ? ~perm[c] : perm[c];
                std::memcpy(scratch.product + c * rows, x + begin + from * step, bytes);
            }
            for (std::int64_t c = 0; c < n; ++c)
                std::memcpy(x + begin + c * step, scratch.product + c * rows, bytes);
        }
    }

    // Solves for rows begin..end, which lie below that block.
    void solve(std::int32_t p, std::int64_t begin, std::int64_t end, Scratch<T>& scratch) const {
        if (begin >= end) return;
        const Panel j = panel(p);
        const std::int64_t m = end - begin, w = j.width;
        const std::int32_t* perm = pivots + plan.first[p];
        T *x = j.lower + begin, *inverse = scratch.inverse, *triangle = scratch.triangle;
        if constexpr (kind != Kind::ldl)
            for (std::int64_t c = 0; c < w; ++c) inverse[c] = 1 / j.lower[c + c * j.height];
        if constexpr (kind == Kind::cholesky) {
            solve_rows<false>(m, w, x, j.height, j.lower, j.height, inverse);
        } else if constexpr (kind == Kind::lu) {
            for (std::int64_t c = 0; c < w; ++c)
                for (std::int64_t l = 0; l <= c; ++l) triangle[c + l * w] = j.lower[l + c * j.height];
            solve_rows<false>(m, w, x, j.height, triangle, w, inverse);
            T* upper = j.upper + begin - w;
            permute_columns(m, w, upper, j.below(), perm, scratch);
            solve_rows<true>(m, w, upper, j.below(), j.lower, j.height, inverse);
        } else {
            for (std::int64_t c = 0; c < w; ++c)
                for (std::int64_t i = c + 1; i < w; ++i)
                    triangle[i + c * w] = i == c + 1 && perm[c] < 0 ? T(0) : j.lower[i + c * j.height];
            permute_columns(m, w, x, j.height, perm, scratch);
            solve_rows<true>(m, w, x, j.height, triangle, w, inverse);
            divide_by_pivots(m, w, j.lower, j.height, perm, x, j.height);
        }
    }

    // Of several failures, that of the first column counts. Panels before this column are still
    // factorized, so that the column does not depend on the threads.
    void fail(std::int32_t column, Result why) {
        while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE)) {}
        if (column < failed) {
            __atomic_store_n(&failed, column, __ATOMIC_RELAXED);
            result = why;
        }
        __atomic_clear(&locked, __ATOMIC_RELEASE);
    }
    bool locked = false;

    bool must_stop(std::int32_t p) {
        if (is_past(deadline)) fail(-1, Result::stopped);
        return plan.first[p] > __atomic_load_n(&failed, __ATOMIC_RELAXED);
    }

    // By one thread.
    void factorize(std::int32_t p, Scratch<T>& scratch) {
        const Panel j = panel(p);
        clear(j, 0, j.height);
        add_entries(j, p);
        update(p, 0, j.height, scratch);
        if (factorize_diagonal(p, scratch))
            solve(p, j.width, j.height, scratch);
    }

    // By all threads.
    void factorize_together(std::int32_t p, std::int64_t parts, Turn& turn, Scratch<T>& scratch) {
        const Panel j = panel(p);
        const auto end_of = [](std::int64_t begin, std::int64_t end) {
            return begin + shared_rows < end ? begin + shared_rows : end;
        };
        share(turn.update, parts,
              [&](std::int64_t part) {
                  if (must_stop(p)) return;
                  const std::int64_t begin = part * shared_rows;
                  clear(j, begin, end_of(begin, j.height));
                  update(p, begin, end_of(begin, j.height), scratch);
              },
              [&] {
                  if (must_stop(p)) return;
                  add_entries(j, p);
                  factorize_diagonal(p, scratch);
              });
        if (j.below() == 0) return;
        share(turn.rows, ceil_div(j.below(), shared_rows), [&](std::int64_t part) {
            if (plan.first[p + 1] > __atomic_load_n(&failed, __ATOMIC_RELAXED)) return;
            const std::int64_t begin = j.width + part * shared_rows;
            solve(p, begin, end_of(begin, j.height), scratch);
        });
    }

    double work_of(std::int32_t p) const {
        double work = 0;
        for (std::int64_t u = plan.update_start[p]; u < plan.update_start[p + 1]; ++u) {
            const Update& source = plan.updates[u];
            work += 2.0 * plan.width(source.source) * (source.end - source.begin) *
                    (plan.height[source.source] - source.begin);
        }
        return work + static_cast<double>(plan.width(p)) * plan.width(p) * plan.height[p];
    }

    void run(Scratch<T>& scratch) {
        if (plan.tasks > 0)
            share(*subtrees, plan.tasks, [&](std::int64_t task) {
                for (std::int32_t i = plan.task_start[task]; i < plan.task_start[task + 1]; ++i) {
                    if (must_stop(plan.task_panels[i])) return;
                    factorize(plan.task_panels[i], scratch);
                }
            });
        Turn* turn = turns;
        const std::int32_t end = plan.task_start[plan.tasks + 1];
        for (std::int32_t i = plan.task_start[plan.tasks]; i < end; ++i, ++turn) {
            const std::int32_t p = plan.task_panels[i];
            const std::int64_t parts = ceil_div(plan.height[p], shared_rows);
            if (parts > 1 && work_of(p) >= shared_work)
                factorize_together(p, parts, *turn, scratch);
            else
                share(turn->update, 1, [&](std::int64_t) {
                    if (!must_stop(p)) factorize(p, scratch);
                });
        }
    }
};

struct FactorizationMemory {
    Phase* subtrees;
    Turn* turns;
    FactorizationMemory(const PlanView& plan, Arena& arena) {
        subtrees = arena.take<Phase>(1);
        turns = arena.take<Turn>(plan.task_start[plan.tasks + 1] - plan.task_start[plan.tasks]);
        arena.clear();
    }
};

template <class T> std::int64_t sparse_workspace(const PlanView& plan, int threads) {
    Arena arena{nullptr};
    FactorizationMemory(plan, arena);
    for (int member = 0; member < threads; ++member) Scratch<T>(plan, arena);
    return arena.used;
}

template <class T, Kind kind>
Report factorize_as(const PlanView& plan, const T* values, T* storage, std::int32_t* pivots, T tiny,
                    std::int64_t deadline, int threads, void* workspace) {
    Arena arena{static_cast<char*>(workspace)};
    const FactorizationMemory memory(plan, arena);
    SparseFactorization<T, kind> factorization{plan, values, storage, pivots, tiny, deadline, memory.subtrees,
                                               memory.turns, plan.n};
    Arena one{nullptr};
    Scratch<T>(plan, one);
    char* base = static_cast<char*>(workspace) + arena.used;
    auto body = [&](int member) {
        Arena part{base + member * one.used};
        Scratch<T> scratch(plan, part);
        factorization.run(scratch);
    };
    run_together(plan.flops < threaded_flops ? 1 : threads, body);
    const bool done = factorization.result == Result::done;
    return {factorization.result, done ? 0 : factorization.failed, factorization.replaced};
}

template <class T>
Report sparse_factorize(const PlanView& plan, const T* values, T* storage, std::int32_t* pivots, T tiny,
                        std::int64_t deadline, int threads, void* workspace) {
    const auto run = plan.kind == Kind::cholesky ? factorize_as<T, Kind::cholesky>
                     : plan.kind == Kind::ldl    ? factorize_as<T, Kind::ldl>
                                                 : factorize_as<T, Kind::lu>;
    return run(plan, values, storage, pivots, tiny, deadline, threads, workspace);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
