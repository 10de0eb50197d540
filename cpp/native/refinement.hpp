// Iterative refinement of all columns in one call: corrections by substitution, residuals, and the gate's errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/parallel.hpp"
#include "native/columns.hpp"
#include "native/dispatch.hpp"

namespace roundwise {

// Calls body(j) for the columns of a block of n rows, on several threads if there are many numbers.
template <class Body> void for_columns(std::int64_t n, std::int64_t columns, int threads, const Body& body) {
    constexpr std::int64_t few = 1 << 17;  // numbers: a pass over them takes less time than waking a thread
    const auto run = [](void* context, std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) (*static_cast<const Body*>(context))(j);
    };
    split_range(columns, 8, n * columns < few ? 1 : threads, run, const_cast<Body*>(&body));
}

// A dense matrix, which is stored in double or single precision.
struct StoredMatrix {
    const double* doubles = nullptr;
    const float* singles = nullptr;

    StoredMatrix(const double* numbers) : doubles(numbers) {}
    StoredMatrix(const float* numbers) : singles(numbers) {}
    StoredMatrix(std::nullptr_t) {}

    // With `shorts`, by short sums in single precision if these are for it; returns whether they were.
    bool residual(std::int64_t rows, std::int64_t columns, bool transpose, std::int64_t count, const double* x,
                  const double* b, double* r, std::int64_t block, std::int64_t shorts, int threads) const {
        const ExactKernels& kernels = exact_kernels();
        if (singles != nullptr && shorts > 0 &&
            kernels.short_residual_in_single(rows, columns, singles, transpose, count, x, b, r, shorts, threads))
            return true;
        if (singles != nullptr)
            kernels.residual_of_single(rows, columns, singles, transpose, count, x, b, r, block, threads);
        else kernels.residual(rows, columns, doubles, transpose, count, x, b, r, block, threads);
        return false;
    }
};

// What is refined, and by which factors; see native_refine and supernodal_refine.
template <class T> struct Refinement {
    std::int64_t n;  // equations
    int parts;       // of a number: 2 if it is complex
    const T* packed;
    bool cholesky, transpose;
    const std::int32_t *rows, *places;
    StoredMatrix a;
    bool a_transpose;
    double norm, target;
    std::int64_t block;
    // Of short sums in single precision, which the first residual takes if `shorts` is not 0, and what they may add to
    // a backward error. Columns that are in doubt then have another residual.
    std::int64_t shorts;
    double error_of_shorts;
    int most_steps, threads, pass_threads;
    std::function<void(std::int64_t count, T* y)> solve_by = {};  // of a sparse matrix, as `residual_by`
    std::function<bool(std::int64_t count, const double* x, const double* b, double* r)> residual_by = {};
    std::vector<double> history = {};  // for each step the largest backward error before it and the largest correction
    double largest = 0;           // correction of all, relative to x
    double stretch = 0;           // the largest ||A|| ||x|| / ||b||

    std::int64_t numbers() const { return parts * n; }                  // of a column
    double sign() const { return parts == 2 && !transpose ? -1 : 1; }  // A* x = b says that A' conj(x) = conj(b)

    double norm_of(const double* column) const {
        return parts == 2 ? max_modulus(n, column, nullptr) : max_norm(n, column, nullptr);
    }

    void solve(std::int64_t count, T* y) const {
        if (solve_by) return solve_by(count, y);
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

    // Returns whether it is by short sums in single precision, which it may be with `may_be_short`.
    bool residual(std::int64_t count, const double* x, const double* b, double* r, double* r_norms,
                  bool may_be_short) const {
        bool is_short = false;
        const std::int64_t size = numbers() * count;
        if (residual_by) {
            if (!residual_by(count, x, b, r)) throw std::invalid_argument("an index of A is out of range");
        } else if (parts == 1) is_short = a.residual(n, n, a_transpose, count, x, b, r, block, may_be_short ? shorts : 0, pass_threads);
        else {  // the real and imaginary parts of a residual are those of two real ones (docs/accuracy.md)
            const Workspace memory(4 * size * static_cast<std::int64_t>(sizeof(double)));
            double *turned = static_cast<double*>(memory.get()), *given = turned + 2 * size, *left = given + size;
            for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
                double *pairs = turned + 2 * j * numbers(), *own = given + j * numbers();
                turn_pairs(n, x + j * numbers(), pairs, pairs + numbers());
                gather_pairs(n, nullptr, 1, b + j * numbers(), own, own + n);
            });
            is_short = a.residual(numbers(), n, true, 2 * count, turned, given, left, block, may_be_short ? shorts : 0,
                                  pass_threads);
            for_columns(numbers(), count, pass_threads, [&](std::int64_t j) {
                const double* own = left + j * numbers();
                scatter_pairs(n, nullptr, 1, own, own + n, r + j * numbers());
            });
        }
        for_columns(numbers(), count, pass_threads, [&](std::int64_t j) { r_norms[j] = norm_of(r + j * numbers()); });
        return is_short;
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
        bool in_doubt = residual(count, x, b, r, r_norms.data(), true);  // by short sums
        std::vector<std::int64_t> active;
        const auto judge = [&](std::size_t j) {
            errors[j] = backward_error(r_norms[j], norm, x_norms[j], b_norms[j]) + (in_doubt ? error_of_shorts : 0);
            if (!(errors[j] <= target)) active.push_back(static_cast<std::int64_t>(j));
        };
        for (std::size_t j = 0; j < all; ++j) judge(j);
        for (int step = in_doubt ? -1 : 0; !active.empty(); ++step) {
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
            if (!in_doubt &&
                !correct_columns(left, r_part, norms_r.data(), false, x_part, norms_z.data(), norms_x.data()))
                return false;
            const bool is_corrected = !std::exchange(in_doubt, false);
            residual(left, x_part, b_part, r_part, norms_r.data(), false);
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
                if (!is_corrected) {
                    judge(at);
                    continue;
                }
                x_norms[at] = norms_x[k];
                judge(at);
                const double now = norms_z[k] / (norms_x[k] > 0x1p-1022 ? norms_x[k] : 0x1p-1022);
                corrected = norms_z[k] > corrected ? norms_z[k] : corrected;
                largest = now > largest ? now : largest;
                if (!(errors[at] <= target) && !(now <= 0.5 * relative[at])) return false;
                relative[at] = now;
            }
            if (!is_corrected) continue;
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

}  // namespace roundwise
