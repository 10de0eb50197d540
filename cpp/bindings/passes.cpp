// Passes over a matrix before anything is factorized: norms by columns, copies, symmetry, scaling by powers
// of two, a look at some lines and the angles between them.
// native/kernels.hpp and native/angles.hpp state what each computes.
#include <complex>

#include "bindings/bindings.hpp"
#include "native/angles.hpp"
#include "native/dispatch.hpp"

namespace roundwise {

namespace {

// The 1-norm and the largest entry of A; A rounded to float goes to `rounded`, unless that is null.
template <class T> nb::tuple norms_by_columns(const MatrixIn<T>& a, float* rounded, int threads) {
    const std::int64_t columns = length(a.shape(1));
    Norms norms;
    {
        nb::gil_scoped_release release;
        const Workspace workspace(2 * columns * static_cast<std::int64_t>(sizeof(double)));
        norms = native_kernels<T>().column_norms(length(a.shape(0)), columns, a.data(), threads,
                                                 static_cast<double*>(workspace.get()), rounded);
    }
    return nb::make_tuple(norms.one, norms.max_abs);
}

template <class T> void bind_passes_of(nb::module_& m) {
    define(m, "native_column_norms",
           [](MatrixIn<T> a, int threads) { return norms_by_columns<T>(a, nullptr, threads); });
    define(m, "native_copy", [](MatrixIn<T> x, MatrixOut<T> y, int threads) {
        require(x.shape(0) == y.shape(0) && x.shape(1) == y.shape(1),
                "the arrays differ in shape; pass two of the same");
        nb::gil_scoped_release release;
        native_kernels<T>().copy(length(x.size()), x.data(), y.data(), threads);
    });
    define(m, "native_symmetric", [](MatrixIn<T> a, int threads) {
        require(a.shape(0) == a.shape(1), "A is not square; pass an n x n matrix");
        nb::gil_scoped_release release;
        return native_kernels<T>().symmetric(length(a.shape(0)), a.data(), threads);
    });
}

void bind_look(nb::module_& m) {
    define(m, "native_look", [](MatrixIn<double> a, VectorIn<std::int64_t> lines,
                                VectorIn<std::int64_t> diagonal, VectorOut<double> largest,
                                VectorOut<double> norms, MatrixOut<double> gram, int threads) {
        const std::int64_t n = length(a.shape(0)), count = length(lines.size());
        require(count == length(diagonal.size()) && count == length(largest.size()) &&
                    count == length(norms.size()) && count == length(gram.shape(0)) &&
                    count == length(gram.shape(1)),
                "the lengths do not match; pass a number for each line, and count x count products");
        require(threads >= 1, "threads < 1; pass at least 1");
        for (std::int64_t i = 0; i < count; ++i)
            require(lines.data()[i] >= 0 && lines.data()[i] < length(a.shape(1)) &&
                        diagonal.data()[i] >= 0 && diagonal.data()[i] < n,
                    "a line is out of range; pass indices of columns and rows of a");
        const LookKernels& kernels = look_kernels();
        nb::gil_scoped_release release;
        const Workspace workspace(kernels.workspace(n, count, threads) *
                                  static_cast<std::int64_t>(sizeof(double)));
        kernels.look(n, a.data(), count, lines.data(), diagonal.data(), largest.data(), norms.data(),
                     gram.data(), threads, static_cast<double*>(workspace.get()));
    });
    define(m, "native_gram", [](MatrixIn<double> a, MatrixOut<double> products, int threads) {
        const std::int64_t count = length(a.shape(1));
        require(count == length(products.shape(0)) && count == length(products.shape(1)),
                "the shapes do not match; pass n x count and count x count numbers");
        require(threads >= 1, "threads < 1; pass at least 1");
        nb::gil_scoped_release release;
        look_kernels().gram(length(a.shape(0)), count, a.data(), products.data(), threads);
    });
}

// n x m numbers, and as many exponents for rows and for columns.
template <class Matrix, class Rows, class Columns>
void require_lines(const Matrix& a, const Rows& rows, const Columns& columns, int threads) {
    require(a.shape(0) == rows.size() && a.shape(1) == columns.size(),
            "the lengths do not match; pass a number for each row and for each column");
    require(threads >= 1, "threads < 1; pass at least 1");
}

Workspace scaling_workspace(const ScalingKernels& kernels, std::int64_t rows) {
    return Workspace(kernels.workspace(rows) * static_cast<std::int64_t>(sizeof(std::int64_t)));
}

void bind_scaling(nb::module_& m) {
    using Exponents = VectorIn<std::int32_t>;
    define(m, "native_largest_exponents",
           [](MatrixIn<double> a, Exponents row_scale, Exponents column_scale, VectorOut<std::int32_t> rows,
              VectorOut<std::int32_t> columns, int threads) {
        require_lines(a, row_scale, column_scale, threads);
        require_lines(a, rows, columns, threads);
        const std::int64_t count = length(a.shape(0));
        nb::gil_scoped_release release;
        const ScalingKernels& kernels = scaling_kernels();
        const Workspace workspace = scaling_workspace(kernels, count);
        kernels.largest_exponents(count, length(a.shape(1)), a.data(), row_scale.data(), column_scale.data(),
                                  rows.data(), columns.data(), threads,
                                  static_cast<std::int64_t*>(workspace.get()));
    });
    define(m, "native_scale", [](MatrixIn<double> a, Exponents row_scale, Exponents column_scale,
                                 MatrixOut<double> scaled, int threads) {
        require_lines(a, row_scale, column_scale, threads);
        require_lines(scaled, row_scale, column_scale, threads);
        const std::int64_t count = length(a.shape(0));
        nb::gil_scoped_release release;
        const ScalingKernels& kernels = scaling_kernels();
        const Workspace workspace = scaling_workspace(kernels, count);
        return kernels.scale(count, length(a.shape(1)), a.data(), row_scale.data(), column_scale.data(),
                             scaled.data(), threads, static_cast<std::int64_t*>(workspace.get()));
    });
    define(m, "native_magnitude_sums", [](MatrixIn<double> a, bool transpose, VectorIn<double> weights,
                                          VectorOut<double> sums, int threads) {
        if (transpose) require_lines(a, weights, sums, threads);
        else require_lines(a, sums, weights, threads);
        nb::gil_scoped_release release;
        scaling_kernels().magnitude_sums(length(a.shape(0)), length(a.shape(1)), a.data(), transpose,
                                         weights.data(), sums.data(), threads);
    });
}

template <class T> void bind_angles(nb::module_& m) {
    define(m, "native_angles", [](MatrixOut<T> products) {
        const std::int64_t count = length(products.shape(0));
        require(count == length(products.shape(1)), "the products are not square; pass count x count");
        const Workspace workspace(count * static_cast<std::int64_t>(sizeof(double)));
        const Angles found = angles_of(count, products.data(), static_cast<double*>(workspace.get()));
        return nb::make_tuple(found.squares, found.remainder);
    });
}

}  // namespace

void bind_passes(nb::module_& m) {
    define(m, "native_norms_and_rounded", [](MatrixIn<double> a, MatrixOut<float> rounded, int threads) {
        require(a.shape(0) == rounded.shape(0) && a.shape(1) == rounded.shape(1),
                "the arrays differ in shape; pass two of the same");
        return norms_by_columns<double>(a, rounded.data(), threads);
    });
    bind_passes_of<float>(m);
    bind_passes_of<double>(m);
    bind_look(m);
    bind_scaling(m);
    bind_angles<double>(m);
    bind_angles<std::complex<double>>(m);
}

}  // namespace roundwise
