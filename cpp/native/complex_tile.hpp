// The tile of complex products C -= A B, which takes three real products instead of four (3M):
//
//   P1 = Ar Br,  P2 = Ai Bi,  P3 = (Ar + Ai)(Br + Bi);   Cr -= P1 - P2,  Ci -= P3 - (P1 + P2)
//
// The error of Ci is small beside |A| |B|, but not beside each |Ci| (N. J. Higham, "Stability of a method
// for multiplying complex matrices with three real matrix multiplications", SIAM J. Matrix Anal. Appl.
// 13, 1992). That suffices for factors: the backward error of LU is bounded by |L| |U|, too.
#pragma once

#include "native/planes.hpp"
#include "native/tile.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Strips of A and B alternate, for every `group` products, between real parts, imaginary parts and sums
// of both, each packed as PlainTile packs them. The three products are computed one after the other, each
// with all registers: three tiles side by side would be smaller, and each load used less often.
template <class T> struct ComplexTile {
    using Plain = PlainTile<T>;
    using Number = Complex<T>;
    using Numbers = Planes<T>;
    using Entry = T;
    struct Unit {
        T re, im, sum;
    };
    static constexpr int width = Plain::width, vectors = Plain::vectors;
    static constexpr int rows = Plain::rows, columns = Plain::columns;
    static constexpr int depth = 1;
    static constexpr int team_weight = 10;
    static constexpr std::int64_t group = 64;

    static void enter() {}
    static void leave() {}

    static void pack_rows(std::int64_t valid, std::int64_t k, Planes<T> a, std::int64_t a_step, Unit* out) {
        T* to = &out->re;
        for (; k > 0; k -= group, a = a + group * a_step, to += 3 * group * rows) {
            Plain::pack_rows(valid, group, a.re, a_step, to);
            Plain::pack_rows(valid, group, a.im, a_step, to + group * rows);
            add_sums(group * rows, to);
        }
    }

    static void pack_columns(std::int64_t valid, std::int64_t k, Planes<T> b, std::int64_t b_step, Unit* out) {
        T* to = &out->re;
        for (; k > 0; k -= group, b = b + group, to += 3 * group * columns) {
            Plain::pack_columns(valid, group, b.re, b_step, to);
            Plain::pack_columns(valid, group, b.im, b_step, to + group * columns);
            add_sums(group * columns, to);
        }
    }

    // k is a multiple of `group`. Not inlined: among the registers of its caller, sums would be kept in
    // memory.
    __attribute__((noinline)) static void subtract_product(std::int64_t k, const Unit* a, const Unit* b, Planes<T> c,
                                 std::int64_t c_step) {
        alignas(64) T kept[rows * columns];  // P1, then P1 + P2
        const T *left = &a->re, *right = &b->re;
        prefetch(c.re, c_step);
        each_product(k, left, right, [&](int j, int i, Vector<T> p) { store<T>(kept + i + j * rows, p); });
        prefetch(c.im, c_step);
        each_product(k, left + group * rows, right + group * columns, [&](int j, int i, Vector<T> p) {
            T *first = kept + i + j * rows, *target = c.re + i + j * c_step;
            store<T>(target, load(target) - (load(first) - p));
            store<T>(first, load(first) + p);
        });
        each_product(k, left + 2 * group * rows, right + 2 * group * columns,
                     [&](int j, int i, Vector<T> p) {
            T* target = c.im + i + j * c_step;
            store<T>(target, load(target) - (p - load(kept + i + j * rows)));
        });
    }

  private:
    static void add_sums(std::int64_t count, T* to) {
        for (std::int64_t i = 0; i < count; i += width)
            store<T>(to + 2 * count + i, load(to + i) + load(to + count + i));
    }

    static void prefetch(const T* c, std::int64_t c_step) {
        for (int j = 0; j < columns; ++j) Plain::prefetch_column(c + j * c_step);
    }

    // One of the three: calls use(j, i, p) with its column j, a vector at a time, from row i on.
    template <class Use> static void each_product(std::int64_t k, const T* a, const T* b, const Use& use) {
        typename Plain::Sums sum = {};
        for (; k > 0; k -= group, a += 3 * group * rows, b += 3 * group * columns)
            Plain::add_products(group, a, b, sum);
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j)
            for (int v = 0; v < vectors; ++v) use(j, v * width, sum.of[j][v]);
    }
};

// As for real numbers.
template <class Tile, class T, class Unit>
inline void subtract_product_at_edge(std::int64_t k, const Unit* a, const Unit* b, std::int64_t m,
                                     std::int64_t n, Planes<T> c, std::int64_t c_step) {
    constexpr int line = 64 / sizeof(T), size = Tile::rows * Tile::columns;
    T re[size + line] = {}, im[size + line] = {};
    Tile::subtract_product(k, a, b, Planes<T>{re, im}, Tile::rows);
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) {
            c.re[i + j * c_step] += re[i + j * Tile::rows];
            c.im[i + j * c_step] += im[i + j * Tile::rows];
        }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
