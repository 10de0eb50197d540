// The emulated kernels of roundwise._kernels; emulated/kernels.hpp and emulated/sparse.hpp state what
// each computes. Matrices are passed in their format's carrier, already rounded. Vectors are passed
// as float64; the functions here round them to the format, and write results back as float64. Most
// return a Status as an integer. Shapes and indices are checked here: with a wrong one, a kernel would
// read or write past the end of an array.
#include "bindings/bindings.hpp"

#include <cmath>

#include "emulated/kernels.hpp"
#include "emulated/sparse.hpp"

namespace roundwise {

using namespace nb::literals;

namespace {

// Powers of two are made here, in IEEE arithmetic: with flush-to-zero set, Python's ldexp gives 0
// for a subnormal number, such as the quantum of fp64.
void make_format(Format* f, int p, int emin, double max, bool subnormals, int overflow) {
    const int smallest = subnormals ? emin - p + 1 : emin;
    new (f) Format{p, max, std::ldexp(1, emin), std::ldexp(1, smallest), static_cast<Overflow>(overflow)};
}


// A NumPy array that owns the vector's memory.
template <class E> nb::ndarray<nb::numpy, E, nb::ndim<1>> to_numpy(std::vector<E>&& values) {
    auto* owned = new std::vector<E>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<E>*>(p); });
    return nb::ndarray<nb::numpy, E, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

template <class T> nb::tuple to_numpy(SparseColumns<T>&& columns) {
    return nb::make_tuple(to_numpy(std::move(columns.starts)), to_numpy(std::move(columns.indices)),
                          to_numpy(std::move(columns.values)));
}

// A vector in a format's carrier, as kernels take it. Made from a float64 vector, it is rounded to
// the format, and `status` tells whether it was finite and did not overflow.
template <class T> class Rounded {
    std::vector<T> values_;

  public:
    Status status = Status::ok;

    explicit Rounded(std::int64_t n) : values_(static_cast<std::size_t>(n)) {}

    Rounded(const Format& f, std::int64_t n, const double* x) : Rounded(n) {
        std::vector<double> rounded(values_.size());
        active_kernels<double>().round(f, Mode::nearest, 0, n, x, rounded.data(), 1);
        for (std::size_t i = 0; i < rounded.size(); ++i) {
            values_[i] = static_cast<T>(rounded[i]);
            if (!std::isfinite(x[i])) status = Status::nonfinite_input;
            else if (!std::isfinite(rounded[i]) && status == Status::ok) status = Status::overflow;
        }
    }

    T* data() { return values_.data(); }
    const T* data() const { return values_.data(); }

    Status write(double* out) const {
        bool finite = true;
        for (std::size_t i = 0; i < values_.size(); ++i) {
            out[i] = static_cast<double>(values_[i]);
            finite = finite && std::isfinite(out[i]);
        }
        return finite ? Status::ok : Status::overflow;
    }
};

Status worse(Status a, Status b) { return static_cast<int>(a) > static_cast<int>(b) ? a : b; }

template <class Compute> nb::tuple to_tuple(Status status, Compute compute) {
    double value = 0;
    if (status == Status::ok) {
        value = static_cast<double>(compute());
        if (!std::isfinite(value)) status = Status::overflow;
    }
    return nb::make_tuple(static_cast<int>(status), value);
}

template <class X, class Y> void require_same_length(const X& x, const Y& y) {
    require(x.size() == y.size(), "x and y differ in length; pass two vectors of n numbers");
}

// The n of a square matrix.
template <class M> std::int64_t order_of(const M& a) {
    require(a.shape(0) == a.shape(1), "A is not square; pass an n x n matrix");
    return length(a.shape(0));
}

// A matrix in compressed form, whose indices are below `bound`.
template <class T>
SparseView<T> view(const VectorIn<Index>& starts, const VectorIn<Index>& indices,
                   const VectorIn<T>& values, std::int64_t bound) {
    require(starts.size() >= 1, "indptr is empty; pass a matrix in compressed form");
    const std::int64_t size = length(starts.size()) - 1;
    const Index *first = starts.data(), *place = indices.data();
    bool valid = first[0] == 0 && first[size] <= length(indices.size()) && first[size] <= length(values.size());
    for (std::int64_t i = 0; i < size; ++i) valid = valid && first[i] <= first[i + 1];
    for (Index e = 0; valid && e < first[size]; ++e) valid = place[e] >= 0 && place[e] < bound;
    require(valid, "an index is out of range; pass a valid matrix in compressed form");
    return {size, first, place, values.data()};
}

template <class T>
SparseView<T> square_view(const VectorIn<Index>& starts, const VectorIn<Index>& indices,
                          const VectorIn<T>& values) {
    return view<T>(starts, indices, values, length(starts.size()) - 1);
}

// Factors, with a diagonal entry at least in each column, that fit right-hand sides of so many rows.
template <class T>
void require_solvable(const SparseView<T>& factor, std::int64_t rows) {
    require(factor.size == rows, "b and the factors differ in length; pass n rows");
    bool stored = true;
    for (std::int64_t j = 0; j < rows; ++j) stored = stored && factor.starts[j] < factor.starts[j + 1];
    require(stored, "a column of a factor is empty; pass factors with their diagonal");
}

template <class T> void bind_carrier(nb::module_& m) {
    define(m, "round", [](const Format& f, int mode, std::uint64_t key,
                      VectorIn<T> x, VectorOut<T> y, int threads) {
        require_same_length(x, y);
        require(mode >= 0 && mode <= static_cast<int>(Mode::stochastic),
                "there is no such mode; pass 0 to 4");
        nb::gil_scoped_release release;
        active_kernels<T>().round(f, static_cast<Mode>(mode), key, length(x.shape(0)), x.data(),
                                  y.data(), threads);
    });
    define(m, "lu", [](const Format& f, MatrixOut<T> a, VectorOut<std::int32_t> perm, int threads) {
        const std::int64_t n = order_of(a);
        require(n == length(perm.size()), "perm and A differ in length; pass n numbers");
        Verdict verdict;
        {
            nb::gil_scoped_release release;
            verdict = active_kernels<T>().lu(f, n, a.data(), perm.data(), threads);
        }
        return nb::make_tuple(static_cast<int>(verdict.status), verdict.column);
    });
    define(m, "cholesky", [](const Format& f, MatrixOut<T> a, int threads) {
        const std::int64_t n = order_of(a);
        Verdict verdict;
        {
            nb::gil_scoped_release release;
            verdict = active_kernels<T>().cholesky(f, n, a.data(), threads);
        }
        return nb::make_tuple(static_cast<int>(verdict.status), verdict.column);
    });
    define(m, "solve_triangular", [](const Format& f, MatrixIn<T> a, bool lower, bool unit, bool transpose,
                                 MatrixOut<double> b, int threads) {
        const std::int64_t n = order_of(a);
        require(n == length(b.shape(0)), "b and A differ in length; pass n rows");
        nb::gil_scoped_release release;
        Rounded<T> x(f, length(b.size()), b.data());
        if (x.status != Status::ok) return static_cast<int>(x.status);
        active_kernels<T>().solve_triangular(f, n, a.data(), lower, unit, transpose,
                                             length(b.shape(1)), x.data(), threads);
        return static_cast<int>(x.write(b.data()));
    });
    define(m, "matvec", [](const Format& f, MatrixIn<T> a, bool transpose, VectorIn<double> x,
                       VectorOut<double> y, int threads) {
        require(x.size() == a.shape(transpose ? 0 : 1) && y.size() == a.shape(transpose ? 1 : 0),
                "the lengths of x and y do not match A; pass y = A x, or A' x with transpose");
        nb::gil_scoped_release release;
        Rounded<T> in(f, length(x.size()), x.data()), out(length(y.size()));
        if (in.status != Status::ok) return static_cast<int>(in.status);
        active_kernels<T>().matvec(f, length(a.shape(0)), length(a.shape(1)), a.data(), transpose,
                                   in.data(), out.data(), threads);
        return static_cast<int>(out.write(y.data()));
    });
    define(m, "sparse_matvec", [](const Format& f, VectorIn<Index> starts, VectorIn<Index> indices,
                              VectorIn<T> values, bool transpose, VectorIn<double> x,
                              VectorOut<double> y) {
        const SparseView<T> a = view<T>(starts, indices, values, length(transpose ? y.size() : x.size()));
        require(a.size == length(transpose ? x.size() : y.size()),
                "the lengths of x and y do not match A; pass y = A x, or A' x with transpose");
        nb::gil_scoped_release release;
        Rounded<T> in(f, length(x.size()), x.data()), out(length(y.size()));
        if (in.status != Status::ok) return static_cast<int>(in.status);
        sparse_matvec<T>(f, a, transpose, in.data(), length(y.size()), out.data());
        return static_cast<int>(out.write(y.data()));
    });
    define(m, "sparse_lu", [](const Format& f, VectorIn<Index> starts, VectorIn<Index> indices,
                          VectorIn<T> values, VectorIn<Index> diagonal, double threshold) {
        const SparseView<T> a = square_view<T>(starts, indices, values);
        require(a.size == length(diagonal.size()), "diagonal and A differ in length; pass n rows");
        for (std::int64_t j = 0; j < a.size; ++j)
            require(diagonal.data()[j] >= 0 && diagonal.data()[j] < a.size,
                    "a row of diagonal is out of range; pass 0 to n - 1");
        SparseFactors<T> factors;
        {
            nb::gil_scoped_release release;
            factors = sparse_lu<T>(f, a, diagonal.data(), threshold);
        }
        return nb::make_tuple(static_cast<int>(factors.verdict.status), factors.verdict.column,
                              to_numpy(std::move(factors.lower)), to_numpy(std::move(factors.upper)),
                              to_numpy(std::move(factors.perm)));
    });
    define(m, "sparse_cholesky", [](const Format& f, VectorIn<Index> starts, VectorIn<Index> indices,
                                VectorIn<T> values) {
        const SparseView<T> a = square_view<T>(starts, indices, values);
        SparseCholesky<T> factor;
        {
            nb::gil_scoped_release release;
            factor = sparse_cholesky<T>(f, a);
        }
        return nb::make_tuple(static_cast<int>(factor.verdict.status), factor.verdict.column,
                              to_numpy(std::move(factor.lower)));
    });
    define(m, "sparse_cholesky_solve", [](const Format& f, VectorIn<Index> starts,
                                      VectorIn<Index> indices, VectorIn<T> values,
                                      MatrixOut<double> b) {
        const SparseView<T> factor = square_view<T>(starts, indices, values);
        require_solvable(factor, length(b.shape(0)));
        nb::gil_scoped_release release;
        Rounded<T> x(f, length(b.size()), b.data());
        if (x.status != Status::ok) return static_cast<int>(x.status);
        sparse_cholesky_solve<T>(f, factor, length(b.shape(1)), x.data());
        return static_cast<int>(x.write(b.data()));
    });
    define(m, "sparse_solve", [](const Format& f, VectorIn<Index> l_starts, VectorIn<Index> l_indices,
                             VectorIn<T> l_values, VectorIn<Index> u_starts,
                             VectorIn<Index> u_indices, VectorIn<T> u_values, bool transpose,
                             MatrixOut<double> b) {
        const SparseView<T> lower = square_view<T>(l_starts, l_indices, l_values);
        const SparseView<T> upper = square_view<T>(u_starts, u_indices, u_values);
        require(lower.size == upper.size, "L and U differ in length; pass n columns each");
        require_solvable(upper, length(b.shape(0)));
        nb::gil_scoped_release release;
        Rounded<T> x(f, length(b.size()), b.data());
        if (x.status != Status::ok) return static_cast<int>(x.status);
        sparse_solve<T>(f, lower, upper, transpose, length(b.shape(1)), x.data());
        return static_cast<int>(x.write(b.data()));
    });
}

// The rows of V, w and the coefficients h of an orthogonalization.
template <class V, class W> void require_basis(const V& v, const W& w, const W& h) {
    require(v.shape(1) == w.size() && v.shape(0) == h.size(),
            "the shapes of V, w and h do not match; pass m x n, n and m numbers");
}

// Vectors are float64 for every format, so that their type does not tell the carrier. The argument
// `narrow` does: float if true, else double.
template <class Body> auto with_carrier(bool narrow, Body body) {
    return narrow ? body(float{}) : body(double{});
}

void bind_vector_operations(nb::module_& m) {
    define(m, "orthogonalize", [](const Format& f, bool narrow, RowsIn<double> v, VectorOut<double> w,
                              VectorOut<double> h) {
        require_basis(v, w, h);
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            const std::vector<T> basis(v.data(), v.data() + v.size());  // the basis is not rounded again
            Rounded<T> a(f, length(w.size()), w.data()), coefficients(length(h.size()));
            if (a.status != Status::ok) return static_cast<int>(a.status);
            active_kernels<T>().orthogonalize(f, length(w.size()), length(v.shape(0)), basis.data(),
                                              a.data(), coefficients.data());
            return static_cast<int>(worse(a.write(w.data()), coefficients.write(h.data())));
        });
    });
    // The same for the storage model: float64 arithmetic, with each coefficient and each w rounded to
    // the format when it is stored.
    define(m, "orthogonalize_stored", [](const Format& f, const Format& float64, RowsIn<double> v,
                                     VectorOut<double> w, VectorOut<double> h) {
        require_basis(v, w, h);
        const Kernels<double>& kernels = active_kernels<double>();
        const std::int64_t n = length(w.size());
        const auto store = [&](std::int64_t count, double* x) {
            kernels.round(f, Mode::nearest, 0, count, x, x, 1);
        };
        store(n, w.data());
        for (std::int64_t i = 0; i < length(v.shape(0)); ++i) {
            const double* row = v.data() + i * n;
            h.data()[i] = kernels.dot(float64, n, row, w.data());
            store(1, h.data() + i);
            kernels.axpy(float64, n, -h.data()[i], row, w.data());
            store(n, w.data());
        }
    });
    define(m, "givens", [](const Format& f, bool narrow, std::int64_t j, VectorOut<double> cosines,
                       VectorOut<double> sines, VectorOut<double> h, VectorOut<double> g) {
        require(j >= 0 && j < length(cosines.size()) && j < length(sines.size()) &&
                    j + 1 < length(h.size()) && j + 1 < length(g.size()),
                "column j needs more numbers; pass j + 1 cosines and sines, j + 2 of h and g");
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            Rounded<T> c(f, j + 1, cosines.data()), s(f, j + 1, sines.data());
            Rounded<T> column(f, j + 2, h.data()), rhs(f, j + 2, g.data());
            const Status status = worse(worse(c.status, s.status), worse(column.status, rhs.status));
            if (status != Status::ok) return static_cast<int>(status);
            active_kernels<T>().givens(f, j, c.data(), s.data(), column.data(), rhs.data());
            return static_cast<int>(worse(worse(c.write(cosines.data()), s.write(sines.data())),
                                          worse(column.write(h.data()), rhs.write(g.data()))));
        });
    });
    define(m, "dot", [](const Format& f, bool narrow, VectorIn<double> x, VectorIn<double> y) {
        require_same_length(x, y);
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            const Rounded<T> a(f, length(x.size()), x.data()), b(f, length(y.size()), y.data());
            return to_tuple(worse(a.status, b.status), [&] {
                return active_kernels<T>().dot(f, length(x.size()), a.data(), b.data());
            });
        });
    });
    define(m, "norm2", [](const Format& f, bool narrow, VectorIn<double> x) {
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            const Rounded<T> a(f, length(x.size()), x.data());
            return to_tuple(a.status,
                            [&] { return active_kernels<T>().norm2(f, length(x.size()), a.data()); });
        });
    });
    define(m, "axpy", [](const Format& f, bool narrow, double alpha, VectorIn<double> x,
                     VectorOut<double> y) {
        require_same_length(x, y);
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            const Rounded<T> factor(f, 1, &alpha), a(f, length(x.size()), x.data());
            Rounded<T> b(f, length(y.size()), y.data());
            const Status status = worse(worse(factor.status, a.status), b.status);
            if (status != Status::ok) return static_cast<int>(status);
            active_kernels<T>().axpy(f, length(x.size()), *factor.data(), a.data(), b.data());
            return static_cast<int>(b.write(y.data()));
        });
    });
    define(m, "scale", [](const Format& f, bool narrow, double alpha, VectorOut<double> x) {
        return with_carrier(narrow, [&](auto carrier) {
            using T = decltype(carrier);
            const Rounded<T> factor(f, 1, &alpha);
            Rounded<T> a(f, length(x.size()), x.data());
            const Status status = worse(factor.status, a.status);
            if (status != Status::ok) return static_cast<int>(status);
            active_kernels<T>().scale(f, length(x.size()), *factor.data(), a.data());
            return static_cast<int>(a.write(x.data()));
        });
    });
}

}  // namespace

void bind_emulated(nb::module_& m) {
    nb::class_<Format>(m, "Format")
        .def("__init__", &make_format, "p"_a, "emin"_a, "max"_a, "subnormals"_a, "overflow"_a,
             nb::call_guard<IeeeArithmetic>());
    bind_carrier<float>(m);
    bind_carrier<double>(m);
    bind_vector_operations(m);
}

}  // namespace roundwise
