// What a thread does between two looks at a number that another thread will change.
#pragma once

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

// Returns when ready() is true: spins for some microseconds, then lets other threads use the core, as
// the one that is waited for may need it.
template <class Ready> void spin_until(const Ready& ready) {
    for (int spins = 0; !ready(); ++spins) {
        if (spins < 4000) pause();
        else std::this_thread::yield();
    }
}

}  // namespace roundwise
