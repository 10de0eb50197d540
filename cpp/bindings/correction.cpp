// A correction of iterative refinement in one call, X + A^-1 R, with factors of A; and all corrections in one call.
//
// Their passes over vectors take microseconds each, and the Python around single calls as long again.
#include <cmath>
#include <vector>

#include "bindings/orders.hpp"
#include "common/parallel.hpp"
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

// Calls body(j) for the columns of a block of n rows, on several threads if there are many numbers.
template <class Body> void for_columns(std::int64_t n, std::int64_t columns, int threads, const Body& body) {
    constexpr std::int64_t few = 1 << 17;  // numbers: a pass over them takes less time than waking a thread
    const auto run = [](void* context, std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) (*static_cast<const Body*>(context))(j);
    };
    split_range(columns, 8, n * columns < few ? 1 : threads, run, const_cast<Body*>(&body));
}

// What is refined, and by which factors; see native_refine.
template <class T> struct Refinement {
    std::int64_t n;  // equations
    int parts;       // of a number: 2 if it is complex
    const T* packed;
    bool cholesky, transpose;
    const std::int32_t *rows, *places;
    const double* a;
    bool a_transpose;
    double norm, target;
    std::int64_t block;
    int most_steps, threads, pass_threads;
    std::vector<double> history;  // for each step the largest backward error before it and the largest correction
    double largest = 0;           // correction of all, relative to x
    double stretch = 0;           // the largest ||A|| ||x|| / ||b||

    std::int64_t numbers() const { return parts * n; }                  // of a column
    double sign() const { return parts == 2 && !transpose ? -1 : 1; }  // A* x = b says that A' conj(x) = conj(b)

    double norm_of(const double* column) const {
        return parts == 2 ? max_modulus(n, column, nullptr) : max_norm(n, column, nullptr);
    }

    void solve(std::int64_t count, T* y) const {
        const NativeKernels<T>& kernels = native_kernels<T>();
        const Storage storage = sizeof(T) == 4 ? Storage::fp32 : Storage::fp64;
        const auto workspace = parts == 2 ? kernels.complex_solve_workspace : kernels.solve_workspace;
        const Workspace phases(workspace(n, count, threads));
        if (parts == 2)
            kernels.complex_solve(storage, n, packed, transpose, count, y, threads, phases.get());
        else
            kernels.solve(storage, cholesky ? Factors::cholesky : Factors::lu, n, packed, transpose, count, y, threads,
                          phases.get());
    }

    // X (a block of `count` columns) += A^-1 R, or X = A^-1 R; false if something is not finite. r_norms are those of
    // R's columns.
    bool correct_columns(std::int64_t count, const double* r, const double* r_norms, bool from_zero, double* x,
                         double* z_norms, double* x_norms) {
        const Workspace memory((numbers() * count + 1) * static_cast<std::int64_t>(sizeof(T)));
        T* y = static_cast<T*>(memory.get());
        const auto exponent = [&](std::int64_t j) {
            return r_norms[j] > 0 && std::isfinite(r_norms[j]) ? std::ilogb(r_norms[j]) : 0;
        };
        for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
            const double power = std::ldexp(1.0, -exponent(j));
            const double* given = r + j * numbers();
            T* own = y + j * numbers();
            if (parts == 2) gather_pairs(n, rows, sign(), given, own, own + n, power);
            else
                for (std::int64_t i = 0; i < n; ++i)
                    own[i] = static_cast<T>(power * given[rows == nullptr ? i : rows[i]]);
        });
        solve(count, y);
        std::vector<char> finite(static_cast<std::size_t>(count));
        for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
            double* column = x + j * numbers();
            const T* own = y + j * numbers();
            if (from_zero) std::memset(column, 0, static_cast<std::size_t>(numbers()) * sizeof(double));
            const Corrected made = parts == 2 ? correct_pairs(n, places, sign(), own, own + n, exponent(j), column)
                                              : correct(n, places, own, exponent(j), column, column);
            z_norms[j] = made.z_norm;
            x_norms[j] = made.sum_norm;
            finite[static_cast<std::size_t>(j)] = made.solved && made.scaled && std::isfinite(made.sum_norm);
        });
        for (const char is : finite)
            if (!is) return false;
        return true;
    }

    void residual(std::int64_t count, const double* x, const double* b, double* r, double* r_norms) const {
        const std::int64_t size = numbers() * count;
        if (parts == 1) exact_kernels().residual(n, n, a, a_transpose, count, x, b, r, block, pass_threads);
        else {  // the real and imaginary parts of a residual are those of two real ones (docs/accuracy.md)
            const Workspace memory(4 * size * static_cast<std::int64_t>(sizeof(double)));
            double *turned = static_cast<double*>(memory.get()), *given = turned + 2 * size, *left = given + size;
            for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
                double *pairs = turned + 2 * j * numbers(), *own = given + j * numbers();
                turn_pairs(n, x + j * numbers(), pairs, pairs + numbers());
                gather_pairs(n, nullptr, 1, b + j * numbers(), own, own + n);
            });
            exact_kernels().residual(numbers(), n, a, true, 2 * count, turned, given, left, block, pass_threads);
            for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
                const double* own = left + j * numbers();
                scatter_pairs(n, nullptr, 1, own, own + n, r + j * numbers());
            });
        }
        for_columns(numbers(), count, pass_threads, [&](std::int64_t j) { r_norms[j] = norm_of(r + j * numbers()); });
    }

    // Columns whose backward error is above the target are corrected until it is not; false if one will not be: the
    // correction, relative to x, is more than half of the one before, or something is not finite.
    bool run(std::int64_t count, const double* b, double* x, double* r, double* errors) {
        const auto all = static_cast<std::size_t>(count);
        std::vector<double> b_norms(all), x_norms(all), r_norms(all), z_norms(all), relative(all, 1.0);
        constexpr double least = 0x1p-41, most = 0x1p40;
        const std::int64_t size = numbers();
        for_columns(size, count, pass_threads, [&](std::int64_t j) {
            b_norms[static_cast<std::size_t>(j)] = norm_of(b + j * size);
        });
        for (const double norm_b : b_norms)
            if (!(norm_b == 0 || (norm_b >= least && norm_b <= most))) return false;
        if (!correct_columns(count, b, b_norms.data(), true, x, z_norms.data(), x_norms.data())) return false;
        residual(count, x, b, r, r_norms.data());
        std::vector<std::int64_t> active;
        const auto judge = [&](std::size_t j) {
            errors[j] = backward_error(r_norms[j], norm, x_norms[j], b_norms[j]);
            if (!(errors[j] <= target)) active.push_back(static_cast<std::int64_t>(j));
        };
        for (std::size_t j = 0; j < all; ++j) judge(j);
        for (int step = 0; !active.empty(); ++step) {
            if (step == most_steps) return false;
            const std::int64_t left = static_cast<std::int64_t>(active.size());
            const bool every = left == count;
            // Those that are corrected, side by side.
            const Workspace memory((every ? 1 : 3 * size * left) * static_cast<std::int64_t>(sizeof(double)));
            double* room = static_cast<double*>(memory.get());
            double *x_part = every ? x : room, *r_part = every ? r : room + size * left;
            const double* b_part = every ? b : room + 2 * size * left;
            std::vector<double> norms_r(active.size()), norms_z(active.size()), norms_x(active.size());
            const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(double);
            for (std::size_t k = 0; k < active.size(); ++k) {
                const std::int64_t j = active[k], to = static_cast<std::int64_t>(k) * size;
                norms_r[k] = r_norms[static_cast<std::size_t>(j)];
                if (every) continue;
                std::memcpy(x_part + to, x + j * size, bytes);
                std::memcpy(r_part + to, r + j * size, bytes);
                std::memcpy(room + 2 * size * left + to, b + j * size, bytes);
            }
            double worst = 0, corrected = 0;
            for (const std::int64_t j : active) worst = errors[j] > worst ? errors[j] : worst;
            if (!correct_columns(left, r_part, norms_r.data(), false, x_part, norms_z.data(), norms_x.data()))
                return false;
            residual(left, x_part, b_part, r_part, norms_r.data());
            const std::vector<std::int64_t> before = active;
            active.clear();
            for (std::size_t k = 0; k < before.size(); ++k) {
                const std::int64_t j = before[k];
                const auto at = static_cast<std::size_t>(j);
                if (!every) {
                    std::memcpy(x + j * size, x_part + static_cast<std::int64_t>(k) * size, bytes);
                    std::memcpy(r + j * size, r_part + static_cast<std::int64_t>(k) * size, bytes);
                }
                r_norms[at] = norms_r[k];
                x_norms[at] = norms_x[k];
                judge(at);
                const double now = norms_z[k] / (norms_x[k] > 0x1p-1022 ? norms_x[k] : 0x1p-1022);
                corrected = norms_z[k] > corrected ? norms_z[k] : corrected;
                largest = now > largest ? now : largest;
                if (!(errors[at] <= target) && !(now <= 0.5 * relative[at])) return false;
                relative[at] = now;
            }
            history.push_back(worst);
            history.push_back(corrected);
        }
        for (std::size_t j = 0; j < all; ++j) {
            const double ratio = x_norms[j] == 0 ? 0 : norm * x_norms[j] / b_norms[j];
            stretch = ratio > stretch ? ratio : stretch;
        }
        return true;
    }
};

