// Residuals of matrices with more rows than columns, or fewer, in twice the precision (after numbers.cu):
// what least squares need.

// r = b - a x: a warp a row, whose numbers lie side by side.
extern "C" __global__ void __launch_bounds__(256)
residual_by_rows(const STORED* __restrict__ a, long long down, int rows, int columns,
                 const double* __restrict__ x, const double* __restrict__ b, double* __restrict__ r) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool is_there = row < rows;
    const STORED* place = a + (is_there ? row : 0) * down;
    TwiceSum sum = {0.0, 0.0};
    for (int c = lane; c < columns; c += 32) sum.add_product(static_cast<double>(place[c]), x[c]);
    for (int step = 16; step > 0; step /= 2) sum.add_from(step);
    if (is_there && lane == 0) r[row] = sum.subtracted_from(b[row]);
}

// Part of the same where columns lie together: a thread a row, `width` columns of it.
extern "C" __global__ void __launch_bounds__(128)
sums_by_columns(const STORED* __restrict__ a, long long across, int rows, int columns, int width,
                const double* __restrict__ x, double* __restrict__ partial) {
    const int row = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * width;
    if (row >= rows) return;
    const int end = columns < first + width ? columns : first + width;
    TwiceSum sum = {0.0, 0.0};
    for (int c = first; c < end; ++c) sum.add_product(static_cast<double>(a[c * across + row]), x[c]);
    double* place = partial + 2 * (static_cast<long long>(blockIdx.y) * rows + row);
    place[0] = sum.high, place[1] = sum.low;
}

extern "C" __global__ void __launch_bounds__(128)
finish_columns(int rows, int count, const double* __restrict__ partial, const double* __restrict__ b,
               double* __restrict__ r) {
    const int row = blockIdx.x * 128 + threadIdx.x;
    if (row >= rows) return;
    TwiceSum sum = {0.0, 0.0};
    for (int p = 0; p < count; ++p) {
        const double* place = partial + 2 * (static_cast<long long>(p) * rows + row);
        sum.add(place[0]);
        sum.low = __dadd_rn(sum.low, place[1]);
    }
    r[row] = sum.subtracted_from(b[row]);
}
