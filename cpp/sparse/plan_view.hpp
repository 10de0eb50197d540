// What a supernodal factorization can decide from the pattern of A alone, as kernels see it.
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
//
// No header of the standard library with code in it here: the kernels of all instruction sets include
// this file (see CONTRIBUTING.md).
#pragma once

#include <cstdint>

namespace roundwise::sparse {

enum class Kind { cholesky, ldl, lu };

// Rows begin..end of the panel `source` lie among the columns of the panel that is updated.
struct Update {
    std::int32_t source, begin, end;
};

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

    [[gnu::always_inline]] std::int32_t width(std::int32_t p) const { return first[p + 1] - first[p]; }
    [[gnu::always_inline]] const std::int32_t* rows_of(std::int32_t p) const { return rows + row_start[p]; }
};

constexpr std::int32_t widest = 192;  // columns of a panel

}  // namespace roundwise::sparse
