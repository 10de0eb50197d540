// Substitution with a triangle, whose rows are summed as residuals are (exact.hpp): s = b_i - sum_j a_ij x_j is known
// to so many roundings, and the residual of row i is s - a_ii x_i, which is computed in twice the precision at once.
// So each entry of A is read once, for x, for the residual of x and for the norm of A.
//
// Compiled with -ffp-contract=off, as exact.hpp.
#pragma once

#include "native/exact.hpp"
#include "native/structured.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

inline double magnitude_of(double x) { return x < 0 ? -x : x; }
inline Vector<double> magnitude_of(Vector<double> x) {
    using Integers = Vector<std::int64_t>;
    return bit_cast<Vector<double>>(bit_cast<Integers>(x) & 0x7fffffffffffffff);
}
// The larger one; NaN if one is.
inline void raise(double& most, double size) {
    if (size > most || size != size) most = size;
}
inline void raise(Vector<double>& most, Vector<double> size) {
    most = (size > most) | (size != size) ? size : most;
}

// A number of one part or two; V is double or a vector of them.
template <int parts, class V> struct Value {
    V part[parts];
};

// The modulus, squared if there are two parts.
template <int parts, class V> inline V size_of(const Value<parts, V>& x) {
    if constexpr (parts == 1) return magnitude_of(x.part[0]);
    else return x.part[0] * x.part[0] + x.part[1] * x.part[1];
}

// x / d, with intermediate results of about the size of x (Smith, Commun. ACM 5(8), 1962).
template <int parts, class V> inline Value<parts, V> quotient_of(const Value<parts, V>& x, const Value<parts, double>& d) {
    if constexpr (parts == 1) {
        return {{x.part[0] / d.part[0]}};
    } else {
        const V re = x.part[0], im = x.part[1];
        const double a = d.part[0], b = d.part[1];
        if (magnitude_of(a) >= magnitude_of(b)) {
            const double ratio = b / a, divisor = a + b * ratio;
            return {{(re + im * ratio) / divisor, (im - re * ratio) / divisor}};
        }
        const double ratio = a / b, divisor = b + a * ratio;
        return {{(re * ratio + im) / divisor, (im * ratio - re) / divisor}};
    }
}

// sums -= a x, every product exactly.
template <int parts, class V>
inline void subtract_exactly(TwiceSum<V> (&sums)[parts], const Value<parts, double>& a, const Value<parts, V>& x) {
    const V re = V{} - a.part[0];
    sums[0].add_product(re, x.part[0]);
    if constexpr (parts == 2) {
        const V im = V{} + a.part[1];
        sums[0].add_product(im, x.part[1]);
        sums[1].add_product(re, x.part[1]);
        sums[1].add_product(V{} - a.part[1], x.part[0]);
    }
}

// x = s / d for what is left of a row, and the modulus of its residual.
template <int parts, class V>
inline Value<parts, V> solved_row(TwiceSum<V> (&sums)[parts], const Value<parts, double>& d, V& residual) {
    Value<parts, V> left;
    for (int p = 0; p < parts; ++p) left.part[p] = sums[p].high + sums[p].low;
    const Value<parts, V> x = quotient_of<parts, V>(left, d);
    subtract_exactly<parts, V>(sums, d, x);
    for (int p = 0; p < parts; ++p) left.part[p] = sums[p].high + sums[p].low;
    residual = size_of<parts, V>(left);
    return x;
}

template <class S> inline double real_at(const char* data) {
    S value;  // which may not be aligned
    __builtin_memcpy(&value, data, sizeof value);
    return static_cast<double>(value);
}

template <class S, int parts> inline Value<parts, double> entry_of(const StridedMatrix& a, std::int64_t i, std::int64_t j) {
    const char* from = a.data + i * a.row_step + j * a.column_step;
    Value<parts, double> value;
    for (int p = 0; p < parts; ++p) value.part[p] = real_at<S>(from + p * static_cast<std::int64_t>(sizeof(S)));
    return value;
}

