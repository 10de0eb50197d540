// LU on the device: what a panel of W columns needs, for REAL = float or double.
//
// The matrix is stored by rows with leading dimension ld. A panel is factorized in three steps:
//   select_pivots  finds W pivot rows (among a window of rows, or by a tournament over all) and leaves
//                  their factors in a W x W block, and the moves that bring them to the top;
//   permute        moves the rows;
//   spread         computes the other rows of L and the panel's rows of U from the W x W block.
// A thread keeps one or two rows in registers. Each step of elimination shifts them by one, so that the
// current column is always in register 0 and the loop over columns need not be unrolled. The
// multiplier goes into the register that is left free. After every PHASE steps the last registers,
// full of multipliers, are left alone, and loops become shorter.

constexpr int W = 64;
constexpr int PHASE = 16;
constexpr int ROWS = sizeof(REAL) == 4 ? 2 : 1;  // of a thread: as many as registers can hold
constexpr int GROUP = 256;  // the most rows that one thread block selects pivots from
constexpr int WARPS = GROUP / ROWS / 32;
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

// One step with what the pivot row has behind the pivot: N registers of each row are in play.
template <int N>
__device__ __forceinline__ void subtract(REAL (&r)[ROWS][W], const REAL (&multiplier)[ROWS],
                                         const REAL* behind) {
#pragma unroll
    for (int k = 0; k < N; k += LANES) {
        const Pack u = pack(behind + k);
#pragma unroll
        for (int i = 0; i < LANES; ++i)
#pragma unroll
            for (int q = 0; q < ROWS; ++q)
                if (k + i + 1 < N) r[q][k + i] = r[q][k + i + 1] - multiplier[q] * u.v[i];
    }
#pragma unroll
    for (int q = 0; q < ROWS; ++q) r[q][N - 1] = multiplier[q];
}

struct Candidates {
    REAL behind[2][WARPS][W];  // the pivot row of each warp, twice: one step writes, one reads
    REAL inverse[2][WARPS];
    unsigned key[2][WARPS];
};

// Writes what row r has behind its pivot in step i of a phase, for the others to read.
template <int N>
__device__ __forceinline__ void propose(const REAL (&r)[W], int i, REAL* behind) {
#pragma unroll
    for (int k = 0; k < N; k += LANES) {
        Pack p;
#pragma unroll
        for (int l = 0; l < LANES; ++l) {
            // Multipliers, behind the columns that are left, must not be subtracted.
            const int from = k + l + 1;
            const bool is_column = from < N - PHASE + 1 || from < N - i;
            p.v[l] = is_column && from < N ? r[from < N ? from : 0] : REAL(0);
        }
        pack(behind + k) = p;
    }
}

// The rows of one thread while pivots are selected.
struct Mine {
    REAL r[ROWS][W], multiplier[ROWS];
    bool is_active[ROWS];
    int step[ROWS];  // at which a row was chosen
};

