// LU on the device: what a panel of W columns needs, for REAL = float or double.
//
// The matrix is stored by rows with leading dimension ld. A panel is factorized in three steps:
//   select_pivots  finds W pivot rows (among a window of rows, or by a tournament over all) and leaves
//                  their factors in a W x W block, and the moves that bring them to the top;
//   permute        moves the rows;
//   spread         computes the other rows of L and the panel's rows of U from the W x W block.
// Where pivots stay on the diagonal, factor_top takes the place of the first two.
// A thread keeps a row in registers.

constexpr int W = 64;
constexpr int PHASE = 16;
constexpr int GROUP = 256;  // the most rows that one thread block selects pivots from
constexpr int WARPS = GROUP / 32;
constexpr int LANES = 16 / sizeof(REAL);  // numbers in 16 bytes, which are moved at once
constexpr unsigned ALL = 0xffffffffu;

struct __align__(16) Pack {
    REAL v[LANES];
};

__device__ __forceinline__ const Pack& pack(const REAL* place) {
    return *reinterpret_cast<const Pack*>(place);
}
__device__ __forceinline__ Pack& pack(REAL* place) { return *reinterpret_cast<Pack*>(place); }

// The register that holds entry `column` of a row whose W steps are done.
__device__ constexpr int register_of(int column) {
    return W - PHASE - column / PHASE * PHASE + column % PHASE;
}

__device__ __forceinline__ unsigned size_key(float x) { return __float_as_uint(fabsf(x)); }
__device__ __forceinline__ unsigned size_key(double x) {
    return static_cast<unsigned>(__double2hiint(fabs(x)));
}

__device__ __forceinline__ bool is_usable(REAL x) { return x != 0 && isfinite(x); }

// Loads the w numbers at place (the rest is zero); 16 bytes at a time where all W are there.
__device__ __forceinline__ void load_row(REAL (&r)[W], const REAL* place, int w) {
    if (w == W) {
#pragma unroll
        for (int k = 0; k < W; k += LANES) {
            const Pack p = pack(place + k);
#pragma unroll
            for (int i = 0; i < LANES; ++i) r[k + i] = p.v[i];
        }
    } else {
#pragma unroll
        for (int k = 0; k < W; ++k) r[k] = k < w ? place[k] : REAL(0);
    }
}

// One step of substitution with what the pivot row has behind the pivot: N registers are in play.
// They are shifted by one, so that the current column is always in register 0 and the loop over
// columns need not be unrolled; the multiplier goes into the register that is left free. After every
// PHASE steps the last registers, full of multipliers, are left alone, and loops become shorter.
template <int N>
__device__ __forceinline__ void subtract(REAL (&r)[W], REAL multiplier, const REAL* behind) {
#pragma unroll
    for (int k = 0; k < N; k += LANES) {
        const Pack u = pack(behind + k);
#pragma unroll
        for (int i = 0; i < LANES; ++i)
            if (k + i + 1 < N) r[k + i] = r[k + i + 1] - multiplier * u.v[i];
    }
    r[N - 1] = multiplier;
}

// 1 / x to about the last bit, without the detours for tiny and huge x, whose results are not finite:
// other rows wait for it.
__device__ __forceinline__ REAL quick_inverse(REAL x) {
#ifdef ON_THE_CPU
    return REAL(1) / x;
#else
    REAL y;
    if constexpr (sizeof(REAL) == 4)
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reinterpret_cast<float&>(y)) : "f"(static_cast<float>(x)));
    else
        asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(reinterpret_cast<double&>(y)) : "d"(static_cast<double>(x)));
#pragma unroll
    for (int i = 0; i < sizeof(REAL); i += 4) y += y * (REAL(1) - x * y);  // Newton; double has 20 bits
    return y;
#endif
}

struct Candidates {
    REAL behind[2][WARPS][PHASE];  // the pivot row of each warp, twice: one step writes, one reads
    REAL inverse[2][WARPS];
    unsigned key[2][WARPS];
};

// The rows that a phase has chosen: the columns behind it, and those of the phase itself.
struct PivotRows {
    REAL rest[PHASE][W - PHASE + LANES];  // a little longer, so that rows are in different banks
    REAL own[PHASE][PHASE + LANES];
};

