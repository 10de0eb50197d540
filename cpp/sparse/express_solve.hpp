// The kernels of express.hpp, for one column or as many as a vector has lanes.
#pragma once

#include "native/exact.hpp"
#include "sparse/express.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

using sparse::ExpressSystem;
using sparse::SparseGate;
using sparse::SparseStatus;

template <class V> inline V all_lanes(double x) {
    if constexpr (sizeof(V) == sizeof(double)) return x;
    else return x - V{};  // a broadcast, whatever x is
}

template <class V> inline V of(const double* x) {
    V v;
    std::memcpy(&v, x, sizeof v);
    return v;
}
template <class V> inline void put(double* x, V v) { std::memcpy(x, &v, sizeof v); }

inline double absolute(double x) { return __builtin_fabs(x); }
inline Vector<double> absolute(Vector<double> x) { return magnitude(x); }

// The larger one; NaN if one is.
inline double larger(double x, double y) { return y > x || y != y ? y : x; }
inline Vector<double> larger(Vector<double> x, Vector<double> y) { return (y > x) | (y != y) ? y : x; }

// Numbers of one row: those of some columns, with their parts.
template <int parts, class V> struct Entry {
    static constexpr std::int64_t lanes = sizeof(V) / sizeof(double), step = parts * lanes;
    V part[parts];

    static Entry at(const double* block, std::int64_t row) {
        Entry x;
        for (int p = 0; p < parts; ++p) x.part[p] = of<V>(block + row * step + p * lanes);
        return x;
    }
    void put_at(double* block, std::int64_t row) const {
        for (int p = 0; p < parts; ++p) put(block + row * step + p * lanes, part[p]);
    }
    // *this -= a x; F is double or float.
    template <class F> void subtract(const F* a, const Entry& x) {
        const V re = all_lanes<V>(a[0]);
        if constexpr (parts == 1) {
            part[0] = multiply_add(-re, x.part[0], part[0]);
        } else {
            const V im = all_lanes<V>(a[1]);
            part[0] = multiply_add(im, x.part[1], multiply_add(-re, x.part[0], part[0]));
            part[1] = multiply_add(-im, x.part[0], multiply_add(-re, x.part[1], part[1]));
        }
    }
    template <class F> void multiply(const F* a) {
        const Entry x = *this;
        const V re = all_lanes<V>(a[0]);
        part[0] = re * x.part[0];
        if constexpr (parts == 2) {
            const V im = all_lanes<V>(a[1]);
            part[0] = multiply_add(-im, x.part[1], part[0]);
            part[1] = multiply_add(im, x.part[0], re * x.part[1]);
        }
    }
    void scale(double a) {
        for (int p = 0; p < parts; ++p) part[p] = part[p] * all_lanes<V>(a);
    }
    // |x|, or the square of the modulus.
    V measure() const {
        if constexpr (parts == 1) return absolute(part[0]);
        else return multiply_add(part[0], part[0], part[1] * part[1]);
    }
};

template <int parts, class V, class F>
void sparse_substitute(const ExpressSystem& s, const double* b, double* x, double* y) {
    using E = Entry<parts, V>;
    const std::int64_t n = s.n;
    const F *const lower = static_cast<const F*>(s.lower), *const upper = static_cast<const F*>(s.upper);
    const F* const inverse_diagonal = static_cast<const F*>(s.inverse_diagonal);
    if (!s.transposed) {
        for (std::int64_t k = 0; k < n; ++k) E::at(b, s.column_at[k]).put_at(y, k);
        for (std::int64_t block = 0; block < s.blocks; ++block) {
            const std::int64_t first = s.block_start[block], last = s.block_start[block + 1];
            for (std::int64_t k = first; k < last; ++k) {
                E sum = E::at(y, k);
                for (std::int64_t e = s.upper_start[k]; e < s.upper_start[k + 1]; ++e)
                    sum.subtract(upper + parts * e, E::at(y, s.upper_rows[e]));
                sum.multiply(inverse_diagonal + parts * k);
                sum.put_at(y, k);
            }
            for (std::int64_t k = last - 2; k >= first; --k) {
                E sum = E::at(y, k);
                for (std::int64_t e = s.lower_start[k]; e < s.lower_start[k + 1]; ++e)
                    sum.subtract(lower + parts * e, E::at(y, s.lower_rows[e]));
                sum.put_at(y, k);
            }
        }
        for (std::int64_t k = 0; k < n; ++k) {
            E sum = E::at(y, k);
            sum.scale(s.scale[s.row_at[k]]);
            sum.put_at(x, s.row_at[k]);
        }
        return;
    }
    const auto subtract_column = [&](const E& u, const F* values, const std::int32_t* rows,
                                     const std::int64_t* start, std::int64_t k) {
        for (std::int64_t e = start[k]; e < start[k + 1]; ++e) {
            E sum = E::at(y, rows[e]);
            sum.subtract(values + parts * e, u);
            sum.put_at(y, rows[e]);
        }
    };
    for (std::int64_t k = 0; k < n; ++k) {
        E right = E::at(b, s.row_at[k]);
        right.scale(s.scale[s.row_at[k]]);
        right.put_at(y, k);
    }
    for (std::int64_t block = s.blocks - 1; block >= 0; --block) {
        const std::int64_t first = s.block_start[block], last = s.block_start[block + 1];
        for (std::int64_t k = first; k < last; ++k)
            subtract_column(E::at(y, k), lower, s.lower_rows, s.lower_start, k);
        for (std::int64_t k = last - 1; k >= first; --k) {
            E u = E::at(y, k);
            u.multiply(inverse_diagonal + parts * k);
            u.put_at(y, k);
            subtract_column(u, upper, s.upper_rows, s.upper_start, k);
        }
    }
    for (std::int64_t k = 0; k < n; ++k) E::at(y, k).put_at(x, s.column_at[k]);
}

