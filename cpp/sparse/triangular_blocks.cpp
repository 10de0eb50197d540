#include "sparse/triangular_blocks.hpp"

#include <algorithm>

namespace roundwise::sparse {

std::int32_t triangular_blocks(std::int32_t n, const std::int32_t* indptr, const std::int32_t* indices,
                               const std::vector<std::int32_t>& column_of,
                               std::vector<std::int32_t>& block_of) {
    using Index = std::int32_t;
    const auto size = static_cast<std::size_t>(n);
    constexpr Index unseen = -1;
    std::vector<Index> number(size, unseen);  // in the order in which columns are first seen
    std::vector<Index> lowest(size);          // number that is known to be reachable
    std::vector<Index> next(indptr, indptr + n), path, open;
    block_of.assign(size, unseen);
    path.reserve(size);
    open.reserve(size);  // columns that have no block yet
    Index seen = 0, blocks = 0;
    const auto enter = [&](Index column) {
        number[column] = lowest[column] = seen++;
        path.push_back(column);
        open.push_back(column);
    };
    for (Index start = 0; start < n; ++start) {
        if (number[start] != unseen) continue;
        enter(start);
        while (!path.empty()) {
            const Index column = path.back();
            if (next[column] < indptr[column + 1]) {
                const Index other = column_of[indices[next[column]++]];
                if (number[other] == unseen)
                    enter(other);
                else if (block_of[other] == unseen)
                    lowest[column] = std::min(lowest[column], number[other]);
                continue;
            }
            path.pop_back();
            if (!path.empty()) lowest[path.back()] = std::min(lowest[path.back()], lowest[column]);
            if (lowest[column] != number[column]) continue;
            Index member;
            do {
                member = open.back();
                open.pop_back();
                block_of[member] = blocks;
            } while (member != column);
            ++blocks;
        }
    }
    return blocks;
}

}  // namespace roundwise::sparse
