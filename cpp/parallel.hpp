// Splitting a range over threads. Defined in parallel.cpp, outside the per-instruction-set
// objects, so that no standard-library code compiled for AVX-512 is linked into the rest.
#pragma once

#include <cstdint>

namespace roundwise {

using RangeBody = void (*)(void* context, std::int64_t begin, std::int64_t end);

// Calls body on disjoint ranges that cover 0..count, their inner bounds multiples of grain.
void split_range(std::int64_t count, std::int64_t grain, int threads, RangeBody body, void* context);

#ifdef ROUNDWISE_LEVEL
namespace ROUNDWISE_LEVEL {

// The same for any callable body(begin, end).
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, int threads, Body& body) {
    split_range(
        count, grain, threads,
        [](void* context, std::int64_t begin, std::int64_t end) {
            (*static_cast<Body*>(context))(begin, end);
        },
        &body);
}

}  // namespace ROUNDWISE_LEVEL
#endif

}  // namespace roundwise
