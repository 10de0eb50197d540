// Systems with at most ROWS unknowns: a thread block has a system, and another one after that. Its factors
// are in `spaces`, of which each block has its own part; PANEL columns at a time are in shared memory.

constexpr int thread_count = 256, warp_count = thread_count / 32;
constexpr int most_columns = 8;    // that are solved for together: a warp each
constexpr int some_columns = 4;    // of them that a thread has, at most
constexpr int tile = 64 / parts;   // columns of the trailing matrix that are updated together
constexpr int piece = 32 / parts;  // unknowns of a diagonal block of substitution
constexpr int panel_step = ROWS + 1;

// What the threads of a block share.
struct Shared {
    union {
        Number panel[PANEL * panel_step];    // by columns
        Number x[most_columns * ROWS];       // by columns
    };
    union {
        Number top[PANEL * tile];            // by rows
        Number diagonal[piece * (piece + 1)];  // by rows
    };
    double found[warp_count], bounds[most_columns];
    int order[ROWS];  // which row of the space is the i-th one
};

// Rows are shared among warps, if a row lies in memory as one, or among threads.
struct Rows {
    int first, next, lane, lanes;
    __device__ __forceinline__ Rows(bool by_rows)
        : first(by_rows ? threadIdx.x / 32 : threadIdx.x), next(by_rows ? warp_count : thread_count),
          lane(by_rows ? threadIdx.x % 32 : 0), lanes(by_rows ? 32 : 1) {}
};

// Rows of threads, each with some of the columns: all if there is one, else every second one.
struct Columns {
    int row, next_row, first, step, count;
    __device__ __forceinline__ explicit Columns(int columns) : count(columns) {
        step = columns > 1 ? 2 : 1, next_row = thread_count / step;
        row = threadIdx.x % next_row, first = threadIdx.x / next_row;
    }
    __device__ __forceinline__ int at(int s) const { return first + s * step; }
    __device__ __forceinline__ bool has(int s) const { return at(s) < count; }
};

__device__ __forceinline__ double largest_of_block(Shared& shared, double value) {
    value = largest_of_lanes(value, 32);
    __syncthreads();  // `found` may still be read
    if (threadIdx.x % 32 == 0) shared.found[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < warp_count; ++w) value = larger(value, shared.found[w]);
    return value;
}

// Columns k0 to k0 + width - 1 of the panel, eliminated by those before them. Returns by reference the
// largest and the smallest pivot.
__device__ void eliminate_panel(Shared& shared, int n, int k0, int width, double& largest, double& smallest) {
    const int t = threadIdx.x, lane = t % 32;
    for (int q = 0; q < width; ++q) {
        const int k = k0 + q;
        Number* column = shared.panel + q * panel_step;
        // Each warp finds the same pivot: its upper bits tell enough to choose by.
        unsigned size = 0;
        int row = k;
        for (int i = k + lane; i < n; i += 32) {
            const unsigned here = static_cast<unsigned>(__double2hiint(magnitude(column[i])));
            if (here > size) size = here, row = i;
        }
        const unsigned most = __reduce_max_sync(all_lanes, size);
        const int chosen = __shfl_sync(all_lanes, row, __ffs(__ballot_sync(all_lanes, size == most)) - 1, 32);
        const Number pivot = column[chosen], over = inverse(pivot), above = column[k];
        const double pivot_size = magnitude(pivot);
        largest = larger(largest, pivot_size);
        smallest = pivot_size < smallest ? pivot_size : smallest;
        __syncthreads();
        for (int i = k + 1 + t; i < n; i += thread_count) column[i] = times(i == chosen ? above : column[i], over);
        if (t < width && t != q) {
            Number* other = shared.panel + t * panel_step;
            const Number held = other[k];
            other[k] = other[chosen], other[chosen] = held;
        }
        if (t == q) column[k] = pivot;
        if (t == 0) {
            const int held = shared.order[k];
            shared.order[k] = shared.order[chosen], shared.order[chosen] = held;
        }
        __syncthreads();
        for (int i = k + 1 + t % 64; i < n; i += 64)
            for (int c = q + 1 + t / 64; c < width; c += thread_count / 64) {
                Number* other = shared.panel + c * panel_step;
                subtract_product(other[i], column[i], other[k]);
            }
        __syncthreads();
    }
}

