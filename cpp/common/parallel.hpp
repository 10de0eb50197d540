// Splitting work over threads. What uses the standard library is in parallel.cpp, which is compiled
// once for any processor: std::thread's code compiled with AVX-512 must not reach other levels.
#pragma once

#include <cstdint>

namespace roundwise {

using RangeBody = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Calls body on disjoint ranges that cover 0..count, their inner bounds multiples of grain.
void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body, void* context);

// Runs body(context, member) on up to `threads` threads at the same time, for member = 0, 1, ... For
// kernels of many short steps, whose members share each step as a Phase. Member 0 is the calling
// thread; the others join when they wake up, unless the work is done by then, and there are fewer of
// them if other calls use the cores or the system refuses to start a thread. So member 0 returns only
// when all work is done or claimed by members that are running. common/pool.hpp has the threads.
using MemberBody = void (*)(void* context, int member);
void run_members(int threads, MemberBody body, void* context);

// For a member other than 0, between two tasks: whether it should return from its body, as its core is needed for
// another call. Member 0 does what is left, and must not ask: it may be a worker itself, in a job within a job. The
// number of a member that has returned may be given to another one.
bool wanted_back();

// For a member that has done a task, which others may wait for: gives back the core that one of them may have lent it.
void task_done();

// Whether Linux's thread of this number is one of those that are started here.
bool is_worker(int id);

// Lets them leave this core to others; calls use one thread less, until all cores may be used again.
void avoid_core(int core);
void use_all_cores();

// Lets those that wait for the next kernel sleep at once instead of spinning for a while.
void rest_workers();

// The time so many seconds from now, and whether it has passed; there is no deadline after more seconds than a
// machine runs.
std::int64_t deadline_after(double seconds);
bool is_past(std::int64_t deadline);

// One step of such a kernel: tasks, each of which is done by the member that claims it first. All
// fields must be zero at the start; a Phase is used once.
struct alignas(64) Phase {
    std::int64_t claimed, completed;
    int finished;
};

// Waits until the flag is not 0: spins for some microseconds, then lets other threads use the core.
void wait_for(const int& flag);

// The same until a counter is at least `value`.
void wait_for_count(const std::int64_t& counter, std::int64_t value);

// Gives up after some spins (thousands take some hundred microseconds) and returns false.
bool wait_briefly(const std::int64_t& counter, std::int64_t value, int spins);

#ifdef ROUNDWISE_LEVEL
namespace ROUNDWISE_LEVEL {

// wait_for_count, where the wait is mostly shorter than the call of a function.
inline void wait_until(const std::int64_t& counter, std::int64_t value) {
    for (int spins = 0; spins < 64; ++spins)
        if (__atomic_load_n(&counter, __ATOMIC_ACQUIRE) >= value) return;
    wait_for_count(counter, value);
}

// split_range for any callable body(begin, end).
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, int threads, Body& body) {
    split_range(
        count, grain, threads,
        [](void* context, std::int64_t begin, std::int64_t end) {
            (*static_cast<Body*>(context))(begin, end);
        },
        &body);
}

// The threads to use for one pass over `count` numbers of type T: one below a mebibyte, where waking
// more would cost more time than they save, and then a thread for each part_of_pass bytes.
template <class T> int threads_for(std::int64_t count, int threads) {
    constexpr std::int64_t part_of_pass = 1 << 18;
    const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
    if (bytes < 4 * part_of_pass) return 1;
    return bytes / part_of_pass < threads ? static_cast<int>(bytes / part_of_pass) : threads;
}

// run_members for any callable body(member).
template <class Body> void run_together(int threads, Body& body) {
    run_members(
        threads, [](void* context, int member) { (*static_cast<Body*>(context))(member); }, &body);
}

// Every member calls this. Together they call run(task) once for each task 0..count (count > 0); the
// member that completes the last task calls finish(). Returns when finish() has returned. A member
// waits only for members that have claimed a task: on a busy machine, a thread that starts late
// delays nobody.
template <class Run, class Finish>
void share(Phase& phase, std::int64_t count, const Run& run, const Finish& finish) {
    for (;;) {
        const std::int64_t task = __atomic_fetch_add(&phase.claimed, 1, __ATOMIC_ACQ_REL);
        if (task >= count) break;
        run(task);
        if (__atomic_add_fetch(&phase.completed, 1, __ATOMIC_ACQ_REL) == count) {
            finish();
            __atomic_store_n(&phase.finished, 1, __ATOMIC_RELEASE);
        }
        task_done();
    }
    wait_for(phase.finished);
}

// The same without finish(); there may be no task at all.
template <class Run> void share(Phase& phase, std::int64_t count, const Run& run) {
    if (count > 0) share(phase, count, run, [] {});
}

// A kernel of one phase: calls body(begin, end) on ranges of length `grain` that cover 0..count.
template <class Body>
void share_range(std::int64_t count, std::int64_t grain, int threads, const Body& body) {
    if (count == 0) return;
    Phase phase = {};
    auto member = [&](int) {
        share(phase, (count + grain - 1) / grain, [&](std::int64_t task) {
            const std::int64_t begin = task * grain;
            body(begin, count - begin < grain ? count : begin + grain);
        });
    };
    run_together(threads, member);
}

}  // namespace ROUNDWISE_LEVEL
#endif

}  // namespace roundwise
