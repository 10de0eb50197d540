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

// How threads wait matters if threads of another library spin on the same cores, as BLAS's do after a call. A
// thread that yields gets its core back after a time slice, as much as twelve milliseconds; one that sleeps gets
// it at once when it wakes up, but may lose it while others wait for what it does. With two cores it is better to
// leave the work to the thread that has a core for itself: a solve just after a product of NumPy took 1.4 times its
// time at rest if the other yielded, and 1.9 times if it slept. With sixteen, that one thread would take far longer
// than all do with half of each core.
inline bool few_cores() {
    static const bool few = std::thread::hardware_concurrency() <= 4;
    return few;
}

// Returns when ready() is true: spins, then lets other threads use the core, as the one that is waited for may
// need it. Many threads spin for about a millisecond, longer than one of them takes for a panel of an LU.
template <class Ready> void spin_until(const Ready& ready) {
    const int most = few_cores() ? 4000 : 20000;
    for (int spins = 0; !ready(); ++spins) {
        if (spins < most) pause();
        else if (few_cores()) std::this_thread::yield();
        else std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
}

}  // namespace roundwise
