// A look at the graph of a matrix, which tells about how much a factorization fills in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "iterative/csr.hpp"

namespace roundwise::iterative {

struct Look {
    Index reached;       // unknowns connected with the first one
    Index levels;        // of the second search
    Index width;         // of the level in which half of them are reached
    double positive;     // share of the positive entries off the diagonal, by size
};

// Two breadth-first searches along the rows: from unknown 0, and from one of those that are farthest from it.
inline Look look(const CsrView& A) {
    Look found{0, 0, 0, 0};
    std::vector<Index> order(A.rows), bounds;
    std::vector<char> seen;
    Index from = 0;
    for (int search = 0; search < 2; ++search) {
        seen.assign(A.rows, 0);
        bounds.assign(1, 0);
        Index count = 0;
        order[count++] = from;
        seen[from] = 1;
        for (Index begin = 0; begin < count;) {
            const Index end = count;
            for (Index k = begin; k < end; ++k)
                for (Index e = A.starts[order[k]]; e < A.starts[order[k] + 1]; ++e) {
                    const Index j = A.indices[e];
                    if (!seen[j]) {
                        seen[j] = 1;
                        order[count++] = j;
                    }
                }
            bounds.push_back(end);
            begin = end;
        }
        found.reached = count;
        from = order[count - 1];
    }
    found.levels = static_cast<Index>(bounds.size()) - 1;
    for (Index l = 0; l < found.levels; ++l)
        if (bounds[l] <= found.reached / 2 && bounds[l + 1] > found.reached / 2) found.width = bounds[l + 1] - bounds[l];
    double positive = 0, all = 0;
    for (Index i = 0; i < A.rows; ++i)
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e)
            if (A.indices[e] != i) {
                all += std::fabs(A.values[e]);
                positive += std::max(A.values[e], 0.0);
            }
    found.positive = all > 0 ? positive / all : 0;
    return found;
}

}  // namespace roundwise::iterative
