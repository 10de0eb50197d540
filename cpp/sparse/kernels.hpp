// The kernels of supernodal factorizations: what each computes. Each instruction-set level fills a
// table of them. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "sparse/plan_view.hpp"

namespace roundwise::sparse {

enum class Result { done, not_positive, zero_pivot, overflow, stopped };

struct Report {
    Result result = Result::done;
    std::int32_t column = 0;      // of the factors, where it stopped
    std::int64_t replaced = 0;    // pivots that were too small
};

template <class T> struct SparseKernels {
    // Bytes of scratch memory, aligned to 64.
    std::int64_t (*factorize_workspace)(const PlanView&, int threads);
    std::int64_t (*solve_workspace)(const PlanView&, std::int64_t columns, int threads);

    // Computes the factors of the matrix with these entries (see PlanView). Rows (lu) and both rows
    // and columns (ldl) are exchanged within the block on the diagonal of a panel only: row
    // first[p] + i of the block is row first[p] + pivots[first[p] + i] of the matrix, or the first of
    // a 2 x 2 pivot and row first[p] + ~pivots[first[p] + i] if that is negative. Pivots smaller than
    // `tiny` become as large as it, with their sign, and are counted (lu, ldl); cholesky stops where
    // a pivot is not positive. Stops soon after the deadline (common/parallel.hpp).
    Report (*factorize)(const PlanView&, const T* values, T* storage, std::int32_t* pivots, T tiny,
                        std::int64_t deadline, int threads, void* workspace);

    // In place X = F^-1 B, or F'^-1 B, for the product F of the factors. B is n x columns.
    void (*solve)(const PlanView&, const T* storage, const std::int32_t* pivots, bool transpose,
                  std::int64_t columns, T* b, int threads, void* workspace);
};

template <class T> const SparseKernels<T>& sparse_kernels();  // of the level in use; in dispatch.cpp

}  // namespace roundwise::sparse