// Columns j0 to j0 + tile - 1 of what is right of a panel: rows of U, then the rest.
__device__ void update_tile(Shared& shared, Number* space, int n, int k0, int width, int j0) {
    const int t = threadIdx.x;
    for (int index = t; index < PANEL * tile; index += thread_count) {
        const int q = index / tile, j = j0 + index % tile;
        shared.top[index] = q < width && j < n ? space[shared.order[k0 + q] * n + j] : number(0.0);
    }
    __syncthreads();
    if (t < tile) {
        Number u[PANEL];
#pragma unroll
        for (int q = 0; q < PANEL; ++q) u[q] = shared.top[q * tile + t];
#pragma unroll
        for (int q = 0; q < PANEL; ++q)
#pragma unroll
            for (int r = q + 1; r < PANEL; ++r)
                if (r < width) subtract_product(u[r], shared.panel[q * panel_step + k0 + r], u[q]);
#pragma unroll
        for (int q = 0; q < PANEL; ++q) {
            shared.top[q * tile + t] = u[q];
            if (q < width && j0 + t < n) space[shared.order[k0 + q] * n + j0 + t] = u[q];
        }
    }
    __syncthreads();
    constexpr int each = tile / 16;  // columns of a thread
    const int across = t % 16, down = t / 16;
    for (int i0 = k0 + width; i0 < n; i0 += 64) {
        Number sums[4][each];
        Number* rows[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int i = i0 + down + 16 * r;
            rows[r] = i < n ? space + shared.order[i] * n + j0 : nullptr;
#pragma unroll
            for (int c = 0; c < each; ++c) {
                const int j = across + 16 * c;
                sums[r][c] = rows[r] && j0 + j < n ? rows[r][j] : number(0.0);
            }
        }
#pragma unroll 4
        for (int q = 0; q < width; ++q) {
            Number left[4];
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const int i = i0 + down + 16 * r;
                left[r] = shared.panel[q * panel_step + (i < n ? i : n - 1)];
            }
#pragma unroll
            for (int c = 0; c < each; ++c) {
                const Number upper = shared.top[q * tile + across + 16 * c];
#pragma unroll
                for (int r = 0; r < 4; ++r) subtract_product(sums[r][c], left[r], upper);
            }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int c = 0; c < each; ++c) {
                const int j = across + 16 * c;
                if (rows[r] && j0 + j < n) rows[r][j] = sums[r][c];
            }
    }
    __syncthreads();
}

// L U of the matrix in the space, whose rows stay where they are.
__device__ void factorize(Shared& shared, Number* space, int n, double& largest, double& smallest) {
    const int t = threadIdx.x;
    for (int i = t; i < n; i += thread_count) shared.order[i] = i;
    __syncthreads();
    for (int k0 = 0; k0 < n; k0 += PANEL) {
        const int width = n - k0 < PANEL ? n - k0 : PANEL;
        for (int index = t; index < (n - k0) * PANEL; index += thread_count) {
            const int i = k0 + index / PANEL, q = index % PANEL;
            if (q < width) shared.panel[q * panel_step + i] = space[shared.order[i] * n + k0 + q];
        }
        __syncthreads();
        eliminate_panel(shared, n, k0, width, largest, smallest);
        for (int index = t; index < (n - k0) * PANEL; index += thread_count) {
            const int i = k0 + index / PANEL, q = index % PANEL;
            if (q < width) space[shared.order[i] * n + k0 + q] = shared.panel[q * panel_step + i];
        }
        for (int j0 = k0 + width; j0 < n; j0 += tile) update_tile(shared, space, n, k0, width, j0);
        __syncthreads();
    }
}

