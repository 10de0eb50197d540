#include "krylov/vectors.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "common/parallel.hpp"

namespace roundwise::krylov {

namespace {

constexpr std::int64_t least_shared = 1 << 17;  // numbers, a MiB: below, waking a thread takes longer than it saves
constexpr int lanes = 8;                        // partial sums, which the compiler keeps in vectors

// Calls body(first strip, behind the last one) on parts of the strips.
template <class Body> void over_strips(std::int64_t n, std::int64_t numbers, int threads, Body& body) {
    split_range((n + strip - 1) / strip, 1, numbers < least_shared ? 1 : threads,
                [](void* context, std::int64_t begin, std::int64_t end) {
                    (*static_cast<Body*>(context))(begin, end);
                },
                &body);
}

inline double sum_of_lanes(const double* part) {
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

// The sum of term(i) for begin <= i < end.
template <class Term> inline double sum_of(std::int64_t begin, std::int64_t end, const Term& term) {
    double part[lanes] = {};
    std::int64_t i = begin;
    for (; i + lanes <= end; i += lanes)
        for (int lane = 0; lane < lanes; ++lane) part[lane] += term(i + lane);
    for (int lane = 0; i < end; ++i, ++lane) part[lane] += term(i);
    return sum_of_lanes(part);
}

inline double largest(double so_far, double x) { return std::fabs(x) > so_far ? std::fabs(x) : so_far; }

double total(const std::vector<double>& parts, std::int64_t begin, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += parts[begin + i];
    return sum;
}

std::int64_t strips_of(std::int64_t n) { return (n + strip - 1) / strip; }

}  // namespace

void dots(std::int64_t n, std::int64_t k, const double* x, const double* y, double* dots, int threads) {
    const std::int64_t strips = strips_of(n);
    std::vector<double> parts(static_cast<std::size_t>(strips * k));
    auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t j = 0; j < k; ++j)
            for (std::int64_t s = first; s < last; ++s) {
                const double *xs = x + j * n, *ys = y + j * n;
                parts[j * strips + s] = sum_of(s * strip, std::min(n, (s + 1) * strip),
                                               [=](std::int64_t i) { return xs[i] * ys[i]; });
            }
    };
    over_strips(n, n * k, threads, body);
    for (std::int64_t j = 0; j < k; ++j) dots[j] = total(parts, j * strips, strips);
}

void step(std::int64_t n, std::int64_t k, const double* a, const double* p, const double* q, double* x, double* r,
          double* sizes, int threads) {
    const std::int64_t strips = strips_of(n);
    std::vector<double> squares(static_cast<std::size_t>(strips * k)), tops(2 * squares.size());
    auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t j = 0; j < k; ++j)
            for (std::int64_t s = first; s < last; ++s) {
                const double alpha = a[j], *ps = p + j * n, *qs = q + j * n;
                double *xs = x + j * n, *rs = r + j * n, top_r[lanes] = {}, top_x[lanes] = {};
                double square[lanes] = {};
                const auto at = [&](std::int64_t i, int lane) {
                    const double xi = xs[i] += alpha * ps[i], ri = rs[i] -= alpha * qs[i];
                    square[lane] += ri * ri;
                    top_x[lane] = largest(top_x[lane], xi), top_r[lane] = largest(top_r[lane], ri);
                };
                const std::int64_t end = std::min(n, (s + 1) * strip);
                std::int64_t i = s * strip;
                for (; i + lanes <= end; i += lanes)
                    for (int lane = 0; lane < lanes; ++lane) at(i + lane, lane);
                for (int lane = 0; i < end; ++i, ++lane) at(i, lane);
                squares[j * strips + s] = sum_of_lanes(square);
                double most_r = 0, most_x = 0;
                for (int lane = 0; lane < lanes; ++lane)
                    most_r = largest(most_r, top_r[lane]), most_x = largest(most_x, top_x[lane]);
                tops[2 * (j * strips + s)] = most_r, tops[2 * (j * strips + s) + 1] = most_x;
            }
    };
    over_strips(n, n * k, threads, body);
    for (std::int64_t j = 0; j < k; ++j) {
        double* of_column = sizes + sizes_per_column * j;
        of_column[0] = total(squares, j * strips, strips), of_column[1] = of_column[2] = 0;
        for (std::int64_t s = 0; s < strips; ++s)
            for (int which = 0; which < 2; ++which)
                of_column[1 + which] = largest(of_column[1 + which], tops[2 * (j * strips + s) + which]);
    }
}

