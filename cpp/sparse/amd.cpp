#include "sparse/amd.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace roundwise::sparse {

namespace {

using Index = std::int32_t;
constexpr Index none = -1;

// The quotient graph. A node is a variable until it is eliminated, and an element afterwards: the
// clique of the variables that its elimination has connected. A variable's list holds its elements
// first, then the variables next to it in A that share no element with it; an element's list holds
// its variables. A principal variable stands for all variables that are indistinguishable from it
// (that have the same neighbours); those have weight 0, and lists that hold them skip them.
class QuotientGraph {
    const Index n_;
    Index left_;                      // variables to be eliminated, those put last not counted
    std::vector<Index> lists_;        // the lists of all nodes, with gaps
    std::int64_t free_ = 0;           // where the unused end of lists_ begins
    std::vector<std::int64_t> begin_; // of a node's list; none for a node that has gone
    std::vector<Index> length_;       // of a node's list
    std::vector<Index> elements_;     // how many elements a variable's list has
    std::vector<Index> weight_;       // variables that a principal one stands for; negative while it
                                      //   belongs to the element that is being made; 0 otherwise
    std::vector<Index> degree_;       // of a variable: bound on its external degree; of an element: its
                                      //   weight
    // seen_[e] - stamp_ is the weight of e outside the new element, if seen_[e] >= stamp_. 0: gone.
    std::vector<Index> seen_;
    Index stamp_ = 1;

    std::vector<Index> head_, tail_, next_, previous_;  // variables by degree
    std::vector<Index> hash_head_, hash_next_, hash_;   // variables of the new element by hash
    std::vector<Index> next_member_, last_member_;      // the variables that one stands for
    std::vector<Index> pivots_, last_;                  // eliminated, put last
    Index least_ = 0;                                   // no variable has a lower degree
    Index largest_ = 0;                                 // weight of an element so far
    Counts counts_{0, 0};                               // of the columns eliminated so far
    std::vector<Index> heights_;                        // the entries of each of them

  public:
    explicit QuotientGraph(const Pattern& pattern)
        : n_(pattern.n), left_(n_), begin_(n_, none), length_(n_, 0), elements_(n_, 0), weight_(n_, 1),
          degree_(n_, 0), seen_(n_, 1), head_(n_ + 1, none), tail_(n_ + 1, none), next_(n_, none),
          previous_(n_, none), hash_head_(n_, none), hash_next_(n_), hash_(n_), next_member_(n_, none),
          last_member_(n_) {
        for (Index i = 0; i < n_; ++i) last_member_[i] = i;
        put_dense_rows_last(pattern);
        copy(pattern);
    }

    const Counts& counts() const { return counts_; }
    std::vector<Index>& heights() { return heights_; }

    // Empty if that takes more flops.
    std::vector<Index> order(double most_flops) {
        while (left_ > 0) {
            eliminate(take_variable_of_least_degree());
            if (counts_.flops > most_flops) return {};
        }
        count_columns(0, static_cast<Index>(last_.size()));
        std::vector<Index> result;
        result.reserve(static_cast<std::size_t>(n_));
        for (const Index pivot : pivots_)
            for (Index i = pivot; i != none; i = next_member_[i]) result.push_back(i);
        result.insert(result.end(), last_.begin(), last_.end());
        return result;
    }

  private:
    void put_dense_rows_last(const Pattern& pattern) {
        for (Index i = 0; i < n_; ++i)
            if (is_dense(pattern, i)) {
                weight_[i] = 0;
                last_.push_back(i);
            }
        left_ -= static_cast<Index>(last_.size());
    }

    void copy(const Pattern& pattern) {
        const std::size_t entries = pattern.indices.size();
        lists_.resize(entries + entries / 5 + static_cast<std::size_t>(n_));
        for (Index i = n_; i-- > 0;) {
            if (weight_[i] == 0) continue;
            begin_[i] = free_;
            for (std::int64_t e = pattern.indptr[i]; e < pattern.indptr[i + 1]; ++e) {
                const Index j = pattern.indices[e];
                if (weight_[j] != 0) lists_[free_++] = j;
            }
            degree_[i] = length_[i] = static_cast<Index>(free_ - begin_[i]);
            enlist(i);
        }
    }

    // Variables of equal degree wait in a queue: one whose neighbourhood has just changed comes last,
    // so that eliminations spread over the whole graph. On grids that saves a third of the flops
    // against a stack.
    void enlist(Index i) {
        Index& tail = tail_[degree_[i]];
        next_[i] = none;
        previous_[i] = tail;
        (tail == none ? head_[degree_[i]] : next_[tail]) = i;
        tail = i;
        least_ = std::min(least_, degree_[i]);
    }

