// The order of work of a blocked factorization with threads, shared by LU and Cholesky.
//
// The matrix is cut into panels of columns. Step s has panel s, which is factorized already, and
// updates the columns to its right. It is a list of tasks, claimed in order:
//
//   pack     some rows of the panel (LU only): the team leaves it to all threads, each of which then has
//            them in its cache
//   solve    for some columns of the next panel: interchanges, and rows of U (LU only)
//   update   a block of rows of some columns of the next panel: subtract a product
//   join     the team that factorizes the next panel; several members
//   solve, update   the same for all columns right of the next panel
//
// So the next panel is factorized while other threads update. A task waits only for tasks that were
// claimed before it, those that pack and those of its columns: the threads never meet all at once. A thread that starts
// late, or that the system refused to start, delays nobody. How work is cut may depend on the number
// of threads, because each number is computed by the same operations whatever the cut.
#pragma once

#include "native/arena.hpp"
#include "native/team.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

#if !defined(ROUNDWISE_TEAM_ROWS)  // tests have smaller matrices
#define ROUNDWISE_TEAM_ROWS 1500
#endif

constexpr std::int64_t team_rows = ROUNDWISE_TEAM_ROWS;  // of a panel that is factorized by a team, at least
constexpr std::int64_t widest_panel = 256;
constexpr std::int64_t solved_columns = 96;   // of a task that solves, at most
constexpr std::int64_t updated_columns = 384; // of a task that updates, at most

// The width of the next panel when `order` columns are left. Wide panels suit large matrices: each
// entry is read from memory less often. Narrow ones suit small matrices, where many threads would wait
// for a panel, and two are as fast with either.
inline std::int64_t panel_width(std::int64_t order) {
    const std::int64_t width = order > 1500 ? 256 : order > 1000 ? 128 : 64;
    return order < width ? order : width;
}

// How some columns of a step are cut into tasks.
struct Cut {
    std::int64_t begin, end;                  // the columns
    std::int64_t row;                         // the first row to update
    std::int64_t strip;                       // where their packed strips start
    std::int64_t solve_width, width, height;  // columns of a task that solves, and size of one that updates
    std::int64_t row_blocks;

    std::int64_t solves() const { return ceil_div(end - begin, solve_width); }
    std::int64_t chunks() const { return ceil_div(end - begin, width); }
    std::int64_t updates() const { return chunks() * row_blocks; }

    // Halves the tasks until there are `enough` of them.
    void refine(std::int64_t rows, std::int64_t enough) {
        row_blocks = ceil_div(rows, height);
        while (updates() < enough && (width > 96 || height > 64)) {
            if (width > 96) width /= 2;
            else height /= 2;
            row_blocks = ceil_div(rows, height);
        }
    }
};

// What a step does, computed alike by every member.
struct StepPlan {
    std::int64_t begin, width;  // of the panel
    Cut ahead, rest;
    int team;
    std::int64_t packs, packed_rows;  // tasks that pack, and the rows of each
};

// The state of a step, zero at the start.
struct alignas(64) Step {
    std::int64_t claimed;
    alignas(64) std::int64_t packed;     // tasks done that pack
    alignas(64) std::int64_t completed;  // tasks that solve or update
    alignas(64) std::int64_t ahead;      // tasks done that update the next panel
    alignas(64) std::int64_t joined;     // members of the team of this step's own panel, or `closed` more
    std::int64_t team;                   // how many these are, once it is decided
    int factorized, code;                // of this step's own panel
};

constexpr std::int64_t closed_team = 1 << 20;
constexpr int returned_early = -2;  // no code of a factorization

