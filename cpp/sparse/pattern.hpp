// The pattern of A + A', which everything in this folder works on: a symmetric graph.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// Row i has its entries at indices[indptr[i]] .. indices[indptr[i + 1] - 1], ascending, without the
// diagonal. Symmetric: row j holds i if row i holds j.
struct Pattern {
    std::int32_t n = 0;
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
};

// The pattern of A + A' of an n x n matrix in compressed rows (or columns: it is the same). Entries
// that are stored zeros count, rows need not be sorted, duplicates do no harm. Throws
// std::invalid_argument if the arrays are no such matrix. Index: std::int32_t or std::int64_t.
template <class Index>
Pattern symmetrized(std::int64_t n, const Index* indptr, const Index* indices, std::int64_t entries);

}  // namespace roundwise::sparse
