// LU factorization with pivoting, one column at a time: for matrices whose factors have few entries, where
// the preparations of a supernodal method take longer than the arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/pattern.hpp"

namespace roundwise::sparse {

// The factors of the transpose of an n x n matrix A, which below is called M: rows of A are its columns,
// and the pivots are searched for in them. (On matrices of applications this takes less work than columns
// of A do.)
//
// Rows are assigned to columns by a maximum matching that prefers large entries, and the strongly
// connected components of what results make M block upper triangular (Duff & Reid 1978). The diagonal
// blocks alone are factorized, in the order of approximate minimum degree on the pattern of B + B', by
// Gilbert & Peierls (1988): each column is solved for with the columns of L to its left, whose depth-first
// search is shortened by symmetric pruning (Eisenstat & Liu 1992). Rows are scaled by powers of two such that
// their largest entries are about 1. An entry on the diagonal is the pivot if it is at least
// `diagonal_pivot` times the largest one of its column. That is little (KLU's default): staying on the
// diagonal saves far more work than refining the solutions takes.
class LeftLookingLU {
  public:
    enum class Result {
        factorized,
        singular_pattern,  // no values at these places would make A invertible
        zero_pivot,        // or one that is infinite or NaN
        weak_diagonal,     // pivots would leave the diagonal, and nobody knows how much work that makes
        too_much_work,     // more than was allowed, or more fill than was counted on
    };

    static constexpr double diagonal_pivot = 0.001;
    static constexpr double strong = 1.0 / 1024;  // as backends/engines/static_pivoting.py has it

    // A factorization that would take more than `most_work` multiplications, if all pivots were on the
    // diagonal, is not begun, and beyond `most_counted` they are not counted to the end; one that takes
    // some times as many as were counted, or gets more entries, is given up. `most_if_weak` takes the place
    // of both where the diagonal is weak; if that is 0, nothing is counted. `most_if_strong` takes the place
    // of `most_work` where the diagonal is strong: methods that need this are faster then. The arrays must
    // be those of a valid A in compressed rows, or columns if `by_columns`; entries may be in any order.
    LeftLookingLU(std::int32_t n, const std::int32_t* indptr, const std::int32_t* indices,
                  const double* values, bool by_columns, double most_work, double most_counted,
                  double most_if_weak, double most_if_strong);

    Result result() const { return result_; }
    std::int32_t n() const { return n_; }
    std::int64_t entries() const;  // of L and U, the unit diagonal of L not counted
    double counted() const { return counted_; }  // multiplications, before; infinite beyond the most
    double work() const { return work_; }        // those done

    // Whether each entry of A's diagonal is at least `strong` times the geometric mean of the largest entries
    // of its row and its column, the latter rounded up to a power of two.
    bool has_strong_diagonal() const { return has_strong_diagonal_; }

    // The pattern of A + A' and its order of minimum degree, if they were found and there is too much work:
    // that is, if the entries on the diagonal are the assigned ones, and no entry is outside the diagonal
    // blocks, so that it is the pattern that was ordered. Empty otherwise.
    const Pattern& pattern() const { return pattern_; }
    const std::vector<std::int32_t>& order() const { return order_; }

    // x with A x = b, for n numbers b; both may be the same. Only of factorized matrices.
    void solve(const double* b, double* x) const;

  private:
    using Index = std::int32_t;
    template <class T> using Vector = std::vector<T>;

    // Columns of a factor, one after the other, without the diagonal.
    struct Columns {
        Vector<std::int64_t> start{0};
        Vector<Index> rows;
        Vector<double> values;

        // Makes room for more entries of the last column, which `close` ends.
        void extend(Index entries) {
            const std::size_t to = rows.size() + static_cast<std::size_t>(entries);
            rows.resize(to);
            values.resize(to);
        }
        void close() { start.push_back(static_cast<std::int64_t>(rows.size())); }
    };

    class Factorizer;

    Index n_;
    Result result_ = Result::factorized;
    double counted_ = 0, work_ = 0;
    bool has_strong_diagonal_ = false;
    Pattern pattern_;
    Vector<Index> order_;
    Vector<double> scale_;       // of each row of M
    Vector<Index> row_at_;       // row and column of M at each position of the factors
    Vector<Index> column_at_;
    Vector<Index> block_start_;  // positions; the last one is n
    Columns lower_, upper_;      // by position; upper_ has what is above the diagonal blocks, too
    Vector<double> diagonal_;    // of U
};

}  // namespace roundwise::sparse
