#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace roundwise {

namespace {

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits until done() holds; yields when that takes long, as the one waited for may need this core.
template <class Condition> void wait_until(Condition done) {
    for (int spins = 0; !done(); ++spins) {
        if (spins < 4000)
            pause();
        else
            std::this_thread::yield();
    }
}

}  // namespace

// A line of the cache for each, so that a waiting member does not slow the arriving ones.
class Team {
  public:
    alignas(64) std::atomic<int> size{0};  // 0: not complete yet
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<int> round{0};
};

int team_size(const Team& team) { return team.size.load(); }

void team_wait(Team& team) {
    const int round = team.round.load();
    if (team.arrived.fetch_add(1) + 1 == team.size.load()) {
        team.arrived.store(0);
        team.round.store(round + 1);
    } else {
        wait_until([&] { return team.round.load() != round; });
    }
}

void run_team(int threads, TeamBody body, void* context) {
    Team team;
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
    const auto member = [&team, body, context](int index) {
        wait_until([&] { return team.size.load() != 0; });
        body(context, team, index);
    };
    try {
        for (int index = 1; index < threads; ++index) others.emplace_back(member, index);
    } catch (const std::system_error&) {
        // The system has no more threads to give: those that were started make up the team.
    }
    team.size.store(static_cast<int>(others.size()) + 1);
    body(context, team, 0);
    for (std::thread& other : others) other.join();
}

void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body,
                 void* context) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t parts = std::max<std::int64_t>(1, std::min<std::int64_t>(threads, grains));
    // Threads are started for each call: they cost some 20 microseconds, and none is left
    // spinning beside those of a BLAS library.
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(parts - 1));
    const auto bound = [=](std::int64_t part) { return std::min(count, grains * part / parts * grain); };
    for (std::int64_t part = 1; part < parts; ++part) {
        try {
            others.emplace_back(body, context, bound(part), bound(part + 1));
        } catch (const std::system_error&) {  // the system has no more threads to give
            body(context, bound(part), bound(part + 1));
        }
    }
    body(context, 0, bound(1));
    for (std::thread& other : others) other.join();
}

}  // namespace roundwise