template <int parts> inline double sum_of_parts(const Value<parts, double>& a) {
    double sum = 0;
    for (int p = 0; p < parts; ++p) sum += magnitude_of(a.part[p]);
    return sum;
}

// Keeps the sum of a row, and its diagonal entry.
template <int parts> inline void count_row(TriangleFacts& facts, double sum, const Value<parts, double>& diagonal) {
    raise(facts.norm, sum);
    const double size = sum_of_parts<parts>(diagonal);
    if (!(size >= facts.smallest)) facts.smallest = size == size ? size : 0;
    if (size > facts.largest) facts.largest = size;
}

inline TriangleFacts no_facts() { return {0, __builtin_huge_val(), 0}; }
inline void finish_facts(int parts, TriangleFacts& facts) {
    constexpr double over_root_2 = 0.7071067811865475;  // not above the inverse of the square root of 2
    if (parts == 2) facts.norm *= over_root_2;
}

// ---- Many columns -----------------------------------------------------------------------------------------------

constexpr std::int64_t strip_lanes = Lanes<double>::count;

inline std::int64_t triangle_strip_workspace(std::int64_t n) {
    return 2 * strip_rows * (n + strip_rows) + 2 * strip_lanes;
}

// Packs rows `first` to `first` + rows - 1 of columns `begin` to `end` - 1, all of one column side by side, parts side
// by side; rows up to strip_rows are zero. Adds magnitudes to the sums of rows.
template <class S, int parts>
inline void pack_triangle(const StridedMatrix& a, std::int64_t first, std::int64_t rows, std::int64_t begin,
                          std::int64_t end, double* packed, double* sums) {
    const char* from = a.data + first * a.row_step + begin * a.column_step;
    const auto take = [&](std::int64_t s, double& sum) {
        for (int p = 0; p < parts; ++p) {
            const double value = real_at<S>(from + s * a.row_step + p * static_cast<std::int64_t>(sizeof(S)));
            packed[s * parts + p] = value;
            sum += magnitude_of(value);
        }
    };
    if (rows == strip_rows) {
        double own[strip_rows] = {};  // in registers
        for (std::int64_t j = begin; j < end; ++j, packed += parts * strip_rows, from += a.column_step)
#pragma GCC unroll 12
            for (int s = 0; s < strip_rows; ++s) take(s, own[s]);
#pragma GCC unroll 12
        for (int s = 0; s < strip_rows; ++s) sums[s] += own[s];
        return;
    }
    for (std::int64_t j = begin; j < end; ++j, packed += parts * strip_rows, from += a.column_step)
        for (std::int64_t s = 0; s < strip_rows; ++s) {
            if (s < rows) take(s, sums[s]);
            else
                for (int p = 0; p < parts; ++p) packed[s * parts + p] = 0;
        }
}

