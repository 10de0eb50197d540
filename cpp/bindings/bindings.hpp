// Array types, scratch memory, and the functions `require` and `define`, for the files that bind kernels
// to Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>

#include "common/ieee_arithmetic.hpp"
#include "native/kernels.hpp"

namespace roundwise {

namespace nb = nanobind;

template <class T> using VectorIn = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using VectorOut = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using MatrixIn = nb::ndarray<const T, nb::ndim<2>, nb::f_contig, nb::device::cpu>;
template <class T> using MatrixOut = nb::ndarray<T, nb::ndim<2>, nb::f_contig, nb::device::cpu>;
// Arrays of any shape; column-major if they are matrices.
template <class T> using ArrayIn = nb::ndarray<const T, nb::f_contig, nb::device::cpu>;
template <class T> using ArrayOut = nb::ndarray<T, nb::f_contig, nb::device::cpu>;
// The vectors of a basis, one after the other: the rows of a C-ordered matrix.
template <class T> using RowsIn = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline std::int64_t length(std::size_t n) { return static_cast<std::int64_t>(n); }

inline void require(bool holds, const char* otherwise) {
    if (!holds) throw std::invalid_argument(otherwise);
}

// Of an array that is written while the other one is read: both are one array, if that may be, or share no memory.
template <class X, class Y> void require_apart(const X& x, const Y& y, bool may_be_one = false) {
    const auto first = reinterpret_cast<std::uintptr_t>(x.data()), second = reinterpret_cast<std::uintptr_t>(y.data());
    const bool one = may_be_one && first == second && x.nbytes() == y.nbytes();
    require(one || x.nbytes() == 0 || y.nbytes() == 0 || first + x.nbytes() <= second || second + y.nbytes() <= first,
            "an array that is written overlaps one that is read; pass a copy");
}

// The products of a residual that are summed in double (native/exact.hpp).
inline void require_block(std::int64_t block) {
    require(block == 0 || block >= least_block,
            "block is 1 to 3 or negative; pass 0 for twice the precision, or at least 4 products");
}

// Scratch memory of a kernel, aligned to a cache line.
class Workspace {
    struct Free {
        void operator()(void* p) const { ::operator delete(p, std::align_val_t{64}); }
    };
    std::unique_ptr<void, Free> memory_;

  public:
    explicit Workspace(std::int64_t bytes)
        : memory_(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{64})) {}
    void* get() const { return memory_.get(); }
};

template <class> auto strict() { return nb::arg().noconvert(); }

template <class F, class R, class... Args>
void define_strictly(nb::module_& m, const char* name, F f, R (F::*)(Args...) const) {
    m.def(name, f, strict<Args>()..., nb::call_guard<IeeeArithmetic>());
}

// Binds a lambda under a name, to run in IEEE arithmetic. An array of another type or memory order
// is refused: nanobind would otherwise pass a converted copy, and what a kernel writes to a copy is
// lost.
template <class F> void define(nb::module_& m, const char* name, F f) {
    define_strictly(m, name, f, &F::operator());
}

void bind_emulated(nb::module_& m);  // in emulated.cpp
void bind_native(nb::module_& m);    // in native.cpp
void bind_passes(nb::module_& m);    // in passes.cpp
void bind_threads(nb::module_& m);   // in threads.cpp
void bind_columns(nb::module_& m);   // in columns.cpp
void bind_correction(nb::module_& m);  // in correction.cpp
void bind_sparse(nb::module_& m);    // in sparse.cpp
void bind_supernodal(nb::module_& m);  // in supernodal.cpp
void bind_text(nb::module_& m);        // in text.cpp
void bind_left_looking(nb::module_& m);  // in left_looking.cpp
void bind_express(nb::module_& m);       // in express.cpp
void bind_structured(nb::module_& m);     // in structured.cpp
void bind_tall(nb::module_& m);          // in tall.cpp
void bind_iterative(nb::module_& m);     // in iterative.cpp
void bind_krylov(nb::module_& m);        // in krylov.cpp

}  // namespace roundwise
