// Compiled once per instruction set (see CMakeLists.txt).
#include "native/express.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

extern const ExpressKernels<1> real_kernels;
extern const ExpressKernels<2> complex_kernels;
constexpr ExpressKernels<1> real_kernels = {express_factorize<1>, express_substitute<1>};
constexpr ExpressKernels<2> complex_kernels = {express_factorize<2>, express_substitute<2>};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
