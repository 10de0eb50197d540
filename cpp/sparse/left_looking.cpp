#include "sparse/left_looking.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sparse/amd.hpp"
#include "sparse/matching.hpp"
#include "sparse/pattern.hpp"
#include "sparse/symbolic.hpp"
#include "sparse/triangular_blocks.hpp"

namespace roundwise::sparse {

namespace {

// Pivots outside the diagonal take more work than minimum degree has counted. It may be so many times as
// much, and for each entry of the matrix so much more.
constexpr double patience = 2.5, least_patience = 40;

// Columns of L may have so many times the entries that were counted for them, and besides as many as the
// matrix has (those of dense rows are not counted). Where they have more, work grows out of all bounds
// later, so that this is noticed long before much of it is done.
constexpr double most_fill = 1.3;

// If a larger share of the entries assigned to columns is weak, that is, too small for a pivot already
// before any elimination, pivots are bound to leave the diagonal.
constexpr double most_weak = 0.05;

}  // namespace

// Does the work, and forgets what only this needs.
template <class T> class LeftLookingLU<T>::Factorizer {

    LeftLookingLU& lu_;
    const Index n_;
    Structure& structure_;
    const Index *indptr_, *indices_;
    const T* values_;
    double most_work_ = std::numeric_limits<double>::infinity();
    std::size_t reserved_ = 0;  // entries of each factor to expect
    Vector<Index> row_of_, column_of_;  // the assignment, for columns and for rows
    Vector<Index> block_of_;            // of each column, and of the row assigned to it
    Vector<Index> place_of_;            // of each row that has been a pivot; -1 for others
    Vector<Index> diagonal_at_;         // row that is to be the pivot at a position, if it is large enough
    Vector<Index> wanted_at_;           // for each row the position where it is on the diagonal
    Vector<Index> height_of_;           // entries counted for each column of L; empty if all blocks are 1 x 1
    Vector<std::int64_t> search_end_;   // entry of a column of L where its search ends

    // Of the column in work:
    Vector<Index> seen_;           // by row: the last position that reached it
    Vector<Index> reached_;        // positions from reached_[top_] on, in the order of elimination
    Vector<Index> candidates_;     // rows for its pivot
    Vector<Index> path_;           // of the search, and the entry where each position goes on
    Vector<std::int64_t> next_;
    Index top_ = 0;

    static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  public:
    explicit Factorizer(LeftLookingLU& lu)
        : lu_(lu), n_(lu.n()), structure_(*lu.structure_), indptr_(lu.rows_.starts.data()),
          indices_(lu.rows_.places.data()), values_(lu.rows_.values.data()) {}

    Result analyse(double most, double most_if_weak) {
        lu_.scale_rows();
        if (!assign_rows()) return Result::singular_pattern;
        const Index blocks = triangular_blocks(n_, indptr_, indices_, column_of_, block_of_);
        const bool weak = lu_.has_weak_diagonal_ = has_weak_diagonal();
        if (order(blocks, weak ? most_if_weak : most)) return Result::analysed;
        return weak ? Result::weak_diagonal : Result::too_much_work;
    }

  private:
    template <class Body> void for_each_entry(Index column, const Body& body) const {
        for (Index e = indptr_[column]; e < indptr_[column + 1]; ++e) body(indices_[e], values_[e]);
    }

    // Large entries first: those on the diagonal, then the largest one of a column whose row is free.
    bool assign_rows() {
        row_of_.assign(size(n_), -1);
        column_of_.assign(size(n_), -1);
        const auto assign = [&](Index row, Index column) {
            row_of_[column] = row;
            column_of_[row] = column;
        };
        Index assigned = 0;
        for (Index j = 0; j < n_; ++j)
            for_each_entry(j, [&](Index i, T value) {
                if (i != j || value == 0 || row_of_[j] >= 0) return;
                assign(i, j);
                ++assigned;
            });
        for (Index j = 0; assigned < n_ && j < n_; ++j) {
            if (row_of_[j] >= 0) continue;
            double largest = 0;
            Index best = -1;
            for_each_entry(j, [&](Index i, T value) {
                const double size_here = size_of(value) * lu_.scale_[i];
                if (column_of_[i] < 0 && size_here > largest) {
                    largest = size_here;
                    best = i;
                }
            });
            if (best < 0) continue;
            assign(best, j);
            ++assigned;
        }
        if (assigned == n_) return true;
        if (maximum_matching(n_, indptr_, indices_, row_of_) < n_) return false;
        for (Index j = 0; j < n_; ++j) column_of_[row_of_[j]] = j;
        return true;
    }

    // Finds whether the diagonal is strong, too. Rows of M, which are columns of A, are scaled.
    bool has_weak_diagonal() {
        Index weak = 0, strong_ones = 0;
        for (Index j = 0; j < n_; ++j) {
            double largest = 0, largest_in_block = 0, assigned = 0;
            for_each_entry(j, [&](Index i, T value) {
                const double size_here = size_of(value) * lu_.scale_[i];
                largest = std::max(largest, size_here);
                if (block_of_[column_of_[i]] == block_of_[j])
                    largest_in_block = std::max(largest_in_block, size_here);
                if (i == row_of_[j]) assigned = std::max(assigned, size_here);
            });
            weak += assigned < diagonal_pivot * largest_in_block;
            strong_ones += row_of_[j] == j && assigned > 0 && assigned >= strong * std::sqrt(largest);
        }
        lu_.has_strong_diagonal_ = strong_ones == n_;
        return weak > most_weak * n_;
    }

    // The columns block by block, within blocks by minimum degree. False if they take too much work.
    bool order(Index blocks, double most) {
        // The diagonal blocks alone, rows numbered as their columns.
        Vector<Index> starts(size(n_) + 1, 0), columns;
        columns.reserve(size(indptr_[n_]));
        for (Index j = 0; j < n_; ++j) {
            for_each_entry(j, [&](Index i, T) {
                const Index other = column_of_[i];
                if (other != j && block_of_[other] == block_of_[j]) columns.push_back(other);
            });
            starts[j + 1] = static_cast<Index>(columns.size());
        }
        Vector<Index> by_degree(size(n_));
        if (columns.empty()) {
            for (Index j = 0; j < n_; ++j) by_degree[j] = j;
        } else {
            Pattern pattern =
                symmetrized<Index>(n_, starts.data(), columns.data(), starts[n_]);
            Counts counts;
            Vector<Index> heights;
            by_degree = approximate_minimum_degree_within(pattern, most, counts, heights);
            lu_.counted_ = by_degree.empty() ? std::numeric_limits<double>::infinity() : counts.flops;
            lu_.filled_ = counts.entries;
            if (by_degree.empty()) return false;
            most_work_ = patience * counts.flops + least_patience * indptr_[n_];
            reserved_ = size(static_cast<std::int64_t>(counts.entries)) + size(indptr_[n_]);
            height_of_.resize(size(n_));
            for (Index k = 0; k < n_; ++k) height_of_[by_degree[k]] = heights[k];
            // Each column has an entry on the diagonal then, and all others are within blocks.
            if (starts[n_] + n_ == indptr_[n_] && assigned_to_itself()) {
                lu_.pattern_ = std::move(pattern);
                lu_.order_ = by_degree;
            }
        }
        Vector<Index>& start = structure_.block_start;
        start.assign(size(blocks) + 2, 0);
        for (Index j = 0; j < n_; ++j) ++start[block_of_[j] + 2];
        for (Index b = 0; b < blocks; ++b) start[b + 2] += start[b + 1];
        structure_.column_at.resize(size(n_));
        for (const Index j : by_degree) structure_.column_at[start[block_of_[j] + 1]++] = j;
        start.pop_back();
        return true;
    }

    bool assigned_to_itself() const {
        for (Index j = 0; j < n_; ++j)
            if (row_of_[j] != j) return false;
        return true;
    }

  public:
    template <class F> Result factorize(Values<F>& factors) {
        for (Places* part : {&structure_.lower, &structure_.upper}) {
            part->start.assign(1, 0);
            part->rows.clear();
            part->start.reserve(size(n_) + 1);
            part->rows.reserve(reserved_);
        }
        for (Vector<F>* part : {&factors.lower, &factors.upper}) part->reserve(reserved_);
        lu_.work_ = 0;
        structure_.row_at.resize(size(n_));
        factors.inverse_diagonal.resize(size(n_));
        place_of_.assign(size(n_), -1);
        diagonal_at_.resize(size(n_));
        wanted_at_.resize(size(n_));
        for (Index k = 0; k < n_; ++k) {
            diagonal_at_[k] = row_of_[structure_.column_at[k]];
            wanted_at_[diagonal_at_[k]] = k;
        }
        search_end_.resize(size(n_));
        Vector<F> x(size(n_), F{});  // of the column in work, by row; zero outside
        seen_.assign(size(n_), -1);
        reached_.resize(size(n_));
        path_.resize(size(n_));
        next_.resize(size(n_));
        double most_entries = indptr_[n_];  // of L, up to this column
        for (Index k = 0; k < n_; ++k) {
            search(k, x.data(), factors);
            eliminate(x.data(), factors);
            if (lu_.work_ > most_work_) return Result::too_much_work;
            if (!take_pivot(k, x.data(), factors)) return Result::zero_pivot;
            prune(k, factors);
            if (height_of_.empty()) continue;
            most_entries += most_fill * height_of_[structure_.column_at[k]];
            if (static_cast<double>(structure_.lower.rows.size()) > most_entries) return Result::too_much_work;
        }
        for (Index& row : structure_.lower.rows) row = place_of_[row];
        return Result::factorized;
    }

  private:

    // Finds which rows the column at position k gets entries in, and stores those above its block.
    template <class F> void search(Index k, F* x, Values<F>& factors) {
        const Index column = structure_.column_at[k], block = block_of_[column];
        top_ = n_;
        candidates_.clear();
        for_each_entry(column, [&](Index row, T value) {
            const F scaled = rounded_to<F>(value * lu_.scale_[row]);
            if (block_of_[column_of_[row]] != block) {
                structure_.upper.rows.push_back(place_of_[row]);
                factors.upper.push_back(scaled);
                return;
            }
            if (seen_[row] != k) reach(row, k);
            x[row] += scaled;
        });
    }

    // Depth first from a row, through the columns of L.
    void reach(Index first, Index k) {
        const Index* const place_of = place_of_.data();
        const Index* const rows = structure_.lower.rows.data();
        const std::int64_t* const starts = structure_.lower.start.data();
        const std::int64_t* const ends = search_end_.data();
        Index *const seen = seen_.data(), *const path = path_.data();
        std::int64_t* const next = next_.data();
        seen[first] = k;
        if (place_of[first] < 0) {
            candidates_.push_back(first);
            return;
        }
        Index depth = 0, at = place_of[first];
        std::int64_t e = starts[at];
        path[0] = at;
        while (true) {
            const std::int64_t end = ends[at];
            Index deeper = -1;
            while (e < end && deeper < 0) {
                const Index row = rows[e++];
                if (seen[row] == k) continue;
                seen[row] = k;
                deeper = place_of[row];
                if (deeper < 0) candidates_.push_back(row);
            }
            if (deeper >= 0) {
                next[depth] = e;
                path[++depth] = at = deeper;
                e = starts[at];
                continue;
            }
            reached_[--top_] = at;
            if (depth == 0) return;
            at = path[--depth];
            e = next[depth];
        }
    }

    // Subtracts multiples of the columns of L, and stores the column of U.
    template <class F> void eliminate(F* x, Values<F>& factors) {
        const Index* const rows = structure_.lower.rows.data();
        const F* const values = factors.lower.data();
        const std::int64_t* const starts = structure_.lower.start.data();
        Vector<Index>& upper = structure_.upper.rows;
        std::size_t to = upper.size();
        upper.resize(to + size(n_ - top_));
        factors.upper.resize(upper.size());
        std::int64_t work = 0;
        for (Index t = top_; t < n_; ++t) {
            const Index at = reached_[t], row = structure_.row_at[at];
            const F u = x[row];
            x[row] = F{};
            upper[to] = at;
            factors.upper[to++] = u;
            const std::int64_t first = starts[at], last = starts[at + 1];
            for (std::int64_t e = first; e < last; ++e) x[rows[e]] -= values[e] * u;
            work += last - first + 1;
        }
        structure_.upper.start.push_back(static_cast<std::int64_t>(upper.size()));
        lu_.work_ += static_cast<double>(work);
    }

    template <class F> bool take_pivot(Index k, F* x, Values<F>& factors) {
        double largest = 0;
        Index row = -1;
        for (const Index candidate : candidates_) {
            const double here = size_of(x[candidate]);
            if (here > largest || here != here) {
                largest = here;
                row = candidate;
            }
        }
        if (!(largest > 0 && largest <= std::numeric_limits<double>::max())) return false;
        const Index diagonal = diagonal_at_[k];
        if (seen_[diagonal] == k && size_of(x[diagonal]) >= diagonal_pivot * largest) row = diagonal;
        if (row != diagonal) {  // the rows change their places on the diagonal
            diagonal_at_[wanted_at_[row]] = diagonal;
            wanted_at_[diagonal] = wanted_at_[row];
        }
        const F pivot = inverse(x[row]);
        Vector<Index>& lower = structure_.lower.rows;
        std::size_t to = lower.size();
        lower.resize(to + candidates_.size() - 1);
        factors.lower.resize(lower.size());
        for (const Index candidate : candidates_) {
            if (candidate != row) {
                lower[to] = candidate;
                factors.lower[to++] = x[candidate] * pivot;
            }
            x[candidate] = F{};
        }
        lu_.work_ += static_cast<double>(candidates_.size());
        structure_.lower.start.push_back(static_cast<std::int64_t>(lower.size()));
        search_end_[k] = structure_.lower.start.back();
        factors.inverse_diagonal[k] = pivot;
        structure_.row_at[k] = row;
        place_of_[row] = k;
        return true;
    }

    // Where column `at` of L has the new pivot's row, and row `at` of U its column, what lies below in
    // column `at` is found through the new column as well: entries of rows that have been pivots come
    // first, and the search stops after them.
    template <class F> void prune(Index k, Values<F>& factors) {
        const Index pivot = structure_.row_at[k];
        for (Index t = top_; t < n_; ++t) {
            const Index at = reached_[t];
            if (search_end_[at] < structure_.lower.start[at + 1]) continue;  // shortened before
            Index* const rows = structure_.lower.rows.data();
            F* const values = factors.lower.data();
            const std::int64_t first = structure_.lower.start[at], last = structure_.lower.start[at + 1];
            if (std::find(rows + first, rows + last, pivot) == rows + last) continue;
            std::int64_t head = first, tail = last;
            while (head < tail) {
                if (place_of_[rows[head]] >= 0) {
                    ++head;
                } else {
                    --tail;
                    std::swap(rows[head], rows[tail]);
                    std::swap(values[head], values[tail]);
                }
            }
            search_end_[at] = tail;
        }
    }
};

template <class T> LeftLookingLU<T>::LeftLookingLU(Rows<T> rows) : rows_(std::move(rows)) {}

template <class T> LeftLookingLU<T>::~LeftLookingLU() = default;

template <class T> void LeftLookingLU<T>::analyse(double most, double most_if_weak) {
    structure_ = std::make_shared<Structure>();
    factorizer_ = std::make_unique<Factorizer>(*this);
    result_ = factorizer_->analyse(most, most_if_weak);
    if (result_ != Result::analysed) factorizer_.reset();
}

template <class T> void LeftLookingLU<T>::factorize(bool low) {
    result_ = low ? factorizer_->factorize(low_values_) : Result::zero_pivot;
    is_low_ = low && result_ != Result::zero_pivot;
    if (!is_low_) {
        low_values_ = {};
        result_ = factorizer_->factorize(values_);
    }
    factorizer_.reset();
    pattern_ = Pattern();
    order_ = Vector<Index>();
}

template <class T>
LeftLookingLU<T>::LeftLookingLU(const LeftLookingLU& before, Rows<T> rows, bool low)
    : rows_(std::move(rows)), counted_(before.counted_), work_(before.work_),
      has_strong_diagonal_(before.has_strong_diagonal_), is_low_(low), structure_(before.structure_) {
    scale_rows();
    result_ = low ? factorize_again(low_values_) : factorize_again(values_);
}

template <class T> void LeftLookingLU<T>::scale_rows() {
    scale_.assign(static_cast<std::size_t>(n()), 0.0);
    for (std::size_t e = 0; e < rows_.places.size(); ++e)
        scale_[rows_.places[e]] = std::max(scale_[rows_.places[e]], size_of(rows_.values[e]));
    for (double& s : scale_) {
        int exponent = 0;
        if (s > 0 && s <= std::numeric_limits<double>::max()) std::frexp(s, &exponent);
        s = std::ldexp(1.0, -std::min(std::max(exponent, -1000), 1000));
    }
}

template <class T> template <class F> LeftLookingResult LeftLookingLU<T>::factorize_again(Values<F>& values) {
    const Structure& s = *structure_;
    const auto size = static_cast<std::size_t>(n());
    values.lower.resize(s.lower.rows.size());
    values.upper.resize(s.upper.rows.size());
    values.inverse_diagonal.resize(size);
    F *const lower = values.lower.data(), *const upper = values.upper.data();
    Vector<Index> place_of(size);  // of each row
    for (std::size_t k = 0; k < size; ++k) place_of[s.row_at[k]] = static_cast<Index>(k);
    Vector<F> work(size, F{});
    F* const x = work.data();
    const Index* const rows = s.lower.rows.data();
    for (std::size_t block = 0; block + 1 < s.block_start.size(); ++block) {
        const Index first = s.block_start[block];
        for (Index k = first; k < s.block_start[block + 1]; ++k) {
            const Index column = s.column_at[k];
            for (Index e = rows_.starts[column]; e < rows_.starts[column + 1]; ++e)
                x[place_of[rows_.places[e]]] = rounded_to<F>(rows_.values[e] * scale_[rows_.places[e]]);
            for (std::int64_t e = s.upper.start[k]; e < s.upper.start[k + 1]; ++e) {
                const Index at = s.upper.rows[e];
                const F u = x[at];
                x[at] = F{};
                upper[e] = u;
                if (at < first) continue;  // above the block
                for (std::int64_t f = s.lower.start[at]; f < s.lower.start[at + 1]; ++f) x[rows[f]] -= lower[f] * u;
            }
            const F pivot = x[k], inverted = inverse(pivot);
            double largest = 0;
            x[k] = F{};
            for (std::int64_t f = s.lower.start[k]; f < s.lower.start[k + 1]; ++f) {
                const double here = size_of(x[rows[f]]);
                if (here > largest || here != here) largest = here;
                lower[f] = x[rows[f]] * inverted;
                x[rows[f]] = F{};
            }
            const double here = size_of(pivot);
            const bool is_pivot = here > 0 && here <= std::numeric_limits<double>::max();
            if (!(is_pivot && here >= diagonal_pivot * largest)) return Result::zero_pivot;
            values.inverse_diagonal[k] = inverted;
        }
    }
    return Result::factorized;
}

template <class T> std::int64_t LeftLookingLU<T>::entries() const {
    if (result_ != Result::factorized) return 0;
    return n() + static_cast<std::int64_t>(structure_->lower.rows.size() + structure_->upper.rows.size());
}

template class LeftLookingLU<double>;
template class LeftLookingLU<Complex>;

}  // namespace roundwise::sparse
