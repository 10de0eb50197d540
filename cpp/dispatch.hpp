// Choosing the instruction-set level at run time.
#pragma once

#include <string>
#include <vector>

namespace roundwise {

std::vector<std::string> available_levels();  // slowest first
std::string active_level();
void set_level(const std::string& name);  // throws std::invalid_argument if not available

}  // namespace roundwise