// One block of unknowns by its diagonal block, a warp a column; then what it does to the others.
template <bool is_upper>
__device__ void substitute_piece(Shared& shared, const Number* space, int n, int columns, int s0) {
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int size = n - s0 < piece ? n - s0 : piece;
    for (int index = t; index < size * piece; index += thread_count) {
        const int i = index / piece, j = index % piece;
        if (j < size) shared.diagonal[i * (piece + 1) + j] = space[shared.order[s0 + i] * n + s0 + j];
    }
    __syncthreads();
    if (warp < columns) {
        const bool is_there = lane < size;
        Number v = is_there ? shared.x[warp * ROWS + s0 + lane] : number(0.0);
        const Number* row = shared.diagonal + (is_there ? lane : 0) * (piece + 1);
        const Number over = is_upper && is_there ? inverse(row[lane]) : number(1.0);
        for (int step = 0; step < size; ++step) {
            const int k = is_upper ? size - 1 - step : step;
            if (is_upper && lane == k) v = times(v, over);
            const Number known = from_lane(v, k, 32);
            if (is_there && (is_upper ? lane < k : lane > k)) subtract_product(v, row[k], known);
        }
        if (is_there) shared.x[warp * ROWS + s0 + lane] = v;
    }
    __syncthreads();
    const int end = is_upper ? s0 : n;
    const Columns mine(columns);
    for (int i = (is_upper ? 0 : s0 + size) + mine.row; i < end; i += mine.next_row) {
        const Number* row = space + shared.order[i] * n + s0;
        Number v[some_columns];
#pragma unroll
        for (int s = 0; s < some_columns; ++s)
            v[s] = mine.has(s) ? shared.x[mine.at(s) * ROWS + i] : number(0.0);
        for (int j = 0; j < size; ++j) {
            const Number entry = row[j];  // read once for all columns of this thread
#pragma unroll
            for (int s = 0; s < some_columns; ++s)
                if (mine.has(s)) subtract_product(v[s], entry, shared.x[mine.at(s) * ROWS + s0 + j]);
        }
#pragma unroll
        for (int s = 0; s < some_columns; ++s)
            if (mine.has(s)) shared.x[mine.at(s) * ROWS + i] = v[s];
    }
    __syncthreads();
}

