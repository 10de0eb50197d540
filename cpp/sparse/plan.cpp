#include "sparse/plan.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace roundwise::sparse {

namespace {

// Subtrees with at most this part of all work, or at most this many operations, are one task: small
// enough to balance the work of some ten threads, large enough that claiming one costs nothing.
constexpr double task_part = 1.0 / 64, task_flops = 1e6;

}  // namespace

Plan::Plan(Kind kind, const Symbolic& symbolic, const std::int64_t* indptr, const std::int32_t* indices,
           const std::int32_t* row_place, const std::int32_t* column_place)
    : kind_(kind), n_(symbolic.n), rows_(symbolic.rows.data()) {
    const std::vector<std::int32_t> panel_parent = cut_into_panels(symbolic);
    const std::vector<std::int32_t> panel_of = panel_of_columns();
    const std::vector<double> work = list_updates(panel_of);
    place_entries(panel_of, indptr, indices, row_place, column_place);
    divide_into_tasks(panel_parent, work, panel_of);
}

PlanView Plan::view() const {
    return {kind_,
            flops_,
            n_,
            panels(),
            tallest_,
            first_.data(),
            height_.data(),
            row_start_.data(),
            rows_,
            place_.data(),
            update_start_.data(),
            updates_.data(),
            entry_start_.data(),
            source_.data(),
            target_.data(),
            tasks_,
            task_start_.data(),
            task_panels_.data(),
            inside_.data(),
            contribution_.data(),
            contributions_};
}

// Returns the parent of each panel; -1 for a root.
std::vector<std::int32_t> Plan::cut_into_panels(const Symbolic& symbolic) {
    const std::vector<std::int32_t>&supernodes = symbolic.first, &parent = symbolic.parent;
    const std::vector<std::int64_t>& starts = symbolic.start;
    const auto count = static_cast<std::int32_t>(parent.size());
    std::vector<std::int32_t> first_panel(static_cast<std::size_t>(count) + 1);
    first_.push_back(0);
    place_.push_back(0);
    for (std::int32_t s = 0; s < count; ++s) {
        first_panel[s] = panels();
        const std::int32_t columns = supernodes[s + 1] - supernodes[s];
        const auto all = static_cast<std::int32_t>(starts[s + 1] - starts[s]);
        const std::int32_t pieces = (columns + widest - 1) / widest;
        // Even pieces, of multiples of eight columns.
        const std::int32_t piece = pieces <= 1 ? columns : ((columns + pieces - 1) / pieces + 7) / 8 * 8;
        for (std::int32_t begin = 0; begin < columns; begin += piece) {
            const std::int64_t w = std::min(piece, columns - begin), h = all - begin;
            first_.push_back(first_.back() + static_cast<std::int32_t>(w));
            height_.push_back(static_cast<std::int32_t>(h));
            row_start_.push_back(starts[s] + begin);
            tallest_ = std::max(tallest_, static_cast<std::int32_t>(h));
            const std::int64_t numbers = kind_ == Kind::lu ? (2 * h - w) * w : h * w;
            if (numbers > INT32_MAX)
                throw std::invalid_argument("a block of columns has more than 2^31 numbers; use another "
                                            "ordering or engine");
            place_.push_back(place_.back() + numbers);
            const double below = static_cast<double>(h - w), wide = static_cast<double>(w);
            const double triangle = wide * (wide + 1) / 2 + below * wide;
            entries_ += kind_ == Kind::lu ? 2 * triangle - wide : triangle;
            for (std::int64_t j = 0; j < w; ++j) {
                const auto length = static_cast<double>(h - j - 1);
                flops_ += kind_ == Kind::lu ? length + 2 * length * length : length * (length + 2) + 1;
            }
        }
    }
    first_panel[static_cast<std::size_t>(count)] = panels();
    std::vector<std::int32_t> result(static_cast<std::size_t>(panels()));
    for (std::int32_t s = 0; s < count; ++s) {
        for (std::int32_t p = first_panel[s]; p < first_panel[s + 1]; ++p) result[p] = p + 1;
        if (first_panel[s + 1] > first_panel[s])
            result[first_panel[s + 1] - 1] = parent[s] < 0 ? -1 : first_panel[parent[s]];
    }
    return result;
}

