// Compiled once per instruction set (see CMakeLists.txt), each time into its own namespace.
#include "iterative/products.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class E>
constexpr iterative::ProductKernels<E> product_table = {round_all<E>, widen_all<E>, row_products<E, false>,
                                                        row_products<E, true>, residual_of<E>, smooth_rows<E>,
                                                        substitute_rows<E>};

extern const iterative::ProductKernels<double> fp64_products;
extern const iterative::ProductKernels<float> fp32_products;
extern const iterative::ProductKernels<iterative::Bf16> bf16_products;
extern const iterative::ProductKernels<iterative::Fp16> fp16_products;
constexpr iterative::ProductKernels<double> fp64_products = product_table<double>;
constexpr iterative::ProductKernels<float> fp32_products = product_table<float>;
constexpr iterative::ProductKernels<iterative::Bf16> bf16_products = product_table<iterative::Bf16>;
constexpr iterative::ProductKernels<iterative::Fp16> fp16_products = product_table<iterative::Fp16>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
