// Choosing the native kernels at run time.
#pragma once

#include <string>
#include <vector>

#include "common/levels.hpp"
#include "native/kernels.hpp"

namespace roundwise {

std::vector<std::string> bf16_levels();                     // best first; the last is "portable"
const Bf16Kernels& bf16_kernels(const std::string& level);  // std::invalid_argument if not available

// The level in use (common/levels.hpp), or baseline on a processor without FMA and F16C.
Level native_level();
template <class T> const NativeKernels<T>& native_kernels();
const LookKernels& look_kernels();
const ScalingKernels& scaling_kernels();
const ExactKernels& exact_kernels();
template <int parts> const ExpressKernels<parts>& express_kernels();

}  // namespace roundwise
