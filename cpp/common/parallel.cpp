#include "common/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <new>

#include "common/pause.hpp"
#include "common/pool.hpp"
#include "common/spinning.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace roundwise {

namespace {

// Never destroyed: its threads sleep until the process ends. Made when the module is loaded: a process
// that is forked while another thread makes it would wait for that thread for ever.
alignas(Pool) unsigned char memory[sizeof(Pool)];
Pool* const pool = new (memory) Pool;

#if !defined(_WIN32)
void before_fork() {
    hold_others();  // first: whoever moves threads asks for our workers meanwhile
    pool->before_fork();
}
void after_fork_in_parent() {
    pool->after_fork();
    release_others();
}
void after_fork_in_child() {
    new (memory) Pool;  // in place of the old one, whose threads are not there; nothing need be allocated
    forget_others();
}

[[maybe_unused]] const int registered =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
#endif

void stalled() { pool->stalled(); }

}  // namespace

void wait_for(const int& flag) {
    spin_until([&] { return __atomic_load_n(&flag, __ATOMIC_ACQUIRE) != 0; }, stalled);
}

void wait_for_count(const std::int64_t& counter, std::int64_t value) {
    spin_until([&] { return __atomic_load_n(&counter, __ATOMIC_ACQUIRE) >= value; }, stalled);
}

bool wait_briefly(const std::int64_t& counter, std::int64_t value, int spins) {
    for (; spins > 0; --spins, pause())
        if (__atomic_load_n(&counter, __ATOMIC_ACQUIRE) >= value) return true;
    return false;
}

void run_members(int threads, MemberBody body, void* context) {
    if (threads <= 1) body(context, 0);
    else pool->run(threads, body, context);
}

void task_done() { pool->task_done(); }

bool wanted_back() { return pool->wanted_back(); }

bool is_worker(int id) { return pool->has_worker(id); }

void avoid_core(int core) { pool->avoid(core); }
void use_all_cores() { pool->avoid(-1); }
void rest_workers() { pool->rest(); }

void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body,
                 void* context) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, grains));
    if (parts == 1) {
        body(context, 0, count);
        return;
    }
    struct Parts {
        std::int64_t count, grain, grains, parts;
        RangeBody body;
        void* context;
        std::atomic<std::int64_t> claimed;
        std::int64_t bound(std::int64_t part) const {
            return std::min(count, grains * part / parts * grain);
        }
    } shared{count, grain, grains, parts, body, context, {0}};
    run_members(
        static_cast<int>(parts),
        [](void* all, int) {
            Parts& p = *static_cast<Parts*>(all);
            for (std::int64_t part; (part = p.claimed.fetch_add(1)) < p.parts;)
                p.body(p.context, p.bound(part), p.bound(part + 1));
        },
        &shared);
}

namespace {
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
std::int64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}
}  // namespace

std::int64_t deadline_after(double seconds) {
    return seconds < 1e9 ? now() + static_cast<std::int64_t>(1e9 * seconds) : never;
}

bool is_past(std::int64_t deadline) { return deadline != never && now() >= deadline; }

}  // namespace roundwise
