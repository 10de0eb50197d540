// Blocked LU with partial pivoting (LuKernels::lu in kernels.hpp): the tasks of pipeline.hpp. A Tile
// computes the products.
#pragma once

#include "native/kernels.hpp"
#include "native/panel.hpp"
#include "native/pipeline.hpp"
#include "native/tile.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

static_assert(widest_panel % block_order == 0, "no block may lie in two panels");

// A factorized panel, columns begin..begin + width of the matrix. `packed` holds its part of L, with
// row `begin` of the matrix as row 0; `triangles` holds copies of the diagonal blocks of L; `columns`
// holds packed rows of U.
template <class Tile> struct Panel {
    std::int64_t begin, width;
    typename Tile::Unit *packed, *columns;
    typename Tile::Number* triangles;
    std::int64_t strip() const { return width / Tile::depth * Tile::rows; }  // units
    std::int64_t strip_of_columns() const { return width / Tile::depth * Tile::columns; }
    typename Tile::Unit* rows_from(std::int64_t row) const {
        return packed + (row - begin) / Tile::rows * strip();
    }
};

template <class Tile> Panel<Tile> take_panel(std::int64_t n, Arena& arena) {
    using Unit = typename Tile::Unit;
    const std::int64_t strips = ceil_div(n, Tile::columns) + 2;
    Panel<Tile> panel{};
    panel.packed = arena.take<Unit>(ceil_div(n, Tile::rows) * Tile::rows * widest_panel / Tile::depth);
    panel.columns = arena.take<Unit>(strips * Tile::columns * widest_panel / Tile::depth);
    panel.triangles = arena.take<typename Tile::Number>(widest_panel * block_order);
    return panel;
}

// Memory for the rows of U in the columns of one block within a panel.
template <class Tile> typename Tile::Unit* take_block(Arena& arena) {
    return arena.take<typename Tile::Unit>(ceil_div(block_order, Tile::columns) * Tile::columns *
                                           widest_panel / Tile::depth);
}

