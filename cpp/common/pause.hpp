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

// Returns when ready() is true: spins for about half a millisecond, longer than most panels of an LU take, then
// sleeps for short times, as the thread that is waited for may need the core. It never yields: if threads of
// another library spin beside it, a thread that yields gets its core back after as much as twelve milliseconds,
// one that wakes up gets it at once.
template <class Ready> void spin_until(const Ready& ready) {
    for (int spins = 0; !ready(); ++spins) {
        if (spins < 20000) pause();
        else std::this_thread::sleep_for(std::chrono::microseconds(10));
    }
}

}  // namespace roundwise
