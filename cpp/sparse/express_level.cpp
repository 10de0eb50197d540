// Compiled once per instruction set, without fusing multiply-adds (see CMakeLists.txt).
#include "sparse/express_solve.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <int parts>
constexpr sparse::ExpressSparseKernels<parts> express_table = {
    express_kernel<parts, double, double>, express_kernel<parts, Vector<double>, double>,
    express_kernel<parts, double, float>, express_kernel<parts, Vector<double>, float>};

extern const sparse::ExpressSparseKernels<1> real_express;
extern const sparse::ExpressSparseKernels<2> complex_express;
constexpr sparse::ExpressSparseKernels<1> real_express = express_table<1>;
constexpr sparse::ExpressSparseKernels<2> complex_express = express_table<2>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
