// Products with blocks of triangular factors: STORED numbers, computed with in REAL.

extern "C" __global__ void __launch_bounds__(256)
gather(const REAL* __restrict__ b, const int* __restrict__ order, REAL* __restrict__ out, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[i] = b[order[i]];
}

extern "C" __global__ void __launch_bounds__(256)
scatter(const REAL* __restrict__ b, const int* __restrict__ order, REAL* __restrict__ out, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) out[order[i]] = b[i];
}

__device__ __forceinline__ REAL warp_sum(REAL x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// y = m x if y is not r, else r -= m x: one warp a row of m (rows x columns, columns <= 256).
extern "C" __global__ void __launch_bounds__(256)
rows_times(const STORED* __restrict__ m, long long ld, int rows, int columns,
           const REAL* __restrict__ x, REAL* __restrict__ y, int subtracts) {
    const int lane = threadIdx.x % 32;
    REAL v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int c = lane + 32 * k;
        v[k] = c < columns ? x[c] : REAL(0);
    }
    for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < rows; row += gridDim.x * 8) {
        const STORED* place = m + static_cast<long long>(row) * ld;
        REAL sum = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int c = lane + 32 * k;
            if (c < columns) sum += REAL(place[c]) * v[k];
        }
        sum = warp_sum(sum);
        if (lane == 0) y[row] = subtracts ? y[row] - sum : sum;
    }
}

// The same with m transposed (rows x columns, rows <= 256): one thread a column of m.
extern "C" __global__ void __launch_bounds__(128)
columns_times(const STORED* __restrict__ m, long long ld, int rows, int columns,
              const REAL* __restrict__ x, REAL* __restrict__ y, int subtracts) {
    __shared__ REAL v[256];
    __shared__ REAL partial[4][32];
    for (int i = threadIdx.x; i < 256; i += 128) v[i] = i < rows ? x[i] : REAL(0);
    __syncthreads();
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
    REAL sum = 0;
    if (c < columns)
        for (int i = part; i < rows; i += 4)
            sum += REAL(m[static_cast<long long>(i) * ld + c]) * v[i];
    partial[part][lane] = sum;
    __syncthreads();
    if (part > 0 || c >= columns) return;
    sum = partial[0][lane] + partial[1][lane] + (partial[2][lane] + partial[3][lane]);
    y[c] = subtracts ? y[c] - sum : sum;
}