// Writes what a row has behind column i of its phase, for the others to read.
__device__ __forceinline__ void propose(const REAL (&r)[W], int i, REAL* behind) {
#pragma unroll
    for (int k = 0; k < PHASE; k += LANES) {
        if (k + LANES <= i + 1) continue;
        Pack p;
#pragma unroll
        for (int l = 0; l < LANES; ++l) p.v[l] = r[k + l];
        pack(behind + k) = p;
    }
}

// The largest of the keys that the warps proposed.
__device__ __forceinline__ unsigned largest(const unsigned (&keys)[WARPS]) {
    unsigned top = 0;
#pragma unroll
    for (int k = 0; k < WARPS; k += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(&keys[k]);
        top = max(top, max(max(four.x, four.y), max(four.z, four.w)));
    }
    return top;
}

// What a thread knows about its row.
struct RowState {
    bool is_active;  // not yet chosen as a pivot row
    int step = -1;  // at which it was chosen
};

// PHASE steps, whose columns are the first PHASE registers; returns whether there were rows for all
// of them. With ON_DIAGONAL, row j is the pivot row of step j. Otherwise it is the row with the largest
// entry in column j, or one whose entry is smaller by a relative 2^-12 at most.
template <bool ON_DIAGONAL>
__device__ __forceinline__ bool select_phase(REAL (&r)[W], int phase, RowState& row, int w,
                                             Candidates& candidates) {
    const unsigned t = threadIdx.x, warp = t / 32;
#pragma unroll
    for (int i = 0; i < PHASE; ++i) {
        const int j = PHASE * phase + i, side = i & 1;
        if (j >= w) break;
        bool is_pivot = t == j, is_proposed = is_pivot;
        unsigned key = 0, slot = ON_DIAGONAL ? 0 : warp;
        const REAL inverse = quick_inverse(r[i]);
        if constexpr (!ON_DIAGONAL) {
            // The last 8 bits tell the thread, so that no two keys are equal.
            key = row.is_active ? (size_key(r[i]) & ~255u) + 256u - t : 0u;
            const unsigned most = __reduce_max_sync(ALL, key);
            is_proposed = most ? key == most : t % 32 == 0;  // one thread of each warp
        }
        if (is_proposed) {
            candidates.key[side][slot] = key;
            candidates.inverse[side][slot] = inverse;
            propose(r, i, candidates.behind[side][slot]);
        }
        __syncthreads();
        if constexpr (!ON_DIAGONAL) {
            const unsigned top = largest(candidates.key[side]);
            if (top == 0) return false;  // fewer than w rows in all
            is_pivot = key == top;
            slot = ((0u - top) & 255u) / 32;
        }
        row.step = is_pivot ? j : row.step;
        row.is_active = row.is_active && !is_pivot;
        // No branch: rows that were chosen before subtract nothing.
        const REAL multiplier = row.is_active ? r[i] * candidates.inverse[side][slot] : REAL(0);
        const REAL* behind = candidates.behind[side][slot];
#pragma unroll
        for (int k = 0; k < PHASE; k += LANES) {
            if (k + LANES <= i + 1) continue;
            const Pack u = pack(behind + k);
#pragma unroll
            for (int l = 0; l < LANES; ++l)
                if (k + l > i) r[k + l] -= multiplier * u.v[l];
        }
        r[i] = row.is_active ? multiplier : r[i];
    }
    return true;
}

// The columns behind a phase whose PHASE steps are done; they are in the registers PHASE and on.
__device__ __forceinline__ void update_behind(REAL (&r)[W], int phase, const RowState& row,
                                              PivotRows& rows) {
    const int place = row.step - PHASE * phase, rest = W - PHASE * (phase + 1), t = threadIdx.x;
    if (place >= 0) {
#pragma unroll
        for (int k = 0; k < W; k += LANES) {
            Pack p;
#pragma unroll
            for (int l = 0; l < LANES; ++l) p.v[l] = r[k + l];
            pack(k < PHASE ? &rows.own[place][k] : &rows.rest[place][k - PHASE]) = p;
        }
    }
    __syncthreads();
    if (t < rest) {
        REAL u[PHASE];
#pragma unroll
        for (int s = 0; s < PHASE; ++s) u[s] = rows.rest[s][t];
#pragma unroll
        for (int j = 0; j < PHASE; ++j)
#pragma unroll
            for (int s = j + 1; s < PHASE; ++s) u[s] -= rows.own[s][j] * u[j];
#pragma unroll
        for (int s = 1; s < PHASE; ++s) rows.rest[s][t] = u[s];
    }
    __syncthreads();
#pragma unroll
    for (int first = 0; first < W - PHASE; first += PHASE) {
        if (first >= rest) break;
        if (row.is_active) {
#pragma unroll
            for (int s = 0; s < PHASE; ++s)
#pragma unroll
                for (int k = first; k < first + PHASE; k += LANES) {
                    const Pack u = pack(&rows.rest[s][k]);
#pragma unroll
                    for (int l = 0; l < LANES; ++l) r[PHASE + k + l] -= r[s] * u.v[l];
                }
        } else if (place >= 0) {
#pragma unroll
            for (int k = first; k < first + PHASE; k += LANES) {
                const Pack u = pack(&rows.rest[place][k]);
#pragma unroll
                for (int l = 0; l < LANES; ++l) r[PHASE + k + l] = u.v[l];
            }
        }
    }
}

