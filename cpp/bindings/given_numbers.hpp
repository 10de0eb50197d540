// What the bindings of express calls share: arrays of the caller's, and the gate.
#pragma once

#include <string_view>

#include "bindings/bindings.hpp"
#include "native/express_solve.hpp"

namespace roundwise {

// An array of the caller's in any memory order. Python's buffers cost a part of what nanobind's arrays do.
class Numbers {
    Py_buffer view_;

  public:
    bool is_single, is_complex;

    Numbers(nb::handle array, bool writable, int least, int most) {
        const int flags = writable ? PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS : PyBUF_STRIDES;
        if (PyObject_GetBuffer(array.ptr(), &view_, flags | PyBUF_FORMAT) != 0) throw nb::python_error();
        std::string_view format(view_.format);
        if (format[0] == '=' || format[0] == '^') format.remove_prefix(1);  // not aligned
        is_single = format == "f" || format == "Zf";
        is_complex = format == "Zf" || format == "Zd";
        if (!(is_single || is_complex || format == "d") || view_.ndim < least || view_.ndim > most) {
            PyBuffer_Release(&view_);
            throw std::invalid_argument("an array has other numbers or dimensions; pass matrices and columns "
                                        "of float32, float64, complex64 or complex128");
        }
    }
    Numbers(const Numbers&) = delete;
    ~Numbers() { PyBuffer_Release(&view_); }

    int dimensions() const { return view_.ndim; }
    std::int64_t shape(int dimension) const { return view_.shape[dimension]; }
    void* data() const { return view_.buf; }

    // Of the matrix, or the vector as a column, that the dimensions from `first` on are; of a stack the one
    // at `place`.
    GivenNumbers given(int first, std::int64_t place = 0) const {
        const char* data = static_cast<const char*>(view_.buf) + (first == 1 ? place * view_.strides[0] : 0);
        const bool is_vector = view_.ndim == first + 1;
        return {data, shape(first), is_vector ? 1 : shape(first + 1), view_.strides[first],
                is_vector ? 0 : view_.strides[first + 1], is_single, is_complex};
    }
};

// About the operations that take ten microseconds: other threads of Python may run meanwhile.
constexpr std::int64_t many_operations = 100000;

template <class Work> void without_lock_if(bool many, const Work& work) {
    if (many) {
        nb::gil_scoped_release release;
        work();
    } else {
        work();
    }
}

inline ExpressGate gate_of(double tolerance, double growth, double block_error, double exact_error, double suspicious,
                           double least, double most, std::int64_t block, bool forward = false) {
    require(block >= 0, "block is negative; pass 0 for twice the precision, or products to sum");
    return {tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward};
}

// Whether b and x belong to `first` dimensions of systems of n, and x is of the answer's type.
inline void require_columns(std::int64_t n, bool is_complex, bool is_single, const Numbers& b, const Numbers& x, int first) {
    const bool matrices = b.dimensions() == first + 2;
    require(b.shape(first) == n && (!matrices || b.shape(first + 1) >= 1),
            "the shapes of A and b do not match; pass n x n numbers, and n or n x k");
    require(x.dimensions() == b.dimensions() && x.shape(first) == n &&
                (!matrices || x.shape(first + 1) == b.shape(first + 1)),
            "x has another shape than b; pass one of the same shape");
    require(x.is_single == (is_single && b.is_single) && x.is_complex == (is_complex || b.is_complex),
            "x has another type than the answer; pass an array of A's and b's common type");
}

inline std::int64_t columns_of(const Numbers& b, int first) { return b.dimensions() == first + 1 ? 1 : b.shape(first + 1); }

inline nb::tuple told(const ExpressResult& found) {
    return nb::make_tuple(static_cast<int>(found.status), found.backward_error, found.pivot_ratio, found.corrections);
}

}  // namespace roundwise
