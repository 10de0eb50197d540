// Picks the emulated kernels of the level in use.
#include "common/levels.hpp"
#include "emulated/kernels.hpp"

namespace roundwise {

#define ROUNDWISE_DECLARE_LEVEL(level)           \
    namespace level {                            \
    extern const Kernels<float> float_kernels;   \
    extern const Kernels<double> double_kernels; \
    }
ROUNDWISE_DECLARE_LEVEL(baseline)
#ifdef ROUNDWISE_X86_LEVELS
ROUNDWISE_DECLARE_LEVEL(avx2)
ROUNDWISE_DECLARE_LEVEL(avx512)
#endif

template <> const Kernels<float>& active_kernels() {
#ifdef ROUNDWISE_X86_LEVELS
    if (active_level() == Level::avx512) return avx512::float_kernels;
    if (active_level() == Level::avx2) return avx2::float_kernels;
#endif
    return baseline::float_kernels;
}

template <> const Kernels<double>& active_kernels() {
#ifdef ROUNDWISE_X86_LEVELS
    if (active_level() == Level::avx512) return avx512::double_kernels;
    if (active_level() == Level::avx2) return avx2::double_kernels;
#endif
    return baseline::double_kernels;
}

}  // namespace roundwise
