// Assignments of rows to columns of a sparse matrix.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// For each column the row that is assigned to it, such that the sum of the costs of the entries chosen
// is least; empty if no assignment has an entry for all columns, or if it is not found after visiting
// about `limit` entries (the worst case takes n nnz log n). The matrix is n x n in compressed
// rows with a cost for each entry, none of which may be infinite or NaN. Shortest augmenting paths, as
// Duff & Koster (2001) use them.
std::vector<std::int32_t> cheapest_assignment(std::int32_t n, const std::int64_t* indptr,
                                              const std::int32_t* indices, const double* costs,
                                              std::int64_t limit);

// Assigns a row to as many columns as possible, each by an entry of the matrix: a maximum matching. The
// matrix is n x n in compressed columns (or rows: then it assigns columns to rows). `row_of` has n
// numbers: the rows that are assigned already, each once, and -1 for the other columns, of which as
// few as possible are left. Returns how many columns have a row.
//
// Augmenting paths by depth-first search that looks one step ahead (Duff 1981), in rounds that visit
// each column at most once and change the direction of the search (Pothen & Fan 1990, Duff, Kaya &
// Ucar 2011): a path that a round cannot find is left to the next one.
template <class Index>
std::int32_t maximum_matching(std::int32_t n, const Index* indptr, const Index* indices,
                              std::vector<std::int32_t>& row_of);

// Whether some values at the places of these entries would make the matrix invertible.
template <class Index>
bool is_structurally_regular(std::int32_t n, const Index* indptr, const Index* indices);

}  // namespace roundwise::sparse