// Eliminates w columns from rows in registers, W of them in each thread. Where pivots are selected,
// all rows wait for every step: it touches the columns of its phase alone, and those behind follow
// when the phase ends, PHASE steps at once. Then the registers are rotated, so that the next
// phase's columns come first, and the code of one phase serves all.
template <bool ON_DIAGONAL>
__device__ __forceinline__ void eliminate(REAL (&r)[W], RowState& row, int w, Candidates& candidates,
                                          PivotRows& rows) {
    if (threadIdx.x < WARPS) candidates.key[0][threadIdx.x] = candidates.key[1][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 1
    for (int phase = 0; phase < W / PHASE; ++phase) {
        if (!select_phase<ON_DIAGONAL>(r, phase, row, w, candidates)) return;
        if (PHASE * (phase + 1) < w) update_behind(r, phase, row, rows);
        REAL done[PHASE];
#pragma unroll
        for (int k = 0; k < PHASE; ++k) done[k] = r[k];
#pragma unroll
        for (int k = 0; k < W - PHASE; ++k) r[k] = r[k + PHASE];
#pragma unroll
        for (int k = 0; k < PHASE; ++k) r[W - PHASE + k] = done[k];
    }
}

// Writes a chosen row's factors to its place in the W x W block, and notes a bad pivot.
__device__ __forceinline__ void write_factors(const REAL (&r)[W], const RowState& row, int col0,
                                              REAL* __restrict__ block, int* __restrict__ status) {
    if (row.step < 0) return;
    REAL pivot = 1;
#pragma unroll
    for (int k = 0; k < W; k += LANES) {
        Pack p;
#pragma unroll
        for (int l = 0; l < LANES; ++l) {
            p.v[l] = r[k + l];
            pivot = k + l == row.step ? r[k + l] : pivot;
        }
        pack(block + row.step * W + k) = p;
    }
    if (!is_usable(pivot)) atomicMin(status, col0 + row.step);
}

// Factors of the W x W block on the diagonal, whose own rows are the pivots, by W threads.
extern "C" __global__ void __launch_bounds__(W)
factor_top(const REAL* __restrict__ a, long long ld, int row0, int w, REAL* __restrict__ block,
           int* __restrict__ status) {
    __shared__ __align__(16) Candidates proposed;
    __shared__ __align__(16) PivotRows rows_chosen;
    const int t = threadIdx.x;
    RowState row{t < w};
    REAL r[W];
    load_row(r, a + static_cast<long long>(row0 + (t < w ? t : 0)) * ld + row0, w);
    eliminate<true>(r, row, w, proposed, rows_chosen);
    write_factors(r, row, row0, block, status);
}

// How many of the threads before this one, among the first 64, have a flag set.
__device__ __forceinline__ int flags_before(bool flag, unsigned (&masks)[2]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned mask = __ballot_sync(ALL, flag);
    if (warp < 2 && lane == 0) masks[warp] = mask;
    __syncthreads();
    return __popc(mask & ((1u << lane) - 1)) + (warp == 1 ? __popc(masks[0]) : 0);
}

// One thread block selects the w best of its blockDim.x rows by elimination with partial pivoting.
// They are candidates[blockDim.x * block ...] where given, else consecutive ones from row0 on;
// candidate -1 is none. Their numbers count from row0. The last round (is_last, one block) also
// writes the factors of the winners and the moves, and records the first column without a pivot.
extern "C" __global__ void __launch_bounds__(GROUP, 1)
select_pivots(const REAL* __restrict__ a, long long ld, int row0, int col0, int w, int rows,
              const int* __restrict__ candidates, int* __restrict__ winners, int is_last,
              REAL* __restrict__ block, int* __restrict__ moves, int* __restrict__ status) {
    __shared__ __align__(16) Candidates proposed;
    __shared__ __align__(16) PivotRows rows_chosen;
    __shared__ int chosen[W], is_top_chosen[W];
    __shared__ unsigned freed[2], left_over[2];
    const int t = threadIdx.x, place = blockIdx.x * blockDim.x + t;
    const int number = place >= rows ? -1 : candidates ? candidates[place] : place;
    RowState row{number >= 0};
    REAL r[W];
    load_row(r, a + static_cast<long long>(row0 + (number < 0 ? 0 : number)) * ld + col0, w);
    eliminate<false>(r, row, w, proposed, rows_chosen);
    if (!is_last) {
        if (t < W) winners[blockIdx.x * W + t] = -1;
        __syncthreads();
        if (row.step >= 0) winners[blockIdx.x * W + row.step] = number;
        return;
    }
    if (t < W) is_top_chosen[t] = 0, chosen[t] = 0;
    if (t < 2 * W) moves[t] = moves[2 * W + t] = -1;
    __syncthreads();
    if (row.step >= 0) {
        chosen[row.step] = number;
        if (number < w) is_top_chosen[number] = 1;
    }
    write_factors(r, row, col0, block, status);
    __syncthreads();
    // Row chosen[i] moves to i; rows of the top that were not chosen fill the places left free.
    const bool frees = t < w && chosen[t] >= w, is_left_over = t < w && !is_top_chosen[t];
    const int free_before = flags_before(frees, freed), left_before = flags_before(is_left_over, left_over);
    if (t < w) moves[t] = t, moves[2 * W + t] = chosen[t];
    if (frees) moves[W + free_before] = chosen[t];
    if (is_left_over) moves[3 * W + left_before] = t;
}

// Applies the moves of `count` panels, W rows apart, in turn. Each thread block has a strip of
// STRIP columns; the columns [skip, skip + skipped) are left out. The last block moves `order`,
// the numbers of the rows, if it is given.
constexpr int STRIP = 16, MOVED = 2 * W * STRIP / 256;

extern "C" __global__ void __launch_bounds__(256)
permute(REAL* __restrict__ a, long long ld, int row0, int columns, int skip, int skipped,
        const int* __restrict__ moves, int count, int* __restrict__ order) {
    __shared__ int to[2 * W], from[2 * W];
    const int t = threadIdx.x, c = t % STRIP, place = blockIdx.x * STRIP + c;
    const bool moves_order = order && blockIdx.x == gridDim.x - 1;
    const int column = place < skip ? place : place + skipped;
    for (int p = 0; p < count; ++p, moves += 4 * W, row0 += W) {
        if (t < 2 * W) to[t] = moves[t], from[t] = moves[2 * W + t];
        __syncthreads();
        if (moves_order) {
            const bool is_moved = t < 2 * W && to[t] >= 0;
            const int held = is_moved ? order[row0 + from[t]] : 0;
            __syncthreads();
            if (is_moved) order[row0 + to[t]] = held;
        } else {
            REAL held[MOVED];
#pragma unroll
            for (int i = 0; i < MOVED; ++i) {
                const int move = i * (256 / STRIP) + t / STRIP;
                const bool is_moved = place < columns && to[move] >= 0 && to[move] != from[move];
                held[i] = is_moved ? a[static_cast<long long>(row0 + from[move]) * ld + column] : REAL(0);
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < MOVED; ++i) {
                const int move = i * (256 / STRIP) + t / STRIP;
                const bool is_moved = place < columns && to[move] >= 0 && to[move] != from[move];
                if (is_moved) a[static_cast<long long>(row0 + to[move]) * ld + column] = held[i];
            }
        }
        __syncthreads();
    }
}

template <int N>
__device__ __forceinline__ void substitute_phase(REAL (&r)[W], const REAL (*s)[W],
                                                 const REAL* inverse) {
    for (int i = 0; i < PHASE; ++i) {
        const int j = W - N + i;
        subtract<N>(r, r[0] * inverse[j], s[j]);
    }
}

// Substitution of a row (or column) in registers; s[j] holds what follows the diagonal in step j,
// shifted to the front. Entry i of the result is in register register_of(i).
__device__ __forceinline__ void substitute(REAL (&r)[W], const REAL (*s)[W], const REAL* inverse) {
    substitute_phase<W>(r, s, inverse);
    substitute_phase<W - PHASE>(r, s, inverse);
    substitute_phase<W - 2 * PHASE>(r, s, inverse);
    substitute_phase<W - 3 * PHASE>(r, s, inverse);
}

// Loads 16 bytes of a W x W block, of which only w rows and columns are there.
__device__ __forceinline__ Pack load_pack(const REAL* __restrict__ block, long long ld, int w,
                                          int row, int column) {
    const REAL* place = block + row * ld + column;
    if (w == W) return pack(place);
    Pack p;
#pragma unroll
    for (int i = 0; i < LANES; ++i) p.v[i] = row < w && column + i < w ? place[i] : REAL(0);
    return p;
}

// Loads the triangle of a W x W block for `substitute`: U by rows, or unit L by columns.
template <int THREADS>
__device__ void load_triangle(const REAL* __restrict__ block, long long ld, int w, bool is_upper,
                              REAL (*s)[W], REAL* inverse) {
#pragma unroll 8
    for (int i = threadIdx.x; i < W * W / LANES; i += THREADS) {
        const int row = i % W, first = i / W * LANES;
        const Pack p = load_pack(block, ld, w, row, first);
#pragma unroll
        for (int l = 0; l < LANES; ++l) {
            const int column = first + l;
            if (row == column) inverse[row] = is_upper && row < w ? REAL(1) / p.v[l] : REAL(1);
            const int j = is_upper ? row : column, other = is_upper ? column : row;
            if (other > j) s[j][other - j - 1] = p.v[l];
            else s[j][W - 1 - other] = REAL(0);  // what is left of row j, from its end on
        }
    }
    __syncthreads();
}

// Completes a panel whose top W x W block is factorized. Thread blocks below_blocks and on solve
// with L for the columns right of the panel (to the end of the outer panel); those before, with U
// for the rows below. The last one copies the block itself to its place.
constexpr int SPREAD = 128;

extern "C" __global__ void __launch_bounds__(SPREAD)
spread(REAL* __restrict__ a, long long ld, int row0, int col0, int w, int n, int right_end,
       const REAL* __restrict__ block, int below_blocks) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int t = threadIdx.x;
    if (blockIdx.x == gridDim.x - 1) {
        for (int i = t; i < w * w; i += SPREAD)
            a[static_cast<long long>(row0 + i / w) * ld + col0 + i % w] = block[i / w * W + i % w];
        return;
    }
    const bool is_below = blockIdx.x < below_blocks;
    load_triangle<SPREAD>(block, W, w, is_below, s, inverse);
    REAL r[W];
    if (is_below) {  // then w is W
        const int row = row0 + W + blockIdx.x * SPREAD + t;
        if (row >= n) return;
        REAL* place = a + static_cast<long long>(row) * ld + col0;
        load_row(r, place, W);
        substitute(r, s, inverse);
#pragma unroll
        for (int k = 0; k < W; k += LANES) {
            Pack p;
#pragma unroll
            for (int i = 0; i < LANES; ++i) p.v[i] = r[register_of(k + i)];
            pack(place + k) = p;
        }
    } else {
        const int column = col0 + w + (blockIdx.x - below_blocks) * SPREAD + t;
        if (column >= right_end) return;
        REAL* place = a + static_cast<long long>(row0) * ld + column;
#pragma unroll
        for (int k = 0; k < W; ++k) r[k] = k < w ? place[k * ld] : REAL(0);
        substitute(r, s, inverse);
#pragma unroll
        for (int k = 0; k < W; ++k)
            if (k < w) place[k * ld] = r[register_of(k)];
    }
}

