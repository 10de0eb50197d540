// Sparse emulated kernels: every operation is rounded to the format. Scalar code, one for all levels.
#pragma once

#include <cstdint>
#include <vector>

#include "emulated/format.hpp"

namespace roundwise {

using Index = std::int32_t;

// Compressed columns of a matrix whose memory another object owns; rows ascend within a column.
template <class T> struct SparseView {
    std::int64_t size;     // number of columns (or rows, when read as CSR)
    const Index* starts;   // size + 1
    const Index* indices;
    const T* values;
};

template <class T> struct SparseColumns {
    std::vector<Index> starts{0};
    std::vector<Index> indices;
    std::vector<T> values;
    void end_column() { starts.push_back(static_cast<Index>(indices.size())); }
};

template <class T> struct SparseFactors {
    Verdict verdict;
    SparseColumns<T> lower;  // without its unit diagonal
    SparseColumns<T> upper;  // the diagonal entry is the last of its column
    std::vector<Index> perm; // (PA)_i = A_perm(i)
};

// PA = LU, left-looking (Gilbert & Peierls): for column j, x = a_j, then x -= l_k x_k for all k < j
// with u_kj in the pattern of U, ascending. The pivot is the entry of row diagonal[j] if its
// magnitude is at least threshold times the largest; otherwise the largest (of equal ones, that in
// the first row).
template <class T>
SparseFactors<T> sparse_lu(const Format& f, const SparseView<T>& a, const Index* diagonal,
                           double threshold);

// A = LL' of the symmetric a, of which only the entries on and below the diagonal are read;
// left-looking: a_ij -= l_ik l_jk for k = 0, 1, ... The diagonal is the first entry of its column.
template <class T> struct SparseCholesky {
    Verdict verdict;
    SparseColumns<T> lower;
};
template <class T> SparseCholesky<T> sparse_cholesky(const Format& f, const SparseView<T>& a);

// In place LL' x = b, l with its diagonal first in each column.
template <class T>
void sparse_cholesky_solve(const Format& f, const SparseView<T>& l, std::int64_t columns, T* b);

// In place L U x = b, or (L U)' x = b. The operations on each entry have the order of the dense
// kernel.
template <class T>
void sparse_solve(const Format& f, const SparseView<T>& lower, const SparseView<T>& upper,
                  bool transpose, std::int64_t columns, T* b);

// y_i = 0; y_i += a_ij x_j over the stored entries of row i in their order (a read as CSR);
// transpose: y_j += a_ij x_i for i = 0, 1, ..., y having `outputs` entries.
template <class T>
void sparse_matvec(const Format& f, const SparseView<T>& a, bool transpose, const T* x,
                   std::int64_t outputs, T* y);

}  // namespace roundwise
