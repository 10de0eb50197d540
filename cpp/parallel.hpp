// Splitting a range over threads. Defined in parallel.cpp, outside the per-instruction-set
// objects, so that no standard-library code compiled for AVX-512 is linked into the rest.
#pragma once

#include <cstdint>

namespace roundwise {

using RangeBody = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Calls body on disjoint ranges that cover 0..count, their inner bounds multiples of grain.
void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body, void* context);

// Threads that work through one kernel call together, for kernels of many short steps. The team
// lives as long as the call. Who waits spins for some microseconds, then yields its core.
class Team;
using TeamBody = void (*)(void* context, Team& team, int member);

// Calls body once on each member 0, 1, ..., at the same time; fewer than `threads` members where
// the system has no more threads to give.
void run_team(int threads, TeamBody body, void* context);
int team_size(const Team& team);
void team_wait(Team& team);  // until every member waits here

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
    run_team(
        threads,
        [](void* context, Team& team, int member) { (*static_cast<Body*>(context))(team, member); },
        &body);
}

}  // namespace ROUNDWISE_LEVEL
#endif

}  // namespace roundwise
