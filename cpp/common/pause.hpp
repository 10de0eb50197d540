// What a thread does between two looks at a number that another thread will change.
#pragma once

#include <chrono>
#include <thread>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace roundwise {

inline void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether the machine has so few cores that a waiting thread should yield rather than sleep.
//
// That matters where threads of another library spin on the same cores, as BLAS's do for a while after a call. A
// thread that yields lets such a thread run for a whole time slice. On two cores this is right: the calling thread,
// which has a core for itself, does the work meanwhile, and need not wait for tasks that the other took (`make
// stages`, second table). On many cores the calling thread cannot do the work of all, so that the others sleep for
// some microseconds and come back.
inline const bool few_cores = std::thread::hardware_concurrency() <= 4;

// Returns when ready() is true: spins, then lets other threads use the core, as the one that is waited for may
// need it. Many threads spin for about a millisecond, longer than one of them takes for a panel of an LU.
template <class Ready> void spin_until(const Ready& ready) {
    const int most = few_cores ? 4000 : 20000;
    for (int spins = 0; !ready(); ++spins) {
        if (spins < most) pause();
        else if (few_cores) std::this_thread::yield();
        else std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
}

}  // namespace roundwise