// PHASE steps with N registers in play; returns whether there were rows for all of them.
template <int N>
__device__ __forceinline__ bool select_phase(Mine& mine, int w, Candidates& candidates) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int i = 0; i < PHASE; ++i) {
        const int j = W - N + i, side = i & 1;
        if (j >= w) return false;
        unsigned key = mine.is_active[0] ? size_key(mine.r[0][0]) + 1u : 0u;
        int which = 0;
        if (ROWS > 1) {
            const unsigned other = mine.is_active[ROWS - 1] ? size_key(mine.r[ROWS - 1][0]) + 1u : 0u;
            if (other > key) key = other, which = ROWS - 1;
        }
        const REAL inverse = REAL(1) / (which ? mine.r[ROWS - 1][0] : mine.r[0][0]);
        const unsigned best = __reduce_max_sync(ALL, key);
        const int leader = __ffs(__ballot_sync(ALL, key == best)) - 1;
        if (lane == leader) {
            candidates.key[side][warp] = best;
            candidates.inverse[side][warp] = inverse;
            if (which)
                propose<N>(mine.r[ROWS - 1], i, candidates.behind[side][warp]);
            else
                propose<N>(mine.r[0], i, candidates.behind[side][warp]);
        }
        __syncthreads();
        const unsigned of_lane = lane < warps ? candidates.key[side][lane] : 0u;
        const unsigned top = __reduce_max_sync(ALL, of_lane);
        if (top == 0) return false;  // fewer than w rows in all
        const int winner = __ffs(__ballot_sync(ALL, of_lane == top)) - 1;
        if (warp == winner && lane == leader) {
#pragma unroll
            for (int q = 0; q < ROWS; ++q)
                if (q == which) mine.step[q] = j, mine.is_active[q] = false;
        }
        const REAL* behind = candidates.behind[side][winner];
        const REAL scale = candidates.inverse[side][winner];
        // The registers of a chosen row stay as they are.
#pragma unroll
        for (int k = 0; k < N; k += LANES) {
            const Pack u = pack(behind + k);
#pragma unroll
            for (int q = 0; q < ROWS; ++q) {
                if (!mine.is_active[q]) continue;
                const REAL multiplier = k == 0 ? mine.r[q][0] * scale : mine.multiplier[q];
                if (k == 0) mine.multiplier[q] = multiplier;
#pragma unroll
                for (int l = 0; l < LANES; ++l)
                    if (k + l + 1 < N)
                        mine.r[q][k + l] = mine.r[q][k + l + 1] - multiplier * u.v[l];
            }
        }
#pragma unroll
        for (int q = 0; q < ROWS; ++q)
            if (mine.is_active[q]) mine.r[q][N - 1] = mine.multiplier[q];
    }
    return true;
}