// Solves with the unit lower triangle of `count` panels from row0 on, for the columns from `first`
// to `end`: a thread has a column, and W of its rows at a time.
extern "C" __global__ void __launch_bounds__(SPREAD)
solve_top(REAL* __restrict__ a, long long ld, int row0, int count, int first, int end) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int column = first + blockIdx.x * SPREAD + threadIdx.x;
    REAL* place = a + static_cast<long long>(row0) * ld + min(column, end - 1);
    for (int i = 0; i < count; ++i) {
        REAL r[W];
#pragma unroll
        for (int k = 0; k < W; ++k) r[k] = place[(i * W + k) * ld];
        for (int j = 0; j < i; ++j) {
            const REAL* tile = a + static_cast<long long>(row0 + i * W) * ld + row0 + j * W;
#pragma unroll 8
            for (int l = threadIdx.x; l < W * W / LANES; l += SPREAD) {
                const int row = l % W, from = l / W * LANES;
                const Pack p = pack(tile + row * ld + from);
#pragma unroll
                for (int m = 0; m < LANES; ++m) s[from + m][row] = p.v[m];
            }
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < W; ++k) {
                const REAL u = place[(j * W + k) * ld];
#pragma unroll
                for (int m = 0; m < W; m += LANES) {
                    const Pack l = pack(&s[k][m]);
#pragma unroll
                    for (int q = 0; q < LANES; ++q) r[m + q] -= l.v[q] * u;
                }
            }
            __syncthreads();
        }
        const REAL* tile = a + static_cast<long long>(row0 + i * W) * ld + row0 + i * W;
        load_triangle<SPREAD>(tile, ld, W, false, s, inverse);
        substitute(r, s, inverse);
        if (column < end)
