// Makes and applies preconditioners in every format, and runs the passes of Krylov methods, by one and by two threads;
// see sanitize.py. Fails if a preconditioner is none, or if the threads change a bit.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "iterative/hierarchy.hpp"
#include "iterative/incomplete.hpp"
#include "iterative/look.hpp"
#include "krylov/vectors.hpp"

using namespace roundwise;
using namespace roundwise::iterative;

namespace {

struct Matrix {
    std::vector<Index> starts{0}, indices;
    std::vector<double> values;
    Index n() const { return static_cast<Index>(starts.size()) - 1; }
    CsrView view() const { return {n(), n(), starts.data(), indices.data(), values.data()}; }
    void add(Index j, double value) {
        indices.push_back(j);
        values.push_back(value);
    }
    void end_row() { starts.push_back(static_cast<Index>(indices.size())); }
};

// The Laplacian of a cube with m points to a side, plus `skew` times a first derivative.
Matrix cube(Index m, double skew) {
    Matrix A;
    for (Index i = 0; i < m * m * m; ++i) {
        const Index at[3] = {i % m, i / m % m, i / m / m}, step[3] = {1, m, m * m};
        for (int d = 2; d >= 0; --d)
            if (at[d] > 0) A.add(i - step[d], -1 - skew);
        A.add(i, 6.5);
        for (int d = 0; d < 3; ++d)
            if (at[d] + 1 < m) A.add(i + step[d], -1 + skew);
        A.end_row();
    }
    return A;
}

// A ring of an even number of unknowns, every second one first: its factors have two levels, of many rows each.
Matrix two_colours(Index n) {
    Matrix A;
    const Index half = n / 2;
    for (Index i = 0; i < n; ++i) {
        A.add(i, 3);
        A.add(i < half ? i + half : i - half, -1);
        A.add(i < half ? (i + half - 1 < half ? n - 1 : i + half - 1) : (i + 1 < n ? i - half + 1 : 0), -1);
        A.end_row();
    }
    return A;
}

// How far M^-1 A x is from x, of ones, by the largest number; NaN if the threads' bits differ, which is no number.
double distance(const Preconditioner& M, const Matrix& A) {
    const Index n = A.n(), columns = 3;
    std::vector<double> b(std::size_t(n) * columns), z[2];
    for (Index c = 0; c < columns; ++c)
        for (Index i = 0; i < n; ++i)
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) b[std::size_t(c) * n + i] += A.values[e];
    double most = 0;
    for (int threads : {1, 2}) {
        z[threads - 1].resize(b.size());
        M.apply(b.data(), z[threads - 1].data(), columns, threads);
    }
    for (const double x : z[0]) most = std::fmax(most, std::fabs(x - 1));
    const bool same = std::memcmp(z[0].data(), z[1].data(), b.size() * sizeof(double)) == 0;
    return same ? most : std::numeric_limits<double>::quiet_NaN();
}

bool report(const char* what, double found, double most) {
    if (found < most) return true;
    std::printf("%s: %g, not below %g\n", what, found, most);
    return false;
}

template <class E> bool preconditioners(const char* format) {
    bool good = true;
    const Matrix symmetric = cube(26, 0), skew = cube(26, 0.25), ring = two_colours(20000);
    for (const bool is_symmetric : {true, false})
        for (const int nodes : {1, 2}) {
            const Matrix& A = is_symmetric ? symmetric : skew;
            Nodes first;
            for (Index i = 0; nodes > 1 && i <= A.n(); i += nodes) first.push_back(i);
            Choices choices;
            choices.symmetric = is_symmetric;
            choices.threads = 2;
            Made made;
            const auto M = make_hierarchy<E>(A.view(), {}, first, choices, true, made);
            good = report(format, M ? distance(*M, A) : 9, 1) && good;
        }
    for (const Matrix* A : {&symmetric, &skew, &ring})
        for (const int levels : {0, 1}) {
            Made made;
            const auto M = make_incomplete<E>(A->view(), {A != &skew, levels, 2}, made);
            good = report(format, M ? distance(*M, *A) : 9, 1) && good;
        }
    return good;
}

// Of n x k numbers, n several strips; all sums are of integers.
bool vectors() {
    const std::int64_t n = 70001, k = 3;
    bool good = true;
    for (const int threads : {1, 2}) {
        const std::vector<double> one(n * k, 1), two(n * k, 2), a(k, 0.5), b(k, -1);
        std::vector<double> x(one), r(two), sizes(3 * k), sums(k), y(one), w(n, 3), next(k);
        krylov::dots(n, k, one.data(), two.data(), sums.data(), threads);
        krylov::step(n, k, a.data(), two.data(), one.data(), x.data(), r.data(), sizes.data(), threads);
        krylov::combine(n, k, a.data(), two.data(), b.data(), y.data(), threads);
        const double square = krylov::project(n, k, one.data(), a.data(), w.data(), next.data(), threads);
        for (std::int64_t j = 0; j < k; ++j)
            good = good && sums[j] == 2.0 * n && sizes[3 * j] == 2.25 * n && sizes[3 * j + 1] == 1.5 &&
                   sizes[3 * j + 2] == 2 && next[j] == 1.5 * n;
        for (std::int64_t i = 0; i < n * k; ++i) good = good && x[i] == 2 && r[i] == 1.5 && y[i] == 0;
        good = good && square == 2.25 * n && w[n - 1] == 1.5;
        const Matrix A = two_colours(static_cast<Index>(n - 1));
        std::vector<Index> corrupt(A.indices);
        corrupt.back() = static_cast<Index>(n);
        good = good && krylov::rows_times<Index>(n - 1, n - 1, A.starts.data(), A.indices.data(), A.values.data(), k,
                                                 one.data(), y.data(), threads);
        for (std::int64_t i = 0; i < (n - 1) * k; ++i) good = good && y[i] == 1;
        good = good && !krylov::rows_times<Index>(n - 1, n - 1, A.starts.data(), corrupt.data(), A.values.data(), k,
                                                  one.data(), y.data(), threads);
        const Look seen = look(A.view());
        good = good && seen.reached == n - 1 && seen.positive == 0;
    }
    return good;
}

}  // namespace

int main() {
    bool good = vectors();
    if (!good) std::printf("vectors: WRONG\n");
    good = preconditioners<double>("fp64") && good;
    good = preconditioners<float>("fp32") && good;
    good = preconditioners<Bf16>("bf16") && good;
    good = preconditioners<Fp16>("fp16") && good;
    std::printf("%s\n", good ? "good" : "WRONG");
    return good ? 0 : 1;
}
