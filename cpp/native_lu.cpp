// Compiled once per BF16 level (see CMakeLists.txt), each time into its own namespace.
#include "native_lu.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Constant-initialised: no code of this level may run before dispatch has allowed it.
extern const Bf16Kernels bf16_kernels;
constexpr Bf16Kernels bf16_kernels = {lu_workspace, gemm_workspace, lu, gemm};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
