// The block triangular form of a sparse matrix.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// Numbers the diagonal blocks of the finest block upper triangular form: block_of[j] is that of column j,
// and of the row that is assigned to it. Column j has entries in its own block and those before. They
// are the strongly connected components of the columns, where j leads to the columns of its rows
// (Tarjan 1972). Returns how many there are. The matrix is n x n in compressed columns, and column_of
// assigns a column to each row.
std::int32_t triangular_blocks(std::int32_t n, const std::int32_t* indptr, const std::int32_t* indices,
                               const std::vector<std::int32_t>& column_of,
                               std::vector<std::int32_t>& block_of);

}  // namespace roundwise::sparse
