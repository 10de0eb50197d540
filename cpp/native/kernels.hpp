// The native kernels, which use the processor's own arithmetic: what each computes. Each
// instruction-set level fills a table of them. Matrices are column-major.
//
// Unlike the emulated kernels, these may round differently on another level or with another compiler,
// because a multiply-add may be fused. On one level, results do not depend on the number of threads:
// each number is computed by the same operations, however the work is cut.
#pragma once

#include <cstdint>

namespace roundwise {

template <class T> struct LuKernels {
    // Bytes that lu needs as scratch memory, aligned to 64.
    std::int64_t (*lu_workspace)(std::int64_t n, int threads);

    // In place PA = LU, L unit lower. Row i was interchanged with row pivots[i], for i = 0, 1, ...
    // The pivot is the first entry of largest magnitude. Returns 0 for success, c + 1 if the pivot of
    // column c is zero, -(c + 1) if it is not finite. After a failure, a holds no factors.
    int (*lu)(std::int64_t n, T* a, std::int32_t* pivots, int threads, void* workspace);

    // In place LL' = A. Reads the lower triangle of A, or with `upper` the upper one; L is written into
    // the lower one, and zeros into the upper one. Returns 0 for success, c + 1 if the pivot of column
    // c is not positive, -(c + 1) if it is not finite. After a failure, the first c rows and columns
    // hold those of L.
    std::int64_t (*cholesky_workspace)(std::int64_t n, int threads);
    int (*cholesky)(std::int64_t n, T* a, bool upper, int threads, void* workspace);
};

// BF16 products with FP32 sums: one table per level "portable", "avx512_bf16", "amx".
//
// LU and Cholesky store their factors in float32. LU factorizes blocks of 64 columns, and solves for blocks of 64
// rows of U, in float32. Everything else is a_ij - sum_k l_ik u_kj, with l and u rounded to BF16 (to
// nearest even), exact products and float32 sums. The instructions vdpbf16ps (AVX512-BF16) and
// tdpbf16ps (AMX) treat subnormal operands and results as zero and round to nearest even, whatever
// the thread's floating-point settings are.
struct Bf16Kernels : LuKernels<float> {
    std::int64_t (*gemm_workspace)(std::int64_t m, std::int64_t n, std::int64_t k, int threads);

    // C (m x n) -= A (m x k) B (k x n) by the inner kernel of LU; k must be a multiple of 32.
    void (*gemm)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                 float* c, int threads, void* workspace);
};

// How the numbers of a matrix are stored; 16-bit formats as std::uint16_t.
enum class Storage { bf16, fp16, fp32, fp64 };

// What packed factors hold: a unit lower and an upper triangle, or L of LL'.
enum class Factors { lu, cholesky };

struct Norms {
    double one, inf, max_abs;  // all three are NaN if an entry is NaN
};