// Work does the tasks:
//   static constexpr bool packs, solves;        whether there are such tasks
//   static constexpr int team_weight;           time of a panel's operation over that of an update's
//   void begin(panel, begin, width), int factorize(panel, member)   the latter by each of a team
//   void pack(panel, i, rows), void solve(panel, j, count, strip)
//   void update(panel, i, rows, j, count, strip)
// `panel` is 0 or 1: there is memory for two packed panels.
template <class Work> struct Pipeline {
    using T = typename Work::T;
    Work& work;
    std::int64_t n;
    int threads;
    Step* steps;
    Table<T>* table;
    std::int64_t* counters;  // `slots` for each step

    // Rows of a task that updates, at most: a packed block of so many fits the second cache.
    static constexpr std::int64_t updated_rows = sizeof(T) == 8 ? 256 : 512;

    static std::int64_t count_steps(std::int64_t n) {
        std::int64_t count = 0;
        for (std::int64_t begin = 0; begin < n; begin += panel_width(n - begin)) ++count;
        return count;
    }
    static std::int64_t slots(std::int64_t n) { return 2 * (ceil_div(n, Work::columns) + 8); }

    Pipeline(Work& tasks, std::int64_t order, int members, Arena& arena)
        : work(tasks), n(order), threads(members) {
        const std::int64_t count = count_steps(n), start = arena.used;
        steps = arena.take<Step>(count);
        table = arena.take<Table<T>>(1);
        counters = arena.take<std::int64_t>(count * slots(n));
        arena.clear(start);
    }

    // A team tells each other a few cache lines for every column, which takes longer than to factorize a
    // short column alone. And where other processes take cores away, all wait for the member that lost one.
    int largest_team_for(std::int64_t rows) const {
        if (threads < 4 || rows < team_rows) return 1;
        const std::int64_t members = ceil_div(6 * rows, team_rows);
        const std::int64_t most = threads < largest_team ? threads : largest_team;
        return static_cast<int>(members < most ? members : most);
    }

    // So many that the panel takes about as long as the update beside it.
    int team_for(std::int64_t rows, std::int64_t width) const {
        const std::int64_t panel = Work::team_weight * width, update = 2 * rows;
        std::int64_t members = (threads * panel + (panel + update) / 2) / (panel + update);
        const int most = largest_team_for(rows);
        return members < 1 ? 1 : members < most ? static_cast<int>(members) : most;
    }

    StepPlan plan(std::int64_t begin, std::int64_t width) const {
        const std::int64_t next = begin + width, next_width = panel_width(n - next), rows = n - next;
        StepPlan p{begin, width, {}, {}, team_for(rows, next_width), 0, 0};
        if (Work::packs) {
            p.packed_rows = ceil_div(ceil_div(rows, owned_rows), 2 * threads) * owned_rows;
            p.packs = ceil_div(rows, p.packed_rows);
        }
        const std::int64_t wide = ceil_div(solved_columns, Work::columns) * Work::columns;
        std::int64_t narrow = ceil_div(ceil_div(next_width, threads), Work::columns) * Work::columns;
        if (narrow > wide) narrow = wide;
        p.ahead = {next, next + next_width, next, 0, narrow, solved_columns, updated_rows, 0};
        p.ahead.refine(rows, threads == 1 ? 1 : 2 * threads);
        p.rest = {next + next_width, n, next, ceil_div(next_width, Work::columns), wide, updated_columns,
                  updated_rows, 0};
        p.rest.refine(rows, threads == 1 ? 1 : 4 * threads);
        return p;
    }

    std::int64_t* solved(std::int64_t step) const { return counters + step * slots(n); }
    std::int64_t* updated(std::int64_t step) const { return solved(step) + slots(n) / 2; }

    // What each member does. Returns what Work::factorize returned, or `returned_early` if it was wanted back: other
    // members do what is left.
    int run(int member) const {
        std::int64_t width = panel_width(n);
        StepPlan now{}, before = now;
        join(0, 0, width, largest_team_for(n), now, before);  // there is nothing else to do
        std::int64_t begin = 0, step = 0;
        for (;; ++step) {
            wait_for(steps[step].factorized);
            if (steps[step].code != 0 || begin + width >= n) return steps[step].code;
            before = now;
            now = plan(begin, width);
            if (!do_tasks(step, now, before, member)) return returned_early;
            begin += width;
            width = panel_width(n - begin);
        }
    }

    // False if the member was wanted back before all tasks were claimed.
    bool do_tasks(std::int64_t step, const StepPlan& now, const StepPlan& before, int member) const {
        const std::int64_t next = now.begin + now.width;
        for (;;) {
            if (member != 0 && wanted_back()) return false;
            std::int64_t task = __atomic_fetch_add(&steps[step].claimed, 1, __ATOMIC_ACQ_REL);
            if (task < now.packs) {
                const std::int64_t i = next + task * now.packed_rows, left = n - i;
                if constexpr (Work::packs)
                    work.pack(step % 2, i, left < now.packed_rows ? left : now.packed_rows);
                __atomic_add_fetch(&steps[step].packed, 1, __ATOMIC_ACQ_REL);
                continue;
            }
            task -= now.packs;
            if (task < solve_count(now.ahead)) {
                solve(step, now.ahead, 0, task, before);
                continue;
            }
            task -= solve_count(now.ahead);
            if (task < now.ahead.updates()) {
                update(step, now, now.ahead, 0, 0, task, before);
                __atomic_add_fetch(&steps[step].ahead, 1, __ATOMIC_ACQ_REL);
                continue;
            }
            task -= now.ahead.updates();
            if (task < now.team) {
                join(step + 1, next, now.ahead.end - next, now.team, now, before);
                continue;
            }
            task -= now.team;
            if (task < solve_count(now.rest)) {
                solve(step, now.rest, solve_count(now.ahead), task, before);
                continue;
            }
            task -= solve_count(now.rest);
            if (task >= now.rest.updates()) return true;
            update(step, now, now.rest, solve_count(now.ahead), now.ahead.chunks(), task, before);
        }
    }

    static std::int64_t solve_count(const Cut& cut) { return Work::solves ? cut.solves() : 0; }
    static std::int64_t task_count(const StepPlan& p) {
        return solve_count(p.ahead) + p.ahead.updates() + solve_count(p.rest) + p.rest.updates();
    }

    // Waits until the step before has updated columns j..end.
    void wait_for_columns(std::int64_t step, std::int64_t j, std::int64_t end, const StepPlan& before) const {
        if (step == 0) return;
        const Cut& cut = before.rest;
        const std::int64_t first = (j - cut.begin) / cut.width, last = (end - 1 - cut.begin) / cut.width;
        for (std::int64_t chunk = first; chunk <= last; ++chunk)
            wait_until(updated(step - 1)[before.ahead.chunks() + chunk], cut.row_blocks);
    }

    void solve(std::int64_t step, const Cut& cut, std::int64_t offset, std::int64_t task,
               const StepPlan& before) const {
        const std::int64_t j = cut.begin + task * cut.solve_width;
        const std::int64_t end = cut.end - j < cut.solve_width ? cut.end : j + cut.solve_width;
        wait_for_columns(step, j, end, before);
        if constexpr (Work::solves)
            work.solve(step % 2, j, end - j, cut.strip + (j - cut.begin) / Work::columns);
        __atomic_store_n(&solved(step)[offset + task], 1, __ATOMIC_RELEASE);
        __atomic_add_fetch(&steps[step].completed, 1, __ATOMIC_ACQ_REL);
    }

    void update(std::int64_t step, const StepPlan& now, const Cut& cut, std::int64_t solve_offset,
                std::int64_t chunk_offset, std::int64_t task, const StepPlan& before) const {
        const std::int64_t chunk = task / cut.row_blocks, j = cut.begin + chunk * cut.width;
        const std::int64_t end = cut.end - j < cut.width ? cut.end : j + cut.width;
        if (Work::solves)
            for (std::int64_t c = (j - cut.begin) / cut.solve_width;
                 c <= (end - 1 - cut.begin) / cut.solve_width; ++c)
                wait_until(solved(step)[solve_offset + c], 1);
        else
            wait_for_columns(step, j, end, before);
        wait_until(steps[step].packed, now.packs);
        const std::int64_t i = cut.row + task % cut.row_blocks * cut.height, left = n - i;
        work.update(step % 2, i, left < cut.height ? left : cut.height, j, end - j,
                    cut.strip + (j - cut.begin) / Work::columns);
        __atomic_add_fetch(&updated(step)[chunk_offset + chunk], 1, __ATOMIC_ACQ_REL);
        __atomic_add_fetch(&steps[step].completed, 1, __ATOMIC_ACQ_REL);
    }

    // Joins the team that factorizes the panel of `step`, unless it has begun. The first to come leads:
    // it waits until the panel is up to date and its memory free, and closes the team.
    void join(std::int64_t step, std::int64_t begin, std::int64_t width, int size, const StepPlan& now,
              const StepPlan& before) const {
        Step& state = steps[step];
        const std::int64_t ticket = __atomic_fetch_add(&state.joined, 1, __ATOMIC_ACQ_REL);
        if (ticket >= size) return;  // closed, or complete
        if (ticket == 0) {
            if (step == 0) wait_briefly(state.joined, size, n > 1500 ? 20000 : 4000);
            else wait_until(steps[step - 1].ahead, now.ahead.updates());
            if (step > 1) wait_until(steps[step - 2].completed, task_count(before));
            const std::int64_t members = __atomic_fetch_add(&state.joined, closed_team, __ATOMIC_ACQ_REL);
            work.begin(step % 2, begin, width);
            __atomic_store_n(&state.team, members < size ? members : size, __ATOMIC_RELEASE);
        } else {
            wait_until(state.team, 1);
        }
        Member<T> member{table, static_cast<int>(ticket), static_cast<int>(state.team), table->turn};
        const int code = work.factorize(step % 2, member);
        member.meet();
        if (ticket != 0) return;
        table->turn = member.turn;
        state.code = code;
        __atomic_store_n(&state.factorized, 1, __ATOMIC_RELEASE);
    }
};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
