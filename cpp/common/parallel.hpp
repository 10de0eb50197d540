// Splitting a range over threads. Defined in parallel.cpp, outside the per-instruction-set
// objects, so that no standard-library code compiled for AVX-512 is linked into the rest.
#pragma once

#include <cstdint>

namespace roundwise {

using RangeBody = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Calls body on disjoint ranges that cover 0..count, their inner bounds multiples of grain.
void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body, void* context);

// Calls body on each member 0, 1, ..., at the same time, for kernels of many short steps; fewer than
// `threads` members where the system has no more threads to give. They share the work by phases.
using MemberBody = void (*)(void* context, int member);
void run_members(int threads, MemberBody body, void* context);

// One step of such a kernel: tasks that any member may take. Starts as zeros, is used once.
struct alignas(64) Phase {
    std::int64_t claimed, completed;
    int finished;
};

// Waits until the flag is set: spins for some microseconds, then yields the core.
void wait_for(const int& flag);

#ifdef ROUNDWISE_LEVEL
namespace ROUNDWISE_LEVEL {

// The same for any callable body(begin, end).
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, int threads, Body& body) {
    split_range(
        count, grain, threads,
        [](void* context, std::int64_t begin, std::int64_t end) {
            (*static_cast<Body*>(context))(begin, end);
        },
        &body);
}

// The threads worth starting for a pass over so many numbers of type T: below a mebibyte, one.
template <class T> int threads_for(std::int64_t count, int threads) {
    return count * static_cast<std::int64_t>(sizeof(T)) < (1 << 20) ? 1 : threads;
}

template <class Body> void run_together(int threads, Body& body) {
    run_members(
        threads, [](void* context, int member) { (*static_cast<Body*>(context))(member); }, &body);
}

// Every member calls this: run(task) for all tasks 0..count (at least one), whoever comes first, and
// then finish(), once. Returns when that is done. No member waits for one that took no task, which
// matters on a busy machine, where a thread may start late.
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
    }
    wait_for(phase.finished);
}

template <class Run> void share(Phase& phase, std::int64_t count, const Run& run) {
    share(phase, count, run, [] {});
}

// A kernel of one phase: body(begin, end) on ranges of `grain` that cover 0..count.
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
