// A correction of iterative refinement in one call, X + A^-1 R, with factors of A; and all corrections in one call.
//
// Their passes over vectors take microseconds each, and the Python around single calls as long again.
#include <cmath>
#include <vector>

#include "bindings/orders.hpp"
#include "native/columns.hpp"
#include "native/dispatch.hpp"
#include "native/refinement.hpp"

namespace roundwise {

namespace {

template <class T> void bind_correct(nb::module_& m) {
    // `packed` holds factors of A with its rows in the order `rows`, or of A' if `transpose`; numbers of the solution
    // go to `places`. `sizes` are the max norms of R's columns, which are divided by powers of two before the solve, so
    // that their norms are in [1, 2). Returns whether the solution is finite, and whether it is when it is multiplied
    // by these powers again.
    define(m, "native_correct",
           [](MatrixIn<T> packed, bool cholesky, bool transpose, Order rows, Order places, MatrixIn<double> r,
              VectorIn<double> sizes, MatrixIn<double> x, MatrixOut<double> sum, VectorOut<double> z_norms,
              VectorOut<double> sum_norms, int threads) {
        const std::int64_t n = length(packed.shape(0)), columns = length(r.shape(1));
        require(n == length(packed.shape(1)), "the factors are not square; pass an n x n matrix");
        const auto fits = [&](const auto& block) {
            return n == length(block.shape(0)) && columns == length(block.shape(1));
        };
        const auto has_all = [&](const auto& norms) { return columns == length(norms.size()); };
        require(fits(r) && fits(x) && fits(sum) && has_all(sizes) && has_all(z_norms) && has_all(sum_norms),
                "the shapes do not match; pass blocks of n rows, and numbers for each column");
        require(threads >= 1, "threads < 1; pass at least 1");
        require_order(rows, n);
        require_order(places, n);
        bool solved = true, scaled = true;
        {
            nb::gil_scoped_release release;
            const NativeKernels<T>& kernels = native_kernels<T>();
            const Workspace memory((2 * n * columns + columns) * static_cast<std::int64_t>(sizeof(double)));
            double* unit = static_cast<double*>(memory.get());
            T* y = reinterpret_cast<T*>(unit + n * columns);
            int* exponents = reinterpret_cast<int*>(unit + 2 * n * columns);
            for (std::int64_t j = 0; j < columns; ++j) {
                exponents[j] = to_unit_size(n, r.data() + j * n, sizes.data()[j], unit + j * n);
                gather(n, pointer(rows), unit + j * n, y + j * n);
            }
            const Workspace phases(kernels.solve_workspace(n, columns, threads));
            kernels.solve(sizeof(T) == 4 ? Storage::fp32 : Storage::fp64,
                          cholesky ? Factors::cholesky : Factors::lu, n, packed.data(), transpose, columns, y,
                          threads, phases.get());
            for (std::int64_t j = 0; j < columns; ++j) {
                const Corrected made = correct(n, pointer(places), y + j * n, exponents[j], x.data() + j * n,
                                               sum.data() + j * n);
                z_norms.data()[j] = made.z_norm;
                sum_norms.data()[j] = made.sum_norm;
                solved &= made.solved;
                scaled &= made.scaled;
            }
        }
        return nb::make_tuple(solved, scaled);
    });
}

template <class T, class S> void bind_refine(nb::module_& m) {
    // Refinement by substitution: X, its residual R, and the backward error of each column, for the matrix `a`, which
    // may be stored in single precision, or its transpose, with this infinity norm. Ends when every backward error is at most `target`;
    // refinement.hpp says what `shorts` are. Factors as above; those of
    // a complex matrix are 2 n x n, as in native_complex_getrs, `a` has 2 n x n parts of its transpose (rows that are
    // contiguous), columns have pairs of real and imaginary parts, and without `transpose` the factors are of the
    // conjugate of `a`. Returns whether it got there, the largest backward error, the largest correction relative to x,
    // the largest ||A|| ||x|| / ||b||, and the history: before each correction the largest backward error of those that
    // are corrected, and then the largest correction. X is of no use if it did not get there.
    define(m, "native_refine",
           [](MatrixIn<T> packed, bool cholesky, bool transpose, Order rows, Order places, MatrixIn<S> a,
              bool a_transpose, double norm, double target, std::int64_t block, std::int64_t shorts,
              double error_of_shorts, int most_steps, ArrayIn<double> b, ArrayOut<double> x, ArrayOut<double> r,
              VectorOut<double> errors, int threads, int pass_threads) {
        const std::int64_t n = length(packed.shape(1)), numbers = length(packed.shape(0));
        const int parts = numbers == 2 * n ? 2 : 1;
        require(numbers == parts * n && numbers == length(a.shape(0)) && n == length(a.shape(1)),
                "the factors or A are not square; pass n x n matrices, or 2 n x n parts of both");
        require(parts == 1 || (a_transpose && !cholesky), "pass the rows and LU factors of a complex matrix");
        const auto columns = [&](const auto& v) {
            require(v.ndim() >= 1 && v.ndim() <= 2 && length(v.shape(0)) == numbers,
                    "the shapes do not match; pass blocks of n rows");
            return v.ndim() == 1 ? std::int64_t{1} : length(v.shape(1));
        };
        const std::int64_t count = columns(b);
        require(count >= 1 && count == columns(x) && count == columns(r) && count == length(errors.size()),
                "the shapes do not match; pass blocks of as many columns, and an error for each");
        require(threads >= 1 && pass_threads >= 1, "threads < 1; pass at least 1");
        require(most_steps >= 0, "most_steps < 0; pass at least 0");
        require_block(block);
        require(shorts == 0 || shorts >= 4, "short sums have at least 4 products, or are none (0)");
        require_order(rows, n);
        require_order(places, n);
        Refinement<T> refinement{n, parts, packed.data(), cholesky, transpose, pointer(rows), pointer(places), a.data(),
                                 a_transpose, norm, target, block, shorts, error_of_shorts, most_steps, threads,
                                 pass_threads};
        bool converged;
        double worst = 0;
        {
            nb::gil_scoped_release release;
            converged = refinement.run(count, b.data(), x.data(), r.data(), errors.data());
            for (std::int64_t j = 0; j < count; ++j)
                worst = errors.data()[j] > worst ? errors.data()[j] : worst;
        }
        return nb::make_tuple(converged, worst, refinement.largest, refinement.stretch, refinement.history);
    });
}

}  // namespace

void bind_correction(nb::module_& m) {
    bind_correct<float>(m);
    bind_correct<double>(m);
    bind_refine<float, double>(m);
    bind_refine<double, double>(m);
    bind_refine<float, float>(m);
    bind_refine<double, float>(m);
}

}  // namespace roundwise
