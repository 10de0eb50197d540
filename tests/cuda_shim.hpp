// CUDA's words for a C++ compiler: one thread block at a time, its threads as fibers that take
// turns at every barrier. Slow, but it computes what the GPU computes.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define ON_THE_CPU
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

struct Index {
    int x = 0, y = 0;
};

struct Barrier {
    int expected = 0, arrived = 0;
    unsigned generation = 0;
    void release() { arrived = 0, ++generation; }
};

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool is_done = false;
};

inline std::vector<std::unique_ptr<Fiber>> fibers;
inline std::vector<Barrier> warps;
inline std::vector<std::uint64_t> slots;
inline Barrier all;
inline ucontext_t scheduler;
inline int running = 0;
inline const std::function<void()>* body = nullptr;
inline Index threadIdx, blockIdx, blockDim, gridDim;

inline void wait(Barrier& barrier) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == barrier.expected) return barrier.release();
    const int self = running;
    while (barrier.generation == generation) swapcontext(&fibers[self]->context, &scheduler);
}

inline void leave(Barrier& barrier) {
    --barrier.expected;
    if (barrier.expected > 0 && barrier.arrived == barrier.expected) barrier.release();
}

inline void fiber_main() {
    (*body)();
    const int self = running;
    leave(all);
    leave(warps[self / 32]);
    fibers[self]->is_done = true;
    swapcontext(&fibers[self]->context, &scheduler);
}

inline void run_grid(int grid_x, int grid_y, int block, const std::function<void()>& kernel) {
    body = &kernel;
    gridDim = {grid_x, grid_y};
    blockDim = {block, 1};
    slots.assign(block, 0);
    fibers.resize(block);
    for (int b = 0; b < grid_x * grid_y; ++b) {
        all = {block, 0, 0};
        warps.assign((block + 31) / 32, Barrier{});
        for (int t = 0; t < block; ++t) {
            ++warps[t / 32].expected;
            if (!fibers[t]) fibers[t] = std::make_unique<Fiber>();
            Fiber& fiber = *fibers[t];
            fiber.stack.resize(64 * 1024);
            fiber.is_done = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, fiber_main, 0);
        }
        for (bool is_left = true; is_left;) {
            is_left = false;
            for (int t = 0; t < block; ++t) {
                if (fibers[t]->is_done) continue;
                is_left = true;
                running = t;
                threadIdx = {t, 0};
                blockIdx = {b % grid_x, b / grid_x};
                swapcontext(&scheduler, &fibers[t]->context);
            }
        }
    }
}

inline void __syncthreads() { wait(all); }

template <class T>
std::vector<T> exchanged(T value) {
    const int self = running, warp = self / 32, count = min(32, blockDim.x - 32 * warp);
    std::memcpy(&slots[self], &value, sizeof value);
    wait(warps[warp]);
    std::vector<T> values(32, T(0));
    for (int i = 0; i < count; ++i) std::memcpy(&values[i], &slots[32 * warp + i], sizeof value);
    wait(warps[warp]);
    return values;
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return exchanged(value)[(running % 32) ^ mask];
}
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width) {
    return exchanged(value)[running % 32 / width * width + lane % width];
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    const auto values = exchanged(value);
    return *std::max_element(values.begin(), values.end());
}
inline unsigned __ballot_sync(unsigned, bool value) {
    const auto values = exchanged(static_cast<unsigned>(value));
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= values[i] << i;
    return bits;
}

inline int __ffs(unsigned bits) { return bits ? std::countr_zero(bits) + 1 : 0; }
struct uint4 {
    unsigned x, y, z, w;
};
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __double2hiint(double x) { return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 32); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline void atomicMax(unsigned long long* place, unsigned long long value) {
    *place = max(*place, value);
}
inline void atomicMin(int* place, int value) { *place = min(*place, value); }

inline unsigned short to_bits(float x, int is_bf16) {
    if (!is_bf16) return std::bit_cast<unsigned short>(static_cast<_Float16>(x));
    std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    if (isnan(x)) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline float from_bits(unsigned short bits, int is_bf16) {
    if (is_bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
}
