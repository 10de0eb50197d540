// Choosing the sparse kernels at run time.
#include "native/dispatch.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {

#define ROUNDWISE_DECLARE_SPARSE_LEVEL(level)                  \
    namespace level {                                          \
    extern const sparse::SparseKernels<float> float_kernels;   \
    extern const sparse::SparseKernels<double> double_kernels; \
    }
ROUNDWISE_DECLARE_SPARSE_LEVEL(sparse_baseline)
ROUNDWISE_DECLARE_SPARSE_LEVEL(sparse_avx2)
ROUNDWISE_DECLARE_SPARSE_LEVEL(sparse_avx512)

namespace sparse {

template <> const SparseKernels<float>& sparse_kernels() {
#if defined(ROUNDWISE_X86_LEVELS)
    if (native_level() == Level::avx512) return sparse_avx512::float_kernels;
    if (native_level() == Level::avx2) return sparse_avx2::float_kernels;
#endif
    return sparse_baseline::float_kernels;
}

template <> const SparseKernels<double>& sparse_kernels() {
#if defined(ROUNDWISE_X86_LEVELS)
    if (native_level() == Level::avx512) return sparse_avx512::double_kernels;
    if (native_level() == Level::avx2) return sparse_avx2::double_kernels;
#endif
    return sparse_baseline::double_kernels;
}

}  // namespace sparse
}  // namespace roundwise