// For strip_rows rows of a strip: sums -= A X, for `count` columns of A and rows of X.
template <int parts, bool exact>
inline void subtract_strip(std::int64_t count, const double* packed, const double* x, std::int64_t block,
                           TwiceSum<Vector<double>> (&sums)[strip_rows][2]) {
    using V = Vector<double>;
    constexpr std::int64_t width = 2 * strip_lanes;
    if constexpr (exact) {
        for (std::int64_t l = 0; l < count; ++l, x += width, packed += parts * strip_rows)
            for (int s = 0; s < strip_rows; ++s)
                if constexpr (parts == 1) {
                    for (int v = 0; v < 2; ++v)
                        sums[s][v].add_product(V{} - packed[s], load(x + v * strip_lanes));
                } else {
                    const Value<2, V> row = {{load(x), load(x + strip_lanes)}};
                    subtract_exactly<2, V>(sums[s], {{packed[2 * s], packed[2 * s + 1]}}, row);
                }
    } else {
        const std::int64_t together = block / parts;
        while (count > 0) {
            const std::int64_t here = count < together ? count : together;
            V own[strip_rows][2] = {};
            for (std::int64_t l = 0; l < here; ++l, x += width, packed += parts * strip_rows) {
                const V first = load(x), second = load(x + strip_lanes);
                if constexpr (parts == 1) {
#pragma GCC unroll 12
                    for (int s = 0; s < strip_rows; ++s) {
                        const V entry = broadcast<double>(packed[s]);
                        own[s][0] = fused(first, entry, own[s][0]);
                        own[s][1] = fused(second, entry, own[s][1]);
                    }
                } else {
#pragma GCC unroll 12
                    for (int s = 0; s < strip_rows; ++s) {
                        const V re = broadcast<double>(packed[2 * s]), im = broadcast<double>(packed[2 * s + 1]);
                        own[s][0] = fused(first, re, own[s][0]);
                        own[s][1] = fused(second, re, own[s][1]);
                        own[s][0] = fused(-second, im, own[s][0]);
                        own[s][1] = fused(first, im, own[s][1]);
                    }
                }
            }
#pragma GCC unroll 12
            for (int s = 0; s < strip_rows; ++s)
#pragma GCC unroll 2
                for (int v = 0; v < 2; ++v) sums[s][v].add(-own[s][v]);
            count -= here;
        }
    }
}

// The rows of a strip that are solved for in turn: of the diagonal block, packed.
template <int parts, bool exact>
inline void solve_strip_rows(std::int64_t rows, bool upper, const double* diagonal, std::int64_t block, double* x,
                             TwiceSum<Vector<double>> (&sums)[strip_rows][2], Vector<double> (&largest)[3][2]) {
    using V = Vector<double>;
    constexpr std::int64_t width = 2 * strip_lanes;
    constexpr int columns = 2 / parts;  // numbers side by side
    const auto at = [=](std::int64_t s, std::int64_t j) {
        Value<parts, double> value;
        for (int p = 0; p < parts; ++p) value.part[p] = diagonal[(j * strip_rows + s) * parts + p];
        return value;
    };
    const auto row_of = [=](std::int64_t s, int v) {
        Value<parts, V> value;
        for (int p = 0; p < parts; ++p) value.part[p] = load(x + s * width + (v + p) * strip_lanes);
        return value;
    };
    const std::int64_t together = exact ? 1 : block / parts;
    for (std::int64_t turn = 0; turn < rows; ++turn) {
        const std::int64_t s = upper ? rows - 1 - turn : turn;
        for (int v = 0; v < columns; ++v) {
            TwiceSum<V>(&own)[parts] = *reinterpret_cast<TwiceSum<V>(*)[parts]>(&sums[s][v]);
            for (std::int64_t before = 0; before < turn;) {
                V products[parts] = {};
                const std::int64_t end = turn - before < together ? turn : before + together;
                for (; before < end; ++before) {
                    const std::int64_t j = upper ? rows - 1 - before : before;
                    const Value<parts, double> a = at(s, j);
                    const Value<parts, V> known = row_of(j, v);
                    if constexpr (exact) {
                        subtract_exactly<parts, V>(own, a, known);
                    } else {
                        products[0] = fused(known.part[0], broadcast<double>(a.part[0]), products[0]);
                        if constexpr (parts == 2) {
                            const V im = broadcast<double>(a.part[1]);
                            products[0] = fused(-known.part[1], im, products[0]);
                            products[1] = fused(known.part[1], broadcast<double>(a.part[0]), products[1]);
                            products[1] = fused(known.part[0], im, products[1]);
                        }
                    }
                }
                if constexpr (!exact)
                    for (int p = 0; p < parts; ++p) own[p].add(-products[p]);
            }
            V residual;
            const Value<parts, V> right = row_of(s, v);
            raise(largest[1][v], size_of<parts, V>(right));
            const Value<parts, V> found = solved_row<parts, V>(own, at(s, s), residual);
            for (int p = 0; p < parts; ++p) store<double>(x + s * width + (v + p) * strip_lanes, found.part[p]);
            raise(largest[0][v], size_of<parts, V>(found));
            raise(largest[2][v], residual);
        }
    }
}

