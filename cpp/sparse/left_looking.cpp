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
// much, and for each entry of the matrix so much more, but hardly more than is allowed.
constexpr double patience = 2.5, least_patience = 40, beyond_most = 1.2;

// Columns of L may have so many times the entries that were counted for them, and besides as many as the
// matrix has (those of dense rows are not counted). Where they have more, work grows out of all bounds
// later, so that this is noticed long before much of it is done.
constexpr double most_fill = 1.3;

// If a larger share of the entries assigned to columns is weak, that is, too small for a pivot already
// before any elimination, pivots are bound to leave the diagonal.
constexpr double most_weak = 0.05;

}  // namespace

// Does the work, and forgets what only this needs.
class LeftLookingLU::Factorizer {
    using Result = LeftLookingLU::Result;

    LeftLookingLU& lu_;
    const Index n_;
    const Index *indptr_, *indices_;
    const double* values_;
    double most_work_, most_counted_, most_if_weak_, most_if_strong_;
    Vector<Index> row_of_, column_of_;  // the assignment, for columns and for rows
    Vector<Index> block_of_;            // of each column, and of the row assigned to it
    Vector<Index> place_of_;            // of each row that has been a pivot; -1 for others
    Vector<Index> diagonal_at_;         // row that is to be the pivot at a position, if it is large enough
    Vector<Index> wanted_at_;           // for each row the position where it is on the diagonal
    Vector<Index> height_of_;           // entries counted for each column of L; empty if all blocks are 1 x 1
    Vector<std::int64_t> search_end_;   // entry of a column of L where its search ends

    // Of the column in work:
    Vector<double> x_;             // by row; zero outside
    Vector<Index> seen_;           // by row: the last position that reached it
    Vector<Index> reached_;        // positions from reached_[top_] on, in the order of elimination
    Vector<Index> candidates_;     // rows for its pivot
    Vector<Index> path_;           // of the search, and the entry where each position goes on
    Vector<std::int64_t> next_;
    Index top_ = 0;

    static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  public:
    Factorizer(LeftLookingLU& lu, const Index* indptr, const Index* indices, const double* values,
               double most_work, double most_counted, double most_if_weak, double most_if_strong)
        : lu_(lu), n_(lu.n_), indptr_(indptr), indices_(indices), values_(values), most_work_(most_work),
          most_counted_(std::max(most_work, most_counted)), most_if_weak_(most_if_weak),
          most_if_strong_(most_if_strong) {}

    Result run() {
        scale_rows();
        if (!assign_rows()) return Result::singular_pattern;
        const Index blocks = triangular_blocks(n_, indptr_, indices_, column_of_, block_of_);
        const bool weak = has_weak_diagonal();
        if (weak && most_if_weak_ <= 0) return Result::weak_diagonal;
        if (weak) most_work_ = most_counted_ = std::min(most_work_, most_if_weak_);
        if (lu_.has_strong_diagonal_) most_work_ = std::min(most_work_, most_if_strong_);
        if (!order(blocks)) return weak ? Result::weak_diagonal : Result::too_much_work;
        return factorize();
    }

  private:
    template <class Body> void for_each_entry(Index column, const Body& body) const {
        for (Index e = indptr_[column]; e < indptr_[column + 1]; ++e) body(indices_[e], values_[e]);
    }

