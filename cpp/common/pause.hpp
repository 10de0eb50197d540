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

// Whether the machine has so few cores that a caller can do the work of a thread that has lost its core: on many, each
// thread has too small a part, and the threads of other libraries are moved aside instead (spinning.hpp).
inline const bool few_cores = std::thread::hardware_concurrency() <= 4;

// Returns when ready() is true: spins for some microseconds, then calls stalled() before each look. Many threads spin
// for about a millisecond, longer than one of them takes for a panel of an LU.
template <class Ready, class Stalled> void spin_until(const Ready& ready, const Stalled& stalled) {
    const int most = few_cores ? 1000 : 20000;
    for (int spins = 0; !ready(); ++spins) {
        if (spins < most) pause();
        else stalled();
    }
}

// Lets other threads use the core for a moment. To yield instead would give a spinning thread a whole time slice.
inline void nap() { std::this_thread::sleep_for(std::chrono::microseconds(10)); }

}  // namespace roundwise
