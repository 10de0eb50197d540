// A sparse matrix at a glance: is it symmetric, and which powers of two bring its entries to similar size?
#pragma once

#include <cstdint>

namespace roundwise::sparse {

// All take an n x n matrix in compressed rows.

// Whether A equals its transpose; NaN equals nothing. The columns of each row must ascend.
template <class Index, class T>
bool is_symmetric(std::int32_t n, const Index* indptr, const Index* indices, const T* values);

// Of every `step`-th entry, those off the diagonal, and those of them that have a partner across it. The
// columns of each row must ascend.
struct Partners {
    std::int64_t off_diagonal, found;
};
template <class Index>
Partners partners(std::int32_t n, const Index* indptr, const Index* indices, std::int64_t step);

// Exponents e and f such that the largest entries of the rows and columns of 2^(e_i + f_j) a_ij are about 1
// (Ruiz 2001); e = f if `symmetric`. Returns false, and writes nothing, if those of A differ by little.
template <class Index, class T>
bool balance(std::int32_t n, const Index* indptr, const Index* indices, const T* values, bool symmetric,
             std::int32_t* rows, std::int32_t* columns);

// scaled = 2^(rows_i + columns_j) a_ij.
template <class Index, class T>
void scale(std::int32_t n, const Index* indptr, const Index* indices, const T* values,
           const std::int32_t* rows, const std::int32_t* columns, T* scaled);

}  // namespace roundwise::sparse
