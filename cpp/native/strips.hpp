// Blocks of many columns, for kernels whose vectors run across the columns.
//
// The columns are cut into strips of `width` columns, and each strip is stored by rows: row i has its numbers in
// all columns of the strip side by side. A kernel then takes `strip_rows` rows of a matrix at a time: each of
// their entries is multiplied with a row of the strip, and the sums stay in registers. The entries are read where
// they lie if the rows are contiguous, else from a packed copy of these rows, all of column 0 first.
#pragma once

#include "native/fused.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// Rows of a matrix that are taken together: their sums for two vectors of columns fill the registers.
constexpr int strip_rows = ROUNDWISE_VECTOR_BYTES == 64 ? 12 : ROUNDWISE_VECTOR_BYTES == 32 ? 6 : 4;

// The vectors side by side in a strip.
constexpr int strip_vectors = 2;

// A number that the compiler knows.
template <int count> struct RowsOf {
    static constexpr int rows = count;
};

// The rows that are taken next of those that are left: strip_rows, then 4 or 1.
inline int rows_of_group(std::int64_t left) { return left >= strip_rows ? strip_rows : left >= 4 ? 4 : 1; }

template <class Body> inline void with_rows(int rows, const Body& body) {
    if (rows == strip_rows) body(RowsOf<strip_rows>{});
    else if (rows == 4) body(RowsOf<4>{});
    else body(RowsOf<1>{});
}

template <int S, int V, class T> struct StripSums {
    Vector<T> of[S][V];
};

// sums += M X, for `count` columns of S rows of a matrix M and as many rows of a strip. Entry (s, l) of M is at
// m[l + s * step], or at m[l * S + s] if it is packed.
template <int S, int V, bool packed, class T>
inline void add_strip(std::int64_t count, const T* m, std::int64_t step, const T* x, StripSums<S, V, T>& sums) {
    constexpr int lanes = Lanes<T>::count;
    for (std::int64_t l = 0; l < count; ++l, x += V * lanes) {
        Vector<T> row[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) row[v] = load(x + v * lanes);
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s) {
            const T& entry = packed ? m[l * S + s] : m[l + s * step];
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) fused_add<T>(sums.of[s][v], row[v], entry);
        }
    }
}

// The same for complex numbers: a row of the strip has a vector of real parts, then one of imaginary ones. The
// imaginary part of entry (s, l) is at m[imaginary + l + s * step], or, packed, at m[(2 l + 1) * S + s] beside the
// real one at m[2 l * S + s].
template <int S, bool packed, class T>
inline void add_complex_strip(std::int64_t count, const T* m, std::int64_t step, std::int64_t imaginary, const T* x,
                              StripSums<S, 2, T>& sums) {
    constexpr int lanes = Lanes<T>::count;
    for (std::int64_t l = 0; l < count; ++l, x += 2 * lanes) {
        const Vector<T> x_re = load(x), x_im = load(x + lanes), turned = -x_im;
#pragma GCC unroll 12
        for (int s = 0; s < S; ++s) {
            const T& re = packed ? m[2 * l * S + s] : m[l + s * step];
            const T& im = packed ? m[(2 * l + 1) * S + s] : m[imaginary + l + s * step];
            fused_add<T>(sums.of[s][0], x_re, re);
            fused_add<T>(sums.of[s][1], x_im, re);
            fused_add<T>(sums.of[s][0], turned, im);
            fused_add<T>(sums.of[s][1], x_re, im);
        }
    }
}

// Copies S rows of `count` columns of M into the packed order; entry (s, l) is at m[s * row_step + l * column_step].
// Of complex numbers (parts = 2) the imaginary parts are so many numbers behind the real ones. M may be stored in a
// narrower type.
template <int parts = 1, class S, class T>
inline void pack_rows(std::int64_t rows, std::int64_t count, const S* m, std::int64_t row_step,
                      std::int64_t column_step, T* packed, std::int64_t imaginary = 0) {
    for (std::int64_t l = 0; l < count; ++l)
        for (int part = 0; part < parts; ++part, packed += rows) {
            const S* column = m + l * column_step + part * imaginary;
            if (sizeof(S) == sizeof(T) && row_step == 1 && rows == strip_rows) __builtin_memcpy(packed, column, strip_rows * sizeof(T));
            else
                for (std::int64_t s = 0; s < rows; ++s) packed[s] = static_cast<T>(column[s * row_step]);
        }
}

