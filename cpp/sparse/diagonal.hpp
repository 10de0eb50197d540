// Factorizations of the block on the diagonal of a panel, in place. Each returns the column where it
// stops, or -1.
#pragma once

#include "native/panel.hpp"
#include "sparse/blocks.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T> inline bool is_finite(T x) {
    return magnitude(x) < static_cast<typename Carrier<T>::Signed>(Carrier<T>::infinity);
}

// LL' of the lower triangle, n x n; the upper one is neither read nor kept. Writes 1 / l_jj.
template <class T>
inline std::int64_t cholesky_diagonal(std::int64_t n, T* a, std::int64_t step, T* inverse, T* packed,
                                      sparse::Result& result) {
    for (std::int64_t block = 0; block < n; block += 8) {
        const std::int64_t end = block + 8 < n ? block + 8 : n;
        multiply<true>(n - block, end - block, block, a + block, step, a + block, step,
                       a + block + block * step, step, n, packed);
        for (std::int64_t j = block; j < end; ++j) {
            T* column = a + j * step;
            const T pivot = column[j];
            if (!is_finite(pivot) || !(pivot > 0) || !is_finite(1 / square_root(pivot))) {
                result = is_finite(pivot) ? sparse::Result::not_positive : sparse::Result::overflow;
                return j;
            }
            column[j] = square_root(pivot);
            inverse[j] = 1 / column[j];
            for (std::int64_t i = j + 1; i < end; ++i) column[i] *= inverse[j];
            for (std::int64_t l = j + 1; l < end; ++l)
                for (std::int64_t i = l; i < end; ++i) a[i + l * step] -= column[i] * column[l];
        }
        solve_rows<false>(n - end, end - block, a + end + block * step, step, a + block + block * step, step,
                          inverse + block);
    }
    return -1;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