template <class T> void bind_refine(nb::module_& m) {
    // Refinement by substitution: X, its residual R, and the backward error of each column, for the matrix `a`, or its
    // transpose, with this infinity norm. Ends when every backward error is at most `target`. Factors as above; those of
    // a complex matrix are 2 n x n, as in native_complex_getrs, `a` has 2 n x n parts of its transpose (rows that are
    // contiguous), columns have pairs of real and imaginary parts, and without `transpose` the factors are of the
    // conjugate of `a`. Returns whether it got there, the largest backward error, the largest correction relative to x,
    // the largest ||A|| ||x|| / ||b||, and the history: before each correction the largest backward error of those that
    // are corrected, and then the largest correction. X is of no use if it did not get there.
    define(m, "native_refine",
           [](MatrixIn<T> packed, bool cholesky, bool transpose, Order rows, Order places, MatrixIn<double> a,
              bool a_transpose, double norm, double target, std::int64_t block, int most_steps, ArrayIn<double> b,
              ArrayOut<double> x, ArrayOut<double> r, VectorOut<double> errors, int threads, int pass_threads) {
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
        require_order(rows, n);
        require_order(places, n);
        Refinement<T> refinement{n, parts, packed.data(), cholesky, transpose, pointer(rows), pointer(places), a.data(),
                                 a_transpose, norm, target, block, most_steps, threads, pass_threads, {}};
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
    bind_refine<float>(m);
    bind_refine<double>(m);
}

}  // namespace roundwise
