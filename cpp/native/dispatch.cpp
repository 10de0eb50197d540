#include "native/dispatch.hpp"

#include <stdexcept>

#if defined(ROUNDWISE_X86_LEVELS)
#include "common/cpuid.hpp"
#endif
#if defined(ROUNDWISE_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roundwise {

namespace native_portable { extern const Bf16Kernels bf16_kernels; }
namespace native_avx512_bf16 { extern const Bf16Kernels bf16_kernels; }
namespace native_amx { extern const Bf16Kernels bf16_kernels; }

ROUNDWISE_DECLARE_TABLE(native_, NativeKernels<float>, float_kernels)
ROUNDWISE_DECLARE_TABLE(native_, NativeKernels<double>, double_kernels)
ROUNDWISE_DECLARE_TABLE(native_, LookKernels, look_kernels)
ROUNDWISE_DECLARE_TABLE(native_, ScalingKernels, scaling_kernels)
ROUNDWISE_DECLARE_TABLE(exact_, ExactKernels, exact_kernels)
ROUNDWISE_DECLARE_TABLE(express_, ExpressKernels<1>, real_kernels)
ROUNDWISE_DECLARE_TABLE(express_, ExpressKernels<2>, complex_kernels)

namespace {

#if defined(ROUNDWISE_X86_LEVELS)

// The native AVX2 and AVX-512 kernels also need FMA and F16C. Every processor with AVX2 that we
// know has both.
bool has_fma_and_f16c() {
    const Cpuid features(1, 0);
    return has_bit(features.ecx, 12) && has_bit(features.ecx, 29);
}

bool has_avx512_bf16() { return has_avx512() && has_bit(Cpuid(7, 1).eax, 5); }

#endif

#if defined(ROUNDWISE_AMX)

// Linux grants the 8 KiB of tile registers only to a process that asks.
bool has_amx() {
    const Cpuid features(7, 0);
    constexpr int bf16 = 22, tile = 24;
    if (!has_avx512_bf16() || !has_bit(features.edx, bf16) || !has_bit(features.edx, tile))
        return false;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

#endif

struct Bf16Level {
    const char* name;
    const Bf16Kernels* kernels;
};

const std::vector<Bf16Level>& levels() {
    static const std::vector<Bf16Level> found = [] {
        std::vector<Bf16Level> list;
#if defined(ROUNDWISE_AMX)
        if (has_amx()) list.push_back({"amx", &native_amx::bf16_kernels});
#endif
#if defined(ROUNDWISE_AVX512_BF16)
        if (has_avx512_bf16()) list.push_back({"avx512_bf16", &native_avx512_bf16::bf16_kernels});
#endif
        list.push_back({"portable", &native_portable::bf16_kernels});
        return list;
    }();
    return found;
}

}  // namespace

std::vector<std::string> bf16_levels() {
    std::vector<std::string> names;
    for (const Bf16Level& level : levels()) names.emplace_back(level.name);
    return names;
}

const Bf16Kernels& bf16_kernels(const std::string& name) {
    std::string known;
    for (const Bf16Level& level : levels()) {
        if (name == level.name) return *level.kernels;
        known += (known.empty() ? "" : ", ") + std::string(level.name);
    }
    throw std::invalid_argument("BF16 level '" + name + "' is not available here; choose one of " + known);
}

Level native_level() {
#if defined(ROUNDWISE_X86_LEVELS)
    static const bool vectors = has_fma_and_f16c();
    if (vectors) return active_level();
#endif
    return Level::baseline;
}

template <> const NativeKernels<float>& native_kernels() {
    return ROUNDWISE_TABLE(native_level(), native_, float_kernels);
}

template <> const NativeKernels<double>& native_kernels() {
    return ROUNDWISE_TABLE(native_level(), native_, double_kernels);
}

const LookKernels& look_kernels() { return ROUNDWISE_TABLE(native_level(), native_, look_kernels); }

const ScalingKernels& scaling_kernels() {
    return ROUNDWISE_TABLE(native_level(), native_, scaling_kernels);
}

const ExactKernels& exact_kernels() { return ROUNDWISE_TABLE(native_level(), exact_, exact_kernels); }

template <> const ExpressKernels<1>& express_kernels() {
    return ROUNDWISE_TABLE(native_level(), express_, real_kernels);
}

template <> const ExpressKernels<2>& express_kernels() {
    return ROUNDWISE_TABLE(native_level(), express_, complex_kernels);
}

}  // namespace roundwise