template <class S, int parts, bool exact>
void triangle_strips(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, std::int64_t strips,
                     double* x, double* sizes, TriangleFacts& facts, double* packed) {
    using V = Vector<double>;
    constexpr std::int64_t width = 2 * strip_lanes;
    facts = no_facts();
    __builtin_memset(sizes, 0, static_cast<std::size_t>(strips * 3 * width) * sizeof *sizes);
    for (std::int64_t done = 0; done < n; done += strip_rows) {
        const std::int64_t rows = n - done < strip_rows ? n - done : strip_rows;
        const std::int64_t first = upper ? n - done - rows : done;
        const std::int64_t begin = upper ? first + rows : 0, end = upper ? n : first;
        double of_rows[strip_rows] = {}, *diagonal = packed + parts * strip_rows * (end - begin);
        pack_triangle<S, parts>(a, first, rows, begin, end, packed, of_rows);
        for (std::int64_t s = 0; s < rows; ++s)
            for (std::int64_t j = upper ? s : 0; j < (upper ? rows : s + 1); ++j) {
                const Value<parts, double> value = entry_of<S, parts>(a, first + s, first + j);
                for (int p = 0; p < parts; ++p) diagonal[(j * strip_rows + s) * parts + p] = value.part[p];
                of_rows[s] += sum_of_parts<parts>(value);
            }
        for (std::int64_t s = 0; s < rows; ++s)
            count_row<parts>(facts, of_rows[s], entry_of<S, parts>(a, first + s, first + s));
        for (std::int64_t strip = 0; strip < strips; ++strip) {
            double* own = x + strip * n * width;
            TwiceSum<V> sums[strip_rows][2];
            for (std::int64_t s = 0; s < strip_rows; ++s)
                for (int v = 0; v < 2; ++v)
                    sums[s][v] = {s < rows ? load(own + (first + s) * width + v * strip_lanes) : V{}, V{}};
            subtract_strip<parts, exact>(end - begin, packed, own + begin * width, block, sums);
            double* found = sizes + strip * 3 * width;
            V largest[3][2];
            for (int k = 0; k < 3; ++k)
                for (int v = 0; v < 2; ++v) largest[k][v] = load(found + k * width + v * strip_lanes);
            solve_strip_rows<parts, exact>(rows, upper, diagonal, block, own + first * width, sums, largest);
            for (int k = 0; k < 3; ++k)
                for (int v = 0; v < 2; ++v) store<double>(found + k * width + v * strip_lanes, largest[k][v]);
        }
    }
    finish_facts(parts, facts);
}

// ---- One column -------------------------------------------------------------------------------------------------

// Some numbers of A as doubles; those that do not exist are zero.
inline Vector<double> load_as(const double* from, std::int64_t valid) { return load_some(from, valid); }
inline Vector<double> load_as(const float* from, std::int64_t valid) {
    typedef float Half __attribute__((vector_size(ROUNDWISE_VECTOR_BYTES / 2)));
    Half half = {};
    if (valid == strip_lanes) __builtin_memcpy(&half, from, sizeof half);
    else
        for (std::int64_t k = 0; k < valid; ++k) half[k] = from[k];
    return __builtin_convertvector(half, Vector<double>);
}

