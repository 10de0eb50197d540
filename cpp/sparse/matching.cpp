#include "sparse/matching.hpp"

#include <limits>
#include <queue>
#include <utility>

namespace roundwise::sparse {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Prices u of rows and v of columns such that no entry costs less than u_i + v_j, and those chosen cost
// exactly that. A path from a row to a column alternates between other entries and those chosen.
class Assignment {
  public:
    Assignment(std::int32_t n, const std::int64_t* indptr, const std::int32_t* indices, const double* costs,
               std::int64_t limit)
        : n_(n), limit_(limit), indptr_(indptr), indices_(indices), costs_(costs), u_(size(), infinity),
          v_(size(), infinity), row_of_(size(), -1), column_of_(size(), -1), distance_(size(), infinity),
          before_(size()) {}

    std::vector<std::int32_t> find() {
        start();
        for (std::int32_t row = 0; row < n_; ++row) {
            if (column_of_[row] >= 0) continue;
            if (visited_ > limit_ || !augment(row)) return {};
        }
        return row_of_;
    }

  private:
    std::int32_t n_;
    std::int64_t limit_, visited_ = 0;  // entries on the way to free columns
    const std::int64_t* indptr_;
    const std::int32_t* indices_;
    const double* costs_;
    std::vector<double> u_, v_;
    std::vector<std::int32_t> row_of_, column_of_;
    std::vector<double> distance_;       // of columns from the row that is to be assigned
    std::vector<std::int32_t> before_;   // the row before a column on the shortest path to it

    std::size_t size() const { return static_cast<std::size_t>(n_); }

    template <class Body> void for_each_entry(std::int32_t row, const Body& body) const {
        for (std::int64_t e = indptr_[row]; e < indptr_[row + 1]; ++e) body(indices_[e], costs_[e]);
    }

    void assign(std::int32_t row, std::int32_t column) {
        row_of_[column] = row;
        column_of_[row] = column;
    }

    bool is_tight(std::int32_t row, std::int32_t column, double cost) const {
        return cost - v_[column] == u_[row];
    }

    // Prices from the cheapest entries, and an assignment of most rows by entries that cost no more.
    void start() {
        for (std::int32_t i = 0; i < n_; ++i)
            for_each_entry(i, [&](std::int32_t j, double cost) {
                if (cost < v_[j]) v_[j] = cost;
            });
        for (std::int32_t i = 0; i < n_; ++i)
            for_each_entry(i, [&](std::int32_t j, double cost) {
                if (cost - v_[j] < u_[i]) u_[i] = cost - v_[j];
            });
        for (std::int32_t i = 0; i < n_; ++i)
            for_each_entry(i, [&](std::int32_t j, double cost) {
                if (column_of_[i] < 0 && row_of_[j] < 0 && is_tight(i, j, cost)) assign(i, j);
            });
        // A row whose columns are taken gets one of them if the row there has another free one.
        for (std::int32_t i = 0; i < n_; ++i) {
            if (column_of_[i] >= 0) continue;
            for_each_entry(i, [&](std::int32_t j, double cost) {
                if (column_of_[i] >= 0 || !is_tight(i, j, cost)) return;
                const std::int32_t other = row_of_[j];
                for_each_entry(other, [&](std::int32_t free, double price) {
                    if (column_of_[i] < 0 && row_of_[free] < 0 && is_tight(other, free, price)) {
                        assign(other, free);
                        assign(i, j);
                    }
                });
            });
        }
    }

    // Dijkstra's algorithm from an unassigned row to the nearest unassigned column. Returns false if
    // there is no path.
    bool augment(std::int32_t start) {
        using Entry = std::pair<double, std::int32_t>;
        std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
        std::vector<std::int32_t> reached, settled;
        double shortest = infinity;
        std::int32_t last = -1;
        const auto leave = [&](std::int32_t row, double so_far) {
            visited_ += indptr_[row + 1] - indptr_[row];
            for_each_entry(row, [&](std::int32_t j, double cost) {
                const double reduced = cost - v_[j] - u_[row];
                const double length = so_far + (reduced > 0 ? reduced : 0);
                if (length >= distance_[j] || length >= shortest) return;
                if (distance_[j] == infinity) reached.push_back(j);
                distance_[j] = length;
                before_[j] = row;
                if (row_of_[j] < 0) {
                    shortest = length;
                    last = j;
                } else {
                    queue.push({length, j});
                }
            });
        };
        leave(start, 0);
        while (!queue.empty() && queue.top().first < shortest) {
            const auto [length, j] = queue.top();
            queue.pop();
            if (length > distance_[j]) continue;  // a shorter way was found later
            settled.push_back(j);
            leave(row_of_[j], length);
        }
        if (last >= 0) {
            for (const std::int32_t j : settled) {
                v_[j] += distance_[j] - shortest;
                u_[row_of_[j]] -= distance_[j] - shortest;
            }
            u_[start] += shortest;
            for (std::int32_t j = last, row = -1; row != start;) {
                row = before_[j];
                const std::int32_t next = column_of_[row];
                assign(row, j);
                j = next;
            }
        }
        for (const std::int32_t j : reached) distance_[j] = infinity;
        return last >= 0;
    }
};

}  // namespace

std::vector<std::int32_t> cheapest_assignment(std::int32_t n, const std::int64_t* indptr,
                                              const std::int32_t* indices, const double* costs,
                                              std::int64_t limit) {
    return Assignment(n, indptr, indices, costs, limit).find();
}

}  // namespace roundwise::sparse
