#include "dispatch.hpp"

#include <atomic>
#include <stdexcept>

#include "kernels.hpp"

namespace roundwise {

#define ROUNDWISE_DECLARE_LEVEL(level)                \
    namespace level {                                 \
    extern const Kernels<float> float_kernels;        \
    extern const Kernels<double> double_kernels;      \
    }
ROUNDWISE_DECLARE_LEVEL(baseline)
#ifdef ROUNDWISE_X86_LEVELS
ROUNDWISE_DECLARE_LEVEL(avx2)
ROUNDWISE_DECLARE_LEVEL(avx512)
#endif

namespace {

struct Level {
    const char* name;
    const Kernels<float>* float_kernels;
    const Kernels<double>* double_kernels;
};

const std::vector<Level>& levels() {
    static const std::vector<Level> found = [] {
        std::vector<Level> list{{"baseline", &baseline::float_kernels, &baseline::double_kernels}};
#ifdef ROUNDWISE_X86_LEVELS
        if (__builtin_cpu_supports("avx2"))
            list.push_back({"avx2", &avx2::float_kernels, &avx2::double_kernels});
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            list.push_back({"avx512", &avx512::float_kernels, &avx512::double_kernels});
#endif
        return list;
    }();
    return found;
}

std::atomic<const Level*>& active() {
    static std::atomic<const Level*> level{&levels().back()};
    return level;
}

}  // namespace

template <> const Kernels<float>& active_kernels() { return *active().load()->float_kernels; }
template <> const Kernels<double>& active_kernels() { return *active().load()->double_kernels; }

std::vector<std::string> available_levels() {
    std::vector<std::string> names;
    for (const Level& level : levels()) names.emplace_back(level.name);
    return names;
}

std::string active_level() { return active().load()->name; }

void set_level(const std::string& name) {
    for (const Level& level : levels())
        if (name == level.name) {
            active() = &level;
            return;
        }
    std::string known;
    for (const Level& level : levels()) known += (known.empty() ? "" : ", ") + std::string(level.name);
    throw std::invalid_argument("SIMD level '" + name + "' is not available here; choose one of " + known);
}

}  // namespace roundwise
