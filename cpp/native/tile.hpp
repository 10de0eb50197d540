// The inner kernel of matrix products: C -= A B for a tile of C that fits into registers, and the
// packing of A and B into the order in which the tile reads them.
//
// A is packed in strips of `rows` rows, B in strips of `columns` columns. A strip is a sequence of
// groups, one for every `depth` products. A group of A has one Unit per row, which holds the `depth`
// numbers of this row; B likewise. So the products from k0 on start at unit k0 / depth * rows of a
// strip of A, or * columns of B. The numbers of C have type Number, and are pointed to by Numbers. In
// memory, a packed row of A is a sequence of Entry, `rows` of them apart.
#pragma once

#include "native/fused.hpp"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Operands in the type of C. The tile has as many accumulators as there are registers: independent
// sums hide the latency of a multiply-add, and each load is used for many of them.
template <class T> struct PlainTile {
    using Number = T;
    using Numbers = T*;
    using Unit = T;
    using Entry = Unit;
    static constexpr int width = Lanes<T>::count, vectors = 2;
    static constexpr int rows = vectors * width;
    static constexpr int columns = ROUNDWISE_VECTOR_BYTES == 64 ? 12 : ROUNDWISE_VECTOR_BYTES == 32 ? 6 : 4;
    static constexpr int depth = 1;
    static constexpr int team_weight = 8;  // see pipeline.hpp

    static void enter() {}
    static void leave() {}

    // The first `valid` rows of a strip of A; the others become zero.
    static void pack_rows(std::int64_t valid, std::int64_t k, const T* a, std::int64_t a_step,
                          Unit* out) {
        for (std::int64_t l = 0; l < k; ++l, a += a_step, out += rows)
            for (int v = 0; v < rows; v += width)
                store<T>(out + v, v + width <= valid ? load(a + v)
                                  : v < valid        ? load_first(a + v, valid - v)
                                                     : Vector<T>{});
    }

    static void pack_columns(std::int64_t valid, std::int64_t k, const T* b, std::int64_t b_step,
                             Unit* out) {
        for (std::int64_t l = 0; l < k; ++l)
            for (int j = 0; j < columns; ++j) *out++ = j < valid ? b[l + j * b_step] : T(0);
    }

    struct Sums {
        Vector<T> of[columns][vectors];
    };

    static void add_products(std::int64_t k, const Unit* a, const Unit* b, Sums& sum) {
        for (std::int64_t l = 0; l < k; ++l, a += rows, b += columns) {
            const Vector<T> upper = load(a), lower = load(a + width);
#pragma GCC unroll 12
            for (int j = 0; j < columns; ++j) {
                fused_add<T>(sum.of[j][0], upper, b[j]);
                fused_add<T>(sum.of[j][1], lower, b[j]);
            }
        }
    }

    static void prefetch_column(const T* c) {
        constexpr int line = 64 / sizeof(T);
        for (int i = 0; i < rows + line; i += line)  // one more line: c may start within one
            __builtin_prefetch(c + i, 1, 3);
    }

    // Also prefetches this tile of C.
    static void subtract_product(std::int64_t k, const Unit* a, const Unit* b, T* c,
                                 std::int64_t c_step) {
        Sums sum = {};
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j) prefetch_column(c + j * c_step);
        add_products(k, a, b, sum);
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j)
            for (int v = 0; v < vectors; ++v) {
                T* target = c + j * c_step + v * width;
                store<T>(target, load(target) - sum.of[j][v]);
            }
    }
};

// Bf16Tile rounds operands to BF16 while it packs them. There are three of them; the level's compiler
// flags decide which is compiled.

#if defined(__AVX512BF16__)

// Two products per Unit: BF16 numbers 2g and 2g + 1 of group g, the first in the low half.
struct PairedRows {
    using Number = float;
    using Numbers = float*;
    static constexpr int rows = 32;
    static constexpr int depth = 2;
    static constexpr int team_weight = 24;
    using Unit = std::uint32_t;
    using Entry = Unit;

