// What a supernodal factorization can decide from the pattern of A alone.
//
// The symbolic analysis (symbolic.hpp) gives supernodes: runs of columns with the same rows below
// them. Wide ones are cut into panels of at most `widest` columns. A panel is a dense column-major
// block; the numbers of all panels lie one after the other in one array, the storage:
//
//   cholesky, ldl   height x width: L, whose first `width` rows are the block on the diagonal
//   lu              the same for L, with U's part of the block on the diagonal above its own; then
//                   (height - width) x width: the rows of U right of this block, transposed
//
// The factorization is left-looking: a panel is updated by all panels that have rows among its
// columns, in ascending order, and then factorized. So nothing is stored besides the factors, and
// sums do not depend on which thread computes them.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/symbolic.hpp"

namespace roundwise::sparse {

enum class Kind { cholesky, ldl, lu };

// Rows begin..end of the panel `source` lie among the columns of the panel that is updated.
struct Update {
    std::int32_t source, begin, end;
};

// The plan as kernels see it.
struct PlanView {
    Kind kind;
    double flops;                         // of the factorization
    std::int32_t n, panels, tallest;      // tallest: the largest height of a panel
    const std::int32_t* first;            // panel p holds the columns first[p] .. first[p + 1] - 1
    const std::int32_t* height;           // and this many rows,
    const std::int64_t* row_start;        // rows[row_start[p]] and on: its own columns, then others
    const std::int32_t* rows;
    const std::int64_t* place;            // its numbers are storage[place[p]] .. storage[place[p + 1] - 1]
    const std::int64_t* update_start;     // updates[update_start[p]] .. are those of panel p
    const Update* updates;
    const std::int64_t* entry_start;      // entries entry_start[p] .. of A lie in panel p:
    const std::int32_t *source, *target;  //   storage[place[p] + target[e]] is values[source[e]]
    // Each task is a subtree; its panels are task_panels[task_start[t]] and on, ascending. Tasks need
    // nothing from each other. The panels from task_panels[task_start[tasks]] on need all of them.
    std::int32_t tasks;
    const std::int32_t *task_start, *task_panels;
    // The first inside[p] rows of panel p are columns of panels of its task (all, if it has no task).
    // What a whole subtree adds to the other rows is kept apart until all tasks are done, one number for
    // each such row of its root p, from contribution[p] on; -1 if p is no root.
    const std::int32_t* inside;
    const std::int64_t* contribution;
    std::int64_t contributions;

    std::int32_t width(std::int32_t p) const { return first[p + 1] - first[p]; }
    const std::int32_t* rows_of(std::int32_t p) const { return rows + row_start[p]; }
};

constexpr std::int32_t widest = 192;  // columns of a panel

class Plan {
  public:
    // `row_place` and `column_place` say which row and column of the factors a row and column of A
    // becomes. A is in compressed rows. For cholesky and ldl both places are the same, and only the
    // lower triangle of A is read. Throws std::invalid_argument if an entry of A lies outside of the
    // symbolic factors.
    Plan(Kind kind, const Symbolic& symbolic, const std::int64_t* indptr, const std::int32_t* indices,
         const std::int32_t* row_place, const std::int32_t* column_place);

    PlanView view() const;
    std::int64_t stored() const { return place_.back(); }  // numbers in the storage
    double entries() const { return entries_; }            // of the factors, zeros included
    double flops() const { return flops_; }

  private:
    Kind kind_;
    std::int32_t n_, tallest_ = 0, tasks_ = 0;
    std::int64_t contributions_ = 0;
    double entries_ = 0, flops_ = 0;
    std::vector<std::int32_t> first_, height_, rows_, source_, target_, task_start_, task_panels_, inside_;
    std::vector<std::int64_t> row_start_, place_, update_start_, entry_start_, contribution_;
    std::vector<Update> updates_;

    std::vector<std::int32_t> panel_of_columns() const;
    std::int32_t panels() const { return static_cast<std::int32_t>(height_.size()); }
    std::int32_t width(std::int32_t p) const { return first_[p + 1] - first_[p]; }
    std::vector<std::int32_t> cut_into_panels(const Symbolic& symbolic);
    std::vector<double> list_updates(const std::vector<std::int32_t>& panel_of);
    void place_entries(const std::vector<std::int32_t>& panel_of, const std::int64_t* indptr,
                       const std::int32_t* indices, const std::int32_t* row_place,
                       const std::int32_t* column_place);
    void divide_into_tasks(const std::vector<std::int32_t>& parent, const std::vector<double>& work,
                           const std::vector<std::int32_t>& panel_of);
};

}  // namespace roundwise::sparse
