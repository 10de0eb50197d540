#include <utility>

#include "sparse/matching.hpp"

namespace roundwise::sparse {

namespace {

// The state of one search for a maximum matching.
template <class Index> class Matching {
    const std::int32_t n_;
    const Index *indptr_, *indices_;
    std::vector<std::int32_t>& row_of_;
    std::vector<std::int32_t> column_of_;  // of each row; -1 if it is free
    std::vector<Index> ahead_;     // entries of a column before this one have rows that are assigned
    std::vector<Index> next_;      // entry of a column from which its search goes on in this round
    std::vector<std::int32_t> round_of_;  // the last round in which a column was visited
    std::vector<std::int32_t> path_;      // columns, each but the first one of a row before it

  public:
    Matching(std::int32_t n, const Index* indptr, const Index* indices, std::vector<std::int32_t>& row_of)
        : n_(n), indptr_(indptr), indices_(indices), row_of_(row_of),
          column_of_(static_cast<std::size_t>(n), -1), ahead_(indptr, indptr + n),
          next_(static_cast<std::size_t>(n)), round_of_(static_cast<std::size_t>(n), -1),
          path_(static_cast<std::size_t>(n)) {
        for (std::int32_t j = 0; j < n; ++j)
            if (row_of_[j] >= 0) column_of_[row_of_[j]] = j;
    }

    std::int32_t find() {
        std::vector<std::int32_t> free;
        for (std::int32_t j = 0; j < n_; ++j)
            if (row_of_[j] < 0 && !take_free_row(j)) free.push_back(j);
        bool found = true;
        for (std::int32_t round = 0; found && !free.empty(); ++round) {
            found = false;
            std::size_t left = 0;
            for (const std::int32_t j : free) {
                if (augment(j, round))
                    found = true;
                else
                    free[left++] = j;
            }
            free.resize(left);
        }
        return n_ - static_cast<std::int32_t>(free.size());
    }

  private:
    void assign(std::int32_t row, std::int32_t column) {
        row_of_[column] = row;
        column_of_[row] = column;
    }

    // Rows never become free again, so that each entry is looked at once in all rounds.
    bool take_free_row(std::int32_t column) {
        while (ahead_[column] < indptr_[column + 1]) {
            const auto row = static_cast<std::int32_t>(indices_[ahead_[column]++]);
            if (column_of_[row] < 0) {
                assign(row, column);
                return true;
            }
        }
        return false;
    }

    // The column that has the row of the next entry, if this round has not visited it; -1 if there is none.
    std::int32_t next_column(std::int32_t column, std::int32_t round) {
        const bool forward = round % 2 == 0;
        const Index first = indptr_[column], last = indptr_[column + 1];
        while (next_[column] < last - first) {
            const Index step = next_[column]++;
            const auto row = static_cast<std::int32_t>(indices_[forward ? first + step : last - 1 - step]);
            const std::int32_t other = column_of_[row];
            if (round_of_[other] != round) return other;
        }
        return -1;
    }

    void visit(std::int32_t column, std::int32_t round) {
        round_of_[column] = round;
        next_[column] = 0;
    }

    // Gives a row to this column; columns on the path pass theirs on. False if the round finds no path.
    bool augment(std::int32_t start, std::int32_t round) {
        std::int32_t depth = 0;
        path_[0] = start;
        visit(start, round);
        while (depth >= 0) {
            const std::int32_t column = path_[depth];
            const std::int32_t freed = row_of_[column];
            if (take_free_row(column)) {
                std::int32_t row = freed;
                while (depth-- > 0) {
                    const std::int32_t other = path_[depth], passed_on = row_of_[other];
                    assign(row, other);
                    row = passed_on;
                }
                return true;
            }
            const std::int32_t next = next_column(column, round);
            if (next < 0) {
                --depth;
            } else {
                path_[++depth] = next;
                visit(next, round);
            }
        }
        return false;
    }
};

}  // namespace

template <class Index>
std::int32_t maximum_matching(std::int32_t n, const Index* indptr, const Index* indices,
                              std::vector<std::int32_t>& row_of) {
    return Matching<Index>(n, indptr, indices, row_of).find();
}

template <class Index>
bool is_structurally_regular(std::int32_t n, const Index* indptr, const Index* indices) {
    // Entries on the diagonal are a good start: most matrices have them all.
    std::vector<std::int32_t> row_of(static_cast<std::size_t>(n), -1);
    std::int32_t assigned = 0;
    for (std::int32_t j = 0; j < n; ++j)
        for (Index e = indptr[j]; e < indptr[j + 1] && row_of[j] < 0; ++e)
            if (indices[e] == j) {
                row_of[j] = j;
                ++assigned;
            }
    return assigned == n || maximum_matching(n, indptr, indices, row_of) == n;
}

template std::int32_t maximum_matching(std::int32_t, const std::int32_t*, const std::int32_t*,
                                       std::vector<std::int32_t>&);
template std::int32_t maximum_matching(std::int32_t, const std::int64_t*, const std::int64_t*,
                                       std::vector<std::int32_t>&);
template bool is_structurally_regular(std::int32_t, const std::int32_t*, const std::int32_t*);
template bool is_structurally_regular(std::int32_t, const std::int64_t*, const std::int64_t*);

}  // namespace roundwise::sparse
