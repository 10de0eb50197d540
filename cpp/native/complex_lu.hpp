// LU with partial pivoting of complex matrices (ComplexKernels in kernels.hpp): that of lu.hpp, with the
// tile of complex_tile.hpp and the panels of complex_panel.hpp.
//
// Real and imaginary parts of a column lie in two halves of the memory of its pairs: a column is taken
// apart when it is converted, and put together again when it is final.
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

template <class T> inline void join_pairs(std::int64_t n, const T* re, const T* im, T* pairs) {
    for (std::int64_t i = 0; i < n; ++i) {
        pairs[2 * i] = re[i];
        pairs[2 * i + 1] = im[i];
    }
}

// columns_of_threads has room for a column for each thread.
template <class T> struct ComplexFactorization : Factorization<ComplexTile<T>> {
    T* columns_of_threads;

    ComplexFactorization(std::int64_t n, T* packed, std::int32_t* pivots, int threads, Arena& arena)
        : Factorization<ComplexTile<T>>(n, {packed, packed == nullptr ? nullptr : packed + n}, 2 * n, pivots,
                                        arena),
          columns_of_threads(arena.take<T>(2 * n * threads)) {}

    void split(Phase& phase, const double* a) const {
        share(phase, ceil_div(this->n, block_order), [&](std::int64_t task) {
            const std::int64_t begin = task * block_order, left = this->n - begin;
            for (std::int64_t j = begin; j < begin + (left < block_order ? left : block_order); ++j) {
                const Planes<T> column = this->at(0, j);
                split_pairs(this->n, a + 2 * j * this->n, column.re, column.im);
            }
        });
    }

    void finish(int member) const {
        T* copy = columns_of_threads + 2 * this->n * member;
        this->interchange_left([&](std::int64_t begin, std::int64_t count) {
            for (std::int64_t j = begin; j < begin + count; ++j) {
                T* column = this->at(0, j).re;
                std::memcpy(copy, column, static_cast<std::size_t>(2 * this->n) * sizeof(T));
                join_pairs(this->n, copy, copy + this->n, column);
            }
        });
    }
};

template <class T> std::int64_t complex_lu_workspace(std::int64_t n, int threads) {
    Arena arena{nullptr};
    ComplexFactorization<T> factorization(n, nullptr, nullptr, threads, arena);
    Pipeline<ComplexFactorization<T>>(factorization, n, threads, arena);
    return arena.used;
}

template <class T>
int complex_lu(std::int64_t n, const double* a, T* packed, std::int32_t* pivots, int threads,
               void* workspace) {
    if (n == 0) return 0;
    Arena arena{static_cast<char*>(workspace)};
    using Work = ComplexFactorization<T>;
    threads = Pipeline<Work>::useful_threads(n, threads);
    Phase converted = {}, left = {};
    Work work(n, packed, pivots, threads, arena);
    work.left = &left;
    Pipeline<Work> pipeline(work, n, threads, arena);
    int code = 0;
    auto body = [&](int member) {
        work.split(converted, a);
        const int found = pipeline.run();
        if (found == 0) work.finish(member);
        if (member == 0) code = found;
    };
    run_together(threads, body);
    return code;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
