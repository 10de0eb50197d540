// Choosing the native kernels at run time.
#pragma once

#include <string>
#include <vector>

#include "common/levels.hpp"
#include "native/kernels.hpp"

namespace roundwise {

std::vector<std::string> bf16_levels();  // best first; the last is "portable"

// std::invalid_argument if not available. Where the system refuses the registers of "amx", which it is asked
// for here, the kernels are those of avx512_bf16.
const Bf16Kernels& bf16_kernels(const std::string& level);

// The level in use (common/levels.hpp), or baseline on a processor without FMA and F16C.
Level native_level();
template <class T> const NativeKernels<T>& native_kernels();
const LookKernels& look_kernels();
const ScalingKernels& scaling_kernels();
const ExactKernels& exact_kernels();
void require_rounding_errors();  // std::runtime_error if a level was compiled such that sums lose their errors
template <int parts> const ExpressKernels<parts>& express_kernels();
template <class F> const OrthogonalKernels<F>& orthogonal_kernels();

}  // namespace roundwise