// A thread block a system, one after the other, of n <= ROWS unknowns.
extern "C" __global__ void __launch_bounds__(256, 2)
solve_in_blocks(const STORED* __restrict__ a, const long long* __restrict__ a_places, long long a_step,
                long long a_down, long long a_across, const STORED* __restrict__ b,
                const long long* __restrict__ b_places, long long b_step, long long b_down,
                long long b_across, STORED* __restrict__ x, double* __restrict__ bounds, int count, int n,
                int columns, double tolerance, double growth, double exact_error, double suspicious,
                double least, double most, int corrections, unsigned long long* newest, long long ticket,
                double* spaces) {
    __shared__ __align__(16) unsigned char memory[sizeof(Shared)];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Gate gate = {tolerance, growth, exact_error, suspicious, least, most};
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    Number* space = reinterpret_cast<Number*>(spaces) + blockIdx.x * (static_cast<long long>(n) * (n + 2 * most_columns));
    Number* y = space + static_cast<long long>(n) * n;  // by columns, as x is in shared memory
    Number* r = y + n * most_columns;
    const Rows mine(a_across == 1);
    for (long long system = blockIdx.x; system < count; system += gridDim.x) {
        const STORED* matrix = a + parts * ((a_places ? a_places[system] : system) * a_step);
        const STORED* right = b + parts * ((b_places ? b_places[system] : system) * b_step);
        double norm = 0;
        for (int i0 = 0; i0 < n; i0 += mine.next) {  // the same for all: they add up their sums
            const int i = i0 + mine.first;
            double sum = 0;
            for (int j = mine.lane; i < n && j < n; j += mine.lanes) {
                const Number entry = read(matrix + parts * (i * a_down + j * a_across));
                space[i * n + j] = entry;
                sum += magnitude(entry);
            }
            for (int step = 16; step > 0 && mine.lanes > 1; step /= 2)
                sum += __shfl_xor_sync(all_lanes, sum, step);
            norm = larger(norm, sum);
        }
        norm = norm_of(largest_of_block(shared, norm));
        double largest = 0, smallest = infinite, worst = 0;
        factorize(shared, space, n, largest, smallest);
        bool is_accepted = smallest > gate.suspicious * largest;
        for (int first = 0; is_accepted && first < columns; first += most_columns) {
            const int some = columns - first < most_columns ? columns - first : most_columns;
            const auto given = [&](int i, int c) {
                return read(right + parts * (i * b_down + (first + c) * b_across));
            };
            for (int index = t; index < n * some; index += thread_count) {
                const int i = index / some, c = index % some;
                y[c * n + i] = number(0.0), r[c * n + i] = given(i, c);
            }
            if (t < most_columns) shared.bounds[t] = infinite;
            __syncthreads();
            for (int steps = 0;; ++steps) {
                for (int index = t; index < n * some; index += thread_count) {
                    const int i = index % n, c = index / n;
                    shared.x[c * ROWS + i] = r[c * n + shared.order[i]];
                }
                __syncthreads();
                for (int s0 = 0; s0 < n; s0 += piece) substitute_piece<false>(shared, space, n, some, s0);
                for (int s0 = (n - 1) / piece * piece; s0 >= 0; s0 -= piece)
                    substitute_piece<true>(shared, space, n, some, s0);
                for (int index = t; index < n * some; index += thread_count) {
                    const int i = index % n, c = index / n;
                    // An answer that has passed stays as it is, whoever is beside it.
                    if (!(shared.bounds[c] <= gate.tolerance))
                        y[c * n + i] = added(y[c * n + i], shared.x[c * ROWS + i]);
                    shared.x[c * ROWS + i] = rounded(y[c * n + i]);
                }
                __syncthreads();
                if (mine.lanes > 1 && some < some_columns)
                    for (int i = mine.first; i < n; i += mine.next) {
                        Dot dots[some_columns - 1];
#pragma unroll
                        for (int c = 0; c < some_columns - 1; ++c) dots[c].clear();
                        for (int j = mine.lane; j < n; j += mine.lanes) {
                            const Number entry = read(matrix + parts * (i * a_down + j * a_across));
#pragma unroll
                            for (int c = 0; c < some_columns - 1; ++c)
                                if (c < some) dots[c].add_product(entry, shared.x[c * ROWS + j]);
                        }
#pragma unroll
                        for (int c = 0; c < some_columns - 1; ++c) {
                            if (c >= some) continue;
                            dots[c].add_lanes();
                            if (mine.lane == 0) r[c * n + i] = dots[c].subtracted_from(given(i, c));
                        }
                    }
                else {  // with many columns, no sum over lanes is worth its while
                    const Columns own(some);
                    for (int i = own.row; i < n; i += own.next_row) {
                        Dot dots[some_columns];
#pragma unroll
                        for (int s = 0; s < some_columns; ++s) dots[s].clear();
                        for (int j = 0; j < n; ++j) {
                            const Number entry = read(matrix + parts * (i * a_down + j * a_across));
#pragma unroll
                            for (int s = 0; s < some_columns; ++s)
                                if (own.has(s)) dots[s].add_product(entry, shared.x[own.at(s) * ROWS + j]);
                        }
#pragma unroll
                        for (int s = 0; s < some_columns; ++s)
                            if (own.has(s))
                                r[own.at(s) * n + i] = dots[s].subtracted_from(given(i, own.at(s)));
                    }
                }
                __syncthreads();
                if (warp < some) {
                    double x_norm = 0, b_norm = 0, r_norm = 0;
                    for (int i = lane; i < n; i += 32) {
                        x_norm = larger(x_norm, measure(shared.x[warp * ROWS + i]));
                        b_norm = larger(b_norm, measure(given(i, warp)));
                        r_norm = larger(r_norm, measure(r[warp * n + i]));
                    }
                    x_norm = modulus_of(largest_of_lanes(x_norm, 32));
                    b_norm = modulus_of(largest_of_lanes(b_norm, 32));
                    r_norm = modulus_of(largest_of_lanes(r_norm, 32));
                    if (lane == 0) shared.bounds[warp] = gate.bound(norm, x_norm, b_norm, r_norm);
                }
                __syncthreads();
                double bound = 0;
                for (int c = 0; c < some; ++c) bound = larger(bound, shared.bounds[c]);
                if (bound <= gate.tolerance || !isfinite(bound) || steps == corrections) {
                    is_accepted = bound <= gate.tolerance, worst = larger(worst, bound);
                    break;
                }
            }
            for (int index = t; index < n * some; index += thread_count) {
                const int i = index / some, c = index % some;
                write(x + parts * ((system * n + i) * columns + first + c), shared.x[c * ROWS + i]);
            }
            __syncthreads();
        }
        if (t == 0) bounds[system] = is_accepted ? worst : infinite;
        if (t == 0 && !is_accepted) atomicMax(newest, static_cast<unsigned long long>(ticket));
        __syncthreads();
    }
}
