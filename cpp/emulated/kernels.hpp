// The emulated kernels: what each computes. Each instruction-set level fills one table per carrier T.
#pragma once

#include <cstdint>

#include "emulated/format.hpp"

namespace roundwise {

// Matrices are column-major. Each entry of a result is computed by the scalar recurrence given here,
// in the order given here, and every operation is rounded to the format. Kernels vectorize, block and
// use threads across entries only, so none of this changes a bit.
template <class T> struct Kernels {
    // y_i = x_i rounded; for Mode::stochastic, element i draws number i of stream key.
    void (*round)(const Format&, Mode, std::uint64_t key, std::int64_t n, const T* x, T* y, int threads);

    // In place PA = LU, L unit lower: a_ij -= l_ik u_kj for k = 0, 1, ... The pivot is the
    // first entry of largest magnitude; (PA)_i = A_perm(i).
    Verdict (*lu)(const Format&, std::int64_t n, T* a, std::int32_t* perm, int threads);

    // In place A = LL', in the lower triangle: a_ij -= l_ik l_jk for k = 0, 1, ..., then
    // l_jj = sqrt(a_jj), l_ij = a_ij / l_jj. Entries above the diagonal become 0.
    Verdict (*cholesky)(const Format&, std::int64_t n, T* a, int threads);

    // In place T X = B, T the lower (unit) or upper triangle of a, or its transpose:
    // b_i -= t_ij x_j for j ascending (forward) or descending (backward), then b_i /= t_ii.
    void (*solve_triangular)(const Format&, std::int64_t n, const T* a, bool lower, bool unit,
                             bool transpose, std::int64_t columns, T* b, int threads);

    // y_i = 0; y_i += a_ij x_j for j = 0, 1, ...; transpose: a_ji.
    void (*matvec)(const Format&, std::int64_t rows, std::int64_t columns, const T* a,
                   bool transpose, const T* x, T* y, int threads);

    // 32 partial sums s_l = 0; s_l += x_i y_i for i = l, l + 32, ...; then s_l += s_(l + h) for
    // l < h, h = 16, 8, 4, 2, 1; the result is s_0. (In a single sum, each addition would have to
    // wait until the one before is rounded.)
    T (*dot)(const Format&, std::int64_t n, const T* x, const T* y);
    // y_i += alpha x_i
    void (*axpy)(const Format&, std::int64_t n, T alpha, const T* x, T* y);
    // x_i *= alpha
    void (*scale)(const Format&, std::int64_t n, T alpha, T* x);
    // sqrt(dot(x, x)), with x first scaled by the power of two that brings max |x_i| into [1, 2), and
    // the result scaled back. Squares then neither overflow nor underflow needlessly.
    T (*norm2)(const Format&, std::int64_t n, const T* x);

    // Modified Gram-Schmidt of w against the columns of v, which are numbers of the format:
    // h_i = v_i' w, then w -= h_i v_i, for i = 0, 1, ...
    void (*orthogonalize)(const Format&, std::int64_t n, std::int64_t columns, const T* v, T* w, T* h);

    // Column j of a Hessenberg least squares problem; h has j + 2 entries. Applies the j earlier
    // Givens rotations to h. Then computes the rotation that makes h_(j+1) zero (c = h_j/d,
    // s = h_(j+1)/d, d = norm2 of both) and applies it to h and to the right-hand side g.
    void (*givens)(const Format&, std::int64_t j, T* cosines, T* sines, T* h, T* g);
};

// The kernels of the level in use (common/levels.hpp); defined in dispatch.cpp.
template <class T> const Kernels<T>& active_kernels();

}  // namespace roundwise
