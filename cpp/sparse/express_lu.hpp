// A left-looking LU that solves and verifies: what `express.hpp` does, for right-hand sides as callers have them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sparse/express.hpp"
#include "sparse/left_looking.hpp"

namespace roundwise::sparse {

// Columns in any memory order, in single or double precision, real or complex; steps are in bytes.
struct GivenColumns {
    const char* data;
    std::int64_t columns, row_step, column_step;
    bool is_single, is_complex;
};

template <class T> class ExpressLU {
  public:
    explicit ExpressLU(Rows<T> rows) : lu_(std::move(rows)) {}

    // As LeftLookingLU does it, each once.
    void analyse(double most, double most_if_weak) { lu_.analyse(most, most_if_weak); }
    void factorize(bool low);

    // The same for a matrix with the same places, with the pivots of the factors before.
    ExpressLU(const ExpressLU& before, Rows<T> rows, bool low);

    ~ExpressLU() { delete turned_.load(); }

    const LeftLookingLU<T>& lu() const { return lu_; }
    bool is_factorized() const { return lu_.result() == LeftLookingResult::factorized; }

    // x with A x = b for n numbers b, nothing verified.
    void substitute(const T* b, T* x) const;

    // Solves with A, its transpose, or its adjoint (transposed and conjugated), and writes x if all columns pass
    // the gate: n rows of numbers that are complex if A or b is. If A is real and b complex, real and
    // imaginary parts are columns of their own, and the gate is theirs. Threads may share the factors.
    SparseStatus solve(const GivenColumns& b, bool transposed, bool conjugated, const SparseGate& gate, void* x,
                       SparseFound& found) const;

  private:
    static constexpr int parts = sizeof(T) / sizeof(double);

    // What belongs to A, or to its transpose.
    struct Side {
        Rows<T> transpose;  // empty for A
        const Rows<T>* rows;
        std::vector<double> sums;
        ExpressSystem system;
    };

    const ExpressKernel<parts>& kernel_for(bool one) const;
    std::unique_ptr<Side> side_of(bool transposed) const;
    const Side& turned() const;

    LeftLookingLU<T> lu_;
    std::unique_ptr<Side> plain_;
    mutable std::atomic<Side*> turned_{nullptr};  // made when it is first asked for, by whichever thread
};

}  // namespace roundwise::sparse
