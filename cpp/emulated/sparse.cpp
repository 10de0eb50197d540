#define ROUNDWISE_LEVEL scalar
#define ROUNDWISE_VECTOR_BYTES 16
#include "emulated/sparse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "emulated/rounders.hpp"

namespace roundwise {

using scalar::with_rounder;

namespace {

// The patterns of column j of U and L: the rows that can be reached from the rows of a_j in the graph
// of L, found by depth-first search. Those that are pivots already (`pivots`, as column numbers of L)
// belong to U, the others (`rows`) to L.
class Reach {
    std::vector<Index> mark_, stack_, next_;

  public:
    std::vector<Index> pivots, rows;

    explicit Reach(std::size_t n) : mark_(n, -1), stack_(n), next_(n) {}

    template <class T>
    void find(Index column, const Index* begin, const Index* end, const std::vector<Index>& position,
              const SparseColumns<T>& lower) {
        pivots.clear();
        rows.clear();
        for (const Index* row = begin; row != end; ++row) {
            if (mark_[*row] == column) continue;
            std::size_t depth = 0;
            push(depth, *row, column, position, lower);
            while (depth > 0) {
                const Index top = stack_[depth - 1];
                const Index k = position[top];
                if (k < 0 || next_[depth - 1] == lower.starts[k + 1]) {
                    if (k < 0) rows.push_back(top);
                    else pivots.push_back(k);
                    --depth;
                    continue;
                }
                const Index child = lower.indices[next_[depth - 1]++];
                if (mark_[child] != column) push(depth, child, column, position, lower);
            }
        }
        std::sort(pivots.begin(), pivots.end());
        std::sort(rows.begin(), rows.end());
    }