// Kernels that compute in T (float or double). Matrices and factors may be stored in a narrower
// format than T: reading them from memory takes most of the time. One table per level "baseline",
// "avx2", "avx512".
template <class T> struct NativeKernels : LuKernels<T> {
    // y = A x or A' x.
    void (*matvec)(Storage, std::int64_t rows, std::int64_t columns, const void* a, bool transpose,
                   const T* x, T* y, int threads);

    // In place LU X = B, or (LU)' X = B; for Cholesky factors LL' X = B. B is n x columns.
    void (*solve)(Storage, Factors, std::int64_t n, const void* a, bool transpose,
                  std::int64_t columns, T* b, int threads, void* workspace);
    std::int64_t (*solve_workspace)(std::int64_t n, std::int64_t columns, int threads);  // bytes, aligned to 64

    // PA = LU of a complex A, as by LuKernels::lu. A has pairs of real and imaginary parts, and is not
    // overwritten: the factors go to `packed`, 2 n x n. The pivot is the first entry of largest |re| + |im|.
    std::int64_t (*complex_lu_workspace)(std::int64_t n, int threads);  // bytes, aligned to 64
    int (*complex_lu)(std::int64_t n, const double* a, T* packed, std::int32_t* pivots, int threads,
                      void* workspace);

    // As `solve`, for complex LU factors and B. The factors are 2 n x n numbers (float32, or T): in each
    // column n real parts, then n imaginary ones. B is n x 2 columns, a column of real parts before each
    // of imaginary ones. Nothing is conjugated.
    void (*complex_solve)(Storage, std::int64_t n, const void* a, bool transpose, std::int64_t columns, T* b,
                          int threads, void* workspace);
    std::int64_t (*complex_solve_workspace)(std::int64_t n, std::int64_t columns, int threads);

    // Rounds n numbers to a stored format no wider than T: to nearest even, in one rounding, overflow
    // to infinity. widen converts back, exactly.
    void (*narrow)(Storage, std::int64_t n, const T* x, void* y, int threads);
    void (*widen)(Storage, std::int64_t n, const void* x, T* y, int threads);

    // Norms, by one pass over a matrix, sums in float64. workspace holds norm_parts * rows numbers.
    Norms (*norms)(std::int64_t rows, std::int64_t columns, const T* a, int threads, double* workspace);

    // The same without the infinity norm, which saves the sums of rows. workspace holds 2 * columns. If `rounded`
    // is not null, the matrix rounded to float goes there.
    Norms (*column_norms)(std::int64_t rows, std::int64_t columns, const T* a, int threads, double* workspace,
                          float* rounded);

    void (*copy)(std::int64_t n, const T* x, T* y, int threads);

    // Whether the n x n matrix equals its transpose.
    bool (*symmetric)(std::int64_t n, const T* a, int threads);

    // y += alpha x, on one thread. Returns whether all of the new y is finite.
    bool (*axpy)(std::int64_t n, T alpha, const T* x, T* y);

    // Modified Gram-Schmidt of w against the columns of v (n x columns), on one thread: h_i = v_i' w,
    // then w -= h_i v_i, for i = 0, 1, ... Returns whether all of h and the new w are finite.
    bool (*orthogonalize)(std::int64_t n, std::int64_t columns, const T* v, T* w, T* h);
};

constexpr std::int64_t norm_parts = 16;

// A look at `count` lines of a matrix, the columns of a: column lines[i] has its entry of A's diagonal
// at row diagonal[i]. For each line its largest magnitude and its 2-norm. Then each row is divided by
// its length over the lines, these scaled to norm 1 and without the diagonal (by the largest such
// length, if it has none), and gram is the lower triangle of the lines' inner products.
struct LookKernels {
    std::int64_t (*workspace)(std::int64_t n, std::int64_t count, int threads);  // numbers
    void (*look)(std::int64_t n, const double* a, std::int64_t count, const std::int64_t* lines,
                 const std::int64_t* diagonal, double* largest, double* norms, double* gram, int threads,
                 double* workspace);

    // The lower triangle of A' A, for a matrix of a few columns. BLAS would do it as well, but its threads
    // would go on spinning beside the factorization that follows.
    void (*gram)(std::int64_t n, std::int64_t count, const double* a, double* products, int threads);
};

// Scaling a finite matrix by powers of two, 2**-(e_i + f_j) a_ij, with e in row_scale and f in
// column_scale.
struct ScalingKernels {
    std::int64_t (*workspace)(std::int64_t rows);  // numbers, for each of the first two

    // The largest exponent (as of frexp) of each row and of each column after scaling, as if numbers had
    // no smallest and no largest exponent; 0 if there are only zeros.
    void (*largest_exponents)(std::int64_t rows, std::int64_t columns, const double* a,
                              const std::int32_t* row_scale, const std::int32_t* column_scale,
                              std::int32_t* largest_of_rows, std::int32_t* largest_of_columns, int threads,
                              std::int64_t* workspace);

