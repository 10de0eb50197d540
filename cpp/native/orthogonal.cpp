// Compiled once per instruction set (see CMakeLists.txt).
#include "native/orthogonal.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class F>
constexpr OrthogonalKernels<F> orthogonal_table = {orthogonal_factorize<F>, orthogonal_reflect<F>,
                                                   orthogonal_substitute<F>, orthogonal_multiply<F>};

extern const OrthogonalKernels<float> float_kernels;
extern const OrthogonalKernels<double> double_kernels;
constexpr OrthogonalKernels<float> float_kernels = orthogonal_table<float>;
constexpr OrthogonalKernels<double> double_kernels = orthogonal_table<double>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
