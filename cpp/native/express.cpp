// Compiled once per instruction set (see CMakeLists.txt).
#include "native/express.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <int parts>
constexpr ExpressKernels<parts> kernels = {
    {express_factorize<parts, double>, express_substitute<parts, double>, express_transposed<parts, double>},
    {express_factorize<parts, float>, express_substitute<parts, float>, express_transposed<parts, float>},
    express_largest<parts>,
    express_scale<parts>,
    express_weighted_row_sum<parts>};
extern const ExpressKernels<1> real_kernels;
extern const ExpressKernels<2> complex_kernels;
constexpr ExpressKernels<1> real_kernels = kernels<1>;
constexpr ExpressKernels<2> complex_kernels = kernels<2>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
