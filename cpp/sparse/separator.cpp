#include "sparse/separator.hpp"

#include <algorithm>
#include <cstdlib>
#include <queue>
#include <utility>

namespace roundwise::sparse {

namespace {

using Index = std::int32_t;
using Weight = std::int64_t;

constexpr Index coarse_enough = 80;    // vertices of a graph that is cut without further coarsening
constexpr int seeds = 4;               // from which such a graph is cut; the best cut is taken
constexpr double heaviest_side = 0.6;  // of the whole weight
constexpr int passes = 8;              // of refinement at most
constexpr int patience = 300;          // moves without gain after which a pass ends

// A separator and what it weighs. Vertices move from it to a side; those of the other side next to
// such a one take its place.
class Cut {
    const Graph* graph_;
    Weight total_ = 0, weight_[3] = {0, 0, 0};
    std::vector<Side> side_;

  public:
    Cut(const Graph& graph, std::vector<Side> sides) : graph_(&graph), side_(std::move(sides)) {
        for (Index v = 0; v < graph.size(); ++v) weight_[side_[v]] += graph.weights[v];
        total_ = weight_[left] + weight_[right] + weight_[separator];
    }

    const std::vector<Side>& sides() const { return side_; }
    // The less, the better: the separator's weight, or more than all if a side is too heavy; then how
    // much the sides differ.
    using Score = std::pair<Weight, Weight>;
    Score score() const {
        const Weight heavier = std::max(weight_[left], weight_[right]);
        return {fits(heavier) ? weight_[separator] : total_ + heavier,
                std::abs(weight_[left] - weight_[right])};
    }

    void refine() {
        // Each pass moves to one side only. A pass that could go both ways would not shift a separator
        // several layers thick.
        int failed = 0;
        to_ = weight_[left] < weight_[right] ? left : right;
        for (int pass = 0; pass < passes && failed < 2; ++pass) {
            failed = improve() ? 0 : failed + 1;
            to_ = other();
        }
    }

  private:
    struct Move {
        Weight gain;  // by how much the separator gets lighter
        Index vertex;
        bool operator<(const Move& other) const {
            return gain != other.gain ? gain < other.gain : vertex > other.vertex;
        }
    };
    struct Change {
        Index vertex;
        Side before;
    };
    Side to_ = left;  // where this pass moves to
    // Gains may have changed since: one that has grown was put in again, one that has shrunk is
    // corrected when it comes to the top.
    std::priority_queue<Move> moves_;
    std::vector<Weight> opposite_;  // weight of a separating vertex's neighbours on the other side
    std::vector<bool> moved_;       // in this pass
    std::vector<Change> changes_;   // in this pass

    Side other() const { return static_cast<Side>(1 - to_); }

    bool fits(Weight weight) const {
        return static_cast<double>(weight) <= heaviest_side * static_cast<double>(total_);
    }

    void set(Index v, Side side) {
        weight_[side_[v]] -= graph_->weights[v];
        weight_[side] += graph_->weights[v];
        side_[v] = side;
    }

    template <class Visit> void for_each_neighbour(Index v, Visit visit) const {
        for (Weight e = graph_->start[v]; e < graph_->start[v + 1]; ++e) visit(graph_->neighbours[e]);
    }

    Weight gain(Index v) const { return graph_->weights[v] - opposite_[v]; }

    // Vertex v has just come to the separator, or is there when a pass begins.
    void enter(Index v) {
        opposite_[v] = 0;
        for_each_neighbour(v, [&](Index u) {
            if (side_[u] == other()) opposite_[v] += graph_->weights[u];
        });
        if (!moved_[v]) moves_.push({gain(v), v});
    }

    // The best vertex to move, or -1: none is left, or it would make its new side too heavy.
    Index best() {
        while (!moves_.empty()) {
            const Move move = moves_.top();
            const bool possible = side_[move.vertex] == separator && !moved_[move.vertex];
            if (possible && gain(move.vertex) == move.gain) break;
            moves_.pop();
            if (possible && gain(move.vertex) < move.gain) moves_.push({gain(move.vertex), move.vertex});
        }
        if (moves_.empty()) return -1;
        const Index v = moves_.top().vertex;
        const Weight weight = weight_[to_] + graph_->weights[v];
        return fits(weight) || weight < weight_[other()] ? v : -1;
    }

    void move(Index v) {
        moved_[v] = true;
        changes_.push_back({v, separator});
        set(v, to_);
        for_each_neighbour(v, [&](Index u) {
            if (side_[u] != other()) return;
            changes_.push_back({u, other()});
            set(u, separator);
            for_each_neighbour(u, [&](Index x) {
                if (side_[x] != separator) return;
                opposite_[x] -= graph_->weights[u];
                if (!moved_[x]) moves_.push({gain(x), x});
            });
            enter(u);
        });
    }

    // One pass after Fiduccia & Mattheyses: the best moves one by one, even those that make the
    // separator heavier, each vertex once; then back to the best state on the way.
    bool improve() {
        moves_ = {};
        opposite_.resize(side_.size());
        moved_.assign(side_.size(), false);
        changes_.clear();
        for (Index v = 0; v < graph_->size(); ++v)
            if (side_[v] == separator) enter(v);
        const Score before = score();
        Score best_score = before;
        std::size_t kept = 0;
        for (int waiting = 0; waiting < patience; ++waiting) {
            const Index v = best();
            if (v == -1) break;
            move(v);
            if (!(score() < best_score)) continue;
            best_score = score();
            kept = changes_.size();
            waiting = 0;
        }
        for (; changes_.size() > kept; changes_.pop_back())
            set(changes_.back().vertex, changes_.back().before);
        return best_score.first < before.first;
    }
};

Cut refined(const Graph& graph, std::vector<Side> sides) {
    Cut cut(graph, std::move(sides));
    cut.refine();
    return cut;
}

// The same numbers on every machine.
class Random {
    std::uint64_t state_ = 1;

