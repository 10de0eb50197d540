// The native kernels of roundwise._kernels; native/kernels.hpp states what each computes. `threads`
// is the last argument. Shapes are checked here: with a wrong one, a kernel would read or write past
// the end of an array.
#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <new>
#include <stdexcept>

#include "bindings/bindings.hpp"
#include "native/backward_error.hpp"
#include "native/dispatch.hpp"

namespace roundwise {

namespace {

// The infinity norm of a square matrix, or of its transpose. From 1 MiB on, where threads_for grants several
// threads, they share the pass. Which of the two passes it is depends on the size alone: their sums may differ
// in the last bits, and must not do so with the number of threads.
double largest_row_sum(const ExactKernels& exact, std::int64_t n, const double* a, bool transpose, int threads) {
    if (n * n < 1 << 17) return exact.largest_row_sum(n, n, a, transpose);
    const NativeKernels<double>& kernels = native_kernels<double>();
    const std::int64_t numbers = std::max<std::int64_t>(2, norm_parts) * n;
    const Workspace memory(numbers * static_cast<std::int64_t>(sizeof(double)));
    double* workspace = static_cast<double*>(memory.get());
    return transpose ? kernels.column_norms(n, n, a, threads, workspace, nullptr).one
                     : kernels.norms(n, n, a, threads, workspace).inf;
}

template <class T>
int factorize(const LuKernels<T>& kernels, const MatrixOut<T>& a, const VectorOut<std::int32_t>& pivots,
              int threads) {
    const std::int64_t n = length(a.shape(0));
    require(n == length(a.shape(1)), "A is not square; pass an n x n matrix");
    require(n == length(pivots.shape(0)), "pivots and A differ in length; pass n pivots");
    require(threads >= 1, "threads < 1; pass at least 1");
    nb::gil_scoped_release release;
    const Workspace workspace(kernels.lu_workspace(n, threads));
    return kernels.lu(n, a.data(), pivots.data(), threads, workspace.get());
}

template <class T>
int factorize_symmetric(const LuKernels<T>& kernels, const MatrixOut<T>& a, bool upper, int threads) {
    const std::int64_t n = length(a.shape(0));
    require(n == length(a.shape(1)), "A is not square; pass an n x n matrix");
    require(threads >= 1, "threads < 1; pass at least 1");
    nb::gil_scoped_release release;
    const Workspace workspace(kernels.cholesky_workspace(n, threads));
    return kernels.cholesky(n, a.data(), upper, threads, workspace.get());
}

template <class T> void bind_lu(nb::module_& m) {
    define(m, "native_cholesky", [](MatrixOut<T> a, bool upper, int threads) {
        return factorize_symmetric<T>(native_kernels<T>(), a, upper, threads);
    });
    define(m, "native_lu", [](MatrixOut<T> a, VectorOut<std::int32_t> pivots, int threads) {
        return factorize<T>(native_kernels<T>(), a, pivots, threads);
    });
}

template <class T> void bind_complex_lu(nb::module_& m) {
    define(m, "native_complex_lu",
           [](MatrixIn<std::complex<double>> a, MatrixOut<T> packed,
              VectorOut<std::int32_t> pivots, int threads) {
        const std::int64_t n = length(a.shape(0));
        require(n == length(a.shape(1)), "A is not square; pass an n x n matrix");
        require(2 * n == length(packed.shape(0)) && n == length(packed.shape(1)),
                "the factors have another shape; pass n columns of n real and n imaginary parts");
        require(n == length(pivots.shape(0)), "pivots and A differ in length; pass n pivots");
        require(threads >= 1, "threads < 1; pass at least 1");
        nb::gil_scoped_release release;
        const NativeKernels<T>& kernels = native_kernels<T>();
        const Workspace workspace(kernels.complex_lu_workspace(n, threads));
        return kernels.complex_lu(n, reinterpret_cast<const double*>(a.data()), packed.data(),
                                  pivots.data(), threads, workspace.get());
    });
}

void bind_bf16(nb::module_& m) {
    m.def("native_bf16_levels", &bf16_levels);
    define(m, "native_bf16_lu", [](MatrixOut<float> a, VectorOut<std::int32_t> pivots,
                                   const std::string& level, int threads) {
        return factorize<float>(bf16_kernels(level), a, pivots, threads);
    });
    define(m, "native_bf16_cholesky", [](MatrixOut<float> a, bool upper, const std::string& level,
                                         int threads) {
        return factorize_symmetric<float>(bf16_kernels(level), a, upper, threads);
    });
    define(m, "native_bf16_gemm", [](MatrixOut<float> c, MatrixIn<float> a, MatrixIn<float> b,
                                     const std::string& level, int threads) {
        const std::int64_t rows = length(c.shape(0)), columns = length(c.shape(1));
        const std::int64_t k = length(a.shape(1));
        require(rows == length(a.shape(0)) && columns == length(b.shape(1)) && k == length(b.shape(0)),
                "the shapes of C, A and B do not match; pass m x n, m x k and k x n");
        require(k % 32 == 0, "A has a number of columns that is no multiple of 32; add zero columns");
        require(threads >= 1, "threads < 1; pass at least 1");
        const Bf16Kernels& kernels = bf16_kernels(level);
        nb::gil_scoped_release release;
        const Workspace workspace(kernels.gemm_workspace(rows, columns, k, threads));
        kernels.gemm(rows, columns, k, a.data(), b.data(), c.data(), threads, workspace.get());
    });
}

// The Storage of a format's name, which must fit the array's type S.
template <class S> Storage storage_of(const std::string& name) {
    if constexpr (sizeof(S) == 2) {
        if (name == "bf16") return Storage::bf16;
        if (name == "fp16") return Storage::fp16;
    } else {
        const char* expected = sizeof(S) == 4 ? "fp32" : "fp64";
        if (name == expected) return sizeof(S) == 4 ? Storage::fp32 : Storage::fp64;
    }
    throw std::invalid_argument(
        "format '" + name +
        "' does not fit the array's type; pass bf16 or fp16 for uint16, fp32 for float32, fp64 for float64");
}

template <class X, class Y> bool same_shape(const X& x, const Y& y) {
    if (x.ndim() != y.ndim()) return false;
    for (std::size_t i = 0; i < x.ndim(); ++i)
        if (x.shape(i) != y.shape(i)) return false;
    return true;
}

// Kernels for matrices stored as S and arithmetic in T.
template <class S, class T> void bind_pair(nb::module_& m) {
    define(m, "native_matvec", [](MatrixIn<S> a, const std::string& format, VectorIn<T> x,
                                  VectorOut<T> y, bool transpose, int threads) {
        const Storage storage = storage_of<S>(format);
        const std::int64_t rows = length(a.shape(0)), columns = length(a.shape(1));
        require(length(x.shape(0)) == (transpose ? rows : columns) &&
                    length(y.shape(0)) == (transpose ? columns : rows),
                "the lengths of x and y do not match A; pass y = A x, or A' x with transpose");
        require(threads >= 1, "threads < 1; pass at least 1");
        const NativeKernels<T>& kernels = native_kernels<T>();
        nb::gil_scoped_release release;
        kernels.matvec(storage, rows, columns, a.data(), transpose, x.data(), y.data(), threads);
    });
    const auto solve = [](Factors factors, const MatrixIn<S>& a, const std::string& format,
                          const MatrixOut<T>& b, bool transpose, int threads) {
        const Storage storage = storage_of<S>(format);
        const std::int64_t n = length(a.shape(0));
        require(n == length(a.shape(1)), "the factors are not square; pass an n x n matrix");
        require(n == length(b.shape(0)), "b and the factors differ in length; pass n rows");
        require(threads >= 1, "threads < 1; pass at least 1");
        const NativeKernels<T>& kernels = native_kernels<T>();
        nb::gil_scoped_release release;
        const std::int64_t columns = length(b.shape(1));
        const Workspace workspace(kernels.solve_workspace(n, columns, threads));
        kernels.solve(storage, factors, n, a.data(), transpose, columns, b.data(), threads,
                      workspace.get());
    };
    define(m, "native_getrs", [solve](MatrixIn<S> a, const std::string& format, MatrixOut<T> b,
                                      bool transpose, int threads) {
        solve(Factors::lu, a, format, b, transpose, threads);
    });
    define(m, "native_potrs", [solve](MatrixIn<S> a, const std::string& format, MatrixOut<T> b,
                                      int threads) {
        solve(Factors::cholesky, a, format, b, false, threads);
    });
}

// Solves with complex factors that are stored as S, in T.
template <class S, class T> void bind_complex_solve(nb::module_& m) {
    define(m, "native_complex_getrs", [](MatrixIn<S> a, MatrixOut<T> b, bool transpose, int threads) {
        const std::int64_t n = length(a.shape(1)), columns = length(b.shape(1)) / 2;
        require(2 * n == length(a.shape(0)),
                "the factors have another shape; pass n columns of n real and n imaginary parts");
        require(n == length(b.shape(0)) && 2 * columns == length(b.shape(1)),
                "b does not fit the factors; pass n rows, and two columns for each complex one");
        require(threads >= 1, "threads < 1; pass at least 1");
        const NativeKernels<T>& kernels = native_kernels<T>();
        nb::gil_scoped_release release;
        const Workspace workspace(kernels.complex_solve_workspace(n, columns, threads));
        kernels.complex_solve(sizeof(S) == 4 ? Storage::fp32 : Storage::fp64, n, a.data(), transpose,
                              columns, b.data(), threads, workspace.get());
    });
}

// Conversions between the narrower S and the wider T.
template <class S, class T> void bind_conversion(nb::module_& m) {
    define(m, "native_convert", [](ArrayIn<T> x, ArrayOut<S> y, const std::string& format, int threads) {
        const Storage storage = storage_of<S>(format);
        require(same_shape(x, y), "the arrays differ in shape; pass two of the same");
        nb::gil_scoped_release release;
        native_kernels<T>().narrow(storage, length(x.size()), x.data(), y.data(), threads);
    });
    define(m, "native_convert", [](ArrayIn<S> x, ArrayOut<T> y, const std::string& format, int threads) {
        const Storage storage = storage_of<S>(format);
        require(same_shape(x, y), "the arrays differ in shape; pass two of the same");
        nb::gil_scoped_release release;
        native_kernels<T>().widen(storage, length(x.size()), x.data(), y.data(), threads);
    });
}

template <class T> void bind_norms(nb::module_& m) {
    define(m, "native_norms", [](MatrixIn<T> a, int threads) {
        const std::int64_t rows = length(a.shape(0));
        Norms norms;
        {
            nb::gil_scoped_release release;
            const Workspace workspace(norm_parts * rows * static_cast<std::int64_t>(sizeof(double)));
            norms = native_kernels<T>().norms(rows, length(a.shape(1)), a.data(), threads,
                                              static_cast<double*>(workspace.get()));
        }
        return nb::make_tuple(norms.one, norms.inf, norms.max_abs);
    });
}

template <class T> void bind_vector_operations(nb::module_& m) {
    define(m, "native_axpy", [](double alpha, VectorIn<T> x, VectorOut<T> y) {
        require(x.size() == y.size(), "x and y differ in length; pass two vectors of n numbers");
        return native_kernels<T>().axpy(length(x.size()), static_cast<T>(alpha), x.data(), y.data());
    });
    define(m, "native_orthogonalize", [](RowsIn<T> v, VectorOut<T> w, VectorOut<T> h) {
        require(v.shape(1) == w.size() && v.shape(0) == h.size(),
                "the shapes of V, w and h do not match; pass m x n, n and m numbers");
        return native_kernels<T>().orthogonalize(length(w.size()), length(h.size()), v.data(), w.data(),
                                                 h.data());
    });
}

// A vector or the columns of a matrix.
struct Block {
    std::int64_t rows, count;
    template <class X> explicit Block(const X& x)
        : rows(x.ndim() == 0 ? 0 : length(x.shape(0))), count(rows == 0 ? 0 : length(x.size()) / rows) {}
    bool operator==(const Block& other) const { return rows == other.rows && count == other.count; }
};

void require_blocks(std::int64_t rows, std::int64_t columns, const Block& x, const Block& b,
                    const Block& r) {
    require(b == r && x.count == b.count && b.rows == rows && x.rows == columns,
            "the shapes of X, B and R do not match A; pass R and B as A X, with as many columns as X");
}

template <class I> void bind_sparse_exact(nb::module_& m) {
    define(m, "native_exact_sparse_residual",
           [](VectorIn<I> starts, VectorIn<I> places, VectorIn<double> values, std::int64_t columns,
              ArrayIn<double> x, ArrayIn<double> b, ArrayOut<double> r, int threads) {
        require(starts.size() >= 1, "indptr is empty; pass compressed rows");
        const std::int64_t rows = length(starts.size()) - 1;
        require_blocks(rows, columns, Block(x), Block(b), Block(r));
        const I entries = starts.data()[rows];
        require(entries <= length(places.size()) && entries <= length(values.size()),
                "indptr points past the entries; pass a valid matrix in compressed rows");
        const auto kernel = [] {
            if constexpr (sizeof(I) == 4) return exact_kernels().sparse_residual;
            else return exact_kernels().long_sparse_residual;
        }();
        nb::gil_scoped_release release;
        require(kernel(rows, columns, starts.data(), places.data(), values.data(), Block(x).count,
                       x.data(), b.data(), r.data(), threads),
                "an index is out of range; pass a valid matrix in compressed rows");
    });
}

void bind_exact(nb::module_& m) {
    define(m, "native_exact_residual", [](MatrixIn<double> a, bool transpose, ArrayIn<double> x,
                                          ArrayIn<double> b, ArrayOut<double> r, std::int64_t block,
                                          int threads) {
        const std::int64_t rows = length(a.shape(0)), columns = length(a.shape(1));
        require_blocks(transpose ? columns : rows, transpose ? rows : columns, Block(x), Block(b), Block(r));
        require_block(block);
        nb::gil_scoped_release release;
        exact_kernels().residual(rows, columns, a.data(), transpose, Block(x).count, x.data(), b.data(),
                                 r.data(), block, threads);
    });
    // For small systems, whose answer takes microseconds: ||R||, ||A||, ||X|| and ||B|| of each column
    // at once, as the largest ||R|| / (||A|| ||X|| + ||B||). NaN if a column has one; infinite if a
    // divisor is outside `least` to `most`.
    define(m, "native_backward_error", [](MatrixIn<double> a, bool transpose, ArrayIn<double> x,
                                          ArrayIn<double> b, std::int64_t block, double least,
                                          double most, int threads) {
        const Block shape(x);
        const std::int64_t n = length(a.shape(0)), count = shape.count;
        require(n == length(a.shape(1)), "A is not square; pass an n x n matrix");
        require_blocks(n, n, shape, Block(b), Block(b));
        require_block(block);
        require(threads >= 1, "threads < 1; pass at least 1");
        nb::gil_scoped_release release;
        const Workspace workspace(n * count * static_cast<std::int64_t>(sizeof(double)));
        double* r = static_cast<double*>(workspace.get());
        const ExactKernels& kernels = exact_kernels();
        kernels.residual(n, n, a.data(), transpose, count, x.data(), b.data(), r, block, threads);
        const double norm = largest_row_sum(kernels, n, a.data(), transpose, threads);
        return worst_backward_error(n, count, norm, x.data(), b.data(), r, least, most);
    });
    // The same of a sparse A in compressed rows or columns, every product exactly. Also the largest
    // |r_i| / (sums_i ||x|| + |b_i|), where sums_i = sum_j |a_ij| goes to `sums`, and R to `residuals`.
    define(m, "native_sparse_backward_errors",
           [](VectorIn<std::int32_t> starts, VectorIn<std::int32_t> places, VectorIn<double> values,
              bool by_columns, ArrayIn<double> x, ArrayIn<double> b, VectorOut<double> sums,
              ArrayOut<double> residuals, double least, double most) {
        require(starts.size() >= 1, "indptr is empty; pass a matrix in compressed form");
        const Block shape(x);
        const std::int64_t n = length(starts.size()) - 1, count = shape.count;
        require_blocks(n, n, shape, Block(b), Block(residuals));
        require(length(sums.size()) == n, "sums has another length than A; pass n numbers");
        const std::int32_t *first = starts.data(), *place = places.data();
        require(first[n] <= length(places.size()) && first[n] <= length(values.size()),
                "indptr points past the entries; pass a valid matrix in compressed form");
        bool valid = first[0] == 0;
        for (std::int64_t i = 0; i < n; ++i) valid = valid && first[i] <= first[i + 1];
        for (std::int32_t entry = 0; valid && entry < first[n]; ++entry)
            valid = place[entry] >= 0 && place[entry] < n;
        require(valid, "an index is out of range; pass a valid matrix in compressed form");
        double error = 0, by_row = 0;
        {
            nb::gil_scoped_release release;
            double *r = residuals.data(), *sum = sums.data(), norm = 0;
            if (by_columns)  // `sum` is scratch memory until it is filled
                exact_kernels().residual_by_columns(n, first, place, values.data(), count, x.data(),
                                                    b.data(), r, sum);
            else
                exact_kernels().sparse_residual(n, n, first, place, values.data(), count, x.data(),
                                                b.data(), r, 1);
            std::fill(sum, sum + n, 0.0);
            for (std::int64_t line = 0; line < n; ++line)
                for (std::int32_t entry = first[line]; entry < first[line + 1]; ++entry)
                    sum[by_columns ? place[entry] : line] += std::fabs(values.data()[entry]);
            for (std::int64_t i = 0; i < n; ++i)
                norm = sum[i] > norm ? sum[i] : norm;  // NaN is in the residual, too
            error = worst_backward_error(n, count, norm, x.data(), b.data(), r, least, most);
            for (std::int64_t c = 0; c < count; ++c) {
                const double *xs = x.data() + c * n, *bs = b.data() + c * n, *rs = r + c * n;
                double largest = 0;
                for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(xs[i]));
                for (std::int64_t i = 0; i < n; ++i) {
                    const double size = sum[i] * largest + std::fabs(bs[i]);
                    const double ratio = rs[i] == 0 ? 0 : std::fabs(rs[i]) / size;
                    if (ratio > by_row || ratio != ratio) by_row = ratio;
                }
            }
        }
        return nb::make_tuple(error, by_row);
    });
    bind_sparse_exact<std::int32_t>(m);
    bind_sparse_exact<std::int64_t>(m);
}

}  // namespace

void bind_native(nb::module_& m) {
    bind_exact(m);
    bind_bf16(m);
    bind_complex_lu<float>(m);
    bind_complex_lu<double>(m);
    m.def("native_level", [] { return name_of(native_level()); });
    bind_lu<float>(m);
    bind_lu<double>(m);
    bind_pair<std::uint16_t, float>(m);
    bind_pair<std::uint16_t, double>(m);
    bind_pair<float, float>(m);
    bind_pair<float, double>(m);
    bind_pair<double, double>(m);
    bind_complex_solve<float, float>(m);
    bind_complex_solve<float, double>(m);
    bind_complex_solve<double, double>(m);
    bind_conversion<std::uint16_t, float>(m);
    bind_conversion<std::uint16_t, double>(m);
    bind_conversion<float, double>(m);
    bind_norms<float>(m);
    bind_norms<double>(m);
    bind_vector_operations<float>(m);
    bind_vector_operations<double>(m);
}

}  // namespace roundwise
