// Picks the sparse kernels of the level in use.
#include "native/dispatch.hpp"
#include "sparse/express.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {

ROUNDWISE_DECLARE_TABLE(sparse_, sparse::SparseKernels<float>, float_kernels)
ROUNDWISE_DECLARE_TABLE(sparse_, sparse::SparseKernels<double>, double_kernels)

ROUNDWISE_DECLARE_TABLE(sparse_express_, sparse::ExpressSparseKernels<1>, real_express)
ROUNDWISE_DECLARE_TABLE(sparse_express_, sparse::ExpressSparseKernels<2>, complex_express)

namespace sparse {

template <> const ExpressSparseKernels<1>& express_sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_express_, real_express);
}

template <> const ExpressSparseKernels<2>& express_sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_express_, complex_express);
}

template <> const SparseKernels<float>& sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_, float_kernels);
}

template <> const SparseKernels<double>& sparse_kernels() {
    return ROUNDWISE_TABLE(native_level(), sparse_, double_kernels);
}

}  // namespace sparse
}  // namespace roundwise