    // The scaled matrix, each entry rounded once; it may be a itself. Returns whether no entry but a zero
    // became subnormal or zero.
    bool (*scale)(std::int64_t rows, std::int64_t columns, const double* a, const std::int32_t* row_scale,
                  const std::int32_t* column_scale, double* scaled, int threads, std::int64_t* workspace);

    // |A| w, or |A'| w. The same bits on all levels if w has powers of two whose products are in range.
    void (*magnitude_sums)(std::int64_t rows, std::int64_t columns, const double* a, bool transpose,
                           const double* weights, double* sums, int threads);
};

// The smallest `block` of exact.hpp: columns of A are taken by fours.
constexpr std::int64_t least_block = 4;

// R = B - A X of doubles in twice their precision, each entry rounded once at the end: exact.hpp says
// how, and what a `block` other than 0 does. X, B and R have `count` columns. One table per level, as
// above.
struct ExactKernels {
    // A is rows x columns; with `transpose`, R = B - A' X. And the same for an A that is stored in single precision.
    void (*residual)(std::int64_t rows, std::int64_t columns, const double* a, bool transpose,
                     std::int64_t count, const double* x, const double* b, double* r,
                     std::int64_t block, int threads);
    void (*residual_of_single)(std::int64_t rows, std::int64_t columns, const float* a, bool transpose,
                               std::int64_t count, const double* x, const double* b, double* r,
                               std::int64_t block, int threads);

    // The same at the rate of products in single precision, for X rounded to it: `block` + 1 roundings in single
    // precision, the others in double. False if there are too few columns for that, or no memory.
    bool (*short_residual_in_single)(std::int64_t rows, std::int64_t columns, const float* a, bool transpose,
                                     std::int64_t count, const double* x, const double* b, double* r,
                                     std::int64_t block, int threads);

    // A in compressed rows, with indices of 32 or of 64 bits. False if one of them, or of the starts
    // before starts[rows], is out of range: R is of no use then.
    bool (*sparse_residual)(std::int64_t rows, std::int64_t columns, const std::int32_t* starts,
                            const std::int32_t* places, const double* values, std::int64_t count,
                            const double* x, const double* b, double* r, int threads);
    bool (*long_sparse_residual)(std::int64_t rows, std::int64_t columns, const std::int64_t* starts,
                                 const std::int64_t* places, const double* values, std::int64_t count,
                                 const double* x, const double* b, double* r, int threads);

    // A in compressed columns; `low` has room for n numbers. On one thread.
    void (*residual_by_columns)(std::int64_t n, const std::int32_t* starts, const std::int32_t* places,
                                const double* values, std::int64_t count, const double* x,
                                const double* b, double* r, double* low);

    // The same for a square A whose n rows are contiguous, `parts` parts of a number side by side, and for
    // X, B and R as small systems have them (SmallLu): rows of `width` numbers, parts apart; for the columns
    // `begin` to `end` - 1, whole lines. By parts - 1.
    void (*residual_of_rows[2])(std::int64_t n, const double* a, std::int64_t width, std::int64_t begin,
                                std::int64_t end, const double* x, const double* b, double* r,
                                std::int64_t block);

    // ||A|| in the infinity norm, or ||A'||, rounded to double; on one thread.
    double (*largest_row_sum)(std::int64_t rows, std::int64_t columns, const double* a, bool transpose);

    // Whether the compiler has left the error of an addition and of a product in the code; pass 1.
    bool (*keeps_rounding_errors)(double one);
};

// A line: 64 bytes of numbers. Rows of the matrices below have whole lines. Static: each level has a copy of its own.
template <class T> constexpr int line_of = 64 / sizeof(T);
template <class T> static inline std::int64_t padded(std::int64_t n) {
    return (n + line_of<T> - 1) / line_of<T> * line_of<T>;
}
static inline std::int64_t padded_to_eight(std::int64_t n) { return padded<double>(n); }
// From row to row of a square matrix: an odd number of lines, so that a column is spread over the whole cache.
template <class T> static inline std::int64_t row_step(std::int64_t n) { return padded<T>(n) | line_of<T>; }