#pragma unroll
            for (int k = 0; k < W; ++k) place[(i * W + k) * ld] = r[register_of(k)];
        __syncthreads();
    }
}

// Fills what elimination starts from: rows in their order, no inverses yet, and no failure.
extern "C" __global__ void __launch_bounds__(256)
prepare(int n, int* __restrict__ order, long long count, REAL* __restrict__ inverse_L,
        REAL* __restrict__ inverse_U, int failures, int* __restrict__ status) {
    const long long first = blockIdx.x * 256 + threadIdx.x;
    for (long long i = first; i < count; i += gridDim.x * 256) {
        if (i < n) order[i] = static_cast<int>(i);
        if (i < failures) status[i] = 0x7fffffff;
        inverse_L[i] = inverse_U[i] = 0;
    }
}

// The magnitudes of the diagonal.
extern "C" __global__ void __launch_bounds__(256)
sizes_of_diagonal(const REAL* __restrict__ a, long long ld, int n, double* __restrict__ sizes) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) sizes[i] = fabs(static_cast<double>(a[i * (ld + 1)]));
}

// Copies rows, one a thread block, 16 bytes at a time: a few numbers behind the last may be copied.
extern "C" __global__ void __launch_bounds__(SPREAD)
copy_rows(const REAL* __restrict__ from, long long ld, int rows, int columns, REAL* __restrict__ to,
          long long to_ld) {
    const long long row = blockIdx.x;
    for (int c = threadIdx.x * LANES; c < columns; c += SPREAD * LANES)
        pack(to + row * to_ld + c) = pack(from + row * ld + c);
}