    // The first `valid` rows of a strip of A; the others become zero.
    static void pack_rows(std::int64_t valid, std::int64_t k, const float* a, std::int64_t a_step,
                          Unit* out) {
        const auto mask = static_cast<std::uint32_t>(valid >= 32 ? ~0u : (1u << valid) - 1);
        const auto pair = [&](const float* even, __mmask16 lanes) {
            const __m512i low = widen(_mm512_maskz_loadu_ps(lanes, even));
            const __m512i high = widen(_mm512_maskz_loadu_ps(lanes, even + a_step));
            return low | (__m512i)((__v16su)high << 16);
        };
        for (std::int64_t l = 0; l < k; l += 2, out += rows) {
            const float* column = a + l * a_step;
            _mm512_storeu_si512(out, pair(column, static_cast<__mmask16>(mask)));
            _mm512_storeu_si512(out + 16, pair(column + 16, static_cast<__mmask16>(mask >> 16)));
        }
    }

    // Prefetches a column of the tile of C.
    static void prefetch_column(const float* c) {
        for (int i = 0; i < 48; i += 16)  // one more line: c may start within one
            _mm_prefetch(reinterpret_cast<const char*>(c + i), _MM_HINT_T0);
    }

    // Packs 32 consecutive numbers of a column of B into 16 units.
    static __m512i pairs_down(const float* b) {
        const __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(b + 16), _mm512_loadu_ps(b));
        return (__m512i)pairs;
    }

  private:
    static __m512i widen(__m512 x) {
        typedef std::uint16_t Halves __attribute__((vector_size(32)));
        return (__m512i)__builtin_convertvector((Halves)_mm512_cvtneps_pbh(x), __v16su);
    }
};

#endif

#if defined(__AMX_BF16__)

// Four AMX accumulators of 16 x 16. AMX stores matrices by rows, so the accumulators hold C
// transposed: rows of an AMX register are columns of C, and a packed strip of A has the layout that
// AMX wants for its right operand.
struct Bf16Tile : PairedRows {
    static constexpr int columns = 32;

    // Configures eight registers of 16 rows of 64 bytes for the calling thread.
    static void enter() {
        struct alignas(64) {
            std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
            std::uint16_t bytes[16] = {};
            std::uint8_t rows[16] = {};
        } shape;
        for (int i = 0; i < 8; ++i) {
            shape.bytes[i] = 64;
            shape.rows[i] = 16;
        }
        _tile_loadconfig(&shape);
    }
    static void leave() { _tile_release(); }

    // For every 32 products, one column after the other.
    static void pack_columns(std::int64_t valid, std::int64_t k, const float* b,
                             std::int64_t b_step, Unit* out) {
        for (std::int64_t l = 0; l < k; l += 32)
            for (int j = 0; j < columns; ++j, out += 16)
                _mm512_storeu_si512(
                    out, j < valid ? pairs_down(b + l + j * b_step) : _mm512_setzero_si512());
    }

    static void subtract_product(std::int64_t k, const Unit* a, const Unit* b, float* c,
                                 std::int64_t c_step) {
        for (int j = 0; j < columns; ++j) prefetch_column(c + j * c_step);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (std::int64_t l = 0; l < k; l += 32, a += 16 * rows, b += 16 * columns) {
            _tile_loadd(4, b, 64);             // columns 0 to 15 of C
            _tile_loadd(5, b + 16 * 16, 64);   // columns 16 to 31
            _tile_loadd(6, a, 4 * rows);       // rows 0 to 15
            _tile_loadd(7, a + 16, 4 * rows);  // rows 16 to 31
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        alignas(64) float product[columns * rows];
        _tile_stored(0, product, 4 * rows);
        _tile_stored(1, product + 16, 4 * rows);
        _tile_stored(2, product + 16 * rows, 4 * rows);
        _tile_stored(3, product + 16 * rows + 16, 4 * rows);
        for (int j = 0; j < columns; ++j)
            for (int i = 0; i < rows; i += 16) {
                float* target = c + j * c_step + i;
                _mm512_storeu_ps(target, _mm512_sub_ps(_mm512_loadu_ps(target),
                                                       _mm512_load_ps(product + j * rows + i)));
            }
    }
};

#elif defined(__AVX512BF16__)

// 24 accumulators hide the latency of vdpbf16ps. Each step needs 12 broadcasts and 2 loads for them.
struct Bf16Tile : PairedRows {
    static constexpr int columns = 12;

    static void enter() {}
    static void leave() {}

