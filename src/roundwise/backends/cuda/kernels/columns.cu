// Residuals of several columns at a time; rounded to double at the end.

// r = b - a x for several columns, in twice the precision: SIDE x SIDE entries of r to a thread
// block, 4 x 4 to a thread, STEP products of each at a time. Rows and columns of the arrays are any
// distances apart.
constexpr int SIDE = 32, STEP = 8;

extern "C" __global__ void __launch_bounds__(64)
residual_exact(const STORED* __restrict__ a, long long a_down, long long a_across, int n, int columns,
               const double* __restrict__ x, long long x_down, long long x_across,
               const double* __restrict__ b, long long b_down, long long b_across,
               double* __restrict__ r, long long r_down, long long r_across) {
    constexpr int THREADS = SIDE * SIDE / 16, SHARE = SIDE * STEP / THREADS, APART = SIDE / 4;
    __shared__ double left[STEP][SIDE + 1], right[STEP][SIDE + 1];
    const int t = threadIdx.x, i0 = t / APART, j0 = t % APART;
    const int row0 = blockIdx.x * SIDE, column0 = blockIdx.y * SIDE;
    double high[4][4], low[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = row0 + i0 + i * APART, column = column0 + j0 + j * APART;
            high[i][j] = row < n && column < columns ? b[row * b_down + column * b_across] : 0.0;
            low[i][j] = 0.0;
        }
    for (int first = 0; first < n; first += STEP) {
#pragma unroll
        for (int s = 0; s < SHARE; ++s) {
            // Neighbouring threads read what lies side by side.
            const int e = t + s * THREADS;
            const int k = a_across == 1 ? e % STEP : e / SIDE, i = a_across == 1 ? e / STEP : e % SIDE;
            left[k][i] = row0 + i < n && first + k < n
                             ? -static_cast<double>(a[(row0 + i) * a_down + (first + k) * a_across])
                             : 0.0;
            const int m = x_across == 1 ? e / SIDE : e % STEP, j = x_across == 1 ? e % SIDE : e / STEP;
            right[m][j] = column0 + j < columns && first + m < n
                              ? x[(first + m) * x_down + (column0 + j) * x_across]
                              : 0.0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const Twofold product = times(left[k][i0 + i * APART], right[k][j0 + j * APART]);
                    accumulate(high[i][j], low[i][j], product.high);
                    low[i][j] = __dadd_rn(low[i][j], product.low);
                }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = row0 + i0 + i * APART, column = column0 + j0 + j * APART;
            if (row < n && column < columns)
                r[row * r_down + column * r_across] = __dadd_rn(high[i][j], low[i][j]);
        }
}

// c += a b for an 8 x 4 matrix a, a 4 x 8 matrix b and an 8 x 8 matrix c, by the units of tensors:
// with l the lane, a thread has a[l / 4][l % 4], b[l % 4][l / 4] and c[l / 4][2 (l % 4) + 0 and 1].
__device__ __forceinline__ void multiply_add(double (&c)[2], double a, double b) {
#ifdef ON_THE_CPU
    const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4;
    const auto left = exchanged(a), right = exchanged(b);
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 4; ++k)
            c[i] = __fma_rn(left[4 * row + k], right[4 * (2 * column + i) + k], c[i]);
#else
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[0]), "+d"(c[1])
        : "d"(a), "d"(b));
#endif
}

// The same with sums of `group` products (a multiple of 4) in double, by the units of tensors, which
// are added to high + low. A warp has 32 x 32 entries of r, as 4 x 4 blocks; a thread block has
// `ACROSS` x `ACROSS` warps.
constexpr int DEPTH = 32, BLOCKS = 4;

