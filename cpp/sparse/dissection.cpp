#include "sparse/dissection.hpp"

#include <algorithm>

#include "sparse/amd.hpp"
#include "sparse/separator.hpp"

namespace roundwise::sparse {

namespace {

using Index = std::int32_t;

constexpr Index small_enough = 400;  // vertices of a part that minimum degree orders

// A part of the graph, and the vertices of the whole that its vertices are.
struct Part {
    Graph graph;
    std::vector<Index> vertices;
};

// The part of the vertices on one side. `number`: scratch, one for each vertex.
Part extracted(const Part& whole, const std::vector<Side>& sides, Side side, std::vector<Index>& number) {
    Part part;
    const Graph& graph = whole.graph;
    std::int64_t edges = 0;
    for (Index v = 0; v < graph.size(); ++v)
        if (sides[v] == side) {
            number[v] = static_cast<Index>(part.vertices.size());
            part.vertices.push_back(whole.vertices[v]);
            edges += graph.start[v + 1] - graph.start[v];
        }
    part.graph.weights.assign(part.vertices.size(), 1);
    part.graph.start.reserve(part.vertices.size() + 1);
    part.graph.neighbours.reserve(static_cast<std::size_t>(edges));
    for (Index v = 0; v < graph.size(); ++v) {
        if (sides[v] != side) continue;
        for (std::int64_t e = graph.start[v]; e < graph.start[v + 1]; ++e)
            if (sides[graph.neighbours[e]] == side)
                part.graph.neighbours.push_back(number[graph.neighbours[e]]);
        part.graph.start.push_back(static_cast<std::int64_t>(part.graph.neighbours.size()));
    }
    part.graph.edge_weights.assign(part.graph.neighbours.size(), 1);
    return part;
}

void order_by_degree(Part&& part, Index* order) {
    const Pattern pattern{part.graph.size(), std::move(part.graph.start), std::move(part.graph.neighbours)};
    for (const Index v : approximate_minimum_degree(pattern)) *order++ = part.vertices[v];
}

// Writes the order of the part's vertices; frees its memory before the parts of it are cut.
void dissect(Part&& part, Index* order) {
    const Index n = part.graph.size();
    if (n <= small_enough) return order_by_degree(std::move(part), order);
    const std::vector<Side> sides = vertex_separator(part.graph);
    Part parts[2];
    {
        std::vector<Index> number(n);
        for (const Side side : {left, right}) parts[side] = extracted(part, sides, side, number);
    }
    const Index lefts = parts[left].graph.size(), rights = parts[right].graph.size();
    // A graph without small separators is left to minimum degree.
    if (std::min(lefts, rights) < n / 10) return order_by_degree(std::move(part), order);
    Index* last = order + lefts + rights;
    for (Index v = 0; v < n; ++v)
        if (sides[v] == separator) *last++ = part.vertices[v];
    part = {};
    dissect(std::move(parts[left]), order);
    dissect(std::move(parts[right]), order + lefts);
}

}  // namespace

std::vector<Index> nested_dissection(const Pattern& pattern) {
    Part whole;
    whole.graph.start = pattern.indptr;
    whole.graph.neighbours = pattern.indices;
    whole.graph.weights.assign(pattern.n, 1);
    whole.graph.edge_weights.assign(pattern.indices.size(), 1);
    whole.vertices.resize(pattern.n);
    std::vector<Index> order(pattern.n), number(pattern.n);
    std::vector<Side> sides(pattern.n, left);
    Index* last = order.data() + pattern.n;
    for (Index v = 0; v < pattern.n; ++v) {
        whole.vertices[v] = v;
        if (is_dense(pattern, v)) sides[v] = separator;
    }
    for (Index v = pattern.n; v-- > 0;)
        if (sides[v] == separator) *--last = v;
    dissect(extracted(whole, sides, left, number), order.data());
    return order;
}

}  // namespace roundwise::sparse
