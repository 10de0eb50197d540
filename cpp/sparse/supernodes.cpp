#include "sparse/supernodes.hpp"

#include <algorithm>
#include <numeric>

#include "sparse/tree.hpp"

namespace roundwise::sparse {

using Index = std::int32_t;

namespace {

// A merged supernode of up to `width` columns may have this share of zeros in its lower trapezoid.
struct Tolerance {
    double width, zeros;
};
constexpr Tolerance tolerances[] = {{4, 1.0}, {16, 0.8}, {48, 0.1}};
constexpr double tolerated_in_wide_ones = 0.05;

bool worth_merging(double width, double below, double entries) {
    const double zeros = 1 - entries / (width * (width + 1) / 2 + width * below);
    for (const Tolerance& tolerance : tolerances)
        if (width <= tolerance.width) return zeros <= tolerance.zeros;
    return zeros <= tolerated_in_wide_ones;
}

// The children of each node: children.of(s) .. children.of(s + 1).
class Children {
    std::vector<Index> start_, nodes_;

  public:
    explicit Children(const std::vector<Index>& parent)
        : start_(parent.size() + 2, 0), nodes_(parent.size()) {
        const auto n = static_cast<Index>(parent.size());
        for (const Index p : parent)
            if (p != -1) ++start_[p + 2];
        for (Index s = 0; s < n; ++s) start_[s + 2] += start_[s + 1];
        for (Index s = 0; s < n; ++s)
            if (parent[s] != -1) nodes_[start_[parent[s] + 1]++] = s;
    }
    Index* begin(Index s) { return nodes_.data() + start_[s]; }
    Index* end(Index s) { return nodes_.data() + start_[s + 1]; }
};

}  // namespace

Supernodes fundamental(const std::vector<Index>& parent, const std::vector<Index>& counts) {
    const auto n = static_cast<Index>(parent.size());
    std::vector<Index> children(n, 0);
    for (const Index p : parent)
        if (p != -1) ++children[p];
    Supernodes result;
    result.of.resize(n);
    for (Index j = 0; j < n; ++j) {
        const bool joins = j > 0 && parent[j - 1] == j && children[j] == 1 && counts[j - 1] == counts[j] + 1;
        if (joins) {
            ++result.width.back();
            --result.below.back();
        } else {
            result.width.push_back(1);
            result.below.push_back(counts[j] - 1);
        }
        result.of[j] = static_cast<Index>(result.width.size()) - 1;
    }
    result.parent.assign(result.width.size(), -1);
    for (Index j = 0; j < n; ++j)  // the last column of a supernode decides
        result.parent[result.of[j]] = parent[j] == -1 ? -1 : result.of[parent[j]];
    return result;
}

Supernodes amalgamated(const Supernodes& given, const std::vector<Index>& counts) {
    const auto count = static_cast<Index>(given.width.size());
    std::vector<Index> into(count);  // the supernode that each was merged with: its parent, or itself
    std::iota(into.begin(), into.end(), 0);
    std::vector<Index> width = given.width;
    std::vector<double> entries(count, 0.0);
    for (std::size_t j = 0; j < counts.size(); ++j) entries[given.of[j]] += counts[j];
    Children children(given.parent);
    for (Index s = 0; s < count; ++s) {
        // The rows of a child are among those of s; it adds fewest zeros if it has nearly all of them.
        std::sort(children.begin(s), children.end(s), [&](Index a, Index b) {
            return given.below[a] != given.below[b] ? given.below[a] > given.below[b] : a > b;
        });
        for (const Index* child = children.begin(s); child != children.end(s); ++child)
            if (worth_merging(static_cast<double>(width[s]) + width[*child], given.below[s],
                              entries[s] + entries[*child])) {
                into[*child] = s;
                width[s] += width[*child];
                entries[s] += entries[*child];
            }
    }
    std::vector<Index> number(count, -1);
    Supernodes result;
    for (Index s = 0; s < count; ++s)
        if (into[s] == s) {
            number[s] = static_cast<Index>(result.width.size());
            result.width.push_back(width[s]);
            result.below.push_back(given.below[s]);
        }
    for (Index s = count; s-- > 0;)
        if (into[s] != s) number[s] = number[into[s]];
    result.parent.assign(result.width.size(), -1);
    for (Index s = 0; s < count; ++s)
        if (into[s] == s && given.parent[s] != -1) result.parent[number[s]] = number[given.parent[s]];
    result.of.resize(given.of.size());
    for (std::size_t j = 0; j < given.of.size(); ++j) result.of[j] = number[given.of[j]];
    return result;
}

std::vector<Index> arrange(Supernodes& supernodes) {
    const auto count = static_cast<Index>(supernodes.width.size());
    Children children(supernodes.parent);
    // Peak of the stack while the subtree is factorized, and what stays on it: the update matrix.
    std::vector<double> peak(count), left(count);
    const auto saves_more = [&](Index a, Index b) {
        const double gain_a = peak[a] - left[a], gain_b = peak[b] - left[b];
        return gain_a != gain_b ? gain_a > gain_b : a < b;
    };
    for (Index s = 0; s < count; ++s) {
        std::sort(children.begin(s), children.end(s), saves_more);
        double stack = 0, most = 0;
        for (const Index* child = children.begin(s); child != children.end(s); ++child) {
            most = std::max(most, stack + peak[*child]);
            stack += left[*child];
        }
        const double below = supernodes.below[s], front = below + supernodes.width[s];
        peak[s] = std::max(most, stack + front * front);
        left[s] = below * below;
    }
    // Postorder, last root first, each node's children pushed so that the last comes off first: that
    // is the order backwards.
    std::vector<Index> backwards, stack;
    for (Index s = 0; s < count; ++s)
        if (supernodes.parent[s] == -1) stack.push_back(s);
    while (!stack.empty()) {
        const Index s = stack.back();
        stack.pop_back();
        backwards.push_back(s);
        stack.insert(stack.end(), children.begin(s), children.end(s));
    }
    std::vector<Index> number(count), next(count + 1, 0);
    Supernodes result;
    result.parent.resize(count);
    for (Index k = 0; k < count; ++k) {
        const Index s = backwards[count - 1 - k];
        number[s] = k;
        next[k + 1] = next[k] + supernodes.width[s];
        result.width.push_back(supernodes.width[s]);
        result.below.push_back(supernodes.below[s]);
    }
    for (Index s = 0; s < count; ++s)
        result.parent[number[s]] = supernodes.parent[s] == -1 ? -1 : number[supernodes.parent[s]];
    const auto n = static_cast<Index>(supernodes.of.size());
    std::vector<Index> columns(n);
    result.of.resize(n);
    for (Index j = 0; j < n; ++j) {  // ascending, so that a column stays before its ancestors
        const Index place = next[number[supernodes.of[j]]]++;
        columns[place] = j;
        result.of[place] = number[supernodes.of[j]];
    }
    supernodes = std::move(result);
    return columns;
}

}  // namespace roundwise::sparse
