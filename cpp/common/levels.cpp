#include "common/levels.hpp"

#include <atomic>
#include <stdexcept>

namespace roundwise {

namespace {

const std::vector<Level>& levels() {
    static const std::vector<Level> found = [] {
        std::vector<Level> list{Level::baseline};
#ifdef ROUNDWISE_X86_LEVELS
        if (__builtin_cpu_supports("avx2")) list.push_back(Level::avx2);
        if (has_avx512()) list.push_back(Level::avx512);
#endif
        return list;
    }();
    return found;
}

std::atomic<Level>& active() {
    static std::atomic<Level> level{levels().back()};
    return level;
}

}  // namespace

// The built-in function is true only where the operating system also saves the wide registers.
bool has_avx512() {
#ifdef ROUNDWISE_X86_LEVELS
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

const char* name_of(Level level) {
    return level == Level::avx512 ? "avx512" : level == Level::avx2 ? "avx2" : "baseline";
}

std::vector<std::string> available_levels() {
    std::vector<std::string> names;
    for (const Level level : levels()) names.emplace_back(name_of(level));
    return names;
}

Level active_level() { return active().load(); }

void set_level(const std::string& name) {
    std::string known;
    for (const Level level : levels()) {
        if (name == name_of(level)) {
            active() = level;
            return;
        }
        known += (known.empty() ? "" : ", ") + std::string(name_of(level));
    }
    throw std::invalid_argument("SIMD level '" + name + "' is not available here; choose one of " + known);
}

}  // namespace roundwise