// Columns of a block (n rows, `step` apart) to a strip, whose rows are `row` numbers apart; those of the `width` columns
// that do not exist become zero. And back. Numbers of the block may be rounded to those of the strip.
template <class S, class T>
inline void to_strip(std::int64_t n, std::int64_t columns, const S* b, std::int64_t step, std::int64_t width, T* strip,
                     std::int64_t row) {
    constexpr std::int64_t part = 64;  // rows, so that the strip's lines stay in the first cache
    for (std::int64_t begin = 0; begin < n; begin += part) {
        const std::int64_t end = n - begin < part ? n : begin + part;
        for (std::int64_t c = 0; c < width; ++c)
            for (std::int64_t i = begin; i < end; ++i) strip[i * row + c] = c < columns ? static_cast<T>(b[i + c * step]) : T(0);
    }
}

template <class T>
inline void from_strip(std::int64_t n, std::int64_t columns, const T* strip, std::int64_t row, T* b, std::int64_t step) {
    constexpr std::int64_t part = 64;
    for (std::int64_t begin = 0; begin < n; begin += part) {
        const std::int64_t end = n - begin < part ? n : begin + part;
        for (std::int64_t c = 0; c < columns; ++c)
            for (std::int64_t i = begin; i < end; ++i) b[i + c * step] = strip[i * row + c];
    }
}

// How a block of columns is cut: strips of two vectors, the last ones of a single vector where that suffices.
// Where threads would be left without a strip, all are of a single vector; so are those of complex numbers, where
// a vector of real parts has one of imaginary parts beside it.
template <class T> struct Strips {
    static constexpr std::int64_t lanes = Lanes<T>::count;
    std::int64_t columns, wide, count;

    Strips(std::int64_t all, int threads, int parts = 1) : columns(all) {
        wide = parts == 1 && all > lanes * threads ? all / (strip_vectors * lanes) : 0;
        const std::int64_t rest = all - wide * strip_vectors * lanes;
        if (wide > 0 && rest > lanes) ++wide;
        const std::int64_t left = all - wide * strip_vectors * lanes;
        count = wide + (left > 0 ? (left + lanes - 1) / lanes : 0);
    }

    std::int64_t width(std::int64_t strip) const { return (strip < wide ? strip_vectors : 1) * lanes; }
    std::int64_t first(std::int64_t strip) const {
        return strip < wide ? strip * strip_vectors * lanes : (wide * strip_vectors + strip - wide) * lanes;
    }
    std::int64_t used(std::int64_t strip) const {  // columns of the strip that exist
        const std::int64_t left = columns - first(strip);
        return left < width(strip) ? left : width(strip);
    }
    std::int64_t total() const { return first(count); }  // columns, with those that do not exist
};

// Threads for the product of an n x n matrix with so many columns: one more for every million products, which take
// longer than waking a thread.
inline int strip_threads(std::int64_t n, std::int64_t columns, int threads) {
    const std::int64_t paying = n * n / 1024 * columns / 1024;
    return paying < 1 ? 1 : paying < threads ? static_cast<int>(paying) : threads;
}

// Calls body(V) for the vectors of a strip.
template <class T, class Body> inline void with_vectors(std::int64_t width, const Body& body) {
    if (width == strip_vectors * Lanes<T>::count) body(RowsOf<strip_vectors>{});
    else body(RowsOf<1>{});
}

// Whether rows that are so far apart would meet in the same places of the first cache.
template <class T> inline bool rows_collide(std::int64_t step) {
    return step * static_cast<std::int64_t>(sizeof(T)) % 1024 == 0;
}

// Rows of a matrix whose products with many columns of a strip keep it in the second cache, a multiple of
// strip_rows, if n numbers of each are read.
template <class T> inline std::int64_t rows_of_block(std::int64_t n) {
    const std::int64_t group = n * strip_rows * static_cast<std::int64_t>(sizeof(T)), half = 1 << 19;
    const std::int64_t groups = half / (group + 1);
    return strip_rows * (groups < 1 ? 1 : groups > 8 ? 8 : groups);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
