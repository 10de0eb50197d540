// Blocked Cholesky (LuKernels::cholesky in kernels.hpp): the tasks of pipeline.hpp. A Tile computes the
// products. There are no tasks that solve: the rows of L' are those of L, which the panel's team packs
// both ways.
#pragma once

#include "native/lu.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// In place LL' = A for the lower triangle of a small block. Returns 0, or what is wrong with the pivot
// of column j: j + 1 if it is not positive, -(j + 1) if it is not finite.
template <class T> inline int factorize_diagonal(std::int64_t n, T* a, std::int64_t step) {
    for (std::int64_t j = 0; j < n; ++j) {
        T* column = a + j * step;
        if (magnitude(column[j]) >= static_cast<typename Carrier<T>::Signed>(Carrier<T>::infinity))
            return -static_cast<int>(j + 1);
        if (!(column[j] > 0)) return static_cast<int>(j + 1);
        const T root = square_root(column[j]);
        column[j] = root;
        for (std::int64_t i = j + 1; i < n; ++i) column[i] /= root;
        for (std::int64_t k = j + 1; k < n; ++k) {
            T* target = a + k * step;
            const T factor = column[k];
            for (std::int64_t i = k; i < n; ++i) fused_subtract<T>(target[i], column[i], factor);
        }
    }
    return 0;
}

// In place X L' = B for `rows` rows, B m x n with n a multiple of pivot_columns. `l` holds L by rows,
// block_order numbers from row to row.
template <class T>
inline void solve_rows_below(std::int64_t rows, std::int64_t n, const T* l, T* b, std::int64_t step) {
    constexpr std::int64_t width = Lanes<T>::count;
    for (std::int64_t j = 0; j < n; j += pivot_columns) {
        T factors[block_order * row_numbers<T>];  // the rows j.. of L, as subtract_columns wants them
        for (std::int64_t k = 0; k < j; ++k)
            for (std::int64_t c = 0; c < pivot_columns; ++c)
                factors[k * row_numbers<T> + c] = l[(j + c) * block_order + k];
        T* block = b + j * step;
        subtract_columns<pivot_columns>(rows, j, b, factors, block, step);
        const T* triangle = l + j * block_order + j;
        for (std::int64_t i = 0; i < rows; i += width) {
            const std::int64_t valid = rows - i < width ? rows - i : width;
            Vector<T> x[pivot_columns];
            for (int c = 0; c < pivot_columns; ++c) {
                x[c] = load_some(block + i + c * step, valid);
                for (int k = 0; k < c; ++k)
                    fused_subtract<T>(x[c], x[k], triangle[c * block_order + k]);
                x[c] /= triangle[c * block_order + c];
                store_some<T>(block + i + c * step, x[c], valid);
            }
        }
    }
}