// What the gate compares, for each column.
template <class V> struct Sizes {
    V residual, answer, right;  // the norms of r, x and b; squared for complex numbers
    V by_row;                   // the largest |r_i| / (sums_i ||x|| + |b_i|), rather too large
    V rounding;                 // the largest change of a part of x by rounding to single precision: exact
};

template <class V> inline V square_roots(V x) {
    if constexpr (sizeof(V) == sizeof(double)) return square_root(x);
    else {
        for (int lane = 0; lane < Lanes<double>::count; ++lane) x[lane] = square_root(x[lane]);
        return x;
    }
}

// x as it is returned, rounded to single precision.
template <class V> inline V single(V x) {
    if constexpr (sizeof(V) == sizeof(double)) return static_cast<double>(static_cast<float>(x));
    else {
        typedef float Halves __attribute__((vector_size(ROUNDWISE_VECTOR_BYTES / 2)));
        return __builtin_convertvector(__builtin_convertvector(x, Halves), V);
    }
}

// r = b - A x in twice the precision, and the sizes of all.
template <int parts, class V>
Sizes<V> sparse_residual(const ExpressSystem& s, bool is_single, const double* b, const double* x, double* r) {
    using E = Entry<parts, V>;
    const std::int64_t n = s.n;
    Sizes<V> sizes = {};
    for (std::int64_t i = 0; i < n; ++i) {
        const E here = E::at(x, i);
        sizes.right = larger(sizes.right, E::at(b, i).measure());
        if (!is_single) {
            sizes.answer = larger(sizes.answer, here.measure());
            continue;
        }
        E rounded, change;
        for (int p = 0; p < parts; ++p) {
            rounded.part[p] = single(here.part[p]);
            change.part[p] = rounded.part[p] - here.part[p];
        }
        sizes.answer = larger(sizes.answer, rounded.measure());
        for (int p = 0; p < parts; ++p) sizes.rounding = larger(sizes.rounding, absolute(change.part[p]));
    }
    if constexpr (parts == 2)
        sizes.answer = square_roots(sizes.answer), sizes.right = square_roots(sizes.right);
    for (std::int64_t i = 0; i < n; ++i) {
        const E right = E::at(b, i);
        TwiceSum<V> sums[parts];
        for (int p = 0; p < parts; ++p) sums[p] = {right.part[p], V{}};
        for (std::int32_t e = s.starts[i]; e < s.starts[i + 1]; ++e) {
            const double* a = s.values + std::int64_t{parts} * e;
            const E factor = E::at(x, s.places[e]);
            const V re = all_lanes<V>(a[0]);
            sums[0].add_product(-re, factor.part[0]);
            if constexpr (parts == 2) {
                const V im = all_lanes<V>(a[1]);
                sums[0].add_product(im, factor.part[1]);
                sums[1].add_product(-re, factor.part[1]);
                sums[1].add_product(-im, factor.part[0]);
            }
        }
        E left;
        for (int p = 0; p < parts; ++p) left.part[p] = sums[p].high + sums[p].low;
        left.put_at(r, i);
        sizes.residual = larger(sizes.residual, left.measure());
        V size = absolute(left.part[0]), beside = absolute(right.part[0]);
        if constexpr (parts == 2) {
            size += absolute(left.part[1]);
            beside = larger(beside, absolute(right.part[1]));
        }
        const V whole = all_lanes<V>(s.sums[i]) * sizes.answer + beside;
        const V tiny = all_lanes<V>(0x1p-1022);  // a quotient of zeros is zero
        sizes.by_row = larger(sizes.by_row, size / (whole + tiny));
    }
    if constexpr (parts == 2) sizes.residual = square_roots(sizes.residual);
    return sizes;
}

