// Picks the emulated kernels of the level in use.
#include "common/levels.hpp"
#include "emulated/kernels.hpp"

namespace roundwise {

ROUNDWISE_DECLARE_TABLE(, Kernels<float>, float_kernels)
ROUNDWISE_DECLARE_TABLE(, Kernels<double>, double_kernels)

template <> const Kernels<float>& active_kernels() {
    return ROUNDWISE_TABLE(active_level(), , float_kernels);
}

template <> const Kernels<double>& active_kernels() {
    return ROUNDWISE_TABLE(active_level(), , double_kernels);
}

}  // namespace roundwise