template <class Tile> struct CholeskyFactorization {
    using T = typename Tile::Number;
    using Unit = typename Tile::Unit;

    static constexpr bool packs = false, solves = false;
    static constexpr int columns = Tile::columns, team_weight = Tile::team_weight;
    static constexpr std::int64_t solved_rows = 128;  // at a time, so that a cache holds them

    std::int64_t n;
    T* a;
    Panel<Tile> panels[2];
    Unit* packed_block;

    CholeskyFactorization(std::int64_t order, T* matrix, Arena& arena) : n(order), a(matrix) {
        for (Panel<Tile>& panel : panels) panel = take_panel<Tile>(n, arena);
        packed_block = take_block<Tile>(arena);
    }

    T* at(std::int64_t i, std::int64_t j) const { return a + i + j * n; }

    // Packs rows j..j + count of k columns of L, from column `first` on, as columns of L'. Not inlined, as
    // solve_below is not: their arrays would stand on the stack together, of which threads have 128 KiB under musl.
    __attribute__((noinline))
    void pack_transposed(std::int64_t j, std::int64_t count, std::int64_t first, std::int64_t k,
                         Unit* out) const {
        T transposed[Tile::columns * widest_panel];
        const std::int64_t valid = count < Tile::columns ? count : Tile::columns;
        for (std::int64_t l = 0; l < k; ++l)
            for (std::int64_t c = 0; c < valid; ++c) transposed[l + c * k] = *at(j + c, first + l);
        Tile::pack_columns(valid, k, transposed, k, out);
    }

    void begin(std::int64_t which, std::int64_t first, std::int64_t width) {
        panels[which].begin = first;
        panels[which].width = width;
    }


    // Only what lies on or below the diagonal, in whole tiles.
    void update(std::int64_t which, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t count,
                std::int64_t strip) const {
        const Panel<Tile>& panel = panels[which];
        const std::int64_t b_step = panel.strip_of_columns();
        for (std::int64_t c = 0; c < count; c += Tile::columns) {
            const std::int64_t above = j + c > i ? (j + c - i) / Tile::rows * Tile::rows : 0;
            if (above >= rows) return;
            subtract_product<Tile>(rows - above, count - c < Tile::columns ? count - c : Tile::columns,
                                   panel.width, panel.rows_from(i + above), panel.strip(),
                                   panel.columns + (strip + c / Tile::columns) * b_step, b_step,
                                   at(i + above, j + c), n);
        }
    }

    // Applies the first k columns of a panel to the next ones, j..j + count, at most a block. Each
    // member leaves its own rows up to date.
    void update_block(const Panel<Tile>& panel, std::int64_t k, std::int64_t j, std::int64_t count,
                      Member<T>& member) const {
        const std::int64_t b_step = k / Tile::depth * Tile::columns;
        member.meet();
        for (std::int64_t strip = member.index; strip * Tile::columns < count; strip += member.size)
            pack_transposed(j + strip * Tile::columns, count - strip * Tile::columns, panel.begin, k,
                            packed_block + strip * b_step);
        member.meet();
        const Rows own = member.rows(j, n);
        subtract_product<Tile>(own.end - own.begin, count, k, panel.rows_from(own.begin), panel.strip(),
                               packed_block, b_step, at(own.begin, j), n);
    }

    // Solves for some rows of the block of columns from column k of a panel on, and packs them.
    __attribute__((noinline)) void solve_below(const Panel<Tile>& panel, std::int64_t k, Rows own) const {
        const std::int64_t j = panel.begin + k;
        T l[block_order * block_order];
        for (std::int64_t c = 0; c < block_order; ++c)
            for (std::int64_t i = c; i < block_order; ++i) l[i * block_order + c] = *at(j + i, j + c);
        for (std::int64_t i = own.begin; i < own.end; i += solved_rows) {
            const std::int64_t rows = own.end - i < solved_rows ? own.end - i : solved_rows;
            solve_rows_below(rows, block_order, l, at(i, j), n);
            for (std::int64_t row = i; row < i + rows; row += Tile::rows)
                Tile::pack_rows(i + rows - row, block_order, at(row, j), n,
                                panel.rows_from(row) + k / Tile::depth * Tile::rows);
        }
    }

    // Factorizes a panel that all earlier panels have updated, with its team. Returns what
    // LuKernels::cholesky returns.
    int factorize(std::int64_t which, Member<T>& member) const {
        const Panel<Tile>& panel = panels[which];
        for (std::int64_t k = 0; k < panel.width; k += block_order) {
            const std::int64_t j = panel.begin + k;
            const std::int64_t width = panel.width - k < block_order ? panel.width - k : block_order;
            if (k > 0) update_block(panel, k, j, width, member);
            if (member.index == 0) member.mine().row = factorize_diagonal(width, at(j, j), n);
            member.meet();
            const auto code = static_cast<int>(member.of(0).row);
            if (code != 0) return code > 0 ? code + static_cast<int>(j) : code - static_cast<int>(j);
            if (j + width == n) return 0;  // the last block has nothing below or right of it
            solve_below(panel, k, member.rows(j + block_order, n));
        }
        member.meet();
        const std::int64_t next = panel.begin + panel.width, middle = next + panel_width(n - next);
        pack_all(panel, next, middle, 0, member);
        pack_all(panel, middle, n, ceil_div(middle - next, Tile::columns), member);
        return 0;
    }

    // Packs columns j..end of L', from strip `first` of the panel on.
    void pack_all(const Panel<Tile>& panel, std::int64_t j, std::int64_t end, std::int64_t first,
                  const Member<T>& member) const {
        for (std::int64_t strip = member.index; j + strip * Tile::columns < end; strip += member.size)
            pack_transposed(j + strip * Tile::columns, end - j - strip * Tile::columns, panel.begin,
                            panel.width, panel.columns + (first + strip) * panel.strip_of_columns());
    }
};

// Copies the upper triangle of a matrix into the lower one.
template <class T> inline void mirror(std::int64_t n, T* a, Phase& phase) {
    constexpr std::int64_t size = 64;
    share(phase, ceil_div(n, size), [&](std::int64_t task) {
        const std::int64_t first = task * size, last = n - first < size ? n : first + size;
        for (std::int64_t i = first; i < n; i += size)
            for (std::int64_t row = i; row < (n - i < size ? n : i + size); ++row)
                for (std::int64_t j = first; j < (row < last ? row : last); ++j)
                    a[row + j * n] = a[j + row * n];
    });
}

// Sets columns begin..end above the diagonal to zero.
template <class T> inline void clear_above(std::int64_t n, std::int64_t begin, std::int64_t end, T* a) {
    for (std::int64_t j = begin; j < end; ++j)
        std::memset(a + j * n, 0, static_cast<std::size_t>(j) * sizeof(T));
}

template <class Tile> std::int64_t cholesky_workspace(std::int64_t n, int threads) {
    Arena arena{nullptr};
    CholeskyFactorization<Tile> work(n, nullptr, arena);
    Pipeline<CholeskyFactorization<Tile>>(work, n, threads, arena);
    return arena.used;
}

template <class Tile>
int cholesky(std::int64_t n, typename Tile::Number* a, bool upper, int threads, void* workspace) {
    if (n == 0) return 0;
    using Work = CholeskyFactorization<Tile>;
    Arena arena{static_cast<char*>(workspace)};
    Work work(n, a, arena);
    Pipeline<Work> pipeline(work, n, threads, arena);
    Phase mirrored = {}, cleared = {};
    int code = 0;
    auto body = [&](int member) {
        Tile::enter();
        if (upper) mirror(n, a, mirrored);
        const int found = pipeline.run(member);
        if (found == 0)
            share(cleared, ceil_div(n, block_order), [&](std::int64_t task) {
                const std::int64_t first = task * block_order;
                clear_above(n, first, n - first < block_order ? n : first + block_order, a);
            });
        Tile::leave();
        if (member == 0) code = found;
    };
    run_together(threads, body);
    if (code != 0) clear_above(n, 0, n, a);  // not before: a failure does not wait for the others
    return code;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
