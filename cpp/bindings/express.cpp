// Small dense systems, solved and verified in one call each, and stacks of them, shared among threads.
#include <algorithm>
#include <string_view>

#include "bindings/bindings.hpp"
#include "common/parallel.hpp"
#include "native/express_solve.hpp"

namespace roundwise {

namespace {

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

void require_answer(const Numbers& a, const Numbers& b, const Numbers& x) {
    require(x.is_single == (a.is_single && b.is_single) && x.is_complex == (a.is_complex || b.is_complex),
            "x has another type than the answer; pass an array of A's and b's common type");
}

// Calls body with the solver for these numbers: of a real A and a complex b, both parts are columns.
template <class Body>
void with_solver(const Numbers& a, const Numbers& b, std::int64_t n, std::int64_t columns,
                 const ExpressGate& gate, const Body& body) {
    const bool single = a.is_single && b.is_single;
    if (a.is_complex) body(ExpressSolve<2>(n, columns, single, gate));
    else body(ExpressSolve<1>(n, b.is_complex ? 2 * columns : columns, single, gate));
}

// About the operations that take ten microseconds: other threads of Python may run meanwhile.
constexpr std::int64_t many_operations = 100000;

// Systems that a thread takes at a time, as many as take some microseconds.
std::int64_t systems_at_a_time(std::int64_t n) { return std::max<std::int64_t>(1, 4096 / (n * n)); }

template <class Solver>
void solve_stack(const Solver& solver, const Numbers& a, const Numbers& b, const Numbers& x,
                 const std::int64_t* which_a, const std::int64_t* which_b, std::uint8_t* passed,
                 std::int64_t count, std::int64_t bytes_of_answer, int threads) {
    const std::int64_t step = systems_at_a_time(a.shape(1)), bytes = solver.scratch_bytes();
    threads = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, count / (4 * step))));
    const Workspace workspace(bytes * threads);
    std::int64_t claimed = 0;
    const auto work = [&](int member) {
        Solver own = solver;
        char* scratch = static_cast<char*>(workspace.get()) + member * bytes;
        for (;;) {
            const std::int64_t begin = __atomic_fetch_add(&claimed, step, __ATOMIC_RELAXED);
            if (begin >= count) return;
            for (std::int64_t i = begin; i < std::min(begin + step, count); ++i) {
                char* answer = static_cast<char*>(x.data()) + i * bytes_of_answer;
                const ExpressResult found = own.solve(a.given(1, which_a[i]), b.given(1, which_b[i]), answer, scratch);
                passed[i] = found.status == ExpressStatus::accepted;
            }
        }
    };
    run_members(
        threads, [](void* context, int member) { (*static_cast<decltype(&work)>(context))(member); },
        const_cast<void*>(static_cast<const void*>(&work)));
}

}  // namespace

void bind_express(nb::module_& m) {
    // x = A^-1 b, verified, on the calling thread. Returns the status (0: accepted; 1: a pivot is zero or
    // suspiciously small; 2: above the tolerance), the upper bound of the backward error, and the ratio of
    // the smallest pivot to the largest. x is written only if it is accepted.
    define(m, "express_solve",
           [](nb::handle A, nb::handle B, nb::handle X, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block) {
        const Numbers a(A, false, 2, 2), b(B, false, 1, 2), x(X, true, 1, 2);
        const std::int64_t n = a.shape(0), columns = b.dimensions() == 1 ? 1 : b.shape(1);
        require(n >= 1 && columns >= 1 && a.shape(1) == n && b.shape(0) == n,
                "the shapes of A and b do not match; pass n x n numbers, and n or n x k");
        require(x.dimensions() == b.dimensions() && x.shape(0) == n &&
                    (x.dimensions() == 1 || x.shape(1) == columns),
                "x has another shape than b; pass one of the same shape");
        require_answer(a, b, x);
        require(block >= 0, "block is negative; pass 0 for twice the precision, or products to sum");
        ExpressResult found{};
        const ExpressGate gate = {tolerance, growth,     block_error, exact_error,
                                  suspicious, least, most, block};
        with_solver(a, b, n, columns, gate, [&](auto solver) {
            const Workspace workspace(solver.scratch_bytes());
            const auto solve = [&] { found = solver.solve(a.given(0), b.given(0), x.data(), workspace.get()); };
            if (n * n * (n + columns) < many_operations) {
                solve();
            } else {
                nb::gil_scoped_release release;
                solve();
            }
        });
        return nb::make_tuple(static_cast<int>(found.status), found.backward_error, found.pivot_ratio);
    });

    // X_i = A_j^-1 B_k for j = which_a[i], k = which_b[i]; passed[i] is 1 if that was accepted, and X_i is
    // not written otherwise.
    define(m, "express_solve_stack",
           [](nb::handle A, nb::handle B, VectorIn<std::int64_t> which_a, VectorIn<std::int64_t> which_b,
              nb::handle X, VectorOut<std::uint8_t> passed, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block, int threads) {
        const Numbers a(A, false, 3, 3), b(B, false, 3, 3), x(X, true, 3, 3);
        const std::int64_t n = a.shape(1), columns = b.shape(2), count = length(which_a.size());
        require(n >= 1 && columns >= 1 && a.shape(2) == n && b.shape(1) == n,
                "the shapes of A and B do not match; pass stacks of n x n and n x k");
        require(length(which_b.size()) == count && x.shape(0) == count && x.shape(1) == n &&
                    x.shape(2) == columns && length(passed.size()) == count,
                "X, passed and the indices differ in length; pass one of each for every system");
        require(threads >= 1, "threads < 1; pass at least 1");
        require_answer(a, b, x);
        require(block >= 0, "block is negative; pass 0 for twice the precision, or products to sum");
        for (std::int64_t i = 0; i < count; ++i)
            require(which_a.data()[i] >= 0 && which_a.data()[i] < a.shape(0) && which_b.data()[i] >= 0 &&
                        which_b.data()[i] < b.shape(0),
                    "an index is out of range; pass one of a system");
        const std::int64_t size = (x.is_single ? 4 : 8) * (x.is_complex ? 2 : 1);
        nb::gil_scoped_release release;
        const ExpressGate gate = {tolerance, growth,     block_error, exact_error,
                                  suspicious, least, most, block};
        with_solver(a, b, n, columns, gate, [&](auto solver) {
            solve_stack(solver, a, b, x, which_a.data(), which_b.data(), passed.data(), count,
                        size * n * columns, threads);
        });
    });
}

}  // namespace roundwise