// sums[k][c] += rows[k] x[c] over `count` reals, and of_rows[k] += |rows[k]|.
template <int K, int C, bool exact, class S>
inline void add_row_dots(std::int64_t count, const S* const (&rows)[K], const double* const (&x)[C], std::int64_t block,
                         TwiceSum<Vector<double>> (&sums)[K][C], Vector<double> (&of_rows)[K]) {
    using V = Vector<double>;
    constexpr std::int64_t lanes = strip_lanes;
    const auto add = [&](std::int64_t i, std::int64_t valid, V (&products)[K][C]) {
        V known[C];
        for (int c = 0; c < C; ++c) known[c] = load_some(x[c] + i, valid);
        for (int k = 0; k < K; ++k) {
            const V entry = load_as(rows[k] + i, valid);
            of_rows[k] += magnitude_of(entry);
            for (int c = 0; c < C; ++c)
                if constexpr (exact) sums[k][c].add_product(entry, known[c]);
                else products[k][c] = fused(entry, known[c], products[k][c]);
        }
    };
    std::int64_t i = 0;
    while (i < count) {
        V products[K][C] = {};
        const std::int64_t end = exact || (count - i) / lanes < block ? count : i + block * lanes;
        for (; i + lanes <= end; i += lanes) add(i, lanes, products);
        if (end == count && i < count) {
            add(i, count - i, products);
            i = count;
        }
        if constexpr (!exact)
            for (int k = 0; k < K; ++k)
                for (int c = 0; c < C; ++c) sums[k][c].add(products[k][c]);
    }
}

inline double sum_over_lanes(Vector<double> x) {
    double total = 0;
    for (int lane = 0; lane < strip_lanes; ++lane) total += x[lane];
    return total;
}

constexpr std::int64_t rows_at_a_time = 4, columns_at_a_time = 8;

inline std::int64_t triangle_single_workspace(std::int64_t n) { return 12 * (n + strip_lanes); }

// A has contiguous rows; a row of complex numbers is one of twice as many reals, multiplied with (Re x, -Im x, ...)
// and with (Im x, Re x, ...), which the workspace holds.
template <class S, int parts, bool exact>
void triangle_by_rows(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, double* y, double* sizes,
                      TriangleFacts& facts, double* turned) {
    using V = Vector<double>;
    constexpr int K = rows_at_a_time;
    const double* known[parts];
    for (int c = 0; c < parts; ++c) known[c] = parts == 1 ? y : turned + c * 2 * n;
    for (std::int64_t done = 0; done < n; done += K) {
        const int rows = static_cast<int>(n - done < K ? n - done : K);
        const std::int64_t first = upper ? n - done - rows : done;
        const std::int64_t begin = upper ? first + rows : 0, end = upper ? n : first;
        TwiceSum<V> sums[K][parts] = {};
        V of_rows[K] = {};
        const S* from[K];
        for (int k = 0; k < K; ++k)  // of rows that do not exist, one that does
            from[k] = reinterpret_cast<const S*>(a.data + (first + (k < rows ? k : 0)) * a.row_step) + begin * parts;
        const double* x[parts];
        for (int c = 0; c < parts; ++c) x[c] = known[c] + begin * parts;
        add_row_dots<K, parts, exact>((end - begin) * parts, from, x, block, sums, of_rows);
        for (int turn = 0; turn < rows; ++turn) {
            const int k = upper ? rows - 1 - turn : turn;
            const std::int64_t i = first + k;
            double row = sum_over_lanes(of_rows[k]);
            TwiceSum<double> left[parts];
            Value<parts, double> right;
            for (int p = 0; p < parts; ++p) {
                const TwiceSum<double> dots = over_lanes(sums[k][p]);
                right.part[p] = y[i * parts + p];
                left[p] = {right.part[p], 0.0};
                left[p].add(-dots.high);
                left[p].low -= dots.low;
            }
            for (int before = 0; before < turn; ++before) {
                const std::int64_t j = first + (upper ? rows - 1 - before : before);
                const Value<parts, double> entry = entry_of<S, parts>(a, i, j);
                Value<parts, double> other;
                for (int p = 0; p < parts; ++p) other.part[p] = y[j * parts + p];
                subtract_exactly<parts, double>(left, entry, other);
                row += sum_of_parts<parts>(entry);
            }
            const Value<parts, double> diagonal = entry_of<S, parts>(a, i, i);
            double residual;
            const Value<parts, double> found = solved_row<parts, double>(left, diagonal, residual);
            count_row<parts>(facts, row + sum_of_parts<parts>(diagonal), diagonal);
            raise(sizes[0], size_of<parts, double>(found));
            raise(sizes[1], size_of<parts, double>(right));
            raise(sizes[2], residual);
            for (int p = 0; p < parts; ++p) y[i * parts + p] = found.part[p];
            if constexpr (parts == 2) {
                turned[2 * i] = found.part[0], turned[2 * i + 1] = -found.part[1];
                turned[2 * n + 2 * i] = found.part[1], turned[2 * n + 2 * i + 1] = found.part[0];
            }
        }
    }
}

