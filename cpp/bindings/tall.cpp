// Dense least squares problems, solved and verified in one call each.
#include "native/tall_solve.hpp"

#include <string_view>

#include "bindings/bindings.hpp"

namespace roundwise {

namespace {

// An array of the caller's in any memory order. Python's buffers cost a part of what nanobind's arrays do.
class Buffer {
    Py_buffer view_;

  public:
    bool is_single;

    Buffer(nb::handle array, bool writable, int least) {
        const int flags = writable ? PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS : PyBUF_STRIDES;
        if (PyObject_GetBuffer(array.ptr(), &view_, flags | PyBUF_FORMAT) != 0) throw nb::python_error();
        std::string_view format(view_.format);
        if (format[0] == '=' || format[0] == '^') format.remove_prefix(1);  // not aligned
        is_single = format == "f";
        if (!(is_single || format == "d") || view_.ndim < least || view_.ndim > 2) {
            PyBuffer_Release(&view_);
            throw std::invalid_argument("an array has other numbers or dimensions; pass a matrix and columns of "
                                        "float32 or float64");
        }
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }

    int dimensions() const { return view_.ndim; }
    std::int64_t rows() const { return view_.shape[0]; }
    std::int64_t columns() const { return view_.ndim == 1 ? 1 : view_.shape[1]; }
    void* data() const { return view_.buf; }
    GivenNumbers given() const {
        return {static_cast<const char*>(view_.buf), rows(), columns(), view_.strides[0],
                view_.ndim == 1 ? 0 : view_.strides[1], is_single, false};
    }
};

// About the operations that take ten microseconds: other threads of Python may run meanwhile.
constexpr std::int64_t many_operations = 100000;

template <class F>
TallResult solved(const Buffer& a, const Buffer& b, const Buffer& x, const Buffer& norms, const TallGate& gate,
                  int threads) {
    const bool wide = a.rows() < a.columns();
    const std::int64_t m = wide ? a.columns() : a.rows(), n = wide ? a.rows() : a.columns();
    TallSolve<F> solver(m, n, b.columns(), wide, x.is_single, gate, threads);
    const Workspace workspace(solver.scratch_bytes());
    const auto solve = [&] {
        return solver.solve(a.given(), b.given(), x.data(), static_cast<double*>(norms.data()), workspace.get());
    };
    if (m * n * (n + b.columns()) < many_operations) return solve();
    nb::gil_scoped_release release;
    return solve();
}

}  // namespace

void bind_tall(nb::module_& m) {
    // The x that minimises ||b - A x||, the shortest one if there are many, verified, by factors in single precision or not. Returns the status (0: accepted; 1: the rank is in doubt; 2: above
    // the tolerance; 3: a number is not finite), the upper bound of the backward error, about the condition
    // number, the rank, and the corrections. x, and in `norms` the lengths of b - A x, are written only if it
    // is accepted.
    define(m, "tall_solve",
           [](nb::handle A, nb::handle B, nb::handle X, nb::handle lengths, bool in_single, double tolerance,
              double rcond, double resolution, double block_error_n, double block_error_m, double exact_error_n,
              double exact_error_m, std::int64_t block_n, std::int64_t block_m, int threads) {
        const Buffer a(A, false, 2), b(B, false, 1), x(X, true, 1), norms(lengths, true, 1);
        require(a.rows() >= 1 && a.columns() >= 1 && b.columns() >= 1 && b.rows() == a.rows(),
                "the shapes of A and b do not match; pass m x n numbers, and m or m x k");
        require(x.dimensions() == b.dimensions() && x.rows() == a.columns() && x.columns() == b.columns(),
                "x has another shape than the answer; pass n or n x k numbers");
        require(!norms.is_single && norms.rows() * norms.columns() == b.columns(),
                "norms has another length; pass a float64 number for each column of b");
        require(threads >= 1, "threads < 1; pass at least 1");
        require_block(block_n);
        require_block(block_m);
        const TallGate gate = {tolerance,     rcond,         resolution, block_error_n, block_error_m,
                               exact_error_n, exact_error_m, block_n,    block_m};
        const TallResult found = in_single ? solved<float>(a, b, x, norms, gate, threads)
                                           : solved<double>(a, b, x, norms, gate, threads);
        return nb::make_tuple(static_cast<int>(found.status), found.backward_error, found.condition, found.rank,
                              found.steps);
    });
}

}  // namespace roundwise
