// Systems that are solved with a left-looking LU and verified on the calling thread: substitution, residual in
// twice the precision, corrections, gate. What is compared with the tolerance is an upper bound of the
// backward error (docs/accuracy.md).
#pragma once

#include <cstdint>

namespace roundwise::sparse {

// The factors of A, or of A', with the matrix that is solved with. Numbers have one part, or two side by side.
struct ExpressSystem {
    std::int32_t n;
    bool transposed;  // solve with A', with the factors of A
    // As LeftLookingLU has them:
    const std::int32_t *row_at, *column_at, *block_start;
    std::int64_t blocks;
    const std::int64_t *lower_start, *upper_start;
    const std::int32_t *lower_rows, *upper_rows;
    const void *lower, *upper, *inverse_diagonal;  // double, or float if they are low
    bool is_low;
    const double* scale;
    // The matrix in compressed rows, and the sums of |Re a| + |Im a| over each of them.
    const std::int32_t *starts, *places;
    const double *values, *sums;
    double norm;     // the largest sum; over the square root of 2 for complex numbers, at most the true norm
    double least;    // the smallest sum
    double stretch;  // max |y| for A y = image, see below
};

// What the gate asks: `error growth + residual_error` is an upper bound of the backward error.
struct SparseGate {
    double tolerance, growth, residual_error;
    double least, most;  // products of a system whose divisor is between them are in range
    bool is_single;      // the answer is rounded to single precision
    bool is_forward;     // x itself is to be right, not only its residual small
};

enum class SparseStatus : int { accepted = 0, few_digits = 1, above_tolerance = 2 };

struct SparseFound {
    double error = 0;  // the largest upper bound of a backward error
    int steps = 0;     // the most corrections of a column
};

template <int parts> struct ExpressKernel {
    std::int64_t lanes;  // columns that are solved for at a time: part p of row i begins at lanes (parts i + p)

    // x = A^-1 b; `work` has room for one block of columns.
    void (*substitute)(const ExpressSystem&, const double* b, double* x, double* work);

    // The same for the first `count` columns, corrected where need be, and verified. `work` has room for four
    // blocks. What is `found` is enlarged where this system has more.
    //
    // An answer has few digits unless one of two things holds, where R has the sums of A's rows on its diagonal:
    // - ||A^-1 R v|| (`stretch`) for a random v, times the largest |r_i| / (R_ii ||x|| + |b_i|), is at most
    //   `certain`: ||x - A^-1 b|| <= 2 || |A^-1| R || ||x|| max_i |r_i| / (R_ii ||x|| + |b_i|);
    // - the factors tell A from a singular matrix (for y = A^-1 R v they recover most of y from A y), and one
    //   more correction changes x by at most `certain`.
    // Rounding errors of single precision may hide that A is singular: low factors are trusted as they are if that
    // stretch times their unit roundoff is below `certain`; else they have to tell A from a singular matrix, too.
    // So have all factors of answers that are right themselves (`is_forward`), which are corrected until all
    // corrections to come would change x by less than u: `ForwardRule` of algorithms/stopping.py is the same rule.
    SparseStatus (*solve)(const ExpressSystem&, const SparseGate&, std::int64_t count, const double* b,
                          double* x, double* work, SparseFound& found);
};

template <int parts> struct ExpressSparseKernels {
    ExpressKernel<parts> one, several, low_one, low_several;
};

constexpr double certain = 1e-5;   // what an estimated error, a lower bound perhaps, may be of an x with three digits
constexpr double resolved = 0.25;  // factors that lose less than that of a vector tell A from a singular matrix
constexpr int sparse_corrections = 2;
constexpr int low_corrections = 30;      // of factors in single precision, as long as errors halve
constexpr int forward_corrections = 30;  // until x is right
constexpr double double_roundoff = 0x1p-53, single_roundoff = 0x1p-24;

template <int parts> const ExpressSparseKernels<parts>& express_sparse_kernels();  // of the level in use

// Numbers between -1 and 1, all different: A may be singular, and A y = R e be solvable. Static: each level has a
// copy of its own.
static inline double random_number(std::uint64_t i) {
    std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>(static_cast<std::int64_t>((z ^ (z >> 31)) >> 11)) * 0x1p-52 - 1;
}

}  // namespace roundwise::sparse
