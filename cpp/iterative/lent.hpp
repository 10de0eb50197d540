// What applications of a preconditioner share: vectors that are lent from call to call, and the way of a right-hand
// side into the type that is computed with and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>

#include "iterative/csr.hpp"

namespace roundwise::iterative {

// One object that the calls of several threads borrow; who finds it lent makes another. A lock that another thread
// held during a fork stays locked in the child, which then makes its own.
template <class T> class Lent {
    mutable std::mutex lock_;
    mutable std::unique_ptr<T> kept_;

  public:
    template <class Make> std::unique_ptr<T> borrowed(const Make& make) const {
        {
            const std::unique_lock<std::mutex> lock(lock_, std::try_to_lock);
            if (lock && kept_) return std::move(kept_);
        }
        return make();
    }

    void give_back(std::unique_ptr<T> object) const {
        const std::unique_lock<std::mutex> lock(lock_, std::try_to_lock);
        if (lock) kept_ = std::move(object);
    }
};

// z = S M^-1 S r for x = solve(b): in type T, divided by a power of two such that no number leaves its range.
template <class T, class Solve>
void scaled_application(Index n, int threads, const double* r, const double* scale, T* b, double* z, const Solve& solve) {
    double largest = 0;
    bool finite = true;
    for (Index i = 0; i < n; ++i) {
        const double size = std::fabs(r[i] * scale[i]);
        largest = std::max(largest, size);
        finite = finite && std::isfinite(size);
    }
    if (!finite || largest == 0) {
        std::fill_n(z, n, finite ? 0.0 : std::numeric_limits<double>::quiet_NaN());
        return;
    }
    int exponent;
    std::frexp(largest, &exponent);
    exponent = std::clamp(exponent, -1022, 1023);  // both powers are numbers, also where r is subnormal or huge
    const double down = std::ldexp(1.0, -exponent), up = std::ldexp(1.0, exponent);
    pass(n, threads, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) b[i] = static_cast<T>(r[i] * scale[i] * down);
    });
    const T* x = solve(b);
    pass(n, threads, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) z[i] = static_cast<double>(x[i]) * scale[i] * up;
    });
}

}  // namespace roundwise::iterative
