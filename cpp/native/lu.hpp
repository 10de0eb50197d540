// Blocked LU with partial pivoting (LuKernels::lu in kernels.hpp); a Tile computes the products.
//
// The matrix is cut into panels of columns. Once a panel is factorized, the columns to its right are
// updated in chunks: interchanges, rows of U, and the product for the rows below. Each chunk is a
// task that needs no other chunk. The chunks of the next panel come first. The thread that finishes
// the last of these factorizes the next panel while the other threads update the remaining chunks.
// Factorizing a panel is slow and serial, and this way the others do not wait for it.
#pragma once

#include "native/kernels.hpp"
#include "native/panel.hpp"
#include "native/tile.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t widest_panel = 256;
constexpr std::int64_t chunk_columns = 96;
static_assert(widest_panel % block_order == 0, "no block may lie in two panels");
static_assert(chunk_columns >= block_order, "a block is packed into the memory for a chunk");

// The width of the next panel when `order` columns are left. Wide panels suit large matrices: each
// entry is read from memory less often. Narrow ones suit small matrices, where threads would wait for
// a panel.
inline std::int64_t panel_width(std::int64_t order) {
    const std::int64_t width = order > 1500 ? 256 : order > 512 ? 128 : 64;
    return order < width ? order : width;
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out parts of one piece of memory, each aligned to 64 bytes. With a null base it only counts
// the bytes that are needed.
struct Arena {
    char* base;
    std::int64_t used = 0;
    void clear() const {  // sets all that was taken so far to zero
        if (base != nullptr) std::memset(base, 0, static_cast<std::size_t>(used));
    }
    template <class T> T* take(std::int64_t count) {
        char* part = base + used;
        used += aligned(count * static_cast<std::int64_t>(sizeof(T)));
        return base == nullptr ? nullptr : reinterpret_cast<T*>(part);
    }
};

// A factorized panel, columns begin..begin + width of the matrix. `packed` holds its part of L, with
// row `begin` of the matrix as row 0; `triangles` holds copies of the diagonal blocks of L.
template <class Tile> struct Panel {
    std::int64_t begin, width;
    typename Tile::Unit* packed;
    typename Tile::Number* triangles;
    std::int64_t strip() const { return width / Tile::depth * Tile::rows; }  // units
};

// The state of one panel: the phase that updates the chunks to its right, how many chunks of the next
// panel are done (`ahead`), and what factorizing the panel returned (`code`).
struct Step {
    Phase update;
    int ahead, code;
};

template <class Tile> struct Factorization {
    using T = typename Tile::Number;
    using Unit = typename Tile::Unit;
    static_assert(block_order % Tile::rows == 0 && block_order % 32 == 0,
                  "no strip may lie in two blocks");

    std::int64_t n;
    T* a;
    std::int32_t* pivots;
    Panel<Tile> panels[2];  // the current one and the next
    Step* steps;
    Phase *first_panel, *left;
    Unit* packed_columns;  // memory for a packed chunk, one part per thread
    int threads;

    Factorization(std::int64_t order, T* matrix, std::int32_t* interchanges, int members,
                  Arena& arena)
        : n(order), a(matrix), pivots(interchanges), threads(members) {
        steps = arena.take<Step>(n / block_order + 2);
        first_panel = arena.take<Phase>(1);
        left = arena.take<Phase>(1);
        arena.clear();
        for (Panel<Tile>& panel : panels) {
            panel.packed = arena.take<Unit>(ceil_div(n, Tile::rows) * Tile::rows * widest_panel /
                                            Tile::depth);
            panel.triangles = arena.take<T>(widest_panel * block_order);
        }
        packed_columns = arena.take<Unit>(threads * packed_chunk);
    }

    static constexpr std::int64_t packed_chunk =
        (chunk_columns + Tile::columns - 1) / Tile::columns * Tile::columns * widest_panel / Tile::depth;

    T* at(std::int64_t i, std::int64_t j) const { return a + i + j * n; }

    // Applies the first k columns of a panel to columns j..j + count, which lie right of them.
    // Prefetches the columns that start `later` further on, which this thread will probably update
    // next.
    void update(const Panel<Tile>& panel, std::int64_t k, std::int64_t j, std::int64_t count,
                Unit* packed, std::int64_t later = 0) const {
        const std::int64_t top = panel.begin, b_step = k / Tile::depth * Tile::columns;
        interchange(top, top + k, pivots, count, at(0, j), n);
        for (std::int64_t row = 0; row < k; row += block_order) {
            T* u = at(top + row, j);
            subtract_product<Tile>(block_order, count, row,
                                   panel.packed + row / Tile::rows * panel.strip(), panel.strip(),
                                   packed, b_step, u, n);
            solve_triangle(count, panel.triangles + row * block_order, u, n);
            for (std::int64_t c = 0; c < count; c += Tile::columns)
                Tile::pack_columns(count - c, block_order, u + c * n, n,
                                   packed + c / Tile::columns * b_step +
                                       row / Tile::depth * Tile::columns);
        }
        subtract_product<Tile>(n - top - k, count, k, panel.packed + k / Tile::rows * panel.strip(),
                               panel.strip(), packed, b_step, at(top + k, j), n, later * n);
    }

    // Interchanges rows i and pivots[i], i = begin, ..., end - 1, in the first k packed columns of L.
    void interchange_packed(const Panel<Tile>& panel, std::int64_t begin, std::int64_t end,
                            std::int64_t k) const {
        const auto entry = [&](std::int64_t row) {
            row -= panel.begin;
            return panel.packed + row / Tile::rows * panel.strip() + row % Tile::rows;
        };
        for (std::int64_t i = begin; i < end; ++i) {
            if (pivots[i] == i) continue;
            Unit *x = entry(i), *y = entry(pivots[i]);
            for (std::int64_t l = 0; l < k / Tile::depth * Tile::rows; l += Tile::rows) {
                const Unit kept = x[l];
                x[l] = y[l];
                y[l] = kept;
            }
        }
    }

    // Factorizes a panel that all earlier panels have updated. Returns what LuKernels::lu returns.
    int factorize(const Panel<Tile>& panel, Unit* packed) const {
        for (std::int64_t k = 0; k < panel.width; k += block_order) {
            const std::int64_t j = panel.begin + k;
            const std::int64_t width = panel.width - k < block_order ? panel.width - k : block_order;
            if (k > 0) update(panel, k, j, width, packed);
            const int code = factorize_block(n, j, width, a, pivots);
            if (code != 0) return code;
            interchange(j, j + width, pivots, k, at(0, panel.begin), n);
            if (j + width == n) return 0;  // the last block has nothing below or right of it
            interchange_packed(panel, j, j + width, k);
            copy_triangle(at(j, j), n, panel.triangles + k * block_order);
            const std::int64_t below = j + block_order;
            for (std::int64_t row = below; row < n; row += Tile::rows)
                Tile::pack_rows(n - row, block_order, at(row, j), n,
                                panel.packed + (row - panel.begin) / Tile::rows * panel.strip() +
                                    k / Tile::depth * Tile::rows);
        }
        return 0;
    }

    // What each member does. Returns what LuKernels::lu returns.
    int run(int member) {
        Unit* packed = packed_columns + member * packed_chunk;
        std::int64_t begin = 0, width = panel_width(n), step = 0;
        share(*first_panel, 1, [&](std::int64_t) { begin_panel(0, 0, width, packed); });
        while (steps[step].code == 0 && begin + width < n) {
            const std::int64_t next = begin + width, next_width = panel_width(n - next);
            update_right(step, next, next_width, packed);
            begin = next;
            width = next_width;
            ++step;
        }
        if (steps[step].code == 0) interchange_left();
        return steps[step].code;
    }

    void begin_panel(std::int64_t step, std::int64_t begin, std::int64_t width, Unit* packed) {
        Panel<Tile>& panel = panels[step % 2];
        panel.begin = begin;
        panel.width = width;
        steps[step].code = factorize(panel, packed);
    }

    // Updates the chunks right of this step's panel. The member that completes the last chunk of the
    // next panel factorizes that panel.
    void update_right(std::int64_t step, std::int64_t next, std::int64_t next_width, Unit* packed) {
        const std::int64_t first = ceil_div(next_width, chunk_columns);
        const std::int64_t all = first + ceil_div(n - next - next_width, chunk_columns);
        share(steps[step].update, all, [&](std::int64_t chunk) {
            const Panel<Tile>& panel = panels[step % 2];
            const bool ahead = chunk < first;
            const std::int64_t j = ahead ? next + chunk * chunk_columns
                                         : next + next_width + (chunk - first) * chunk_columns;
            const std::int64_t left_over = (ahead ? next + next_width : n) - j;
            const std::int64_t later = threads * chunk_columns;
            update(panel, panel.width, j, left_over < chunk_columns ? left_over : chunk_columns, packed,
                   j + later + chunk_columns <= n ? later : 0);
            if (ahead && __atomic_add_fetch(&steps[step].ahead, 1, __ATOMIC_ACQ_REL) == first)
                begin_panel(step + 1, next, next_width, packed);
        });
    }

    // Applies the interchanges of all later panels to the columns of L, in one pass over each column.
    void interchange_left() const {
        constexpr std::int64_t columns = block_order;  // divides the width of a panel
        share(*left, ceil_div(n, columns), [&](std::int64_t task) {
            const std::int64_t j = task * columns;
            std::int64_t end = 0;  // where the panel that contains column j ends
            while (end <= j) end += panel_width(n - end);
            interchange(end, n, pivots, end - j < columns ? end - j : columns, at(0, j), n);
        });
    }
};

template <class Tile> std::int64_t lu_workspace(std::int64_t n, int threads) {
    Arena arena{nullptr};
    Factorization<Tile>(n, nullptr, nullptr, threads, arena);
    return arena.used;
}

template <class Tile>
int lu(std::int64_t n, typename Tile::Number* a, std::int32_t* pivots, int threads, void* workspace) {
    if (n == 0) return 0;
    Arena arena{static_cast<char*>(workspace)};
    Factorization<Tile> factorization(n, a, pivots, threads, arena);
    int code = 0;
    auto body = [&](int member) {
        Tile::enter();
        const int found = factorization.run(member);
        Tile::leave();
        if (member == 0) code = found;
    };
    const std::int64_t chunks = n / chunk_columns;  // more threads than chunks have nothing to do
    run_together(chunks < 3 ? 1 : threads < chunks ? threads : static_cast<int>(chunks), body);
    return code;
}

// C -= A B. For every 256 products, a first phase packs A, and a second one updates chunks of
// columns.
template <class Tile> struct Product {
    using T = typename Tile::Number;
    using Unit = typename Tile::Unit;

    std::int64_t m, n, k;
    const T *a, *b;
    T* c;
    Phase* phases;  // two for every 256 products
    Unit *packed_rows, *packed_columns;

    Product(std::int64_t rows, std::int64_t columns, std::int64_t products, int threads, Arena& arena)
        : m(rows), n(columns), k(products) {
        phases = arena.take<Phase>(2 * ceil_div(k, widest_panel));
        arena.clear();
        packed_rows = arena.take<Unit>(ceil_div(m, Tile::rows) * Tile::rows * widest_panel / Tile::depth);
        packed_columns = arena.take<Unit>(threads * Factorization<Tile>::packed_chunk);
    }

    void run(int member) const {
        Unit* columns = packed_columns + member * Factorization<Tile>::packed_chunk;
        Phase* phase = phases;
        for (std::int64_t l = 0; l < k; l += widest_panel) {
            const std::int64_t depth = k - l < widest_panel ? k - l : widest_panel;
            const std::int64_t a_step = depth / Tile::depth * Tile::rows;
            const std::int64_t b_step = depth / Tile::depth * Tile::columns;
            share(*phase++, ceil_div(m, Tile::rows), [&](std::int64_t strip) {
                const std::int64_t i = strip * Tile::rows;
                Tile::pack_rows(m - i, depth, a + i + l * m, m, packed_rows + strip * a_step);
            });
            share(*phase++, ceil_div(n, chunk_columns), [&](std::int64_t chunk) {
                const std::int64_t j = chunk * chunk_columns;
                const std::int64_t count = n - j < chunk_columns ? n - j : chunk_columns;
                for (std::int64_t i = 0; i < count; i += Tile::columns)
                    Tile::pack_columns(count - i, depth, b + l + (j + i) * k, k,
                                       columns + i / Tile::columns * b_step);
                subtract_product<Tile>(m, count, depth, packed_rows, a_step, columns, b_step, c + j * m, m);
            });
        }
    }
};

template <class Tile>
std::int64_t gemm_workspace(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
    Arena arena{nullptr};
    Product<Tile>(m, n, k, threads, arena);
    return arena.used;
}

template <class Tile, class T = typename Tile::Number>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, const T* b, T* c, int threads,
          void* workspace) {
    if (m == 0 || n == 0) return;
    Arena arena{static_cast<char*>(workspace)};
    Product<Tile> product(m, n, k, threads, arena);
    product.a = a;
    product.b = b;
    product.c = c;
    auto body = [&](int member) {
        Tile::enter();
        product.run(member);
        Tile::leave();
    };
    run_together(threads, body);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
