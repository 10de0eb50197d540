// Picks the products of the level in use.
#include "iterative/kernels.hpp"
#include "native/dispatch.hpp"

namespace roundwise {

ROUNDWISE_DECLARE_TABLE(iterative_, iterative::ProductKernels<double>, fp64_products)
ROUNDWISE_DECLARE_TABLE(iterative_, iterative::ProductKernels<float>, fp32_products)
ROUNDWISE_DECLARE_TABLE(iterative_, iterative::ProductKernels<iterative::Bf16>, bf16_products)
ROUNDWISE_DECLARE_TABLE(iterative_, iterative::ProductKernels<iterative::Fp16>, fp16_products)

namespace iterative {

template <> const ProductKernels<double>& product_kernels() {
    return ROUNDWISE_TABLE(native_level(), iterative_, fp64_products);
}
template <> const ProductKernels<float>& product_kernels() {
    return ROUNDWISE_TABLE(native_level(), iterative_, fp32_products);
}
template <> const ProductKernels<Bf16>& product_kernels() {
    return ROUNDWISE_TABLE(native_level(), iterative_, bf16_products);
}
template <> const ProductKernels<Fp16>& product_kernels() {
    return ROUNDWISE_TABLE(native_level(), iterative_, fp16_products);
}

}  // namespace iterative
}  // namespace roundwise