// Sums of `count` reals of K columns times C factors each, -= a x, in twice the precision; of_rows += |a|.
template <int K, int C, bool exact, class S>
inline void subtract_scaled(std::int64_t count, const S* const (&columns)[K], const double (&x)[K][C],
                            double* const (&high)[C], double* const (&low)[C], double* of_rows) {
    using V = Vector<double>;
    for (std::int64_t i = 0; i < count; i += strip_lanes) {
        const std::int64_t valid = count - i < strip_lanes ? count - i : strip_lanes;
        TwiceSum<V> sums[C];
        V products[C] = {}, row = load_some(of_rows + i, valid);
        for (int c = 0; c < C; ++c) sums[c] = {load_some(high[c] + i, valid), load_some(low[c] + i, valid)};
        for (int k = 0; k < K; ++k) {
            const V entry = load_as(columns[k] + i, valid);
            row += magnitude_of(entry);
            for (int c = 0; c < C; ++c)
                if constexpr (exact) sums[c].add_product(entry, V{} - x[k][c]);
                else products[c] = fused(entry, V{} - x[k][c], products[c]);
        }
        store_some<double>(of_rows + i, row, valid);
        for (int c = 0; c < C; ++c) {
            if constexpr (!exact) sums[c].add(products[c]);
            store_some<double>(high[c] + i, sums[c].high, valid);
            store_some<double>(low[c] + i, sums[c].low, valid);
        }
    }
}

// A has contiguous columns. Of complex numbers, sums are kept for a Re x and for a Im x.
template <class S, int parts, bool exact>
void triangle_by_columns(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, double* y,
                         double* sizes, TriangleFacts& facts, double* workspace) {
    constexpr int K = columns_at_a_time;
    double *high[parts], *low[parts], *of_rows = workspace;
    for (int c = 0; c < parts; ++c) {
        high[c] = workspace + (1 + 2 * c) * parts * n;
        low[c] = high[c] + parts * n;
    }
    __builtin_memset(workspace, 0, static_cast<std::size_t>((1 + 2 * parts) * parts * n) * sizeof *workspace);
    for (std::int64_t done = 0; done < n; done += K) {
        const int columns = static_cast<int>(n - done < K ? n - done : K);
        const std::int64_t first = upper ? n - done - columns : done;
        double x[K][parts] = {};
        for (int turn = 0; turn < columns; ++turn) {
            const int k = upper ? columns - 1 - turn : turn;
            const std::int64_t i = first + k;
            double row = 0;
            for (int p = 0; p < parts; ++p) row += of_rows[i * parts + p];
            TwiceSum<double> left[parts];
            Value<parts, double> right;
            const auto add = [&](int p, const double* h, const double* l, double sign) {
                left[p].add(sign * *h);
                left[p].low += sign * *l;
            };
            for (int p = 0; p < parts; ++p) {
                right.part[p] = y[i * parts + p];
                left[p] = {right.part[p], 0.0};
                add(p, high[0] + i * parts + p, low[0] + i * parts + p, 1);
            }
            if constexpr (parts == 2) {
                add(0, high[1] + 2 * i + 1, low[1] + 2 * i + 1, -1);
                add(1, high[1] + 2 * i, low[1] + 2 * i, 1);
            }
            for (int before = 0; before < turn; ++before) {
                const int other = upper ? columns - 1 - before : before;
                const Value<parts, double> entry = entry_of<S, parts>(a, i, first + other);
                Value<parts, double> known;
                for (int p = 0; p < parts; ++p) known.part[p] = x[other][p];
                subtract_exactly<parts, double>(left, entry, known);
                row += sum_of_parts<parts>(entry);
            }
            const Value<parts, double> diagonal = entry_of<S, parts>(a, i, i);
            double residual;
            const Value<parts, double> found = solved_row<parts, double>(left, diagonal, residual);
            count_row<parts>(facts, row + sum_of_parts<parts>(diagonal), diagonal);
            raise(sizes[0], size_of<parts, double>(found));
            raise(sizes[1], size_of<parts, double>(right));
            raise(sizes[2], residual);
            for (int p = 0; p < parts; ++p) y[i * parts + p] = x[k][p] = found.part[p];
        }
        // The rows that are left, all of A's columns `first` to `first` + columns - 1.
        const std::int64_t begin = upper ? 0 : first + columns, count = (upper ? first : n - begin) * parts;
        double *highs[parts], *lows[parts];
        for (int c = 0; c < parts; ++c) highs[c] = high[c] + begin * parts, lows[c] = low[c] + begin * parts;
        const auto subtract = [&](auto size, int k) {
            constexpr int taken = decltype(size)::rows;
            const S* from[taken];
            double factors[taken][parts];
            for (int l = 0; l < taken; ++l) {
                from[l] = reinterpret_cast<const S*>(a.data + (first + k + l) * a.column_step) + begin * parts;
                for (int p = 0; p < parts; ++p) factors[l][p] = x[k + l][p];
            }
            subtract_scaled<taken, parts, exact>(count, from, factors, highs, lows, of_rows + begin * parts);
        };
        int k = 0;
        if (columns == K && (exact || block >= K)) subtract(RowsOf<K>{}, 0), k = K;
        for (; (exact || block >= K / 2) && k + K / 2 <= columns; k += K / 2) subtract(RowsOf<K / 2>{}, k);
        for (; k < columns; ++k) subtract(RowsOf<1>{}, k);
    }
}

