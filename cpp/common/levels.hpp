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

// Kernels are compiled once per level, each time into a namespace of its own, which has tables of
// functions. ROUNDWISE_DECLARE_TABLE declares `type table` in the namespaces <prefix>baseline,
// <prefix>avx2 and <prefix>avx512; ROUNDWISE_TABLE is that of a level.
#define ROUNDWISE_DECLARE_TABLE(prefix, type, table)        \
    namespace prefix##baseline { extern const type table; } \
    namespace prefix##avx2 { extern const type table; }     \
    namespace prefix##avx512 { extern const type table; }
#if defined(ROUNDWISE_X86_LEVELS)
#define ROUNDWISE_TABLE(level, prefix, table)                 \
    ((level) == Level::avx512 ? prefix##avx512::table         \
     : (level) == Level::avx2 ? prefix##avx2::table : prefix##baseline::table)
#else
#define ROUNDWISE_TABLE(level, prefix, table) prefix##baseline::table
#endif

}  // namespace roundwise
