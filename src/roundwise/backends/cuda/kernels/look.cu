// A look at `count` rows of a matrix with n columns, spread evenly; STORED numbers, rows contiguous.

__device__ __forceinline__ int sampled_row(int i, int n, int count) {
    return static_cast<int>(static_cast<long long>(i) * n / count);
}

// The lengths of the rows and the magnitudes of their diagonal entries: a thread block has a row.
extern "C" __global__ void __launch_bounds__(256)
row_lengths(const STORED* __restrict__ a, long long ld, int n, int count,
            double* __restrict__ diagonal, double* __restrict__ lengths) {
    __shared__ double found[8];
    const int row = sampled_row(blockIdx.x, n, count), t = threadIdx.x;
    const STORED* place = a + row * ld;
    double sum = 0;
    for (int j = t; j < n; j += 256) sum += static_cast<double>(place[j]) * static_cast<double>(place[j]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (t % 32 == 0) found[t / 32] = sum;
    __syncthreads();
    if (t > 0) return;
    for (int i = 1; i < 8; ++i) sum += found[i];
    lengths[blockIdx.x] = sqrt(sum);
    diagonal[blockIdx.x] = fabs(static_cast<double>(place[row]));
}

// The lengths of the columns of these rows, each divided by its own; diagonal entries do not count.
// `longest` takes the bits of the largest: those of positive numbers are in their order.
extern "C" __global__ void __launch_bounds__(128)
column_lengths(const STORED* __restrict__ a, long long ld, int n, int count,
               const double* __restrict__ rows, double* __restrict__ columns,
               unsigned long long* __restrict__ longest) {
    const int j = blockIdx.x * 128 + threadIdx.x;
    if (j >= n) return;
    double sum = 0;
    for (int i = 0; i < count; ++i) {
        const int row = sampled_row(i, n, count);
        const double share = rows[i] > 0 ? static_cast<double>(a[row * ld + j]) / rows[i] : 0.0;
        if (row != j) sum += share * share;
    }
    const double length = sqrt(sum);
    columns[j] = length;
    atomicMax(longest, static_cast<unsigned long long>(__double_as_longlong(length)));
}

// The rows, their columns divided by these lengths; by the longest one where that is zero.
extern "C" __global__ void __launch_bounds__(128)
scaled_rows(const STORED* __restrict__ a, long long ld, int n, int count,
            const double* __restrict__ columns, const unsigned long long* __restrict__ longest,
            double* __restrict__ out) {
    const int j = blockIdx.x * 128 + threadIdx.x;
    if (j >= n) return;
    const double most = __longlong_as_double(static_cast<long long>(*longest));
    const double length = columns[j] > 0 ? columns[j] : most > 0 ? most : 1.0;
    for (int i = 0; i < count; ++i)
        out[static_cast<long long>(i) * n + j] =
            static_cast<double>(a[sampled_row(i, n, count) * ld + j]) / length;
}