std::vector<std::int32_t> Plan::panel_of_columns() const {
    std::vector<std::int32_t> panel_of(static_cast<std::size_t>(n_));
    for (std::int32_t p = 0; p < panels(); ++p)
        std::fill(panel_of.begin() + first_[p], panel_of.begin() + first_[p + 1], p);
    return panel_of;
}

// Returns the operations of updating and factorizing each panel.
std::vector<double> Plan::list_updates(const std::vector<std::int32_t>& panel_of) {
    // Calls body(target, begin, end) for the runs of rows of panel p that lie in one other panel.
    const auto for_each_run = [&](std::int32_t p, const auto& body) {
        const std::int32_t* rows = rows_ + row_start_[p];
        for (std::int32_t i = width(p), end = i; i < height_[p]; i = end) {
            const std::int32_t target = panel_of[rows[i]];
            while (end < height_[p] && rows[end] < first_[target + 1]) ++end;
            body(target, i, end);
        }
    };
    const double operations = kind_ == Kind::lu ? 2 : 1;
    std::vector<double> work(static_cast<std::size_t>(panels()));
    update_start_.assign(static_cast<std::size_t>(panels()) + 1, 0);
    for (std::int32_t p = 0; p < panels(); ++p) {
        const double w = width(p), h = height_[p];
        work[p] += operations * h * w * w;
        for_each_run(p, [&](std::int32_t target, std::int32_t begin, std::int32_t end) {
            ++update_start_[target + 1];
            work[target] += 2 * operations * w * (end - begin) * (h - begin);
        });
    }
    std::partial_sum(update_start_.begin(), update_start_.end(), update_start_.begin());
    updates_.resize(static_cast<std::size_t>(update_start_.back()));
    std::vector<std::int64_t> next(update_start_.begin(), update_start_.end() - 1);
    for (std::int32_t p = 0; p < panels(); ++p)
        for_each_run(p, [&](std::int32_t target, std::int32_t begin, std::int32_t end) {
            updates_[static_cast<std::size_t>(next[target]++)] = {p, begin, end};
        });
    return work;
}

void Plan::place_entries(const std::vector<std::int32_t>& panel_of, const std::int64_t* indptr,
                         const std::int32_t* indices, const std::int32_t* row_place,
                         const std::int32_t* column_place) {
    if (indptr[n_] > INT32_MAX)
        throw std::invalid_argument("A has more than 2^31 entries; use another engine");
    given_ = indptr[n_];
    // Calls body(entry, panel, row, column) for the entries of A that are read: those in L, and those
    // of the block on the diagonal, have their column in the panel; others of U their row.
    const auto for_each_entry = [&](const auto& body) {
        for (std::int32_t i = 0; i < n_; ++i)
            for (std::int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
                std::int32_t row = row_place[i], column = column_place[indices[e]];
                if (kind_ != Kind::lu) {
                    if (indices[e] > i) continue;
                    if (row < column) std::swap(row, column);
                }
                const std::int32_t p = std::min(panel_of[row], panel_of[column]);
                body(static_cast<std::int32_t>(e), p, row, column);
            }
    };
    entry_start_.assign(static_cast<std::size_t>(panels()) + 1, 0);
    for_each_entry([&](std::int32_t, std::int32_t p, std::int32_t, std::int32_t) {
        ++entry_start_[p + 1];
    });
    std::partial_sum(entry_start_.begin(), entry_start_.end(), entry_start_.begin());
    source_.resize(static_cast<std::size_t>(entry_start_.back()));
    target_.resize(source_.size());
    std::vector<std::int64_t> next(entry_start_.begin(), entry_start_.end() - 1);
    // First the other index of each entry, with its column in the panel known again from A.
    std::vector<std::int32_t> within(source_.size());
    for_each_entry([&](std::int32_t e, std::int32_t p, std::int32_t row, std::int32_t column) {
        const auto k = static_cast<std::size_t>(next[p]++);
        source_[k] = e;
        if (panel_of[column] == p) {
            target_[k] = row;
            within[k] = column - first_[p];
        } else {  // of U: the bits of -1 - column mark it
            target_[k] = -1 - column;
            within[k] = row - first_[p];
        }
    });
    std::vector<std::int32_t> position(static_cast<std::size_t>(n_), -1);
    for (std::int32_t p = 0; p < panels(); ++p) {
        const std::int32_t* rows = rows_ + row_start_[p];
        const std::int32_t w = width(p), h = height_[p];
        for (std::int32_t i = 0; i < h; ++i) position[rows[i]] = i;
        for (std::int64_t k = entry_start_[p]; k < entry_start_[p + 1]; ++k) {
            const bool upper = target_[k] < 0;
            const std::int32_t i = position[upper ? -1 - target_[k] : target_[k]];
            if (i < 0)
                throw std::invalid_argument("A has an entry that the symbolic factors lack; analyse A");
            target_[k] = upper ? h * w + i - w + within[k] * (h - w) : i + within[k] * h;
        }
        for (std::int32_t i = 0; i < h; ++i) position[rows[i]] = -1;
    }
}