// What the gate asks of an answer.
struct ExpressGate {
    double tolerance;    // the largest backward error that is accepted
    double growth;       // the backward error is at most e growth + c for the computed e,
    double block_error;  // c of residuals summed in blocks,
    double exact_error;  // c of residuals in twice the precision
    double suspicious;   // the ratio of pivots from which x is likely to have right digits
    double least, most;  // products of a system whose divisor is between them are in range
    std::int64_t block;  // products of a block (exact.hpp)
    bool forward;        // whether x itself is to be right to a few units in the last place
};

// LU of one small dense matrix on one thread. The padding is zero. Of a complex matrix n rows are real
// parts, and as many imaginary parts follow.
template <class T> struct SmallLu {
    // In place: P A = L U by partial pivoting, rows row_step(n) apart; row i was interchanged with row
    // swaps[i]. Returns the magnitude of the smallest pivot over that of the largest; 0, and no factors, once
    // that is seen to be at most `suspicious`. Infinities and NaN go on.
    double (*factorize)(std::int64_t n, T* a, std::int32_t* swaps, double suspicious);

    // B (n x columns, rows of padded(columns) numbers) becomes A^-1 B.
    void (*substitute)(std::int64_t n, T* factors, const std::int32_t* swaps, std::int64_t columns, T* b);

    // A vector b (for each part row_step(n) numbers) becomes A'^-1 b, A' the plain transpose.
    void (*substitute_transposed)(std::int64_t n, T* factors, const std::int32_t* swaps, T* b);
};

// One small dense system, real or complex, on one thread. One table per level, as above.
template <int parts> struct ExpressKernels {
    SmallLu<double> double_lu;
    SmallLu<float> float_lu;

    // The largest modulus of each column of B, squared if there are two parts; NaN if one is.
    void (*largest)(std::int64_t n, std::int64_t columns, const double* b, double* largest);

    // `scaled` becomes 2**-(e_i + f_j) a_ij, A's parts side by side: e_i of row i, such that its largest part is
    // then between 1/2 and 1, and f_j of column j thereafter. False if numbers are not finite, a row or column is
    // zero, or bits would be lost. `work` has room for as many numbers as a row.
    bool (*scale)(std::int64_t n, const double* a, double* scaled, std::int32_t* row_exponents,
                  std::int32_t* column_exponents, double* work);

    // The largest sum of a row of |A|, each part times a weight, and the sum times that of its row.
    double (*weighted_row_sum)(std::int64_t n, const double* a, const double* weights, const double* row_weights);
};

// Householder's QR of one tall matrix (m x n, m >= n), in single or double precision. One
// table per level, as above. Rows have padded_to_eight(columns) numbers; the padding is zero.
template <class F> struct OrthogonalKernels {
    // In place: the rows of R, one for each column that is kept. Columns of which at most `least` is left in
    // length are not kept; the sum of the squares of these lengths goes to left_out. Returns how many are kept,
    // their indices in `kept`. Of each eight columns, `panels` has m rows of eight numbers, `triangles` 64
    // numbers, and `tops` the first row of their reflections.
    std::int64_t (*factorize)(std::int64_t m, std::int64_t n, F* a, double least, std::int32_t* kept, F* panels,
                              F* triangles, std::int32_t* tops, double* left_out, int threads);

    // B (m x columns) becomes Q B, or Q' B.
    void (*reflect)(std::int64_t m, std::int64_t n, const F* panels, const F* triangles,
                    const std::int32_t* tops, bool transpose, std::int64_t columns, F* b, int threads);

    // B (n x columns) becomes R^-1 B, or R'^-1 B, for the upper triangle in rows of `step` numbers.
    void (*substitute)(std::int64_t n, const F* r, std::int64_t step, bool transpose, std::int64_t columns,
                       F* b);

    // B becomes R B, or R' B.
    void (*multiply)(std::int64_t n, const F* r, std::int64_t step, bool transpose, std::int64_t columns, F* b);
};

}  // namespace roundwise
