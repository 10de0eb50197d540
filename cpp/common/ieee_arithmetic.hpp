// Floating-point settings of the calling thread, set to IEEE 754's for the length of a kernel call.
//
// Rounding direction, flush-to-zero (FTZ: subnormal results become zero) and denormals-are-zero
// (DAZ: subnormal operands count as zero) are bits of a register that every thread has of its own:
// MXCSR on x86-64, FPCR on ARM64. Other code may have changed them. For example, a shared library
// linked with -ffast-math by a GCC before version 13 sets FTZ and DAZ in the thread that loads it,
// and the threads that this thread starts later begin with a copy of its settings.
//
// The threads that kernels share (pool.cpp) set them for themselves, for as long as they live.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace roundwise {

// The destructor restores the whole register. On x86-64 this includes the flags of exceptions
// (overflow, invalid, ...), so those that a kernel raises do not reach the caller.
class IeeeArithmetic {
#if defined(__x86_64__) || defined(_M_X64)
    unsigned int saved_ = _mm_getcsr();

  public:
    // Whether the calling thread has these settings; the lowest six bits are flags of exceptions.
    static bool is_set() { return (_mm_getcsr() & ~0x3fu) == 0x1f80; }
    // The processor's default: round to nearest, FTZ and DAZ off, all exceptions masked (no traps).
    IeeeArithmetic() { _mm_setcsr(0x1f80); }
    ~IeeeArithmetic() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
    unsigned long long saved_;  // 64 bits everywhere; long has 32 on Windows

  public:
    static bool is_set() {
        unsigned long long settings;
        asm volatile("mrs %0, fpcr" : "=r"(settings));
        return settings == 0;
    }
    // Zero: round to nearest, flush-to-zero off, no traps.
    IeeeArithmetic() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" : : "r"(0ull));
    }
    ~IeeeArithmetic() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
  public:
    static bool is_set() { return true; }
#endif
};

}  // namespace roundwise