    void scale_rows() {
        Vector<double>& scale = lu_.scale_;
        scale.assign(size(n_), 0.0);
        for (Index e = 0; e < indptr_[n_]; ++e)
            scale[indices_[e]] = std::max(scale[indices_[e]], std::fabs(values_[e]));
        for (double& s : scale) {
            int exponent = 0;
            if (s > 0 && s <= std::numeric_limits<double>::max()) std::frexp(s, &exponent);
            s = std::ldexp(1.0, -std::min(std::max(exponent, -1000), 1000));
        }
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
            for_each_entry(j, [&](Index i, double value) {
                if (i != j || value == 0 || row_of_[j] >= 0) return;
                assign(i, j);
                ++assigned;
            });
        for (Index j = 0; assigned < n_ && j < n_; ++j) {
            if (row_of_[j] >= 0) continue;
            double largest = 0;
            Index best = -1;
            for_each_entry(j, [&](Index i, double value) {
                const double size_here = std::fabs(value) * lu_.scale_[i];
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
            for_each_entry(j, [&](Index i, double value) {
                const double size_here = std::fabs(value) * lu_.scale_[i];
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
    bool order(Index blocks) {
        // The diagonal blocks alone, rows numbered as their columns.
        Vector<Index> starts(size(n_) + 1, 0), columns;
        columns.reserve(size(indptr_[n_]));
        for (Index j = 0; j < n_; ++j) {
            for_each_entry(j, [&](Index i, double) {
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
            by_degree = approximate_minimum_degree_within(pattern, most_counted_, counts, heights);
            lu_.counted_ = by_degree.empty() ? std::numeric_limits<double>::infinity() : counts.flops;
            if (lu_.counted_ > most_work_) {
                // Each column has an entry on the diagonal then, and all others are within blocks.
                if (starts[n_] + n_ == indptr_[n_] && assigned_to_itself()) {
                    lu_.pattern_ = std::move(pattern);
                    lu_.order_ = std::move(by_degree);
                }
                return false;
            }
            most_work_ = std::min(patience * counts.flops + least_patience * indptr_[n_],
                                  beyond_most * most_work_);
            reserve(static_cast<std::int64_t>(counts.entries));
            height_of_.resize(size(n_));
            for (Index k = 0; k < n_; ++k) height_of_[by_degree[k]] = heights[k];
        }
        Vector<Index>& start = lu_.block_start_;
        start.assign(size(blocks) + 2, 0);
        for (Index j = 0; j < n_; ++j) ++start[block_of_[j] + 2];
        for (Index b = 0; b < blocks; ++b) start[b + 2] += start[b + 1];
        lu_.column_at_.resize(size(n_));
        for (const Index j : by_degree) lu_.column_at_[start[block_of_[j] + 1]++] = j;
        start.pop_back();
        return true;
    }

    bool assigned_to_itself() const {
        for (Index j = 0; j < n_; ++j)
            if (row_of_[j] != j) return false;
        return true;
    }

    void reserve(std::int64_t entries) {
        for (Columns* part : {&lu_.lower_, &lu_.upper_}) {
            part->rows.reserve(size(entries) + size(indptr_[n_]));
            part->values.reserve(size(entries) + size(indptr_[n_]));
        }
    }

    Result factorize() {
        lu_.row_at_.resize(size(n_));
        lu_.diagonal_.resize(size(n_));
        place_of_.assign(size(n_), -1);
        diagonal_at_.resize(size(n_));
        wanted_at_.resize(size(n_));
        for (Index k = 0; k < n_; ++k) {
            diagonal_at_[k] = row_of_[lu_.column_at_[k]];
            wanted_at_[diagonal_at_[k]] = k;
        }
        search_end_.resize(size(n_));
        x_.assign(size(n_), 0.0);
        seen_.assign(size(n_), -1);
        reached_.resize(size(n_));
        path_.resize(size(n_));
        next_.resize(size(n_));
        double most_entries = indptr_[n_];  // of L, up to this column
        for (Index k = 0; k < n_; ++k) {
            search(k);
            eliminate();
            if (lu_.work_ > most_work_) return Result::too_much_work;
            if (!take_pivot(k)) return Result::zero_pivot;
            prune(k);
            if (height_of_.empty()) continue;
            most_entries += most_fill * height_of_[lu_.column_at_[k]];
            if (static_cast<double>(lu_.lower_.rows.size()) > most_entries) return Result::too_much_work;
        }
        for (Index& row : lu_.lower_.rows) row = place_of_[row];
        return Result::factorized;
    }

    // Finds which rows the column at position k gets entries in, and stores those above its block.
    void search(Index k) {
        const Index column = lu_.column_at_[k], block = block_of_[column];
        top_ = n_;
        candidates_.clear();
        for_each_entry(column, [&](Index row, double value) {
            const double scaled = value * lu_.scale_[row];
            if (block_of_[column_of_[row]] != block) {
                lu_.upper_.rows.push_back(place_of_[row]);
                lu_.upper_.values.push_back(scaled);
                return;
            }
            if (seen_[row] != k) reach(row, k);
            x_[row] += scaled;
        });
    }

    // Depth first from a row, through the columns of L.
    void reach(Index first, Index k) {
        const Index* const place_of = place_of_.data();
        const Index* const rows = lu_.lower_.rows.data();
        const std::int64_t* const starts = lu_.lower_.start.data();
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
    void eliminate() {
        const Index* const rows = lu_.lower_.rows.data();
        const double* const values = lu_.lower_.values.data();
        const std::int64_t* const starts = lu_.lower_.start.data();
        double* const x = x_.data();
        Columns& upper = lu_.upper_;
        std::size_t to = upper.rows.size();
        upper.extend(n_ - top_);
        std::int64_t work = 0;
        for (Index t = top_; t < n_; ++t) {
            const Index at = reached_[t], row = lu_.row_at_[at];
            const double u = x[row];
            x[row] = 0;
            upper.rows[to] = at;
            upper.values[to++] = u;
            const std::int64_t first = starts[at], last = starts[at + 1];
            for (std::int64_t e = first; e < last; ++e) x[rows[e]] -= values[e] * u;
            work += last - first + 1;
        }
        upper.close();
        lu_.work_ += static_cast<double>(work);
    }

    bool take_pivot(Index k) {
        double largest = 0;
        Index row = -1;
        for (const Index candidate : candidates_) {
            const double here = std::fabs(x_[candidate]);
            if (here > largest || here != here) {
                largest = here;
                row = candidate;
            }
        }
        if (!(largest > 0 && largest <= std::numeric_limits<double>::max())) return false;
        const Index diagonal = diagonal_at_[k];
        if (seen_[diagonal] == k && std::fabs(x_[diagonal]) >= diagonal_pivot * largest) row = diagonal;
        if (row != diagonal) {  // the rows change their places on the diagonal
            diagonal_at_[wanted_at_[row]] = diagonal;
            wanted_at_[diagonal] = wanted_at_[row];
        }
        const double pivot = x_[row];
        Columns& lower = lu_.lower_;
        std::size_t to = lower.rows.size();
        lower.extend(static_cast<Index>(candidates_.size()) - 1);
        for (const Index candidate : candidates_) {
            if (candidate != row) {
                lower.rows[to] = candidate;
                lower.values[to++] = x_[candidate] / pivot;
            }
            x_[candidate] = 0;
        }
        lu_.work_ += static_cast<double>(candidates_.size());
        lower.close();
        search_end_[k] = lower.start.back();
        lu_.diagonal_[k] = pivot;
        lu_.row_at_[k] = row;
        place_of_[row] = k;
        return true;
    }

    // Where column `at` of L has the new pivot's row, and row `at` of U its column, what lies below in
    // column `at` is found through the new column as well: entries of rows that have been pivots come
    // first, and the search stops after them.
    void prune(Index k) {
        const Index pivot = lu_.row_at_[k];
        for (Index t = top_; t < n_; ++t) {
            const Index at = reached_[t];
            if (search_end_[at] < lu_.lower_.start[at + 1]) continue;  // shortened before
            Index* const rows = lu_.lower_.rows.data();
            double* const values = lu_.lower_.values.data();
            const std::int64_t first = lu_.lower_.start[at], last = lu_.lower_.start[at + 1];
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

LeftLookingLU::LeftLookingLU(std::int32_t n, const std::int32_t* indptr, const std::int32_t* indices,
                             const double* values, bool by_columns, double most_work,
                             double most_counted, double most_if_weak, double most_if_strong)
    : n_(n) {
    if (!by_columns) {  // the columns of M
        result_ = Factorizer(*this, indptr, indices, values, most_work, most_counted, most_if_weak,
                             most_if_strong)
                      .run();
        return;
    }
    const auto entries = static_cast<std::size_t>(indptr[n]);
    Vector<Index> starts(static_cast<std::size_t>(n) + 2, 0), rows(entries);
    Vector<double> numbers(entries);
    for (std::size_t e = 0; e < entries; ++e) ++starts[indices[e] + 2];
    for (Index j = 0; j < n; ++j) starts[j + 2] += starts[j + 1];
    for (Index i = 0; i < n; ++i)
        for (Index e = indptr[i]; e < indptr[i + 1]; ++e) {
            const Index to = starts[indices[e] + 1]++;
            rows[to] = i;
            numbers[to] = values[e];
        }
    result_ = Factorizer(*this, starts.data(), rows.data(), numbers.data(), most_work, most_counted,
                         most_if_weak, most_if_strong)
                  .run();
}

std::int64_t LeftLookingLU::entries() const {
    return static_cast<std::int64_t>(lower_.rows.size() + upper_.rows.size() + diagonal_.size());
}

void LeftLookingLU::solve(const double* b, double* x) const {
    std::vector<double> work(static_cast<std::size_t>(n_));
    double* const y = work.data();
    const auto product = [y](const Columns& part, Index k) {  // of column k and y
        double sum = 0;
        for (std::int64_t e = part.start[k]; e < part.start[k + 1]; ++e)
            sum += part.values[e] * y[part.rows[e]];
        return sum;
    };
    for (Index k = 0; k < n_; ++k) y[k] = b[column_at_[k]];
    for (std::size_t block = 0; block + 1 < block_start_.size(); ++block) {
        const Index first = block_start_[block], last = block_start_[block + 1];
        for (Index k = first; k < last; ++k) y[k] = (y[k] - product(upper_, k)) / diagonal_[k];
        for (Index k = last - 1; k >= first; --k) y[k] -= product(lower_, k);
    }
    for (Index k = 0; k < n_; ++k) x[row_at_[k]] = scale_[row_at_[k]] * y[k];
}

}  // namespace roundwise::sparse
