// The elimination tree of a symmetric pattern, and what it tells about the factor.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/pattern.hpp"

namespace roundwise::sparse {

// A symmetric pattern in another order: its row and column k are row and column order[k] of the given
// one, and position[order[k]] = k. Views; others own the memory.
struct Reordered {
    std::int32_t n;
    const std::int64_t* indptr;
    const std::int32_t* indices;
    const std::int32_t* order;
    const std::int32_t* position;

    // Calls visit(k) for each entry k of row i, in no particular order.
    template <class Visit> void for_each_in_row(std::int32_t i, Visit visit) const {
        const std::int32_t row = order[i];
        for (std::int64_t e = indptr[row]; e < indptr[row + 1]; ++e) visit(position[indices[e]]);
    }
};

// The inverse of a permutation.
std::vector<std::int32_t> inverse(const std::vector<std::int32_t>& order);

// parent[j] is the first row below the diagonal in column j of the factor L, -1 if there is none
// (Liu 1986).
std::vector<std::int32_t> elimination_tree(const Reordered& a);

// The nodes of a forest such that each comes after its descendants, and these without gaps before it.
// Siblings keep their order. parent[j] > j, or -1.
std::vector<std::int32_t> postorder(const std::vector<std::int32_t>& parent);

// The number of entries in each column of L, with its diagonal, in nearly linear time (Gilbert, Ng &
// Peyton, "An efficient algorithm to compute row and column counts for sparse Cholesky factorization",
// SIAM J. Matrix Anal. Appl. 15 (1994)). The pattern must be in a postorder of its elimination tree.
std::vector<std::int32_t> column_counts(const Reordered& a, const std::vector<std::int32_t>& parent);

}  // namespace roundwise::sparse