// One thread block selects the w best of its (at most GROUP) rows by elimination with partial
// pivoting. It has ROWS blockDim.x rows, candidates[those of the block] where given, else
// consecutive ones from row0 on; candidate -1 is none. Their numbers count from row0. The last round
// (is_last, one block) also writes the factors of the winners and the moves, and records the first
// column without a pivot.
extern "C" __global__ void __launch_bounds__(GROUP / ROWS, 1)
select_pivots(const REAL* __restrict__ a, long long ld, int row0, int col0, int w, int rows,
              const int* __restrict__ candidates, int* __restrict__ winners, int is_last,
              REAL* __restrict__ block, int* __restrict__ moves, int* __restrict__ status) {
    __shared__ __align__(16) Candidates proposed;
    __shared__ int chosen[W], is_top_chosen[W];
    const int t = threadIdx.x;
    Mine mine;
    int row[ROWS];
#pragma unroll
    for (int q = 0; q < ROWS; ++q) {
        const int place = (blockIdx.x * ROWS + q) * blockDim.x + t;
        row[q] = place >= rows ? -1 : candidates ? candidates[place] : place;
        mine.is_active[q] = row[q] >= 0;
        mine.step[q] = -1;
        load_row(mine.r[q], a + static_cast<long long>(row0 + (row[q] < 0 ? 0 : row[q])) * ld + col0, w);
    }
    static_assert(W == 4 * PHASE);
    select_phase<W>(mine, w, proposed) && select_phase<W - PHASE>(mine, w, proposed) &&
        select_phase<W - 2 * PHASE>(mine, w, proposed) &&
        select_phase<W - 3 * PHASE>(mine, w, proposed);
    if (!is_last) {
        for (int i = t; i < W; i += blockDim.x) winners[blockIdx.x * W + i] = -1;
        __syncthreads();
#pragma unroll
        for (int q = 0; q < ROWS; ++q)
            if (mine.step[q] >= 0) winners[blockIdx.x * W + mine.step[q]] = row[q];
        return;
    }
    for (int i = t; i < W; i += blockDim.x) is_top_chosen[i] = 0;
    for (int i = t; i < 4 * W; i += blockDim.x) moves[i] = -1;
    __syncthreads();
#pragma unroll
    for (int q = 0; q < ROWS; ++q) {
        const int step = mine.step[q];
        if (step < 0) continue;
        chosen[step] = row[q];
        if (row[q] < w) is_top_chosen[row[q]] = 1;
        const int phase = step / PHASE * PHASE, in_play = W - phase, left = W - step;
#pragma unroll
        for (int k = 0; k < W; ++k) {
            int column = step + k;
            if (k >= left) column = phase + k - left;
            if (k >= in_play) column = (W - 1 - k) / PHASE * PHASE + k % PHASE;
            block[step * W + column] = mine.r[q][k];
        }
        if (!is_usable(mine.r[q][0])) atomicMin(status, col0 + step);
    }
    __syncthreads();
    // Row chosen[i] moves to i; rows of the top that were not chosen fill the places left free.
    for (int i = t; i < w; i += blockDim.x) {
        moves[i] = i;
        moves[2 * W + i] = chosen[i];
        int free_before = 0, left_before = 0;
        for (int other = 0; other < i; ++other) {
            free_before += chosen[other] >= w;
            left_before += !is_top_chosen[other];
        }
        if (chosen[i] >= w) moves[W + free_before] = chosen[i];
        if (!is_top_chosen[i]) moves[3 * W + left_before] = i;
    }
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
__device__ __forceinline__ void substitute_phase(REAL (&r)[ROWS][W], const REAL (*s)[W],
                                                 const REAL* inverse) {
    for (int i = 0; i < PHASE; ++i) {
        const int j = W - N + i;
        REAL x[ROWS];
#pragma unroll
        for (int q = 0; q < ROWS; ++q) x[q] = r[q][0] * inverse[j];
        subtract<N>(r, x, s[j]);
    }
}

// Substitution of rows (or columns) in registers; s[j] holds what follows the diagonal in step j,
// shifted to the front. Entry i of the result is in register register_of(i).
__device__ __forceinline__ void substitute(REAL (&r)[ROWS][W], const REAL (*s)[W],
                                           const REAL* inverse) {
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
// for the rows below. Each has SPREAD rows or columns. The last one copies the block to its place.
constexpr int SPREAD = 128, SPREADERS = SPREAD / ROWS;

extern "C" __global__ void __launch_bounds__(SPREADERS)
spread(REAL* __restrict__ a, long long ld, int row0, int col0, int w, int n, int right_end,
       const REAL* __restrict__ block, int below_blocks) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int t = threadIdx.x;
    if (blockIdx.x == gridDim.x - 1) {
        for (int i = t; i < w * w; i += SPREADERS)
            a[static_cast<long long>(row0 + i / w) * ld + col0 + i % w] = block[i / w * W + i % w];
        return;
    }
    const bool is_below = blockIdx.x < below_blocks;
    load_triangle<SPREADERS>(block, W, w, is_below, s, inverse);
    REAL r[ROWS][W];
    if (is_below) {  // then w is W
        const int first = row0 + W + blockIdx.x * SPREAD + t;
#pragma unroll
        for (int q = 0; q < ROWS; ++q)
            load_row(r[q], a + static_cast<long long>(min(first + q * SPREADERS, n - 1)) * ld + col0, W);
        substitute(r, s, inverse);
#pragma unroll
        for (int q = 0; q < ROWS; ++q) {
            const int row = first + q * SPREADERS;
            if (row >= n) continue;
            REAL* place = a + static_cast<long long>(row) * ld + col0;
#pragma unroll
            for (int k = 0; k < W; k += LANES) {
                Pack p;
#pragma unroll
                for (int i = 0; i < LANES; ++i) p.v[i] = r[q][register_of(k + i)];
                pack(place + k) = p;
            }
        }
    } else {
        const int first = col0 + w + (blockIdx.x - below_blocks) * SPREAD + t;
        REAL* top = a + static_cast<long long>(row0) * ld;
#pragma unroll
        for (int k = 0; k < W; ++k)
#pragma unroll
            for (int q = 0; q < ROWS; ++q)
                r[q][k] = k < w ? top[k * ld + min(first + q * SPREADERS, right_end - 1)] : REAL(0);
        substitute(r, s, inverse);
#pragma unroll
        for (int k = 0; k < W; ++k)
#pragma unroll
            for (int q = 0; q < ROWS; ++q)
                if (k < w && first + q * SPREADERS < right_end)
                    top[k * ld + first + q * SPREADERS] = r[q][register_of(k)];
    }
}

// Solves with the unit lower triangle of `count` panels from row0 on, for the columns from `first`
// to `end`: a thread has one or two columns, and W of their rows at a time.
extern "C" __global__ void __launch_bounds__(SPREADERS)
solve_top(REAL* __restrict__ a, long long ld, int row0, int count, int first, int end) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int start = first + blockIdx.x * SPREAD + threadIdx.x;
    REAL* place[ROWS];
#pragma unroll
    for (int q = 0; q < ROWS; ++q)
        place[q] = a + static_cast<long long>(row0) * ld + min(start + q * SPREADERS, end - 1);
    for (int i = 0; i < count; ++i) {
        REAL r[ROWS][W];
#pragma unroll
        for (int k = 0; k < W; ++k)
#pragma unroll
            for (int q = 0; q < ROWS; ++q) r[q][k] = place[q][(i * W + k) * ld];
        for (int j = 0; j < i; ++j) {
            const REAL* tile = a + static_cast<long long>(row0 + i * W) * ld + row0 + j * W;
#pragma unroll 8
            for (int l = threadIdx.x; l < W * W / LANES; l += SPREADERS) {
                const int row = l % W, from = l / W * LANES;
                const Pack p = pack(tile + row * ld + from);
#pragma unroll
                for (int m = 0; m < LANES; ++m) s[from + m][row] = p.v[m];
            }
            __syncthreads();
#pragma unroll 4
            for (int k = 0; k < W; ++k) {
                REAL u[ROWS];
#pragma unroll
                for (int q = 0; q < ROWS; ++q) u[q] = place[q][(j * W + k) * ld];
#pragma unroll
                for (int m = 0; m < W; m += LANES) {
                    const Pack l = pack(&s[k][m]);
#pragma unroll
                    for (int i4 = 0; i4 < LANES; ++i4)
#pragma unroll
                        for (int q = 0; q < ROWS; ++q) r[q][m + i4] -= l.v[i4] * u[q];
                }
            }
            __syncthreads();
        }
        const REAL* tile = a + static_cast<long long>(row0 + i * W) * ld + row0 + i * W;
        load_triangle<SPREADERS>(tile, ld, W, false, s, inverse);
        substitute(r, s, inverse);
#pragma unroll
        for (int k = 0; k < W; ++k)
#pragma unroll
            for (int q = 0; q < ROWS; ++q)
                if (start + q * SPREADERS < end) place[q][(i * W + k) * ld] = r[q][register_of(k)];
        __syncthreads();
    }
}

