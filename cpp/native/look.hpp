// What a few lines of a matrix (its rows, or its columns) tell: see NativeKernels::look.
#pragma once

#include "common/carrier.hpp"
#include "common/parallel.hpp"
#include "native/kernels.hpp"
#include "native/matvec.hpp"
#include "native/vectors.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr std::int64_t look_width = 256;  // places that a task treats

inline std::int64_t look_parts(std::int64_t n) { return (n + look_width - 1) / look_width; }

// A thread for every two parts: the inner products of one take some 20 microseconds.
inline int look_threads(std::int64_t n, int threads) {
    const std::int64_t useful = (look_parts(n) + 1) / 2;
    return useful < threads ? static_cast<int>(useful) : threads;
}

// The inner products of lines i..i + I with lines k..k + K, all `width` long, a multiple of a vector.
template <int I, int K>
inline void inner_products(std::int64_t width, const double* lines, std::int64_t i, std::int64_t k,
                           std::int64_t count, double* gram) {
    Vector<double> sum[I][K] = {};
    for (std::int64_t place = 0; place < width; place += Lanes<double>::count) {
        Vector<double> other[K];
        for (int l = 0; l < K; ++l) other[l] = load(lines + (k + l) * look_width + place);
        for (int j = 0; j < I; ++j) {
            const Vector<double> line = load(lines + (i + j) * look_width + place);
            for (int l = 0; l < K; ++l) sum[j][l] += line * other[l];
        }
    }
    for (int j = 0; j < I; ++j)
        for (int l = 0; l < K; ++l) {
            double total = 0;
            for (int lane = 0; lane < Lanes<double>::count; ++lane) total += sum[j][l][lane];
            gram[(i + j) * count + k + l] = total;
        }
}

// Three phases: sums over each line; lengths at each place; inner products, a part for each task, which
// are added up in order at the end. So results do not depend on the number of threads.
inline void look(std::int64_t n, const double* a, std::int64_t count, const std::int64_t* lines,
                 const std::int64_t* diagonal, double* largest, double* norms, double* gram, int threads,
                 double* workspace) {
    constexpr std::int64_t lanes = Lanes<double>::count;
    static_assert(look_width % lanes == 0, "a part is a whole number of vectors");
    const std::int64_t parts = look_parts(n);
    double *lengths = workspace, *longest = lengths + n, *weights = longest + parts;
    double *products = weights + count, *scaled = products + parts * count * count;
    Phase phases[3] = {};
    const auto line = [=](std::int64_t i) { return a + lines[i] * n; };
    auto body = [&](int member) {
        share(phases[0], count, [&](std::int64_t i) {
            using Integers = Vector<std::int64_t>;
            Vector<double> most = {};
            const double* x = line(i);
            const double square = sum_of<double>(n, [&](std::int64_t place, std::int64_t valid) {
                const Vector<double> v = load_some(x + place, valid);
                const auto size = bit_cast<Vector<double>>(bit_cast<Integers>(v) & 0x7fffffffffffffff);
                most = size > most ? size : most;
                return v * v;
            });
            double top = 0;
            for (int lane = 0; lane < lanes; ++lane) top = most[lane] > top ? most[lane] : top;
            largest[i] = top;
            norms[i] = square_root(square);
            weights[i] = norms[i] > 0 ? 1 / norms[i] : 0;
        });
        share(phases[1], parts, [&](std::int64_t part) {
            const std::int64_t begin = part * look_width;
            const std::int64_t end = begin + look_width < n ? begin + look_width : n;
            double squares[look_width] = {}, most = 0;
            for (std::int64_t i = 0; i < count; ++i) {
                const double *x = line(i), weight = weights[i] * weights[i];
                const std::int64_t own = diagonal[i] - begin;
                const bool here = own >= 0 && own < end - begin;
                const double kept = here ? squares[own] : 0;
                for (std::int64_t place = 0; place < end - begin; ++place)
                    squares[place] += weight * (x[begin + place] * x[begin + place]);
                if (here) squares[own] = kept;
            }
            for (std::int64_t place = 0; place < end - begin; ++place) {
                const double length = square_root(squares[place]);
                lengths[begin + place] = length;
                most = length > most ? length : most;
            }
            longest[part] = most;
        });
        double* block = scaled + member * count * look_width;
        share(phases[2], parts, [&](std::int64_t part) {
            double top = 0;
            for (std::int64_t p = 0; p < parts; ++p) top = longest[p] > top ? longest[p] : top;
            if (top == 0) top = 1;
            const std::int64_t begin = part * look_width;
            const std::int64_t width = n - begin < look_width ? n - begin : look_width;
            const std::int64_t padded = (width + lanes - 1) / lanes * lanes;
            double factors[look_width] = {};
            for (std::int64_t place = 0; place < width; ++place)
                factors[place] = lengths[begin + place] > 0 ? lengths[begin + place] : top;
            for (std::int64_t i = 0; i < count; ++i) {
                const double* x = line(i) + begin;
                double* target = block + i * look_width;
                for (std::int64_t place = 0; place < width; ++place) target[place] = x[place] / factors[place];
                for (std::int64_t place = width; place < padded; ++place) target[place] = 0;
            }
            double* found = products + part * count * count;
            std::int64_t i = 0;
            for (; i + 4 <= count; i += 4) {
                for (std::int64_t k = 0; k < i + 4; k += 2) inner_products<4, 2>(padded, block, i, k, count, found);
            }
            for (; i < count; ++i)
                for (std::int64_t k = 0; k <= i; ++k) inner_products<1, 1>(padded, block, i, k, count, found);
        });
    };
    run_together(look_threads(n, threads), body);
    for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t k = 0; k < count; ++k) {
            double sum = 0;
            for (std::int64_t part = 0; k <= i && part < parts; ++part)
                sum += products[(part * count + i) * count + k];
            gram[i + k * count] = sum;
        }
}

// The lower triangle of A' A, for A n x count.
inline void gram(std::int64_t n, std::int64_t count, const double* a, double* products, int threads) {
    constexpr int group = 4;
    Phase phase = {};
    auto body = [&](int) {
        share(phase, (count + group - 1) / group, [&](std::int64_t task) {
            const std::int64_t first = task * group;
            const auto keep = [&](std::int64_t j, int c, double value) {
                const std::int64_t i = first + c;
                if (j <= i) products[i + j * count] = value;
            };
            if (first + group <= count) return dot_columns<group>(n, first + group, a, n, a + first * n, n, keep);
            for (std::int64_t i = first; i < count; ++i)
                dot_columns<1>(n, i + 1, a, n, a + i * n, n, [&](std::int64_t j, int, double value) {
                    products[i + j * count] = value;
                });
        });
    };
    run_together(threads_for<double>(count * n, threads), body);
}

inline std::int64_t look_workspace(std::int64_t n, std::int64_t count, int threads) {
    return n + look_parts(n) * (1 + count * count) + count + look_threads(n, threads) * count * look_width;
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
