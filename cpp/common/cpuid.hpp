// What an x86-64 processor and its operating system can do, read from the processor itself: compilers'
// built-in functions for this differ in the names they know, and need a library on Windows.
#pragma once

#include <cpuid.h>

namespace roundwise {

// The registers that the CPUID instruction fills; zeros if the processor does not know the leaf.
struct Cpuid {
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    Cpuid(unsigned int leaf, unsigned int subleaf) {
        __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
    }
};

inline bool has_bit(unsigned int bits, int index) { return (bits >> index & 1u) != 0; }

// Whether the operating system saves these parts of the registers when it switches between threads
// (XCR0: bit 1 for SSE, 2 for AVX, 5 to 7 for AVX-512).
inline bool system_saves(unsigned int parts) {
    constexpr int osxsave = 27;
    if (!has_bit(Cpuid(1, 0).ecx, osxsave)) return false;
    unsigned int low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & parts) == parts;
}

}  // namespace roundwise
