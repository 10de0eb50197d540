// Choosing the native kernels at run time.
#pragma once

#include <string>
#include <vector>

#include "native.hpp"

namespace roundwise {

std::vector<std::string> bf16_levels();                     // best first; the last is "portable"
const Bf16Kernels& bf16_kernels(const std::string& level);  // std::invalid_argument if not available

// The best that the active level (see dispatch.hpp) allows: "baseline", "avx2" or "avx512".
std::string native_level();
template <class T> const NativeKernels<T>& native_kernels();

}  // namespace roundwise
