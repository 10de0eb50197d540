// Small sets of vertices that cut a graph in two.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// A graph whose vertices and edges have weights: how many of a finer graph each stands for. The
// neighbours of v are neighbours[start[v]] .. neighbours[start[v + 1] - 1].
struct Graph {
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> neighbours, edge_weights, weights;

    std::int32_t size() const { return static_cast<std::int32_t>(weights.size()); }
};

enum Side : std::uint8_t { left = 0, right = 1, separator = 2 };

// The side of each vertex, such that no edge leads from left to right, the separator is light, and
// neither side has much more than half the weight. Multilevel, after Karypis & Kumar, "A fast and high
// quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci. Comput. 20 (1998).
// A side may be empty, if nothing better was found. Deterministic.
std::vector<Side> vertex_separator(const Graph& graph);

}  // namespace roundwise::sparse
