// Instruction-set levels of the vector kernels: which this processor has, and which is in use.
#pragma once

#include <string>
#include <vector>

namespace roundwise {

enum class Level { baseline, avx2, avx512 };

std::vector<std::string> available_levels();  // slowest first
Level active_level();                         // the fastest one, until set_level chooses another
const char* name_of(Level level);
void set_level(const std::string& name);  // throws std::invalid_argument if not available

bool has_avx512();  // false where the build has no x86 levels

}  // namespace roundwise
