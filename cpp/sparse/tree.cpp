#include "sparse/tree.hpp"

#include <algorithm>

namespace roundwise::sparse {

using Index = std::int32_t;

std::vector<Index> inverse(const std::vector<Index>& order) {
    std::vector<Index> position(order.size());
    for (std::size_t k = 0; k < order.size(); ++k) position[order[k]] = static_cast<Index>(k);
    return position;
}

std::vector<Index> elimination_tree(const Reordered& a) {
    std::vector<Index> parent(a.n, -1), ancestor(a.n, -1);
    for (Index i = 0; i < a.n; ++i)
        a.for_each_in_row(i, [&](Index k) {
            while (k < i && k != -1) {  // up to the root so far, below which i belongs
                const Index above = ancestor[k];
                ancestor[k] = i;  // a shortcut for those who come later
                if (above == -1) parent[k] = i;
                k = above;
            }
        });
    return parent;
}

std::vector<Index> postorder(const std::vector<Index>& parent) {
    const auto n = static_cast<Index>(parent.size());
    // A node's descendants come just before it, so sizes of subtrees give its place.
    std::vector<Index> size(n, 1), next(n + 1, 0), result(n);
    for (Index j = 0; j < n; ++j)
        if (parent[j] != -1) size[parent[j]] += size[j];
    // next[j]: where the next child's subtree of j begins; next[n]: that of the next root. Going down
    // from the last node, siblings are met in reverse, so that their subtrees fill j's from its end.
    next[n] = n;
    for (Index j = n; j-- > 0;) {
        Index& end = next[parent[j] == -1 ? n : parent[j]];
        result[end - 1] = j;
        next[j] = end - 1;
        end -= size[j];
    }
    return result;
}

std::vector<Index> column_counts(const Reordered& a, const std::vector<Index>& parent) {
    const Index n = a.n;
    // Row i of L is a subtree of the elimination tree with root i; its leaves k are those entries of
    // row i of A none of whose descendants is another. A column's count is the number of row subtrees
    // it is in: + 1 at each leaf, - 1 where the paths of consecutive leaves meet, - 1 above each root,
    // summed up the tree.
    std::vector<Index> count(n, 1), first(n), last_leaf(n, -1), set(n);
    for (Index j = 0; j < n; ++j) first[j] = set[j] = j;  // first: the least descendant
    for (Index j = 0; j < n; ++j)
        if (parent[j] != -1) {
            first[parent[j]] = std::min(first[parent[j]], first[j]);
            count[parent[j]] = 0;  // no leaf
        }
    const auto root_of_set = [&](Index k) {
        Index root = k;
        while (set[root] != root) root = set[root];
        while (set[k] != root) {
            const Index above = set[k];
            set[k] = root;
            k = above;
        }
        return root;
    };
    for (Index j = 0; j < n; ++j) {
        if (parent[j] != -1) --count[parent[j]];  // the subtree of row j ends below its root's parent
        a.for_each_in_row(j, [&](Index i) {
            if (i < j || last_leaf[i] >= first[j]) return;  // a descendant of j was an entry already
            ++count[j];
            if (last_leaf[i] != -1) --count[root_of_set(last_leaf[i])];
            last_leaf[i] = j;
        });
        if (parent[j] != -1) set[j] = parent[j];
    }
    for (Index j = 0; j < n; ++j)
        if (parent[j] != -1) count[parent[j]] += count[j];
    return count;
}

}  // namespace roundwise::sparse