template <class S, int parts, bool exact>
void triangle_of_one(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, double* y, double* sizes,
                     TriangleFacts& facts, double* workspace) {
    facts = no_facts();
    for (int k = 0; k < 3; ++k) sizes[k] = 0;
    if (a.has_contiguous_rows()) triangle_by_rows<S, parts, exact>(n, a, upper, block, y, sizes, facts, workspace);
    else triangle_by_columns<S, parts, exact>(n, a, upper, block, y, sizes, facts, workspace);
    finish_facts(parts, facts);
}

// Calls body(a number of A's type, parts, whether every product is exact).
template <class Body> inline void with_triangle_kind(const StridedMatrix& a, std::int64_t block, const Body& body) {
    const auto parts_of = [&](auto number) {
        const auto exactness = [&](auto parts) {
            if (block < 2) body(number, parts, RowsOf<1>{});
            else body(number, parts, RowsOf<0>{});
        };
        if (a.is_complex) exactness(RowsOf<2>{});
        else exactness(RowsOf<1>{});
    };
    if (a.is_single) parts_of(0.0f);
    else parts_of(0.0);
}

inline void solve_triangle_strips(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block,
                                  std::int64_t strips, double* x, double* sizes, TriangleFacts& facts, double* packed) {
    with_triangle_kind(a, block, [&](auto number, auto parts, auto exact) {
        triangle_strips<decltype(number), decltype(parts)::rows, decltype(exact)::rows == 1>(
            n, a, upper, block, strips, x, sizes, facts, packed);
    });
}

inline void solve_triangle_of_one(std::int64_t n, const StridedMatrix& a, bool upper, std::int64_t block, double* x,
                                  double* sizes, TriangleFacts& facts, double* workspace) {
    with_triangle_kind(a, block, [&](auto number, auto parts, auto exact) {
        triangle_of_one<decltype(number), decltype(parts)::rows, decltype(exact)::rows == 1>(n, a, upper, block, x,
                                                                                            sizes, facts, workspace);
    });
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
