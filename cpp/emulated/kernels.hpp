// The table of kernels that each instruction-set level fills, for one carrier T.
#pragma once

#include <cstdint>

#include "emulated/format.hpp"

namespace roundwise {

// Matrices are column-major. Each entry of a result is computed by the scalar recurrence
// given here, in this order, every operation rounded to the format; entries are independent,
// so vector width, blocking and threads cannot change a bit.
template <class T> struct Kernels {
    // y_i = x_i rounded; for Mode::stochastic, element i draws number i of stream key.
    void (*round)(const Format&, Mode, std::uint64_t key, std::int64_t n, const T* x, T* y, int threads);

    // In place PA = LU, L unit lower: a_ij -= l_ik u_kj for k = 0, 1, ... The pivot is the
    // first entry of largest magnitude; (PA)_i = A_perm(i).
    Verdict (*lu)(const Format&, std::int64_t n, T* a, std::int32_t* perm, int threads);

    // In place A = LL', in the lower triangle: a_ij -= l_ik l_jk for k = 0, 1, ..., then
    // l_jj = sqrt(a_jj), l_ij = a_ij / l_jj. What lies above the diagonal becomes 0.
    Verdict (*cholesky)(const Format&, std::int64_t n, T* a, int threads);

    // In place T X = B, T the lower (unit) or upper triangle of a, or its transpose:
    // b_i -= t_ij x_j for j ascending (forward) or descending (backward), then b_i /= t_ii.
    void (*solve_triangular)(const Format&, std::int64_t n, const T* a, bool lower, bool unit,
                             bool transpose, std::int64_t columns, T* b, int threads);

    // y_i = 0; y_i += a_ij x_j for j = 0, 1, ...; transpose: a_ji.
    void (*matvec)(const Format&, std::int64_t rows, std::int64_t columns, const T* a,
                   bool transpose, const T* x, T* y, int threads);

    // 32 partial sums s_l = 0; s_l += x_i y_i for i = l, l + 32, ...; then s_l += s_(l + h) for
    // l < h, h = 16, 8, 4, 2, 1; the result is s_0. One chain would wait for each rounding.
    T (*dot)(const Format&, std::int64_t n, const T* x, const T* y);
    // y_i += alpha x_i
    void (*axpy)(const Format&, std::int64_t n, T alpha, const T* x, T* y);
    // x_i *= alpha
    void (*scale)(const Format&, std::int64_t n, T alpha, T* x);
    // sqrt(dot(x, x)) on x scaled by the power of two that brings max |x_i| into [1, 2), so
    // that no square overflows that need not; otherwise the scaling changes nothing.
    T (*norm2)(const Format&, std::int64_t n, const T* x);

    // Modified Gram-Schmidt of w against the columns of v, already in the format: h_i = v_i' w, w -= h_i v_i, i = 0, 1, ...
    void (*orthogonalize)(const Format&, std::int64_t n, std::int64_t columns, const T* v, T* w, T* h);

    // Column j of a Hessenberg least squares problem, h with j + 2 entries: rotates h by the j
    // earlier Givens rotations, then makes the one that clears h_(j+1) (c = h_j/d, s = h_(j+1)/d,
    // d the 2-norm of both) and rotates h and the right-hand side g by it.
    void (*givens)(const Format&, std::int64_t j, T* cosines, T* sines, T* h, T* g);
};

// The active level's kernels, and the levels themselves (defined in dispatch.cpp).
template <class T> const Kernels<T>& active_kernels();

}  // namespace roundwise