  private:
    template <class T>
    void push(std::size_t& depth, Index row, Index column, const std::vector<Index>& position,
              const SparseColumns<T>& lower) {
        mark_[row] = column;
        stack_[depth] = row;
        next_[depth] = position[row] < 0 ? 0 : lower.starts[position[row]];
        ++depth;
    }
};

template <class T> void require_indexable(const SparseColumns<T>& columns) {
    if (columns.indices.size() > static_cast<std::size_t>(std::numeric_limits<Index>::max()))
        throw std::length_error(
            "a factor has more than 2^31 - 1 entries; order the matrix so that it fills in less");
}

// Renumbers the rows of L from A's order to the order of pivots, and sorts each column by row.
template <class T>
void sort_by_pivot(SparseColumns<T>& lower, const std::vector<Index>& position) {
    std::vector<std::pair<Index, T>> entries;
    for (std::size_t j = 0; j + 1 < lower.starts.size(); ++j) {
        entries.clear();
        for (Index e = lower.starts[j]; e < lower.starts[j + 1]; ++e)
            entries.emplace_back(position[lower.indices[e]], lower.values[e]);
        std::sort(entries.begin(), entries.end(),
                  [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t e = 0; e < entries.size(); ++e) {
            lower.indices[lower.starts[j] + e] = entries[e].first;
            lower.values[lower.starts[j] + e] = entries[e].second;
        }
    }
}

}  // namespace

template <class T>
SparseFactors<T> sparse_lu(const Format& f, const SparseView<T>& a, const Index* diagonal,
                           double threshold) {
    const auto n = static_cast<std::size_t>(a.size);
    SparseFactors<T> factors{{Status::ok, 0}, {}, {}, std::vector<Index>(n)};
    std::vector<Index> position(n, -1);  // the column for which a row is the pivot; -1: none yet
    std::vector<T> x(n, 0);
    Reach reach(n);
    factors.verdict = with_rounder<T>(f, [&](const auto& round) -> Verdict {
        for (Index j = 0; j < a.size; ++j) {
            const Index begin = a.starts[j], end = a.starts[j + 1];
            reach.find(j, a.indices + begin, a.indices + end, position, factors.lower);
            for (Index e = begin; e < end; ++e) x[a.indices[e]] = a.values[e];

            for (const Index k : reach.pivots) {
                const T u = x[factors.perm[k]];
                x[factors.perm[k]] = 0;
                if (!std::isfinite(u)) return {Status::overflow, j};
                factors.upper.indices.push_back(k);
                factors.upper.values.push_back(u);
                for (Index e = factors.lower.starts[k]; e < factors.lower.starts[k + 1]; ++e) {
                    T& target = x[factors.lower.indices[e]];
                    target = round(target - round.product(factors.lower.values[e], u));
                }
            }

            Index pivot = -1;
            T largest = 0;
            for (const Index row : reach.rows) {
                if (!std::isfinite(x[row])) return {Status::overflow, j};
                if (std::abs(x[row]) > largest) {
                    largest = std::abs(x[row]);
                    pivot = row;
                }
            }
            if (pivot < 0) return {Status::zero_pivot, j};
            const Index preferred = diagonal[j];
            if (position[preferred] < 0 && x[preferred] != 0 &&
                static_cast<double>(std::abs(x[preferred])) >= threshold * static_cast<double>(largest))
                pivot = preferred;

            const T divisor = x[pivot];
            for (const Index row : reach.rows) {
                if (row != pivot && x[row] != 0) {
                    factors.lower.indices.push_back(row);
                    factors.lower.values.push_back(round(x[row] / divisor));
                }
                x[row] = 0;
            }
            factors.upper.indices.push_back(j);
            factors.upper.values.push_back(divisor);
            position[pivot] = j;
            factors.perm[j] = pivot;
            require_indexable(factors.lower);
            require_indexable(factors.upper);
            factors.lower.end_column();
            factors.upper.end_column();
        }
        return {Status::ok, 0};
    });
    if (factors.verdict.status == Status::ok) sort_by_pivot(factors.lower, position);
    return factors;
}

template <class T> SparseCholesky<T> sparse_cholesky(const Format& f, const SparseView<T>& a) {
    struct Entry {
        Index column, place;  // of an entry of L, found by its row
    };
    const auto n = static_cast<std::size_t>(a.size);
    SparseCholesky<T> result{{Status::ok, 0}, {}};
    SparseColumns<T>& lower = result.lower;
    std::vector<std::vector<Entry>> row(n);  // ascending, as columns are finished in order
    std::vector<Index> mark(n, -1), pattern;
    std::vector<T> x(n, 0);
    result.verdict = with_rounder<T>(f, [&](const auto& round) -> Verdict {
        for (Index j = 0; j < a.size; ++j) {
            pattern.clear();
            const auto touch = [&](Index i) {
                if (mark[i] == j) return;
                mark[i] = j;
                if (i > j) pattern.push_back(i);
            };
            for (Index e = a.starts[j]; e < a.starts[j + 1]; ++e)
                if (a.indices[e] >= j) {
                    touch(a.indices[e]);
                    x[a.indices[e]] = a.values[e];
                }
            for (const Entry entry : row[j]) {
                const T factor = lower.values[entry.place];
                for (Index e = entry.place; e < lower.starts[entry.column + 1]; ++e) {
                    T& target = x[lower.indices[e]];
                    touch(lower.indices[e]);
                    target = round(target - round.product(lower.values[e], factor));
                }
            }
            std::vector<Entry>().swap(row[j]);
            std::sort(pattern.begin(), pattern.end());

            if (!std::isfinite(x[j])) return {Status::overflow, j};
            const T diagonal = x[j] > 0 ? round(std::sqrt(x[j])) : T{0};
            if (diagonal == 0) return {Status::not_positive_definite, j};
            x[j] = 0;
            lower.indices.push_back(j);
            lower.values.push_back(diagonal);
            for (const Index i : pattern) {
                const T value = round(x[i] / diagonal);
                x[i] = 0;
                if (!std::isfinite(value)) return {Status::overflow, j};
                row[i].push_back({j, static_cast<Index>(lower.indices.size())});
                lower.indices.push_back(i);
                lower.values.push_back(value);
            }
            require_indexable(lower);
            lower.end_column();
        }
        return {Status::ok, 0};
    });
    return result;
}

template <class T>
void sparse_cholesky_solve(const Format& f, const SparseView<T>& l, std::int64_t columns, T* b) {
    const auto n = static_cast<Index>(l.size);
    with_rounder<T>(f, [&](const auto& round) {
        for (std::int64_t column = 0; column < columns; ++column, b += n) {
            for (Index j = 0; j < n; ++j) {
                b[j] = round(b[j] / l.values[l.starts[j]]);
                for (Index e = l.starts[j] + 1; e < l.starts[j + 1]; ++e)
                    b[l.indices[e]] = round(b[l.indices[e]] - round.product(l.values[e], b[j]));
            }
            for (Index j = n; j-- > 0;) {
                for (Index e = l.starts[j + 1]; --e > l.starts[j];)
                    b[j] = round(b[j] - round.product(l.values[e], b[l.indices[e]]));
                b[j] = round(b[j] / l.values[l.starts[j]]);
            }
        }
    });
}

template <class T>
void sparse_solve(const Format& f, const SparseView<T>& lower, const SparseView<T>& upper,
                  bool transpose, std::int64_t columns, T* b) {
    const auto n = static_cast<Index>(lower.size);
    with_rounder<T>(f, [&](const auto& round) {
        const auto subtract = [&](T& target, T factor, T x) { target = round(target - round.product(factor, x)); };
        for (std::int64_t column = 0; column < columns; ++column, b += n) {
            if (!transpose) {
                for (Index j = 0; j < n; ++j)
                    for (Index e = lower.starts[j]; e < lower.starts[j + 1]; ++e)
                        subtract(b[lower.indices[e]], lower.values[e], b[j]);
                for (Index j = n; j-- > 0;) {
                    const Index last = upper.starts[j + 1] - 1;
                    b[j] = round(b[j] / upper.values[last]);
                    for (Index e = upper.starts[j]; e < last; ++e)
                        subtract(b[upper.indices[e]], upper.values[e], b[j]);
                }
            } else {
                for (Index j = 0; j < n; ++j) {
                    const Index last = upper.starts[j + 1] - 1;
                    for (Index e = upper.starts[j]; e < last; ++e)
                        subtract(b[j], upper.values[e], b[upper.indices[e]]);
                    b[j] = round(b[j] / upper.values[last]);
                }
                for (Index j = n; j-- > 0;)
                    for (Index e = lower.starts[j + 1]; e-- > lower.starts[j];)
                        subtract(b[j], lower.values[e], b[lower.indices[e]]);
            }
        }
    });
}

template <class T>
void sparse_matvec(const Format& f, const SparseView<T>& a, bool transpose, const T* x,
                   std::int64_t outputs, T* y) {
    std::fill(y, y + outputs, T{0});
    with_rounder<T>(f, [&](const auto& round) {
        for (std::int64_t i = 0; i < a.size; ++i)
            for (Index e = a.starts[i]; e < a.starts[i + 1]; ++e) {
                const Index j = a.indices[e];
                T& target = transpose ? y[j] : y[i];
                target = round(target + round.product(a.values[e], transpose ? x[i] : x[j]));
            }
    });
}

#define ROUNDWISE_INSTANTIATE(T)                                                                  \
    template SparseFactors<T> sparse_lu(const Format&, const SparseView<T>&, const Index*, double); \
    template SparseCholesky<T> sparse_cholesky(const Format&, const SparseView<T>&);              \
    template void sparse_cholesky_solve(const Format&, const SparseView<T>&, std::int64_t, T*);   \
    template void sparse_solve(const Format&, const SparseView<T>&, const SparseView<T>&, bool,   \
                               std::int64_t, T*);                                                 \
    template void sparse_matvec(const Format&, const SparseView<T>&, bool, const T*, std::int64_t, T*);
ROUNDWISE_INSTANTIATE(float)
ROUNDWISE_INSTANTIATE(double)

}  // namespace roundwise
