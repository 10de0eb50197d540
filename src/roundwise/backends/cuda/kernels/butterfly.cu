// Two-level random butterflies. With q = n / 4 rows a quarter, the transform of four numbers at
// distance q is an orthogonal 4 x 4 mixture, up to the random diagonals d (Parker 1995; Baboulin,
// Dongarra, Herrmann & Tomov 2013). Rows and columns from 4 q on stay as they are.

// The four numbers x (at distance q, place i of each quarter) become B x, or B' x.
template <class T>
__device__ __forceinline__ void mix(T (&x)[4], const T* __restrict__ d, int q, int i, int transposed) {
    const T half = T(0.5);
    const T o0 = d[i], o1 = d[q + i], o2 = d[2 * q + i], o3 = d[3 * q + i];  // of the outer level
    const T* e = d + 4 * q;  // of the inner levels
    const T e0 = e[i], e1 = e[q + i], e2 = e[2 * q + i], e3 = e[3 * q + i];
    if (!transposed) {
        const T a0 = o0 * x[0], a1 = o1 * x[1], a2 = o2 * x[2], a3 = o3 * x[3];
        const T b0 = e0 * (a0 + a2), b1 = e1 * (a1 + a3), b2 = e2 * (a0 - a2), b3 = e3 * (a1 - a3);
        x[0] = half * (b0 + b1), x[1] = half * (b0 - b1);
        x[2] = half * (b2 + b3), x[3] = half * (b2 - b3);
    } else {
        const T b0 = e0 * (x[0] + x[1]), b1 = e1 * (x[0] - x[1]);
        const T b2 = e2 * (x[2] + x[3]), b3 = e3 * (x[2] - x[3]);
        x[0] = half * o0 * (b0 + b2), x[1] = half * o1 * (b1 + b3);
        x[2] = half * o2 * (b0 - b2), x[3] = half * o3 * (b1 - b3);
    }
}

// out = scale U' a V, rounded to REAL: a thread has 4 x 4 entries, at distance q in both directions.
extern "C" __global__ void __launch_bounds__(256)
butterfly_both(const STORED* __restrict__ a, long long row_step, long long column_step, int n,
               const double* __restrict__ u, const double* __restrict__ v, double scale,
               REAL* __restrict__ out, long long ld) {
    const int q = n / 4, tail = n - 4 * q;
    const int j = blockIdx.x * 32 + threadIdx.x % 32, i = blockIdx.y * 8 + threadIdx.x / 32;
    const int jn = q + tail, in = q + tail;
    if (i >= in || j >= jn) return;
    const bool mixes_rows = i < q, mixes_columns = j < q;
    const int rows = mixes_rows ? 4 : 1, columns = mixes_columns ? 4 : 1;
    const int row0 = mixes_rows ? i : 3 * q + i, column0 = mixes_columns ? j : 3 * q + j;
    double x[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c)
            x[r][c] = r < rows && c < columns
                          ? scale * static_cast<double>(a[(row0 + static_cast<long long>(r) * q) * row_step +
                                                          (column0 + static_cast<long long>(c) * q) * column_step])
                          : 0.0;
    if (mixes_columns)
#pragma unroll
        for (int r = 0; r < 4; ++r) mix(x[r], v, q, j, 1);  // row r of a V is V' times that row
    if (mixes_rows)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            double y[4] = {x[0][c], x[1][c], x[2][c], x[3][c]};
            mix(y, u, q, i, 1);
            x[0][c] = y[0], x[1][c] = y[1], x[2][c] = y[2], x[3][c] = y[3];
        }
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (r < rows && c < columns)
                out[(row0 + static_cast<long long>(r) * q) * ld + column0 + static_cast<long long>(c) * q] =
                    static_cast<REAL>(x[r][c]);
}

// x = B x, or B' x, in place, for `columns` vectors with leading dimension ld.
extern "C" __global__ void __launch_bounds__(256)
butterfly(REAL* __restrict__ x, long long ld, int n, const double* __restrict__ d, int transposed) {
    const int q = n / 4, i = blockIdx.x * 256 + threadIdx.x;
    if (i >= q) return;
    REAL* place = x + static_cast<long long>(blockIdx.y) * ld;
    double y[4] = {double(place[i]), double(place[q + i]), double(place[2 * q + i]), double(place[3 * q + i])};
    mix(y, d, q, i, transposed);
    for (int k = 0; k < 4; ++k) place[k * q + i] = static_cast<REAL>(y[k]);
}
