// Picks the sparse kernels of the level in use.
#include "native/dispatch.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {

ROUNDWISE_DECLARE_TABLE(sparse_, sparse::SparseKernels<float>, float_kernels)
ROUNDWISE_DECLARE_TABLE(sparse_, sparse::SparseKernels<double>, double_kernels)

namespace sparse {

template <> const SparseKernels<float>& sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_, float_kernels);
}

template <> const SparseKernels<double>& sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_, double_kernels);
}

}  // namespace sparse
}  // namespace roundwise