void combine(std::int64_t n, std::int64_t k, const double* a, const double* x, const double* b, double* y,
             int threads) {
    auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t j = 0; j < k; ++j) {
            const double alpha = a[j], beta = b[j], *xs = x + j * n;
            double* ys = y + j * n;
            const std::int64_t end = std::min(n, last * strip);
            for (std::int64_t i = first * strip; i < end; ++i) ys[i] = alpha * xs[i] + beta * ys[i];
        }
    };
    over_strips(n, n * k, threads, body);
}

double project(std::int64_t n, std::int64_t rows, const double* v, const double* h, double* w, double* next,
               int threads) {
    const std::int64_t strips = strips_of(n);
    std::vector<double> parts(static_cast<std::size_t>(strips * (rows + 1)));
    auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t begin = s * strip, end = std::min(n, begin + strip);
            for (std::int64_t row = 0; h != nullptr && row < rows; ++row) {
                const double *vs = v + row * n, factor = h[row];
                for (std::int64_t i = begin; i < end; ++i) w[i] -= factor * vs[i];
            }
            for (std::int64_t row = 0; next != nullptr && row < rows; ++row) {
                const double* vs = v + row * n;
                parts[row * strips + s] = sum_of(begin, end, [=](std::int64_t i) { return vs[i] * w[i]; });
            }
            parts[rows * strips + s] = sum_of(begin, end, [=](std::int64_t i) { return w[i] * w[i]; });
        }
    };
    over_strips(n, n * (rows + 1), threads, body);
    for (std::int64_t row = 0; next != nullptr && row < rows; ++row) next[row] = total(parts, row * strips, strips);
    return total(parts, rows * strips, strips);
}

template <class Index>
bool rows_times(std::int64_t rows, std::int64_t columns, const Index* starts, const Index* places,
                const double* values, std::int64_t k, const double* x, double* y, int threads) {
    std::atomic<bool> valid{true};
    const std::int64_t entries = starts[rows];
    auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t from = s * strip, to = std::min(rows, from + strip);
            for (std::int64_t i = from; i < to; ++i) {
                if (starts[i] < 0 || starts[i + 1] < starts[i] || starts[i + 1] > entries) return valid.store(false);
                for (Index e = starts[i]; e < starts[i + 1]; ++e)
                    if (places[e] < 0 || places[e] >= columns) return valid.store(false);
            }
            // The strip's entries stay in the cache while all columns are multiplied by them.
            for (std::int64_t j = 0; j < k; ++j) {
                const double* column = x + j * columns;
                for (std::int64_t i = from; i < to; ++i) {
                    double sum = 0;
                    for (Index e = starts[i]; e < starts[i + 1]; ++e) sum += values[e] * column[places[e]];
                    y[j * rows + i] = sum;
                }
            }
        }
    };
    over_strips(rows, entries + rows * k, threads, body);
    return valid.load();
}

template bool rows_times<std::int32_t>(std::int64_t, std::int64_t, const std::int32_t*, const std::int32_t*,
                                       const double*, std::int64_t, const double*, double*, int);
template bool rows_times<std::int64_t>(std::int64_t, std::int64_t, const std::int64_t*, const std::int64_t*,
                                       const double*, std::int64_t, const double*, double*, int);

}  // namespace roundwise::krylov
