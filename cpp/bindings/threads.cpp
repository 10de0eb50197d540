// The cores that there are, and the threads of this process, ours and others.
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "bindings/bindings.hpp"
#include "common/spinning.hpp"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace roundwise {

namespace {

// The cores that this process may use now: those of its first thread. Another thread's may be fewer for a
// moment, while a solve has threads of others moved aside; decisions are not to depend on that.
int usable_cores() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    const unsigned int known = std::thread::hardware_concurrency();
    return known == 0 ? 1 : static_cast<int>(known);
}

// IEEE 754's settings for the calling thread, from __enter__ to __exit__.
struct Settings {
    std::optional<IeeeArithmetic> held;
};

}  // namespace

void bind_threads(nb::module_& m) {
    m.def("in_main_interpreter", [] { return PyInterpreterState_GetID(PyInterpreterState_Get()) == 0; });
    m.def("usable_cores", &usable_cores);
    m.def("has_ieee_arithmetic", &IeeeArithmetic::is_set);
    nb::class_<Settings>(m, "IeeeArithmetic")
        .def(nb::init<>())
        .def("__enter__", [](Settings& settings) { settings.held.emplace(); })
        .def("__exit__", [](Settings& settings, nb::args) { settings.held.reset(); });
    m.def("move_others_aside", [](std::int64_t nanoseconds, double share, const std::vector<int>& spared) {
        return move_others_aside({nanoseconds, share, spared});
    });
    m.def("move_others_back", &move_others_back);
}

}  // namespace roundwise