  public:
    Index below(Index bound) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<Index>((state_ >> 33) % static_cast<std::uint64_t>(bound));
    }
};

// Each vertex and the neighbour that it is most strongly connected to become one vertex.
// They choose in a random order: in that of the matrix, those of a grid would form bricks, and planes
// that cut it are not its smallest separators.
Graph coarsened(const Graph& fine, Random& random, std::vector<Index>& coarse_of) {
    const Index n = fine.size();
    Weight total = 0;
    for (const Index weight : fine.weights) total += weight;
    const Weight heaviest = std::max<Weight>(2, total * 3 / (2 * coarse_enough));
    std::vector<Index> partner(n, -1);
    coarse_of.assign(n, -1);
    Graph coarse;
    std::vector<Index> first;  // of the one or two vertices that a coarse one stands for
    std::vector<Index> visits(n);
    for (Index k = 0; k < n; ++k) visits[k] = k;
    for (Index k = n; k > 1; --k) std::swap(visits[k - 1], visits[random.below(k)]);
    for (const Index v : visits) {
        if (partner[v] != -1) continue;
        Index best = v, strongest = 0;
        for (Weight e = fine.start[v]; e < fine.start[v + 1]; ++e) {
            const Index u = fine.neighbours[e], strength = fine.edge_weights[e];
            if (partner[u] == -1 && u != v && strength > strongest &&
                Weight{fine.weights[v]} + fine.weights[u] <= heaviest) {
                best = u;
                strongest = strength;
            }
        }
        partner[v] = best;
        partner[best] = v;
        coarse_of[v] = coarse_of[best] = coarse.size();
        first.push_back(v);
        coarse.weights.push_back(best == v ? fine.weights[v] : fine.weights[v] + fine.weights[best]);
    }
    coarse.start.reserve(first.size() + 1);
    coarse.neighbours.reserve(fine.neighbours.size());
    coarse.edge_weights.reserve(fine.neighbours.size());
    std::vector<Weight> place(first.size(), -1);  // of an edge to this coarse vertex
    for (Index c = 0; c < coarse.size(); ++c) {
        const auto begin = static_cast<Weight>(coarse.neighbours.size());
        const auto gather = [&](Index v) {
            for (Weight e = fine.start[v]; e < fine.start[v + 1]; ++e) {
                const Index d = coarse_of[fine.neighbours[e]];
                if (d == c) continue;
                if (place[d] >= begin) {
                    coarse.edge_weights[place[d]] += fine.edge_weights[e];
                } else {
                    place[d] = static_cast<Weight>(coarse.neighbours.size());
                    coarse.neighbours.push_back(d);
                    coarse.edge_weights.push_back(fine.edge_weights[e]);
                }
            }
        };
        gather(first[c]);
        if (partner[first[c]] != first[c]) gather(partner[first[c]]);
        coarse.start.push_back(static_cast<Weight>(coarse.neighbours.size()));
    }
    return coarse;
}

// Grows the left side from a seed, breadth first, to half the weight; what is next to it separates.
std::vector<Side> grown(const Graph& graph, Index seed) {
    const Index n = graph.size();
    Weight total = 0, reached = 0;
    for (const Index weight : graph.weights) total += weight;
    std::vector<Side> sides(n, right);
    std::vector<Index> queue;
    std::vector<bool> queued(n, false);
    for (Index k = 0, head = 0; k < n && 2 * reached < total; ++k) {
        const Index start = (seed + k) % n;  // the graph may have several components
        if (queued[start]) continue;
        queued[start] = true;
        queue.push_back(start);
        for (; head < static_cast<Index>(queue.size()) && 2 * reached < total; ++head) {
            const Index v = queue[head];
            sides[v] = left;
            reached += graph.weights[v];
            for (Weight e = graph.start[v]; e < graph.start[v + 1]; ++e) {
                const Index u = graph.neighbours[e];
                if (!queued[u]) queue.push_back(u);
                queued[u] = true;
            }
        }
    }
    std::vector<Side> result = sides;
    for (Index v = 0; v < n; ++v)
        for (Weight e = graph.start[v]; e < graph.start[v + 1]; ++e)
            if (sides[v] == right && sides[graph.neighbours[e]] == left) result[v] = separator;
    return result;
}

Cut multilevel_cut(const Graph& graph, Random& random) {
    const Index n = graph.size();
    if (n > coarse_enough) {
        std::vector<Index> coarse_of;
        const Graph coarse = coarsened(graph, random, coarse_of);
        if (coarse.size() < n - n / 10) {
            const Cut cut = multilevel_cut(coarse, random);
            std::vector<Side> projected(n);
            for (Index v = 0; v < n; ++v) projected[v] = cut.sides()[coarse_of[v]];
            return refined(graph, std::move(projected));
        }
    }
    Cut best = refined(graph, grown(graph, random.below(n)));
    for (int k = 1; k < seeds; ++k) {
        Cut cut = refined(graph, grown(graph, random.below(n)));
        if (cut.score() < best.score()) best = std::move(cut);
    }
    return best;
}

}  // namespace

std::vector<Side> vertex_separator(const Graph& graph) {
    if (graph.size() == 0) return {};
    Random random;
    return multilevel_cut(graph, random).sides();
}

}  // namespace roundwise::sparse