    void delist(Index i) {
        (next_[i] == none ? tail_[degree_[i]] : previous_[next_[i]]) = previous_[i];
        (previous_[i] == none ? head_[degree_[i]] : next_[previous_[i]]) = next_[i];
    }

    Index take_variable_of_least_degree() {
        while (head_[least_] == none) ++least_;
        const Index pivot = head_[least_];
        delist(pivot);
        return pivot;
    }

    // Variable `member` is indistinguishable from `principal`, or eliminated together with it.
    void join(Index member, Index principal) {
        next_member_[last_member_[principal]] = member;
        last_member_[principal] = last_member_[member];
        weight_[member] = 0;
        begin_[member] = none;
    }

    void absorb(Index element) {
        begin_[element] = none;
        seen_[element] = 0;
    }

    void eliminate(Index pivot) {
        pivots_.push_back(pivot);
        left_ -= weight_[pivot];
        const bool appended = elements_[pivot] > 0;
        make_element(pivot);
        const Index height = degree_[pivot] - weight_[pivot];  // the weight is negative now
        weigh_elements_outside(pivot);
        update_variables(pivot);
        count_columns(degree_[pivot], height);
        join_indistinguishable(pivot);
        enlist_variables(pivot);
        if (appended) free_ = begin_[pivot] + length_[pivot];
        if (length_[pivot] == 0) absorb(pivot);
        weight_[pivot] = 0;
    }

    // Columns of L with below + 1 to `height` entries.
    void count_columns(Index below, Index height) {
        for (Index h = height; h > below; --h) {
            const double entries = h;
            counts_.entries += entries;
            counts_.flops += entries * entries;
            heights_.push_back(h);
        }
    }

    // The list of the new element: all variables next to the pivot. They are marked by a negative
    // weight and taken out of the lists by degree. The pivot's elements are absorbed.
    void make_element(Index pivot) {
        std::int64_t bound = length_[pivot];
        for (Index k = 0; k < elements_[pivot]; ++k) bound += length_[lists_[begin_[pivot] + k]];
        const bool append = elements_[pivot] > 0;
        if (append) require_room(bound);
        const std::int64_t from = begin_[pivot], to = append ? free_ : from;
        std::int64_t end = to;
        Index total = 0;
        weight_[pivot] = -weight_[pivot];
        const auto gather = [&](std::int64_t first, Index count) {
            for (std::int64_t p = first; p < first + count; ++p) {
                const Index i = lists_[p];
                if (weight_[i] <= 0) continue;
                total += weight_[i];
                weight_[i] = -weight_[i];
                lists_[end++] = i;
                delist(i);
            }
        };
        for (Index k = 0; k < elements_[pivot]; ++k) {
            const Index element = lists_[from + k];
            gather(begin_[element], length_[element]);
            absorb(element);
        }
        gather(from + elements_[pivot], length_[pivot] - elements_[pivot]);
        begin_[pivot] = to;
        length_[pivot] = static_cast<Index>(end - to);
        degree_[pivot] = total;
        if (append) free_ = end;
    }

    // Makes room for a list of this length, by closing the gaps between lists if need be.
    void require_room(std::int64_t length) {
        if (free_ + length <= static_cast<std::int64_t>(lists_.size())) return;
        std::int64_t used = 0;
        for (Index i = 0; i < n_; ++i)
            if (begin_[i] != none) used += length_[i];
        std::vector<Index> lists(std::max(lists_.size(), static_cast<std::size_t>(used + length)));
        free_ = 0;
        for (Index i = 0; i < n_; ++i) {
            if (begin_[i] == none) continue;
            std::copy_n(lists_.begin() + begin_[i], length_[i], lists.begin() + free_);
            begin_[i] = free_;
            free_ += length_[i];
        }
        lists_.swap(lists);
    }

    void new_stamp(Index step) {
        if (stamp_ > std::numeric_limits<Index>::max() - n_ - step) {
            for (Index& seen : seen_) seen = seen != 0;
            stamp_ = 1;
        }
        stamp_ += step;
    }

    // For each element with variables in the new one: the weight of its variables that are not.
    void weigh_elements_outside(Index pivot) {
        new_stamp(1);
        for (const Index *i = list(pivot), *last = list_end(pivot); i != last; ++i) {
            const Index weight = -weight_[*i];
            const Index* element = list(*i);
            for (const Index* const end = element + elements_[*i]; element != end; ++element) {
                Index& seen = seen_[*element];
                if (seen == 0) continue;
                if (seen < stamp_) {
                    seen = stamp_ + degree_[*element];
                    largest_ = std::max(largest_, degree_[*element]);
                }
                seen -= weight;
            }
        }
    }