template <int ACROSS>
__device__ __forceinline__ void residual_by_groups(
    const STORED* __restrict__ a, long long a_down, long long a_across, int n, int columns, int group,
    const double* __restrict__ x, long long x_down, long long x_across,
    const double* __restrict__ b, long long b_down, long long b_across,
    double* __restrict__ r, long long r_down, long long r_across) {
    constexpr int SIZE = 32 * ACROSS, THREADS = 32 * ACROSS * ACROSS, SHARE = SIZE * DEPTH / THREADS;
    __shared__ double left[DEPTH][SIZE + 2], right[DEPTH][SIZE + 2];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int row0 = blockIdx.x * SIZE, column0 = blockIdx.y * SIZE;
    const int i0 = 32 * (warp / ACROSS) + lane / 4, j0 = 32 * (warp % ACROSS) + lane / 4, k0 = lane % 4;
    double high[BLOCKS][BLOCKS][2], low[BLOCKS][BLOCKS][2], partial[BLOCKS][BLOCKS][2];
    const int c_row = row0 + i0, c_column = column0 + 32 * (warp % ACROSS) + 2 * k0;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j)
#pragma unroll
            for (int l = 0; l < 2; ++l) {
                const int row = c_row + 8 * i, column = c_column + 8 * j + l;
                const bool inside = row < n && column < columns;
                high[i][j][l] = inside ? b[row * b_down + column * b_across] : 0.0;
                low[i][j][l] = partial[i][j][l] = 0.0;
            }
    int summed = 0;
    for (int first = 0; first < n; first += DEPTH) {
#pragma unroll
        for (int s = 0; s < SHARE; ++s) {
            const int e = t + s * THREADS;
            const int k = a_across == 1 ? e % DEPTH : e / SIZE, i = a_across == 1 ? e / DEPTH : e % SIZE;
            left[k][i] = row0 + i < n && first + k < n
                             ? -static_cast<double>(a[(row0 + i) * a_down + (first + k) * a_across])
                             : 0.0;
            const int m = x_across == 1 ? e / SIZE : e % DEPTH, j = x_across == 1 ? e % SIZE : e / DEPTH;
            right[m][j] = column0 + j < columns && first + m < n
                              ? x[(first + m) * x_down + (column0 + j) * x_across]
                              : 0.0;
        }
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < DEPTH; k += 4) {
            double u[BLOCKS], v[BLOCKS];
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                u[i] = left[k + k0][i0 + 8 * i];
                v[i] = right[k + k0][j0 + 8 * i];
            }
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
                for (int j = 0; j < BLOCKS; ++j) multiply_add(partial[i][j], u[i], v[j]);
            summed += 4;
            if (summed < group && first + k + 4 < n) continue;
            summed = 0;
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
                for (int j = 0; j < BLOCKS; ++j)
#pragma unroll
                    for (int l = 0; l < 2; ++l) {
                        accumulate(high[i][j][l], low[i][j][l], partial[i][j][l]);
                        partial[i][j][l] = 0.0;
                    }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int j = 0; j < BLOCKS; ++j)
#pragma unroll
            for (int l = 0; l < 2; ++l) {
                const int row = c_row + 8 * i, column = c_column + 8 * j + l;
                if (row < n && column < columns)
                    r[row * r_down + column * r_across] = __dadd_rn(high[i][j][l], low[i][j][l]);
            }
}

extern "C" __global__ void __launch_bounds__(128, 2)
residual_groups_64(const STORED* __restrict__ a, long long a_down, long long a_across, int n, int columns,
                   int group, const double* __restrict__ x, long long x_down, long long x_across,
                   const double* __restrict__ b, long long b_down, long long b_across,
                   double* __restrict__ r, long long r_down, long long r_across) {
    residual_by_groups<2>(a, a_down, a_across, n, columns, group, x, x_down, x_across, b, b_down,
                          b_across, r, r_down, r_across);
}

extern "C" __global__ void __launch_bounds__(32)
residual_groups_32(const STORED* __restrict__ a, long long a_down, long long a_across, int n, int columns,
                   int group, const double* __restrict__ x, long long x_down, long long x_across,
                   const double* __restrict__ b, long long b_down, long long b_across,
                   double* __restrict__ r, long long r_down, long long r_across) {
    residual_by_groups<1>(a, a_down, a_across, n, columns, group, x, x_down, x_across, b, b_down,
                          b_across, r, r_down, r_across);
}
