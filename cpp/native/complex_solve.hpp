// Triangular solves with packed complex LU factors; see NativeKernels::complex_solve in kernels.hpp.
//
// In each column of the factors the n real parts come first, then the n imaginary ones; columns of B are
// real or imaginary. So products with complex blocks are real products (matvec.hpp). Substitution is that
// of solve.hpp, and of many columns that of strip_solve.hpp.
#pragma once

#include "native/solve.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T> struct ComplexDiagonal {
    DiagonalCopy<T> re, im;
};

// B has 2 C columns for C complex ones: real parts, imaginary parts, real parts, ...
template <class S> struct ComplexTriangle : TriangleKind {
    const S *re, *im;
    template <class T> using Diagonal = ComplexDiagonal<T>;
    std::int64_t step() const { return 2 * n; }  // from column to column

    void prefetch_part(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size) const {
        prefetch(re + top + first * step(), step(), rows, size);
        prefetch(im + top + first * step(), step(), rows, size);
    }

    template <class T> void copy_diagonal(std::int64_t begin, std::int64_t count, Diagonal<T>& copy) const {
        copy.re.take(re + begin + begin * step(), step(), count, transpose);
        copy.im.take(im + begin + begin * step(), step(), count, transpose);
    }

    template <int C, class T>
    void subtract(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size, T* b) const {
        subtract_product<2 * C>(rows, size, re + top + first * step(), step(), b + first, n, b + top, n);
        constexpr std::int64_t most = 256;
        T turned[2 * C * most];  // i times some rows of B
        for (const std::int64_t end = first + size; first < end; first += most) {
            const std::int64_t count = end - first < most ? end - first : most;
            for (int c = 0; c < 2 * C; c += 2)
                for (std::int64_t j = 0; j < count; ++j) {
                    turned[j + c * most] = -b[first + j + (c + 1) * n];
                    turned[j + (c + 1) * most] = b[first + j + c * n];
                }
            subtract_product<2 * C>(rows, count, im + top + first * step(), step(), turned, most, b + top, n);
        }
    }

    template <int C, class T>
    void subtract_transposed(std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t size,
                             T* b) const {
        const std::int64_t place = top + first * step();
        dot_columns<2 * C>(rows, size, re + place, step(), b + top, n,
                           [&](std::int64_t j, int c, T value) { b[first + j + c * n] -= value; });
        // The product of two imaginary parts is a real one, with the other sign.
        dot_columns<2 * C>(rows, size, im + place, step(), b + top, n, [&](std::int64_t j, int c, T value) {
            if (c % 2 == 0) b[first + j + (c + 1) * n] -= value;
            else b[first + j + (c - 1) * n] += value;
        });
    }
};

template <int C, class T, class S>
inline void solve_diagonal(const ComplexTriangle<S>& triangle, const ComplexDiagonal<T>& block, std::int64_t count,
                           T* x, std::int64_t x_step) {
    for (int c = 0; c < C; ++c) {
        T *x_re = x + 2 * c * x_step, *x_im = x_re + x_step;
        for_each_row(triangle, count, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
            const T *l_re = block.re.values + k * diagonal_block, *l_im = block.im.values + k * diagonal_block;
            if (!triangle.unit) divide_complex(x_re[k], x_im[k], l_re[k], l_im[k]);
            const T p = x_re[k], q = x_im[k];
            for (std::int64_t i = first; i < last; ++i) {
                x_re[i] -= l_re[i] * p - l_im[i] * q;
                x_im[i] -= l_re[i] * q + l_im[i] * p;
            }
        });
    }
}

constexpr std::int64_t complex_group = 2;  // complex columns that are solved for at a time

template <class T, class S>
inline void complex_solve_stored(std::int64_t n, const S* a, bool transpose, std::int64_t columns, T* b,
                                 int threads, void* workspace) {
    if constexpr (std::is_same_v<S, T>)
        if (solves_in_strips(columns, 2))
            return solve_by_strips<2>(Factors::lu, n, a, transpose, columns, b, threads, workspace);
    Phase* phases = static_cast<Phase*>(workspace);
    std::memset(phases, 0, static_cast<std::size_t>(phases_of_solve(columns)));
    const ComplexTriangle<S> lower{{n, true, true, transpose}, a, a + n};
    const ComplexTriangle<S> upper{{n, false, false, transpose}, a, a + n};
    auto body = [=](int) {
        Phase* phase = phases;
        const auto solve = [&](auto group, T* part) {
            constexpr int count = decltype(group)::count;
            substitute<count>(transpose ? upper : lower, part, *phase++);
            substitute<count>(transpose ? lower : upper, part, *phase++);
        };
        std::int64_t j = 0;
        for (; j + complex_group <= columns; j += complex_group)
            solve(Group<complex_group>{}, b + 2 * j * n);
        for (; j < columns; ++j) solve(Group<1>{}, b + 2 * j * n);
    };
    run_together(threads_for<S>(2 * n * n, threads), body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