template <class V> inline double lane_of(const V& x, std::int64_t lane) {
    if constexpr (sizeof(V) == sizeof(double)) return x;
    else return x[lane];
}

template <int parts, class V, class F> struct SparseSolve {
    using E = Entry<parts, V>;
    static constexpr std::int64_t lanes = E::lanes;

    const ExpressSystem& s;
    const SparseGate& gate;
    std::int64_t count;
    const double* b;
    double *x, *r, *z, *y, *kept;
    Sizes<V> sizes{};

    void measure() { sizes = sparse_residual<parts, V>(s, gate.is_single, b, x, r); }

    // The upper bound of a column's backward error; infinite where its numbers are out of range. A column that is
    // rounded to x + d has a residual of at most ||r|| + ||A|| ||d||; for complex numbers ||A|| is at most the
    // square root of 2 times `norm`, and so is ||d|| beside the largest change of a part.
    double error(std::int64_t lane) const {
        const double answer = lane_of(sizes.answer, lane), right = lane_of(sizes.right, lane);
        const double left = lane_of(sizes.residual, lane);
        if (answer == 0 && right == 0 && left == 0)  // squares of tiny parts vanish, too
            return parts == 1 || (largest(b, lane) == 0 && largest(x, lane) == 0) ? 0 : __builtin_huge_val();
        const double size = s.norm * answer + right;
        if (!(size > gate.least && size < gate.most)) return __builtin_huge_val();
        double whole = left;
        if (gate.is_single) whole += s.norm * lane_of(sizes.rounding, lane) * parts;
        return whole / size * gate.growth + gate.residual_error;
    }

    bool passes(std::int64_t lane) const { return error(lane) <= gate.tolerance; }

    bool has_digits(std::int64_t lane) const {
        const double by_row = lane_of(sizes.by_row, lane);
        return s.stretch * (by_row > 0x1p-53 ? by_row : by_row == by_row ? 0x1p-53 : by_row) < sparse::certain;
    }

    double largest(const double* block, std::int64_t lane) const {
        double result = 0;
        for (std::int64_t i = 0; i < s.n; ++i)
            for (int p = 0; p < parts; ++p)
                result = larger(result, absolute(block[(parts * i + p) * lanes + lane]));
        return result;
    }

    // x += z in one column: others stay as they are, whoever is beside them.
    void correct(std::int64_t lane) {
        for (std::int64_t i = 0; i < parts * s.n; ++i) x[i * lanes + lane] += z[i * lanes + lane];
    }

    static constexpr bool is_low = sizeof(F) < sizeof(double);

    // Whether the factors are far from losing A in their rounding errors, as far as that stretch tells.
    bool is_far_from_singular() const {
        return s.stretch * (is_low ? sparse::single_roundoff : sparse::double_roundoff) < sparse::certain;
    }

    SparseStatus run(sparse::SparseFound& found) {
        sparse_substitute<parts, V, F>(s, b, x, y);
        measure();
        int steps = refined();
        bool certain = !is_low || is_far_from_singular();
        if (gate.is_forward) {
            if (!((is_far_from_singular() || is_resolved()) && made_right(steps))) return SparseStatus::few_digits;
        } else {
            for (std::int64_t lane = 0; lane < count; ++lane) certain = certain && has_digits(lane);
            if (!certain && !(is_resolved() && made_certain())) return SparseStatus::few_digits;
        }
        if (steps > found.steps) found.steps = steps;
        for (std::int64_t lane = 0; lane < count; ++lane) {
            const double here = error(lane);
            if (!(here <= gate.tolerance)) return SparseStatus::above_tolerance;
            if (here > found.error) found.error = here;
        }
        return SparseStatus::accepted;
    }

    // Corrects the columns that do not pass; with low factors as long as their errors halve. How often that was.
    int refined() {
        double before[lanes];
        for (std::int64_t lane = 0; lane < lanes; ++lane) before[lane] = 1;
        for (int step = 0; step < (is_low ? sparse::low_corrections : sparse::sparse_corrections); ++step) {
            bool wanted = false;
            for (std::int64_t lane = 0; lane < count; ++lane) {
                const double here = error(lane);
                if (passes(lane) || !(here < before[lane])) continue;
                if (!wanted) sparse_substitute<parts, V, F>(s, r, z, y);
                wanted = true;
                correct(lane);
                if (is_low) before[lane] = here / 2;
            }
            if (!wanted) return step;
            measure();
        }
        return is_low ? sparse::low_corrections : sparse::sparse_corrections;
    }

    // Corrects all columns until what is to come would change them by less than u (`ForwardRule`): each correction,
    // relative to x, is at most a quarter of the one before, the first one a half of x, and none of the rates is
    // believed to be below 2^-9.
    bool made_right(int& steps) {
        constexpr double slowest = 0.25, least_rate = 0x1p-9;
        double before[lanes], rate[lanes];
        bool done[lanes];
        std::int64_t open = count;
        for (std::int64_t lane = 0; lane < count; ++lane) {
            before[lane] = 1, rate[lane] = least_rate, done[lane] = false;
            const double size = lane_of(sizes.answer, lane);
            // Products with the rows of smallest numbers have room for twice 53 bits, too.
            if (size > 0 && !(s.least * size > 0x1p-900 && s.norm * size < 0x1p900)) return false;
        }
        for (int step = 0; open > 0; ++step) {
            if (step == sparse::forward_corrections) return false;
            sparse_substitute<parts, V, F>(s, r, z, y);
            ++steps;
            for (std::int64_t lane = 0; lane < count; ++lane) {
                if (done[lane]) continue;
                correct(lane);
                const double correction = largest(z, lane), size = largest(x, lane);
                const double change = correction == 0 ? 0 : correction / size;
                const double here = change == 0 ? 0 : change / before[lane];
                if (!(here <= (step == 0 ? 2 * slowest : slowest))) return false;
                rate[lane] = larger(rate[lane], here);
                before[lane] = change;
                if (2 * change * rate[lane] > sparse::double_roundoff * (1 - rate[lane])) continue;
                done[lane] = true;
                --open;
            }
            measure();
        }
        return true;
    }

    // Whether the factors M tell A from a singular matrix: y - M^-1 A y is small beside y = M^-1 image. Both are
    // compared in units that make the largest entries of A's columns 1, once its rows are divided by their
    // sizes: those of a column of tiny numbers are huge, and would hide others. All columns of a block are alike.
    bool is_resolved() {
        double *image = kept, *of_image = z;
        for (std::int64_t i = 0; i < s.n; ++i)
            for (std::int64_t k = 0; k < E::step; ++k)
                image[i * E::step + k] =
                    s.sums[i] * sparse::random_number(static_cast<std::uint64_t>(parts * i + k / lanes));
        sparse_substitute<parts, V, F>(s, image, of_image, y);
        // r is computed again below
        (void)sparse_residual<parts, V>(s, false, image, of_image, r);
        sparse_substitute<parts, V, F>(s, r, image, y);
        double* units = y;
        for (std::int64_t j = 0; j < s.n; ++j) units[j] = 0;
        for (std::int64_t i = 0; i < s.n; ++i)
            for (std::int32_t e = s.starts[i]; e < s.starts[i + 1]; ++e) {
                double size = 0;
                for (int p = 0; p < parts; ++p) size += absolute(s.values[std::int64_t{parts} * e + p]);
                units[s.places[e]] = larger(units[s.places[e]], size / s.sums[i]);
            }
        double lost = 0, whole = 0;
        for (std::int64_t j = 0; j < s.n; ++j)
            for (int p = 0; p < parts; ++p) {
                const std::int64_t at = (parts * j + p) * lanes;
                lost = larger(lost, absolute(units[j] * image[at]));
                whole = larger(whole, absolute(units[j] * of_image[at]));
            }
        measure();
        return lost < sparse::resolved * whole;
    }

    // Corrects the columns with few digits until one more correction changes next to nothing.
    bool made_certain() {
        double before[lanes];
        bool done[lanes];
        std::int64_t open = 0;
        for (std::int64_t lane = 0; lane < count; ++lane) {
            done[lane] = has_digits(lane), before[lane] = __builtin_huge_val();
            open += !done[lane];
        }
        for (int step = 0; step <= sparse::sparse_corrections && open > 0; ++step) {
            sparse_substitute<parts, V, F>(s, r, z, y);
            for (std::int64_t lane = 0; lane < count; ++lane) {
                if (done[lane]) continue;
                const double change = largest(z, lane) / largest(x, lane);
                if (!(change < sparse::resolved * before[lane])) return false;
                before[lane] = change;
                if (change < sparse::certain) {
                    done[lane] = true;
                    --open;
                } else {
                    correct(lane);
                }
            }
            measure();
        }
        return open == 0;
    }
};

template <int parts, class V, class F>
SparseStatus sparse_solve(const ExpressSystem& s, const SparseGate& gate, std::int64_t count, const double* b,
                          double* x, double* work, sparse::SparseFound& found) {
    const std::int64_t size = s.n * Entry<parts, V>::step;
    SparseSolve<parts, V, F> solve = {s, gate, count, b, x, work, work + size, work + 2 * size, work + 3 * size};
    return solve.run(found);
}

template <int parts, class V, class F>
constexpr sparse::ExpressKernel<parts> express_kernel = {Entry<parts, V>::lanes, sparse_substitute<parts, V, F>,
                                                         sparse_solve<parts, V, F>};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
