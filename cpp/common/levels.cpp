#include "common/levels.hpp"

#include <atomic>
#include <stdexcept>

#ifdef ROUNDWISE_X86_LEVELS
#include "common/cpuid.hpp"
#endif

namespace roundwise {

namespace {

#ifdef ROUNDWISE_X86_LEVELS
bool has_avx2() {
    constexpr int avx2 = 5;
    return system_saves(0x06) && has_bit(Cpuid(7, 0).ebx, avx2);
}
#endif

const std::vector<Level>& levels() {
    static const std::vector<Level> found = [] {
        std::vector<Level> list{Level::baseline};
#ifdef ROUNDWISE_X86_LEVELS
        if (has_avx2()) list.push_back(Level::avx2);
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

bool has_avx512() {
#ifdef ROUNDWISE_X86_LEVELS
    const unsigned int features = Cpuid(7, 0).ebx;
    constexpr int f = 16, dq = 17, bw = 30, vl = 31;
    return system_saves(0xe6) && has_bit(features, f) && has_bit(features, dq) && has_bit(features, bw) &&
           has_bit(features, vl);
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
