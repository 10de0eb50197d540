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

}  // namespace roundwise::sparse
