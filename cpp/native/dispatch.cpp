#include "native/dispatch.hpp"

#include <stdexcept>

#include "native/structured.hpp"

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
ROUNDWISE_DECLARE_TABLE(structured_, BandKernels<1>, real_band)
ROUNDWISE_DECLARE_TABLE(structured_, BandKernels<2>, complex_band)
ROUNDWISE_DECLARE_TABLE(structured_, TriangleKernels, triangle)
ROUNDWISE_DECLARE_TABLE(structured_, ZeroKernels, zeros)
ROUNDWISE_DECLARE_TABLE(structured_, TinyKernels, tiny)
ROUNDWISE_DECLARE_TABLE(orthogonal_, OrthogonalKernels<float>, float_kernels)
ROUNDWISE_DECLARE_TABLE(orthogonal_, OrthogonalKernels<double>, double_kernels)

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

constexpr long tile_data = 18;  // XTILEDATA

// Whether the processor has tiles, and Linux knows them. It is not asked for them here.
bool has_amx() {
    const Cpuid features(7, 0);
    constexpr int bf16 = 22, tile = 24;
    if (!has_avx512_bf16() || !has_bit(features.edx, bf16) || !has_bit(features.edx, tile))
        return false;
    constexpr long get_supported = 0x1021;  // ARCH_GET_XCOMP_SUPP
    unsigned long long supported = 0;
    return syscall(SYS_arch_prctl, get_supported, &supported) == 0 && (supported >> tile_data & 1) != 0;
}

// Linux grants the 8 KiB of tile registers only to a process that asks, and then enlarges what every signal
// handler of the process needs of its stack. So it is asked when they are first used; later it says yes at once.
bool grants_tiles() {
    constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
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
#if defined(ROUNDWISE_AMX)
        if (level.kernels == &native_amx::bf16_kernels && name == level.name && !grants_tiles())
            return native_avx512_bf16::bf16_kernels;
#endif
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

void require_rounding_errors() {
    for (const Level level : {Level::baseline, Level::avx2, Level::avx512})
        if (level <= native_level() && !ROUNDWISE_TABLE(level, exact_, exact_kernels).keeps_rounding_errors(1.0))
            throw std::runtime_error(
                std::string("roundwise was compiled with options that let a compiler drop rounding errors (level ") +
                name_of(level) + "): answers could not be verified. Build it without -ffast-math, "
                "-funsafe-math-optimizations, -fassociative-math and -Ofast in CXXFLAGS, "
                "or install a wheel: pip install --force-reinstall --only-binary roundwise roundwise");
}

const ExactKernels& exact_kernels() { return ROUNDWISE_TABLE(native_level(), exact_, exact_kernels); }

template <> const ExpressKernels<1>& express_kernels() {
    return ROUNDWISE_TABLE(native_level(), express_, real_kernels);
}

template <> const ExpressKernels<2>& express_kernels() {
    return ROUNDWISE_TABLE(native_level(), express_, complex_kernels);
}

template <> const BandKernels<1>& band_kernels() { return ROUNDWISE_TABLE(native_level(), structured_, real_band); }

template <> const BandKernels<2>& band_kernels() {
    return ROUNDWISE_TABLE(native_level(), structured_, complex_band);
}

const TriangleKernels& triangle_kernels() { return ROUNDWISE_TABLE(native_level(), structured_, triangle); }

const TinyKernels& tiny_kernels() { return ROUNDWISE_TABLE(native_level(), structured_, tiny); }

const ZeroKernels& zero_kernels() { return ROUNDWISE_TABLE(native_level(), structured_, zeros); }

template <> const OrthogonalKernels<float>& orthogonal_kernels() {
    return ROUNDWISE_TABLE(native_level(), orthogonal_, float_kernels);
}

template <> const OrthogonalKernels<double>& orthogonal_kernels() {
    return ROUNDWISE_TABLE(native_level(), orthogonal_, double_kernels);
}

}  // namespace roundwise
