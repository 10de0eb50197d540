// The backward error of an answer, from its residual.
#pragma once

#include <cmath>
#include <cstdint>

namespace roundwise {

// The largest ||r|| / (||A|| ||x|| + ||b||) over the columns; NaN if one has NaN, infinite if a divisor
// is outside `least` to `most`.
inline double worst_backward_error(std::int64_t n, std::int64_t count, double norm, const double* x,
                                   const double* b, const double* r, double least, double most) {
    double worst = 0;
    for (std::int64_t c = 0; c < count; ++c) {
        const auto largest = [=](const double* v) {
            double result = 0;
            for (std::int64_t i = c * n; i < (c + 1) * n; ++i) {
                const double size = v[i] < 0 ? -v[i] : v[i];
                if (size > result || size != size) result = size;  // NaN stays
            }
            return result;
        };
        const double size = norm * largest(x) + largest(b);
        const double error = size > least && size < most ? largest(r) / size : HUGE_VAL;
        if (error > worst || error != error) worst = error;
    }
    return worst;
}

}  // namespace roundwise