    static void pack_columns(std::int64_t valid, std::int64_t k, const float* b,
                             std::int64_t b_step, Unit* out) {
        for (std::int64_t l = 0; l < k; l += 32, out += 16 * columns)
            for (int j = 0; j < columns; ++j) {
                alignas(64) Unit pairs[16] = {};
                if (j < valid) _mm512_store_si512(pairs, pairs_down(b + l + j * b_step));
                for (int g = 0; g < 16; ++g) out[g * columns + j] = pairs[g];
            }
    }

    static void subtract_product(std::int64_t k, const Unit* a, const Unit* b, float* c,
                                 std::int64_t c_step) {
        __m512 sum[columns][2];
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j) {
            sum[j][0] = sum[j][1] = _mm512_setzero_ps();
            prefetch_column(c + j * c_step);
        }
        for (std::int64_t l = 0; l < k; l += 2, a += rows, b += columns) {
            const auto upper = (__m512bh)_mm512_loadu_si512(a);
            const auto lower = (__m512bh)_mm512_loadu_si512(a + 16);
#pragma GCC unroll 12
            for (int j = 0; j < columns; ++j) {
                const auto factor = (__m512bh)_mm512_set1_epi32(static_cast<int>(b[j]));
                sum[j][0] = _mm512_dpbf16_ps(sum[j][0], upper, factor);
                sum[j][1] = _mm512_dpbf16_ps(sum[j][1], lower, factor);
            }
        }
#pragma GCC unroll 12
        for (int j = 0; j < columns; ++j) {
            float* target = c + j * c_step;
            _mm512_storeu_ps(target, _mm512_sub_ps(_mm512_loadu_ps(target), sum[j][0]));
            _mm512_storeu_ps(target + 16, _mm512_sub_ps(_mm512_loadu_ps(target + 16), sum[j][1]));
        }
    }
};

#else

// For any processor: operands are rounded to BF16 but kept as float32, and products are float32's.
// For tests and as a reference, not for speed.
struct Bf16Tile : PlainTile<float> {
    static float rounded(float x) {
        const auto bits = bit_cast<std::uint32_t>(x);
        if (x != x) return x;
        return bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
    }

    static void pack_rows(std::int64_t valid, std::int64_t k, const float* a, std::int64_t a_step,
                          Unit* out) {
        PlainTile::pack_rows(valid, k, a, a_step, out);
        for (std::int64_t i = 0; i < k * rows; ++i) out[i] = rounded(out[i]);
    }

    static void pack_columns(std::int64_t valid, std::int64_t k, const float* b,
                             std::int64_t b_step, Unit* out) {
        PlainTile::pack_columns(valid, k, b, b_step, out);
        for (std::int64_t i = 0; i < k * columns; ++i) out[i] = rounded(out[i]);
    }
};

#endif

// One tile at the edge of C, of which only m rows and n columns exist.
template <class Tile, class T, class Unit>
inline void subtract_product_at_edge(std::int64_t k, const Unit* a, const Unit* b, std::int64_t m,
                                     std::int64_t n, T* c, std::int64_t c_step) {
    constexpr int line = 64 / sizeof(T);  // the tile prefetches up to one cache line past its end
    T negated[Tile::rows * Tile::columns + line] = {};
    Tile::subtract_product(k, a, b, negated, Tile::rows);
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < m; ++i) c[i + j * c_step] += negated[i + j * Tile::rows];
}

// C (m x n) -= A B over k products. A and B are packed; strips of A (of B) are a_step (b_step) units
// apart. A strip of B stays in the first cache while all strips of A, which the second cache should
// hold, are read; C is read and written down its columns.
template <class Tile, class Unit>
inline void subtract_product(std::int64_t m, std::int64_t n, std::int64_t k, const Unit* a,
                             std::int64_t a_step, const Unit* b, std::int64_t b_step,
                             typename Tile::Numbers c, std::int64_t c_step) {
    for (std::int64_t j = 0; j < n; j += Tile::columns, b += b_step) {
        const Unit* strip = a;
        for (std::int64_t i = 0; i < m; i += Tile::rows, strip += a_step) {
            const typename Tile::Numbers tile = c + (i + j * c_step);
            if (i + Tile::rows <= m && j + Tile::columns <= n)
                Tile::subtract_product(k, strip, b, tile, c_step);
            else
                subtract_product_at_edge<Tile>(k, strip, b, m - i < Tile::rows ? m - i : Tile::rows,
                                               n - j < Tile::columns ? n - j : Tile::columns, tile,
                                               c_step);
        }
    }
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
