// Kernels for dense matrices with many zeros in known places: bands and triangles. structured_solve.hpp uses them.
#pragma once

#include <cstdint>

#include "native/kernels.hpp"

namespace roundwise {

// A square matrix of the caller's in any memory order, in single or double precision, real or complex.
struct StridedMatrix {
    const char* data;
    std::int64_t row_step, column_step;  // in bytes
    bool is_single, is_complex;
};

// Static, as each level has a copy of its own.
static inline std::int64_t bytes_of_number(const StridedMatrix& a) { return (a.is_single ? 4 : 8) * (a.is_complex ? 2 : 1); }
static inline StridedMatrix transposed(const StridedMatrix& a) {
    return {a.data, a.column_step, a.row_step, a.is_single, a.is_complex};
}
static inline bool has_contiguous_rows(const StridedMatrix& a) { return a.column_step == bytes_of_number(a); }
// Whether columns are contiguous, and rows are not.
static inline bool rows_are_apart(const StridedMatrix& a) {
    return !has_contiguous_rows(a) && a.row_step == bytes_of_number(a);
}

enum class StructureKind : int { none = 0, band = 1, lower = 2, upper = 3, perhaps_permuted = 4 };

// Where a matrix has nonzero entries: on so many diagonals below and above the main one.
struct Structure {
    StructureKind kind;
    std::int64_t below, above;
};

// Whether a band's LU, of n below (below + above) products, is cheap beside the n^3 / 3 of a dense one, which can
// go on in float, with twice the numbers in a vector, on several threads: an eighth counts as cheap.
// (A taste: the copy and the substitution of wider bands take their time, too.)
static inline bool is_cheap_band(std::int64_t n, std::int64_t below, std::int64_t above) {
    return 24 * below * (below + above) <= n * n;
}

// A band if it is cheap; a triangle that is no narrow band is one.
static inline Structure structure_of(std::int64_t n, std::int64_t below, std::int64_t above) {
    const bool triangular = below == 0 || above == 0;
    // Substitution reads half of a triangle once, or the diagonals of a band several times.
    if (triangular && (4 * (below + above) >= n || !is_cheap_band(n, below, above)) && n > 1)
        return {below == 0 ? StructureKind::upper : StructureKind::lower, below, above};
    if (is_cheap_band(n, below, above)) return {StructureKind::band, below, above};
    return {StructureKind::none, below, above};
}

// What substitution with a triangle tells besides x.
struct TriangleFacts {
    double norm;               // the largest row sum; of a complex matrix of |re| + |im| over the square root of 2
    double smallest, largest;  // magnitudes of diagonal entries; NaN and zero are smallest
};

// From row to row of a band's factors, which overlap: row i begins i numbers later, and must end before the next one
// begins. Panels of a line of columns and whole lines take some more on both sides.
static inline std::int64_t band_step(std::int64_t below, std::int64_t above) {
    return padded<double>(2 * below + above + 4 * line_of<double>);
}
// Numbers of a plane of the factors: real parts, or imaginary ones.
static inline std::int64_t band_plane(std::int64_t n, std::int64_t below, std::int64_t above) {
    return below <= 1 && above <= 1 ? 4 * padded<double>(n) : n * band_step(below, above) + padded<double>(n);
}
// From diagonal to diagonal of a band: an odd number of lines, and room for the last vector.
static inline std::int64_t diagonal_step(std::int64_t n) { return padded<double>(n) | line_of<double>; }

// A band: diagonal d = 0 ... below + above of it holds a_(i, i + d - below) in place i, diagonal_step(n) apart, and
// zero where there is none. Of a complex band as many diagonals of imaginary parts follow.
//
// Columns (X, B, R) are as small dense systems have them (SmallLu): rows of padded(columns) numbers, parts apart.
template <int parts> struct BandKernels {
    // P A = L U by partial pivoting. `factors` has parts * band_plane numbers; unless the band is tridiagonal, it
    // holds a_ij at i * band_step + j, and zeros elsewhere. Returns the magnitude of the smallest pivot over that
    // of the largest, 0 if one is zero or NaN.
    double (*factorize)(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, double* factors,
                        std::int32_t* swaps);
    void (*substitute)(std::int64_t n, std::int64_t below, std::int64_t above, double* factors,
                       const std::int32_t* swaps, std::int64_t columns, double* b);

    // R = B - A X, summed as by ExactKernels, for the columns `begin` to `end` - 1, whole lines.
    void (*residual)(std::int64_t n, std::int64_t below, std::int64_t above, const double* band, std::int64_t width,
                     std::int64_t begin, std::int64_t end, const double* x, const double* b, double* r,
                     std::int64_t block);
    // The same for a single column, whose parts are contiguous; x_0 is preceded by `below` zeros and x_(n-1) followed
    // by `above` and a line of them, as is the imaginary part, x_step after.
    void (*residual_of_one)(std::int64_t n, std::int64_t below, std::int64_t above, const double* band,
                            const double* x, std::int64_t x_step, const double* b, double* r, std::int64_t block);

    // The largest row sum; of a complex matrix of |re| + |im|.
    double (*largest_row_sum)(std::int64_t n, std::int64_t diagonals, const double* band);
};

// Substitution that sums each row as a residual is summed (ExactKernels), so that A is read once for x, its residual
// and the norms. block = 0: every product exactly.
struct TriangleKernels {
    // Columns are taken in strips: for each of n rows two vectors side by side, of real numbers, or one of real parts
    // and one of imaginary ones.
    std::int64_t strip_width;
    std::int64_t (*strip_workspace)(std::int64_t n);  // numbers

    // B becomes X = A^-1 B for some strips. `sizes` has three rows of a strip's width for each strip: the largest
    // moduli of the columns of X, B and R = B - A X, squared if complex.
    void (*solve_strips)(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, std::int64_t strips,
                         double* x, double* sizes, TriangleFacts& facts, double* workspace);

    // The same for one column, of contiguous numbers, parts side by side; rows or columns of A are contiguous.
    // `sizes` has three numbers.
    std::int64_t (*single_workspace)(std::int64_t n);
    void (*solve_one)(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, double* x, double* sizes,
                      TriangleFacts& facts, double* workspace);
};

struct ZeroKernels {
    // Bands and triangles as they stand.
    Structure (*structure)(std::int64_t n, const StridedMatrix& a);
    // Orders of rows and columns that make A lower triangular, if counting finds them. The workspace has 4 n numbers.
    bool (*triangular_orders)(std::int64_t n, const StridedMatrix& a, std::int32_t* rows, std::int32_t* columns,
                              std::int32_t* workspace);
};

// The largest order of systems that are solved side by side. (A taste: larger ones fill vectors by themselves.)
constexpr int tiny_order = 8;

// Tiny systems, real or complex, one in each lane of a vector: A has n x n rows of `lanes` numbers (of complex numbers
// a row of real parts before each of imaginary ones), B and X n x columns. By parts - 1. `single` answers are rounded before the gate looks at them. errors[lane] is the upper bound of a backward error, and infinite
// where pivots are suspicious or it is above the tolerance: such systems are to be solved another way.
struct TinyKernels {
    std::int64_t lanes;
    void (*solve[2])(std::int64_t n, std::int64_t columns, const double* a, const double* b, double* x, bool single,
                     const ExpressGate& gate, double* errors);
};

template <int parts> const BandKernels<parts>& band_kernels();
const TinyKernels& tiny_kernels();
const TriangleKernels& triangle_kernels();
const ZeroKernels& zero_kernels();

}  // namespace roundwise
