// Compiled once per BF16 level (see CMakeLists.txt), each time into its own namespace.
#include "native/cholesky.hpp"
#include "native/product.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A constant, so that no code of this level runs when the module is loaded: the processor may not
// have the instructions.
extern const Bf16Kernels bf16_kernels;
constexpr Bf16Kernels bf16_kernels = {
    {lu_workspace<Bf16Tile>, lu<Bf16Tile>, cholesky_workspace<Bf16Tile>, cholesky<Bf16Tile>},
    gemm_workspace<Bf16Tile>,
    gemm<Bf16Tile>};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
