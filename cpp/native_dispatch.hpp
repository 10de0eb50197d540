// Choosing the native kernels at run time.
#pragma once

#include <string>
#include <vector>

#include "native.hpp"

namespace roundwise {

std::vector<std::string> bf16_levels();                     // best first; the last is "portable"
const Bf16Kernels& bf16_kernels(const std::string& level);  // std::invalid_argument if not available

// Those of the active level (see dispatch.hpp).
template <class T> const StorageKernels<T>& storage_kernels();

}  // namespace roundwise
