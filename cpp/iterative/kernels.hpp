// The products of which preconditioners are made, in compute type T, with numbers that are stored in type E: FP64, FP32,
// or 16 bits, computed with in FP32. Each instruction-set level fills a table of them; rows are summed in the order in
// which they are stored, no multiply-add is fused, so that all levels and numbers of threads give the same bits.
#pragma once

#include <cstdint>

#include "iterative/csr.hpp"

namespace roundwise::iterative {

struct Bf16 { std::uint16_t bits; };
struct Fp16 { std::uint16_t bits; };

template <class E> struct Computed { using type = float; };
template <> struct Computed<double> { using type = double; };
template <class E> using ComputedIn = typename Computed<E>::type;

// Rows in slices of `lanes`, each as long as its longest one: entry k of row i is number
// starts[i / lanes] + k lanes + i % lanes. What a row lacks are zeros, with its own column or 0. With one lane these
// are compressed rows.
constexpr Index lanes_of_slice = 8;

template <class E> struct SlicesView {
    Index rows, lanes;
    const std::int64_t* starts;
    const Index* indices;
    const E* values;
};

// One step of a smoother: r = b - A x, d = alpha d + beta D^-1 r, y = x + d.
template <class T> struct Smoothing {
    const T *diagonal, *inverse;  // of A; what is stored of it is the rest
    const T *b, *x;
    T *d, *y;
    T alpha, beta;
};

template <class E> struct ProductKernels {
    using T = ComputedIn<E>;
    void (*round)(const double* from, std::int64_t count, E* to);  // to nearest even
    void (*widen)(const E* from, std::int64_t count, double* to);
    // For rows begin to end, multiples of lanes_of_slice but for the last.
    void (*product)(const SlicesView<E>&, const T* x, T* y, Index begin, Index end);       // y = S x
    void (*add_product)(const SlicesView<E>&, const T* x, T* y, Index begin, Index end);   // y = y + S x
    void (*residual)(const SlicesView<E>&, const T* diagonal, const T* b, const T* x, T* r, Index begin, Index end);
    void (*smooth)(const SlicesView<E>&, const Smoothing<T>&, Index begin, Index end);
    // x_i = (x_i - sum of s_ij x_j) inverse_i for the rows order[begin] to order[end - 1] in turn; compressed rows. All
    // inverses are 1 if there are none.
    void (*substitute)(const SlicesView<E>&, const T* inverse, const Index* order, T* x, Index begin, Index end);
};

template <class E> const ProductKernels<E>& product_kernels();  // of the level in use; in dispatch.cpp

}  // namespace roundwise::iterative
