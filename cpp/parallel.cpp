#include "parallel.hpp"

#include <algorithm>
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

}  // namespace

void wait_for(const int& flag) {
    for (int spins = 0; __atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0; ++spins) {
        if (spins < 4000)
            pause();
        else
            std::this_thread::yield();  // the one waited for may need this core
    }
}

void run_members(int threads, MemberBody body, void* context) {
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(std::max(threads - 1, 0)));
    try {
        for (int member = 1; member < threads; ++member) others.emplace_back(body, context, member);
    } catch (const std::system_error&) {
        // The system has no more threads to give: those that were started share the work.
    }
    body(context, 0);
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
