// LU factorization with pivoting, one column at a time: for matrices whose factors have few entries, where
// the preparations of a supernodal method take longer than the arithmetic.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sparse/pattern.hpp"
#include "sparse/rows.hpp"

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
//
// T is double or Complex. Factors may be kept, and computed, in single precision: `low`.
enum class LeftLookingResult {
    read,      // and nothing else done
    analysed,  // what remains to be done is known
    factorized,
    singular_pattern,  // no values at these places would make A invertible
    zero_pivot,        // or one that is infinite or NaN
    weak_diagonal,     // pivots would leave the diagonal, and nobody knows how much work that makes
    too_much_work,     // more than was allowed, or more fill than was counted on
};

template <class T> class LeftLookingLU {
  public:
    using Result = LeftLookingResult;
    using Number = T;

    static constexpr double diagonal_pivot = 0.001;
    static constexpr double strong = 1.0 / 1024;  // as backends/engines/static_pivoting.py has it

    explicit LeftLookingLU(Rows<T> rows);

    ~LeftLookingLU();

    // Assigns rows, finds the blocks and orders them: the result is `analysed` unless it is known by then. Beyond
    // `most` multiplications, or `most_if_weak` where the diagonal is weak, they are not counted to the end: the
    // result is `too_much_work` or `weak_diagonal`.
    void analyse(double most, double most_if_weak);

    // After `analyse`. A factorization is given up that takes some times as many multiplications as were counted,
    // or gets more entries. Low factors are not kept where a pivot of theirs is zero or infinite: others follow.
    void factorize(bool low);

    // The factors of another matrix with the same places and pivots. Its result is `zero_pivot` if one of them
    // is less than `diagonal_pivot` times the largest entry of its column.
    LeftLookingLU(const LeftLookingLU& before, Rows<T> rows, bool low);

    Result result() const { return result_; }
    std::int32_t n() const { return rows_.n; }
    const Rows<T>& rows() const { return rows_; }
    std::int64_t entries() const;  // of L and U, the unit diagonal of L not counted; 0 without factors
    double counted() const { return counted_; }  // multiplications, before; infinite beyond the most
    double filled() const { return filled_; }    // entries of L that were counted, the diagonal included
    double work() const { return work_; }        // those done

    // Whether each entry of A's diagonal is at least `strong` times the geometric mean of the largest entries
    // of its row and its column, the latter rounded up to a power of two.
    bool has_strong_diagonal() const { return has_strong_diagonal_; }

    // Whether so many assigned entries are too small for pivots that pivots are bound to leave the diagonal.
    bool has_weak_diagonal() const { return has_weak_diagonal_; }

    // The pattern of A + A' and its order of minimum degree, as `analyse` has found them: that is, if the entries
    // on the diagonal are the assigned ones, and no entry is outside the diagonal blocks, so that it is the pattern
    // that was ordered. Empty otherwise.
    const Pattern& pattern() const { return pattern_; }
    const std::vector<std::int32_t>& order() const { return order_; }

  private:
    using Index = std::int32_t;
    template <class U> using Vector = std::vector<U>;

  public:
    // The places of the entries of a factor, column after column, without the diagonal.
    struct Places {
        Vector<std::int64_t> start{0};
        Vector<Index> rows;
    };

    // What matrices with the same places and pivots have in common.
    struct Structure {
        Vector<Index> row_at, column_at;  // row and column of M at each position of the factors
        Vector<Index> block_start;        // positions; the last one is n
        Places lower, upper;              // by position; upper has what is above the diagonal blocks, too
    };

    const Structure& structure() const { return *structure_; }
    using Low = typename LowOf<T>::Type;

    template <class F> struct Values {
        Vector<F> lower, upper, inverse_diagonal;  // the latter of U
    };

    bool is_low() const { return is_low_; }
    const Values<T>& values() const { return values_; }         // empty if the factors are low
    const Values<Low>& low_values() const { return low_values_; }
    const Vector<double>& scale() const { return scale_; }      // of each row of M

  private:
    class Factorizer;
    std::unique_ptr<Factorizer> factorizer_;  // between `analyse` and `factorize`

    void scale_rows();
    template <class F> Result factorize_again(Values<F>& values);

    Rows<T> rows_;
    Result result_ = Result::read;
    double counted_ = 0, filled_ = 0, work_ = 0;
    bool has_strong_diagonal_ = false, has_weak_diagonal_ = false, is_low_ = false;
    Pattern pattern_;
    Vector<Index> order_;
    std::shared_ptr<Structure> structure_;  // shared once it is complete
    Vector<double> scale_;
    Values<T> values_;
    Values<Low> low_values_;
};

}  // namespace roundwise::sparse