void Plan::divide_into_tasks(const std::vector<std::int32_t>& parent, const std::vector<double>& work,
                             const std::vector<std::int32_t>& panel_of) {
    std::vector<double> subtree = work;
    for (std::int32_t p = 0; p < panels(); ++p)
        if (parent[p] >= 0) subtree[parent[p]] += subtree[p];
    const double total = std::accumulate(work.begin(), work.end(), 0.0);
    const double most = std::max(task_flops, total * task_part);
    // The task of each panel, from the roots down; -1 for those above all tasks.
    std::vector<std::int32_t> task(static_cast<std::size_t>(panels()), -1);
    std::vector<std::int32_t> roots;
    for (std::int32_t p = panels() - 1; p >= 0; --p) {
        if (parent[p] >= 0 && task[parent[p]] >= 0) {
            task[p] = task[parent[p]];
        } else if (subtree[p] <= most) {
            task[p] = static_cast<std::int32_t>(roots.size());
            roots.push_back(p);
        }
    }
    inside_ = height_;
    contribution_.assign(static_cast<std::size_t>(panels()), -1);
    for (std::int32_t p = 0; p < panels(); ++p) {
        if (task[p] < 0) continue;
        const std::int32_t* rows = rows_ + row_start_[p];
        while (inside_[p] > 0 && task[panel_of[rows[inside_[p] - 1]]] < 0) --inside_[p];
    }
    for (const std::int32_t root : roots) {
        contribution_[root] = contributions_;
        contributions_ += height_[root] - inside_[root];
    }
    // Roots of tiny trees (a diagonal matrix has n of them) share tasks.
    std::vector<std::int32_t> merged(roots.size());
    std::vector<double> size;
    for (std::size_t t = 0; t < roots.size(); ++t) {
        if (size.empty() || size.back() + subtree[roots[t]] > most) size.push_back(0);
        size.back() += subtree[roots[t]];
        merged[t] = static_cast<std::int32_t>(size.size()) - 1;
    }
    tasks_ = static_cast<std::int32_t>(size.size());
    // The largest tasks come first, so that no thread starts one when the others are done.
    std::vector<std::int32_t> by_size(size.size()), rank(size.size());
    std::iota(by_size.begin(), by_size.end(), 0);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](std::int32_t a, std::int32_t b) { return size[a] > size[b]; });
    for (std::size_t t = 0; t < by_size.size(); ++t) rank[by_size[t]] = static_cast<std::int32_t>(t);
    task_start_.assign(static_cast<std::size_t>(tasks_) + 2, 0);
    const auto place_of = [&](std::int32_t p) { return task[p] < 0 ? tasks_ : rank[merged[task[p]]]; };
    for (std::int32_t p = 0; p < panels(); ++p) ++task_start_[place_of(p) + 1];
    std::partial_sum(task_start_.begin(), task_start_.end(), task_start_.begin());
    std::vector<std::int32_t> next(task_start_.begin(), task_start_.end() - 1);
    task_panels_.resize(static_cast<std::size_t>(panels()));
    for (std::int32_t p = 0; p < panels(); ++p) task_panels_[next[place_of(p)]++] = p;
}

}  // namespace roundwise::sparse