template <class Tile> struct Factorization {
    using T = typename Tile::Number;
    using Numbers = typename Tile::Numbers;
    using Unit = typename Tile::Unit;
    using Entry = typename Tile::Entry;
    static_assert(block_order % Tile::rows == 0 && block_order % 32 == 0,
                  "no strip may lie in two blocks");
    static_assert(owned_rows % Tile::rows == 0, "no strip may belong to two members of a team");

    static constexpr bool packs = true, solves = true;
    static constexpr int columns = Tile::columns, team_weight = Tile::team_weight;

    std::int64_t n, step;  // numbers from column to column
    Numbers a;
    std::int32_t* pivots;
    Panel<Tile> panels[2];  // the current one and the next
    Unit* packed_block;     // rows of U for the columns of one block within a panel
    Phase* left;

    Factorization(std::int64_t order, Numbers matrix, std::int64_t column_step,
                  std::int32_t* interchanges, Arena& arena)
        : n(order), step(column_step), a(matrix), pivots(interchanges) {
        for (Panel<Tile>& panel : panels) panel = take_panel<Tile>(n, arena);
        packed_block = take_block<Tile>(arena);
    }

    Numbers at(std::int64_t i, std::int64_t j) const { return a + (i + j * step); }

    // Rows of U in columns j..j + count, from the first k columns of a panel, and packs them. Their
    // rows are interchanged already.
    void solve_rows(const Panel<Tile>& panel, std::int64_t k, std::int64_t j, std::int64_t count,
                    Unit* packed, std::int64_t b_step) const {
        for (std::int64_t row = 0; row < k; row += block_order) {
            const Numbers u = at(panel.begin + row, j);
            subtract_product<Tile>(block_order, count, row, panel.rows_from(panel.begin + row),
                                   panel.strip(), packed, b_step, u, step);
            solve_triangle(count, panel.triangles + row * block_order, u, step);
            for (std::int64_t c = 0; c < count; c += Tile::columns)
                Tile::pack_columns(count - c, block_order, u + c * step, step,
                                   packed + c / Tile::columns * b_step +
                                       row / Tile::depth * Tile::columns);
        }
    }

    void solve(std::int64_t which, std::int64_t j, std::int64_t count, std::int64_t strip) const {
        const Panel<Tile>& panel = panels[which];
        interchange(panel.begin, panel.width, pivots + panel.begin, count, at(0, j), step);
        solve_rows(panel, panel.width, j, count, panel.columns + strip * panel.strip_of_columns(),
                   panel.strip_of_columns());
    }

    void update(std::int64_t which, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t count,
                std::int64_t strip) const {
        const Panel<Tile>& panel = panels[which];
        const std::int64_t b_step = panel.strip_of_columns();
        subtract_product<Tile>(rows, count, panel.width, panel.rows_from(i), panel.strip(),
                               panel.columns + strip * b_step, b_step, at(i, j), step);
    }

    // Interchanges rows i and pivots[i], i = begin, ..., end - 1, in groups of packed columns of L.
    void interchange_packed(const Panel<Tile>& panel, std::int64_t begin, std::int64_t end,
                            Rows groups) const {
        constexpr std::int64_t group = sizeof(Unit) / sizeof(Entry) * Tile::rows;
        const auto entry = [&](std::int64_t row) {
            return reinterpret_cast<Entry*>(panel.rows_from(row)) + (row - panel.begin) % Tile::rows;
        };
        for (std::int64_t i = begin; i < end; ++i) {
            if (pivots[i] == i) continue;
            Entry *x = entry(i), *y = entry(pivots[i]);
            for (std::int64_t l = groups.begin * group; l < groups.end * group; l += Tile::rows) {
                const Entry kept = x[l];
                x[l] = y[l];
                y[l] = kept;
            }
        }
    }

    // Applies the first k columns of a panel to the next ones, j..j + count, at most a block. Each
    // member leaves its own rows up to date.
    void update_block(const Panel<Tile>& panel, std::int64_t k, std::int64_t j, std::int64_t count,
                      Member<T>& member) const {
        const std::int64_t top = panel.begin, b_step = k / Tile::depth * Tile::columns;
        const Rows swapped = member.share_of(count);
        interchange(top, k, pivots + top, swapped.end - swapped.begin, at(0, j + swapped.begin), step);
        member.meet();
        for (std::int64_t strip = member.index; strip * Tile::columns < count; strip += member.size) {
            const std::int64_t c = strip * Tile::columns;
            solve_rows(panel, k, j + c, count - c < Tile::columns ? count - c : Tile::columns,
                       packed_block + strip * b_step, b_step);
        }
        member.meet();
        const Rows own = member.rows(j, n);
        subtract_product<Tile>(own.end - own.begin, count, k, panel.rows_from(own.begin), panel.strip(),
                               packed_block, b_step, at(own.begin, j), step);
    }

    void begin(std::int64_t which, std::int64_t first, std::int64_t width) {
        panels[which].begin = first;
        panels[which].width = width;
    }

    // Factorizes a panel that all earlier panels have updated, with its team. Returns what
    // LuKernels::lu returns.
    int factorize(std::int64_t which, Member<T>& member) const {
        const Panel<Tile>& panel = panels[which];
        for (std::int64_t k = 0; k < panel.width; k += block_order) {
            const std::int64_t j = panel.begin + k;
            const std::int64_t width = panel.width - k < block_order ? panel.width - k : block_order;
            if (k > 0) update_block(panel, k, j, width, member);
            const int code = factorize_block(n, j, width, a, step, pivots, member);
            if (code != 0) return code;
            const Rows swapped = member.share_of(k), groups = member.share_of(k / Tile::depth);
            interchange(j, width, pivots + j, swapped.end - swapped.begin,
                        at(0, panel.begin + swapped.begin), step);
            if (j + width == n) return 0;  // the last block has nothing below or right of it
            interchange_packed(panel, j, j + width, groups);
            if (member.index == 0) copy_triangle(at(j, j), step, panel.triangles + k * block_order);
            if (k + block_order < panel.width) pack_block(panel, k, member.rows(j + block_order, n));
        }
        return 0;
    }

    // Packs some rows of the block of L that begins with column k of a panel.
    void pack_block(const Panel<Tile>& panel, std::int64_t k, Rows rows) const {
        for (std::int64_t row = rows.begin; row < rows.end; row += Tile::rows)
            Tile::pack_rows(rows.end - row, block_order, at(row, panel.begin + k), step,
                            panel.rows_from(row) + k / Tile::depth * Tile::rows);
    }

    // Packs some rows of the last block of a panel, which its team did not need.
    void pack(std::int64_t which, std::int64_t i, std::int64_t rows) const {
        pack_block(panels[which], panels[which].width - block_order, {i, i + rows});
    }

    // Applies the interchanges of all later panels to the columns of L, in one pass over each column.
    void interchange_left() const {
        constexpr std::int64_t part = block_order;  // divides the width of a panel
        share(*left, ceil_div(n, part), [&](std::int64_t task) {
            const std::int64_t j = task * part;
            std::int64_t end = 0;  // where the panel that contains column j ends
            while (end <= j) end += panel_width(n - end);
            interchange(end, n - end, pivots + end, end - j < part ? end - j : part, at(0, j), step);
        });
    }
};

template <class Tile> std::int64_t lu_workspace(std::int64_t n, int threads) {
    Arena arena{nullptr};
    Factorization<Tile> factorization(n, {}, n, nullptr, arena);
    Pipeline<Factorization<Tile>>(factorization, n, threads, arena);
    return arena.used;
}

template <class Tile>
int lu(std::int64_t n, typename Tile::Number* a, std::int32_t* pivots, int threads, void* workspace) {
    if (n == 0) return 0;
    Arena arena{static_cast<char*>(workspace)};
    using Work = Factorization<Tile>;
    Phase left = {};
    Work work(n, a, n, pivots, arena);
    work.left = &left;
    Pipeline<Work> pipeline(work, n, threads, arena);
    int code = 0;
    auto body = [&](int member) {
        Tile::enter();
        const int found = pipeline.run(member);
        if (found == 0) work.interchange_left();
        Tile::leave();
        if (member == 0) code = found;
    };
    run_together(threads, body);
    return code;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
