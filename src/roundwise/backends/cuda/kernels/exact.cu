// Residuals in double-double (about 106 bits), rounded to double at the end; norms of rows.

__device__ __forceinline__ Twofold shuffled(Twofold x, int step) {
    return {__shfl_xor_sync(0xffffffffu, x.high, step), __shfl_xor_sync(0xffffffffu, x.low, step)};
}

// r = b - a x, one warp a row of a that is contiguous.
extern "C" __global__ void __launch_bounds__(256)
residual_rows(const STORED* __restrict__ a, long long ld, int n, const double* __restrict__ x,
              const double* __restrict__ b, double* __restrict__ r) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    const STORED* place = a + static_cast<long long>(row) * ld;
    Twofold sum = {lane == 0 ? b[row] : 0.0, 0.0};
    for (int c = lane; c < n; c += 32) sum = add(sum, times(-static_cast<double>(place[c]), x[c]));
    for (int step = 16; step > 0; step /= 2) {
        const Twofold other = shuffled(sum, step);
        sum = lane & step ? add(other, sum) : add(sum, other);  // the same order in both lanes
    }
    if (lane == 0) r[row] = __dadd_rn(sum.high, sum.low);
}

// The same where columns are contiguous: a thread a row, some of the columns; `partial` (two
// numbers for each row and part) takes the sums.
extern "C" __global__ void __launch_bounds__(128)
residual_columns(const STORED* __restrict__ a, long long ld, int n, int width,
                 const double* __restrict__ x, double* __restrict__ partial) {
    const int row = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * width;
    if (row >= n) return;
    Twofold sum = {0.0, 0.0};
    for (int c = first; c < min(n, first + width); ++c)
        sum = add(sum, times(-static_cast<double>(a[static_cast<long long>(c) * ld + row]), x[c]));
    double* place = partial + 2 * (static_cast<long long>(blockIdx.y) * n + row);
    place[0] = sum.high;
    place[1] = sum.low;
}

extern "C" __global__ void __launch_bounds__(128)
residual_finish(int n, int parts, const double* __restrict__ partial, const double* __restrict__ b,
                double* __restrict__ r) {
    const int row = blockIdx.x * 128 + threadIdx.x;
    if (row >= n) return;
    Twofold sum = {b[row], 0.0};
    for (int p = 0; p < parts; ++p) {
        const double* place = partial + 2 * (static_cast<long long>(p) * n + row);
        sum = add(sum, Twofold{place[0], place[1]});
    }
    r[row] = __dadd_rn(sum.high, sum.low);
}

// Sums of magnitudes and largest magnitudes: of rows that are contiguous, one warp each. A number
// that is not finite makes the largest one so.
extern "C" __global__ void __launch_bounds__(256)
sizes_of_rows(const STORED* __restrict__ a, long long ld, int rows, int columns,
              double* __restrict__ sums, double* __restrict__ largest) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const STORED* place = a + static_cast<long long>(row) * ld;
    double sum = 0, most = 0;
    for (int c = lane; c < columns; c += 32) {
        const double size = fabs(static_cast<double>(place[c]));
        sum += size;
        most = size > most || isnan(size) ? size : most;
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        const double other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most || isnan(other) ? other : most;
    }
    if (lane == 0) sums[row] = sum, largest[row] = isnan(sum) ? sum : most;
}

// Where columns are contiguous: partial sums of rows over some of the columns.
extern "C" __global__ void __launch_bounds__(128)
sizes_of_columns(const STORED* __restrict__ a, long long ld, int rows, int columns, int width,
                 double* __restrict__ sums, double* __restrict__ largest) {
    const int row = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * width;
    if (row >= rows) return;
    double sum = 0, most = 0;
    for (int c = first; c < min(columns, first + width); ++c) {
        const double size = fabs(static_cast<double>(a[static_cast<long long>(c) * ld + row]));
        sum += size;
        most = size > most || isnan(size) ? size : most;
    }
    sums[static_cast<long long>(blockIdx.y) * rows + row] = sum;
    largest[static_cast<long long>(blockIdx.y) * rows + row] = isnan(sum) ? sum : most;
}

// The largest of `rows` sums of `parts` numbers each, and of as many numbers, as bits of doubles, whose
// order is that of the numbers; NaN is the largest.
extern "C" __global__ void __launch_bounds__(256)
largest_sizes(const double* __restrict__ sums, const double* __restrict__ largest, int rows, int parts,
              unsigned long long* __restrict__ found) {
    const int row = blockIdx.x * 256 + threadIdx.x;
    double sum = 0, most = 0;
    for (int part = 0; row < rows && part < parts; ++part) {
        const long long place = static_cast<long long>(part) * rows + row;
        sum += sums[place];
        most = largest[place] > most || isnan(largest[place]) ? largest[place] : most;
    }
    for (int step = 16; step > 0; step /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, sum, step);
        sum = other > sum || isnan(other) ? other : sum;
        const double another = __shfl_xor_sync(0xffffffffu, most, step);
        most = another > most || isnan(another) ? another : most;
    }
    if (threadIdx.x % 32 == 0) {
        atomicMax(found, static_cast<unsigned long long>(__double_as_longlong(sum)));
        atomicMax(found + 1, static_cast<unsigned long long>(__double_as_longlong(most)));
    }
}

// The largest magnitude of each column, its entries weighted if weights are given; NaN if a column
// has one. A thread block has a column.
extern "C" __global__ void __launch_bounds__(512)
column_norms(const STORED* __restrict__ x, long long down, long long across, int n,
             const double* __restrict__ weights, double* __restrict__ norms) {
    __shared__ double found[16];
    const STORED* column = x + blockIdx.x * across;
    const int t = threadIdx.x;
    double most = 0;
    for (int i = t; i < n; i += 512) {
        double size = fabs(static_cast<double>(column[i * down]));
        if (weights) size *= weights[i];
        most = size > most || isnan(size) ? size : most;
    }
    for (int step = 16; step > 0; step /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most || isnan(other) ? other : most;
    }
    if (t % 32 == 0) found[t / 32] = most;
    __syncthreads();
    if (t > 0) return;
    for (int i = 1; i < 16; ++i) most = found[i] > most || isnan(found[i]) ? found[i] : most;
    norms[blockIdx.x] = most;
}