// Inverts the W x W diagonal tiles of L (unit) or of U. Tile i starts at row and column i W; its
// inverse goes to inv + (i W) * inv_ld + (i W) % inv_ld.
extern "C" __global__ void __launch_bounds__(W)
invert_tiles(const REAL* __restrict__ a, long long ld, int n, int is_upper, REAL* __restrict__ inv,
             int inv_ld) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int t = threadIdx.x, start = blockIdx.x * W, w = min(W, n - start);
    const REAL* tile = a + static_cast<long long>(start) * ld + start;
    // Columns of L's inverse solve L y = e; rows of U's inverse solve y U = e.
    load_triangle<W>(tile, ld, w, is_upper, s, inverse);
    REAL r[W];
#pragma unroll
    for (int k = 0; k < W; ++k) r[k] = k == t ? REAL(1) : REAL(0);
    substitute(r, s, inverse);
    REAL* out = inv + static_cast<long long>(start) * inv_ld + start % inv_ld;
    if (t >= w) return;
#pragma unroll
    for (int k = 0; k < W; ++k) {
        if (k >= w) break;
        const REAL value = r[register_of(k)];
        if (is_upper)
            out[static_cast<long long>(t) * inv_ld + k] = value;
        else
            out[static_cast<long long>(k) * inv_ld + t] = value;
    }
}
