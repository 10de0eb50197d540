#include "sparse/symbolic.hpp"

#include <numeric>

#include "sparse/supernodes.hpp"
#include "sparse/tree.hpp"

namespace roundwise::sparse {

using Index = std::int32_t;

namespace {

// The elimination tree and the columns' counts, in a postorder of the tree.
struct Columns {
    std::vector<Index> order, parent, counts;
    double entries = 0, flops = 0;
};

void compose(std::vector<Index>& order, const std::vector<Index>& then) {
    std::vector<Index> result(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) result[k] = order[then[k]];
    order.swap(result);
}

Columns columns_of(Index n, const std::int64_t* indptr, const Index* indices, const Index* order) {
    Columns result;
    if (order == nullptr) {
        result.order.resize(n);
        std::iota(result.order.begin(), result.order.end(), 0);
    } else {
        result.order.assign(order, order + n);
    }
    std::vector<Index> position = inverse(result.order);
    const std::vector<Index> tree =
        elimination_tree({n, indptr, indices, result.order.data(), position.data()});
    const std::vector<Index> post = postorder(tree), rank = inverse(post);
    compose(result.order, post);
    result.parent.resize(n);
    for (Index j = 0; j < n; ++j) result.parent[rank[j]] = tree[j] == -1 ? -1 : rank[tree[j]];
    position = inverse(result.order);
    result.counts =
        column_counts({n, indptr, indices, result.order.data(), position.data()}, result.parent);
    for (const double entries : result.counts) {
        result.entries += entries;
        result.flops += entries * entries;
    }
    return result;
}

// The rows of all supernodes. Row i of L is found from row i of A: it reaches the supernodes on the
// way from that of each entry left of the diagonal up to its own. As i ascends, so do rows.
void find_rows(const Reordered& a, const Supernodes& supernodes, Symbolic& result) {
    const auto count = static_cast<Index>(supernodes.width.size());
    result.first.resize(count + 1);
    result.start.resize(count + 1);
    result.first[0] = 0;
    result.start[0] = 0;
    result.stored = 0;
    for (Index s = 0; s < count; ++s) {
        const std::int64_t width = supernodes.width[s], height = width + supernodes.below[s];
        result.first[s + 1] = result.first[s] + supernodes.width[s];
        result.start[s + 1] = result.start[s] + height;
        result.stored += static_cast<double>(width) * static_cast<double>(height);
    }
    result.rows.resize(result.start[count]);
    std::vector<std::int64_t> next(result.start.begin(), result.start.end() - 1);
    std::vector<Index> reached(count, -1);
    for (Index i = 0; i < a.n; ++i) {
        const Index own = supernodes.of[i];
        reached[own] = i;
        result.rows[next[own]++] = i;
        a.for_each_in_row(i, [&](Index k) {
            if (k > i) return;
            for (Index s = supernodes.of[k]; reached[s] != i; s = supernodes.parent[s]) {
                reached[s] = i;
                result.rows[next[s]++] = i;
            }
        });
    }
}

}  // namespace

Symbolic analyse(Index n, const std::int64_t* indptr, const Index* indices, const Index* order) {
    Columns columns = columns_of(n, indptr, indices, order);
    Supernodes supernodes = amalgamated(fundamental(columns.parent, columns.counts), columns.counts);
    compose(columns.order, arrange(supernodes));
    Symbolic result{};
    result.n = n;
    result.entries = columns.entries;
    result.flops = columns.flops;
    result.order = std::move(columns.order);
    const std::vector<Index> position = inverse(result.order);
    find_rows({n, indptr, indices, result.order.data(), position.data()}, supernodes, result);
    result.parent = std::move(supernodes.parent);
    return result;
}

Counts count(Index n, const std::int64_t* indptr, const Index* indices, const Index* order) {
    const Columns columns = columns_of(n, indptr, indices, order);
    return {columns.entries, columns.flops};
}

}  // namespace roundwise::sparse