// Inverts the W x W diagonal tiles of L (unit) or of U. Tile i starts at row and column
// first + i W; its inverse goes to inv + (i W) * inv_ld + (i W) % inv_ld.
extern "C" __global__ void __launch_bounds__(W / ROWS)
invert_tiles(const REAL* __restrict__ a, long long ld, int first, int n, int is_upper,
             REAL* __restrict__ inv, int inv_ld) {
    __shared__ __align__(16) REAL s[W][W];
    __shared__ REAL inverse[W];
    const int t = threadIdx.x, start = first + blockIdx.x * W, w = min(W, n - start);
    const REAL* tile = a + static_cast<long long>(start) * ld + start;
    // Columns of L's inverse solve L y = e; rows of U's inverse solve y U = e.
    load_triangle<W / ROWS>(tile, ld, w, is_upper, s, inverse);
    REAL r[ROWS][W];
#pragma unroll
    for (int q = 0; q < ROWS; ++q)
#pragma unroll
        for (int k = 0; k < W; ++k) r[q][k] = k == t + q * (W / ROWS) ? REAL(1) : REAL(0);
    substitute(r, s, inverse);
    const int offset = blockIdx.x * W;
    REAL* out = inv + static_cast<long long>(offset) * inv_ld + offset % inv_ld;
#pragma unroll
    for (int q = 0; q < ROWS; ++q) {
        const int mine = t + q * (W / ROWS);
        if (mine >= w) continue;
#pragma unroll
        for (int k = 0; k < W; ++k) {
            if (k >= w) break;
            const REAL value = r[q][register_of(k)];
            if (is_upper)
                out[static_cast<long long>(mine) * inv_ld + k] = value;
            else
                out[static_cast<long long>(k) * inv_ld + mine] = value;
        }
    }
}
