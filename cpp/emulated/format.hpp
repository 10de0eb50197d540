// A floating-point format as the kernels see it; made from roundwise.FloatFormat.
#pragma once

#include <cstdint>

namespace roundwise {

enum class Overflow : int { inf, nan, saturate };
enum class Mode : int { nearest, toward_zero, up, down, stochastic };
enum class Status : int { ok, overflow, zero_pivot, nonfinite_input, not_positive_definite };

struct Format {
    int p;               // significand bits, the implicit one included
    double max;          // largest finite number
    double min_normal;   // 2^emin
    double quantum;      // spacing below min_normal: the smallest positive number
    Overflow overflow;   // what a value that rounds to more than max becomes
};

// Where a factorization stopped, and why.
struct Verdict {
    Status status;
    std::int64_t column;
};

}  // namespace roundwise
