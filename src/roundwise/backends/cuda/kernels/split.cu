// Numbers as sums of 16-bit ones, for products on 16-bit units that are summed in FP32.

#ifndef ON_THE_CPU  // where tests compile this file, with conversions of their own
__device__ __forceinline__ unsigned short to_bits(float x, int is_bf16) {
    unsigned short bits;
    if (is_bf16)
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ float from_bits(unsigned short bits, int is_bf16) {
    if (is_bf16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
#endif

// Writes the parts of a (rows x columns, leading dimension ld) into sections of out: section s
// holds part (order >> 4 s) & 15 and starts at out + s * stride. A number beyond the format's
// range sets the status. A thread has four columns; leading dimensions are multiples of four.
struct __align__(16) Four {
    float v[4];
};
struct __align__(8) Halves {
    unsigned short v[4];
};

extern "C" __global__ void __launch_bounds__(256)
split(const float* __restrict__ a, long long ld, int rows, int columns, unsigned short* __restrict__ out,
      long long out_ld, long long stride, int sections, int order, int parts, int is_bf16,
      int column, int* __restrict__ status) {
    const int c = (blockIdx.x * 64 + threadIdx.x % 64) * 4;
    if (c >= columns) return;
    for (int r = blockIdx.y * 4 + threadIdx.x / 64; r < rows; r += gridDim.y * 4) {
        const Four x = *reinterpret_cast<const Four*>(a + static_cast<long long>(r) * ld + c);
        Halves part[3];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float rest = c + i < columns ? x.v[i] : 0.0f;
#pragma unroll
            for (int p = 0; p < 3; ++p) {
                part[p].v[i] = p < parts ? to_bits(rest, is_bf16) : 0;
                const float value = from_bits(part[p].v[i], is_bf16);
                if (p == 0 && !isfinite(value)) atomicMin(status, column);
                rest -= value;
            }
        }
        unsigned short* place = out + static_cast<long long>(r) * out_ld + c;
        for (int s = 0; s < sections; ++s) {
            const int p = (order >> (4 * s)) & 15;
            *reinterpret_cast<Halves*>(place + s * stride) = p == 0 ? part[0] : p == 1 ? part[1] : part[2];
        }
    }
}
