// A multigrid hierarchy by smoothed aggregation, and its V-cycle, which is a preconditioner.
//
//     on each level: smooth by Chebyshev's polynomial in D^-1 A, from zero
//                    restrict the residual; the next level; interpolate and add
//                    smooth by the same polynomial
//
// so that the cycle is symmetric where A is. On the last level a dense inverse is applied. Everything is computed in
// FP64 while the hierarchy is made, then rounded to the format of storage. There, entries off the diagonal are rounded,
// and the diagonal, in the type that is computed with, takes the differences: A times the first near-null vector stays
// what it was. (For an M-matrix and a constant vector x'Ax = sum |a_ij| (x_i - x_j)^2 + sum_i x_i^2 sum_j a_ij, so that
// rounding changes no quadratic form by more than the unit roundoff, whatever the condition of A.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "iterative/aggregation.hpp"
#include "iterative/kernels.hpp"

namespace roundwise::iterative {

enum class Made { done, not_positive, zero_pivot, overflow, slow };

struct Choices {
    bool symmetric = true;   // else restriction is the transpose of what interpolates for A'
    double theta = 0.08;     // strength of connections; halved on each level
    int degree = 2;          // of the polynomial
    double ratio = 4;        // largest over smallest eigenvalue that it smooths
    Index coarsest = 300;    // unknowns of which a dense inverse is made
    int threads = 1;
};

// What is known of a level: unknowns, entries, and a bound of the eigenvalues of D^-1 A.
struct LevelFacts {
    Index rows;
    std::int64_t entries;
    double largest;
};

class Preconditioner {
  public:
    virtual ~Preconditioner() = default;
    virtual void apply(const double* R, double* Z, Index columns, int threads) const = 0;  // n x columns
    virtual std::int64_t bytes() const = 0;
    virtual Index rows() const = 0;
    std::vector<LevelFacts> levels;
    std::vector<Csr> kept_A, kept_P, kept_R;  // of all levels, if they were asked for
};

// B may be empty: a constant vector then. `nodes` may be, too. Throws std::bad_alloc.
template <class E>
std::unique_ptr<Preconditioner> make_hierarchy(const CsrView& A, NearNullSpace B, Nodes nodes, const Choices& choices,
                                               bool keep, Made& made);

}  // namespace roundwise::iterative