    // In the lists of the new element's variables: replaces elements that it contains by the new one,
    // and drops variables that it connects. Bounds the degrees, and computes the hashes.
    void update_variables(Index pivot) {
        for (const Index *v = list(pivot), *last = list_end(pivot); v != last; ++v) {
            const Index i = *v;
            Index* const first = lists_.data() + begin_[i];
            Index *to = first, degree = 0;
            std::uint32_t hash = static_cast<std::uint32_t>(pivot);
            for (const Index *e = first, *end = first + elements_[i]; e != end; ++e) {
                if (seen_[*e] == 0) continue;
                const Index outside = seen_[*e] - stamp_;
                if (outside == 0) {
                    absorb(*e);
                    continue;
                }
                degree += outside;
                hash += static_cast<std::uint32_t>(*e);
                *to++ = *e;
            }
            // The new element comes first; one of the others moves to where the variables begin, and
            // one of these to the end. There is room: i has lost the pivot or one of its elements.
            const Index *from = first + elements_[i], *const end = first + length_[i];
            Index* const variables = to;
            for (; from != end; ++from) {
                const Index weight = weight_[*from];
                if (weight <= 0) continue;
                degree += weight;
                hash += static_cast<std::uint32_t>(*from);
                *to++ = *from;
            }
            if (degree == 0) {  // next to nothing but the new element: eliminated with the pivot
                degree_[pivot] += weight_[i];
                left_ += weight_[i];
                join(i, pivot);
                continue;
            }
            *to = *variables;
            *variables = *first;
            *first = pivot;
            elements_[i] = static_cast<Index>(variables - first) + 1;
            length_[i] = static_cast<Index>(to - first) + 1;
            degree_[i] = std::min(degree_[i], degree);
            const auto bucket = static_cast<Index>(hash % static_cast<std::uint32_t>(n_));
            hash_[i] = bucket;
            hash_next_[i] = hash_head_[bucket];
            hash_head_[bucket] = i;
        }
        new_stamp(largest_ + 1);
    }

    void join_indistinguishable(Index pivot) {
        for (const Index *v = list(pivot), *last = list_end(pivot); v != last; ++v) {
            if (weight_[*v] == 0) continue;
            Index i = hash_head_[hash_[*v]];
            hash_head_[hash_[*v]] = none;
            for (; i != none && hash_next_[i] != none; i = hash_next_[i]) {
                // The first of both lists is the new element.
                for (const Index* k = list(i) + 1; k != list_end(i); ++k) seen_[*k] = stamp_;
                for (Index before = i, j = hash_next_[i]; j != none; j = hash_next_[j]) {
                    if (same_list(i, j)) {
                        weight_[i] += weight_[j];
                        join(j, i);
                        hash_next_[before] = hash_next_[j];
                    } else {
                        before = j;
                    }
                }
                new_stamp(1);
            }
        }
    }

    bool same_list(Index i, Index j) const {
        if (length_[i] != length_[j] || elements_[i] != elements_[j]) return false;
        return std::all_of(list(j) + 1, list_end(j), [&](Index k) { return seen_[k] == stamp_; });
    }

    // Drops from the new element what is no longer principal, and files the rest by degree.
    void enlist_variables(Index pivot) {
        const Index total = degree_[pivot];
        Index* to = lists_.data() + begin_[pivot];
        for (const Index *v = list(pivot), *last = list_end(pivot); v != last; ++v) {
            const Index i = *v, weight = -weight_[i];
            if (weight == 0) continue;
            weight_[i] = weight;
            degree_[i] = std::min(degree_[i] + total - weight, left_ - weight);
            enlist(i);
            *to++ = i;
        }
        length_[pivot] = static_cast<Index>(to - list(pivot));
    }

    const Index* list(Index i) const { return lists_.data() + begin_[i]; }
    const Index* list_end(Index i) const { return list(i) + length_[i]; }
};

}  // namespace

bool is_dense(const Pattern& pattern, std::int32_t row) {
    const auto entries = static_cast<double>(pattern.indptr[row + 1] - pattern.indptr[row]);
    return entries > std::max(16.0, 10.0 * std::sqrt(static_cast<double>(pattern.n)));
}

std::vector<std::int32_t> approximate_minimum_degree(const Pattern& pattern) {
    return QuotientGraph(pattern).order(std::numeric_limits<double>::infinity());
}

std::vector<std::int32_t> approximate_minimum_degree_within(const Pattern& pattern, double most_flops,
                                                            Counts& counts,
                                                            std::vector<std::int32_t>& heights) {
    QuotientGraph graph(pattern);
    std::vector<std::int32_t> order = graph.order(most_flops);
    counts = graph.counts();
    heights.swap(graph.heights());
    return order;
}

}  // namespace roundwise::sparse
