// Products of matrices (Bf16Kernels::gemm in kernels.hpp), by the inner kernel of LU.
#pragma once

#include "common/parallel.hpp"
#include "native/arena.hpp"
#include "native/tile.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// C -= A B. For every 256 products, a first phase packs A, and a second one updates chunks of
// columns.
constexpr std::int64_t product_depth = 256, product_columns = 96;

template <class Tile> struct Product {
    using T = typename Tile::Number;
    using Unit = typename Tile::Unit;

    std::int64_t m, n, k;
    const T *a, *b;
    T* c;
    Phase* phases;  // two for every 256 products
    Unit *packed_rows, *packed_columns;

    static constexpr std::int64_t packed_chunk =
        (product_columns + Tile::columns - 1) / Tile::columns * Tile::columns * product_depth / Tile::depth;

    Product(std::int64_t rows, std::int64_t columns, std::int64_t products, int threads, Arena& arena)
        : m(rows), n(columns), k(products) {
        phases = arena.take<Phase>(2 * ceil_div(k, product_depth));
        arena.clear();
        packed_rows = arena.take<Unit>(ceil_div(m, Tile::rows) * Tile::rows * product_depth / Tile::depth);
        packed_columns = arena.take<Unit>(threads * packed_chunk);
    }

    void run(int member) const {
        Unit* columns = packed_columns + member * packed_chunk;
        Phase* phase = phases;
        for (std::int64_t l = 0; l < k; l += product_depth) {
            const std::int64_t depth = k - l < product_depth ? k - l : product_depth;
            const std::int64_t a_step = depth / Tile::depth * Tile::rows;
            const std::int64_t b_step = depth / Tile::depth * Tile::columns;
            share(*phase++, ceil_div(m, Tile::rows), [&](std::int64_t strip) {
                const std::int64_t i = strip * Tile::rows;
                Tile::pack_rows(m - i, depth, a + i + l * m, m, packed_rows + strip * a_step);
            });
            share(*phase++, ceil_div(n, product_columns), [&](std::int64_t chunk) {
                const std::int64_t j = chunk * product_columns;
                const std::int64_t count = n - j < product_columns ? n - j : product_columns;
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
