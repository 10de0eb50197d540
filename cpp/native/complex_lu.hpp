// LU with partial pivoting of complex matrices (NativeKernels::complex_lu): that of lu.hpp, with the
// tile of complex_tile.hpp and the panels of complex_panel.hpp.
//
// In each column of the factors the n real parts come first, then the n imaginary ones: products and
// substitution (complex_solve.hpp) work with either.
#pragma once

#include "native/complex_panel.hpp"
#include "native/complex_tile.hpp"
#include "native/lu.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// n pairs to n real parts and n imaginary ones, in another format.
template <class S, class T> inline void split_pairs(std::int64_t n, const S* pairs, T* re, T* im) {
    for (std::int64_t i = 0; i < n; ++i) {
        re[i] = static_cast<T>(pairs[2 * i]);
        im[i] = static_cast<T>(pairs[2 * i + 1]);
    }
}

template <class T> struct ComplexFactorization : Factorization<ComplexTile<T>> {
    ComplexFactorization(std::int64_t n, T* packed, std::int32_t* pivots, Arena& arena)
        : Factorization<ComplexTile<T>>(n, {packed, packed == nullptr ? nullptr : packed + n}, 2 * n, pivots,
                                        arena) {}

    void split(Phase& phase, const double* a) const {
        share(phase, ceil_div(this->n, block_order), [&](std::int64_t task) {
            const std::int64_t begin = task * block_order, left = this->n - begin;
            for (std::int64_t j = begin; j < begin + (left < block_order ? left : block_order); ++j) {
                const Planes<T> column = this->at(0, j);
                split_pairs(this->n, a + 2 * j * this->n, column.re, column.im);
            }
        });
    }
};

template <class T> std::int64_t complex_lu_workspace(std::int64_t n, int threads) {
    Arena arena{nullptr};
    ComplexFactorization<T> factorization(n, nullptr, nullptr, arena);
    Pipeline<ComplexFactorization<T>>(factorization, n, threads, arena);
    return arena.used;
}

template <class T>
int complex_lu(std::int64_t n, const double* a, T* packed, std::int32_t* pivots, int threads,
               void* workspace) {
    if (n == 0) return 0;
    Arena arena{static_cast<char*>(workspace)};
    using Work = ComplexFactorization<T>;
    Phase converted = {}, left = {};
    Work work(n, packed, pivots, arena);
    work.left = &left;
    Pipeline<Work> pipeline(work, n, threads, arena);
    int code = 0;
    auto body = [&](int member) {
        work.split(converted, a);
        const int found = pipeline.run(member);
        if (found == 0) work.interchange_left();
        if (member == 0) code = found;
    };
    run_together(threads, body);
    return code;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
