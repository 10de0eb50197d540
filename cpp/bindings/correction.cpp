// A correction of iterative refinement in one call: X + A^-1 R for a few columns, with factors of A.
//
// Its passes over vectors take microseconds each, and the Python around single calls as long again.
#include "bindings/orders.hpp"
#include "native/columns.hpp"
#include "native/dispatch.hpp"

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

}  // namespace

void bind_correction(nb::module_& m) {
    bind_correct<float>(m);
    bind_correct<double>(m);
}

}  // namespace roundwise
