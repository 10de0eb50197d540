// The extension module roundwise._kernels.
#include "bindings/bindings.hpp"
#include "common/levels.hpp"
#include "native/dispatch.hpp"

using namespace roundwise;

NB_MODULE(_kernels, m) {
    m.doc() = "Compiled kernels; use them through roundwise.round_to and the backends.";
    nb::set_leak_warnings(false);  // Python caches one Format per format until the process ends
    m.def("available_levels", &available_levels);
    m.def("active_level", [] { return name_of(active_level()); });
    m.def("set_level", &set_level);
    // What is found out once about the processor is found out now: a process that is forked while
    // another thread initializes a static variable would wait for that thread for ever.
    native_level();
    bf16_levels();
    {
        const IeeeArithmetic nearest;
        require_rounding_errors();
    }
    bind_emulated(m);
    bind_native(m);
    bind_passes(m);
    bind_threads(m);
    bind_columns(m);
    bind_correction(m);
    bind_sparse(m);
    bind_supernodal(m);
    bind_text(m);
    bind_left_looking(m);
    bind_express(m);
    bind_structured(m);
    bind_tall(m);
    bind_iterative(m);
    bind_krylov(m);
}
