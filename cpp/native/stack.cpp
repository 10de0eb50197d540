// Compiled once per instruction set (see CMakeLists.txt).
#include "native/stack.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

extern const StackKernels stack_kernels;
constexpr StackKernels stack_kernels = {eliminate};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
