// The kernels of Krylov methods; krylov/vectors.hpp states what each computes. Shapes are checked here.
#include "bindings/bindings.hpp"
#include "krylov/vectors.hpp"

namespace roundwise {

namespace {

std::int64_t rows_of(const MatrixIn<double>& x) { return length(x.shape(0)); }

template <class X, class Y> void require_like(const X& x, const Y& y) {
    require(x.shape(0) == y.shape(0) && x.shape(1) == y.shape(1),
            "the blocks differ in shape; pass blocks of n x k numbers");
}

template <class X> void require_numbers(const X& numbers, std::size_t count) {
    require(numbers.size() == count, "there is not one number for each column; pass k of them");
}

template <class Index> void bind_rows_times(nb::module_& m) {
    define(m, "krylov_rows_times",
           [](VectorIn<Index> starts, VectorIn<Index> places, VectorIn<double> values, MatrixIn<double> x,
              MatrixOut<double> y, int threads) {
        require(starts.size() == y.shape(0) + 1 && x.shape(1) == y.shape(1),
                "the shapes of A, X and Y do not match; pass Y as A X");
        require_apart(x, y);
        const std::int64_t rows = length(y.shape(0));
        require(starts.data()[0] == 0 && starts.data()[rows] <= length(places.size()) && starts.data()[rows] <= length(values.size()),
                "indptr does not begin with 0, or points past the entries; pass a valid matrix in compressed rows");
        nb::gil_scoped_release release;
        require(krylov::rows_times<Index>(rows, length(x.shape(0)), starts.data(), places.data(), values.data(),
                                          length(x.shape(1)), x.data(), y.data(), threads),
                "an index is out of range; pass a valid matrix in compressed rows");
    });
}

}  // namespace

void bind_krylov(nb::module_& m) {
    define(m, "krylov_dots", [](MatrixIn<double> x, MatrixIn<double> y, VectorOut<double> sums, int threads) {
        require_like(x, y);
        require_numbers(sums, x.shape(1));
        nb::gil_scoped_release release;
        krylov::dots(rows_of(x), length(x.shape(1)), x.data(), y.data(), sums.data(), threads);
    });
    define(m, "krylov_step",
           [](VectorIn<double> a, MatrixIn<double> p, MatrixIn<double> q, MatrixOut<double> x, MatrixOut<double> r,
              MatrixOut<double> sizes, int threads) {
        require_like(p, q);
        require_like(p, x);
        require_like(p, r);
        require_numbers(a, p.shape(1));
        require(sizes.shape(0) == krylov::sizes_per_column && sizes.shape(1) == p.shape(1),
                "sizes has another shape; pass 3 x k numbers");
        require_apart(x, r);
        require_apart(p, x);
        require_apart(q, x);
        require_apart(p, r, true);
        require_apart(q, r, true);
        nb::gil_scoped_release release;
        krylov::step(rows_of(p), length(p.shape(1)), a.data(), p.data(), q.data(), x.data(), r.data(), sizes.data(),
                     threads);
    });
    define(m, "krylov_combine",
           [](VectorIn<double> a, MatrixIn<double> x, VectorIn<double> b, MatrixOut<double> y, int threads) {
        require_like(x, y);
        require_numbers(a, x.shape(1));
        require_numbers(b, x.shape(1));
        require_apart(x, y, true);
        nb::gil_scoped_release release;
        krylov::combine(rows_of(x), length(x.shape(1)), a.data(), x.data(), b.data(), y.data(), threads);
    });
    define(m, "krylov_project",
           [](RowsIn<double> v, VectorIn<double> h, VectorOut<double> w, VectorOut<double> next, int threads) {
        require(v.shape(1) == w.size(), "V and w differ in length; pass rows of n numbers");
        require(h.size() == 0 || h.size() == v.shape(0), "there is not one coefficient for each row of V");
        require(next.size() == 0 || next.size() == v.shape(0), "there is not one product for each row of V");
        require_apart(v, w);
        require_apart(h, w);
        require_apart(v, next);
        require_apart(w, next);
        nb::gil_scoped_release release;
        return krylov::project(length(w.size()), length(v.shape(0)), v.data(), h.size() ? h.data() : nullptr,
                               w.data(), next.size() ? next.data() : nullptr, threads);
    });
    bind_rows_times<std::int32_t>(m);
    bind_rows_times<std::int64_t>(m);
}

}  // namespace roundwise
