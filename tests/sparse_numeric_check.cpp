// Factorizes and solves with the sparse kernels of every level, by two threads; see sanitize.py. Fails if
// a solution is not as accurate as the arithmetic allows.
#include <cmath>
#include <cstdio>
#include <vector>

#include "common/levels.hpp"
#include "common/parallel.hpp"
#include "sparse/amd.hpp"
#include "sparse/kernels.hpp"
#include "sparse/express_lu.hpp"
#include "sparse/matching.hpp"
#include "sparse/pattern.hpp"
#include "sparse/plan.hpp"
#include "sparse/symbolic.hpp"

using namespace roundwise;

namespace {

struct Matrix {
    int n = 0;
    std::vector<std::int64_t> indptr{0};
    std::vector<std::int32_t> indices;
    std::vector<double> values;
};

// The Laplacian of a cube with m points to a side, plus `skew` times a first derivative.
Matrix cube(int m, double skew) {
    Matrix a;
    a.n = m * m * m;
    for (int i = 0; i < a.n; ++i) {
        const int at[3] = {i % m, i / m % m, i / m / m}, step[3] = {1, m, m * m};
        const auto add = [&](int j, double value) {
            a.indices.push_back(j);
            a.values.push_back(value);
        };
        for (int d = 2; d >= 0; --d)
            if (at[d] > 0) add(i - step[d], -1 - skew);
        add(i, 6.5);
        for (int d = 0; d < 3; ++d)
            if (at[d] + 1 < m) add(i + step[d], -1 + skew);
        a.indptr.push_back(static_cast<std::int64_t>(a.indices.size()));
    }
    return a;
}

// The sums of the rows of A, or of its columns: A x and A' x for x of ones.
std::vector<double> sums(const Matrix& a, bool transpose) {
    std::vector<double> b(static_cast<std::size_t>(a.n));
    for (int i = 0; i < a.n; ++i)
        for (std::int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e)
            b[transpose ? a.indices[e] : i] += a.values[e];
    return b;
}

template <class T> double from_ones(const std::vector<T>& x) {
    double error = 0;
    for (const T value : x) error = std::fmax(error, std::fabs(static_cast<double>(value) - 1));
    return error;
}

template <class T> bool supernodal(const Matrix& a, sparse::Kind kind, int threads) {
    const std::vector<std::int64_t> places(a.indices.begin(), a.indices.end());
    const sparse::Pattern pattern = sparse::symmetrized<std::int64_t>(
        a.n, a.indptr.data(), places.data(), static_cast<std::int64_t>(places.size()));
    const std::vector<std::int32_t> order = sparse::approximate_minimum_degree(pattern);
    const sparse::Symbolic symbolic =
        sparse::analyse(a.n, pattern.indptr.data(), pattern.indices.data(), order.data());
    std::vector<std::int32_t> place(order.size()), pivots(order.size());
    for (std::size_t k = 0; k < place.size(); ++k) place[symbolic.order[k]] = static_cast<std::int32_t>(k);
    const sparse::Plan plan(kind, symbolic, a.indptr.data(), a.indices.data(), place.data(), place.data());
    const auto& kernels = sparse::sparse_kernels<T>();
    const std::vector<T> values(a.values.begin(), a.values.end());
    std::vector<T> storage(static_cast<std::size_t>(plan.stored()));
    void* workspace = ::operator new(
        static_cast<std::size_t>(kernels.factorize_workspace(plan.view(), threads)), std::align_val_t{64});
    const sparse::Report report = kernels.factorize(plan.view(), values.data(), storage.data(),
                                                    pivots.data(), T(1e-30), deadline_after(1e9), threads, workspace);
    ::operator delete(workspace, std::align_val_t{64});
    bool good = report.result == sparse::Result::done;
    for (const bool transpose : {false, true}) {
        const std::vector<double> b = sums(a, transpose);
        std::vector<T> x(b.size());
        for (std::size_t i = 0; i < b.size(); ++i) x[place[i]] = static_cast<T>(b[i]);
        workspace = ::operator new(static_cast<std::size_t>(kernels.solve_workspace(plan.view(), 1, threads)),
                                   std::align_val_t{64});
        kernels.solve(plan.view(), storage.data(), pivots.data(), transpose, 1, x.data(), threads, workspace);
        ::operator delete(workspace, std::align_val_t{64});
        good = good && from_ones(x) < (sizeof(T) == 4 ? 1e-4 : 1e-12);
    }
    return good;
}

bool left_looking(const Matrix& a, bool low) {
    const std::vector<std::int64_t> columns(a.indices.begin(), a.indices.end());
    const sparse::GivenPlaces<std::int64_t> given = {sparse::Form::rows, a.n, a.indptr.back(), a.indptr.data(),
                                                     columns.data()};
    sparse::Rows<double> rows;
    if (!sparse::read_rows(given, a.values.data(), rows)) return false;
    sparse::ExpressLU<double> lu(rows);
    lu.analyse(1e12, 1e12);
    lu.factorize(low);
    bool good = lu.is_factorized() && lu.lu().is_low() == low;
    const sparse::ExpressLU<double> again(lu, rows, low);
    for (const bool transposed : {false, true})
        for (const sparse::ExpressLU<double>* factors : {static_cast<const sparse::ExpressLU<double>*>(&lu), &again}) {
            const std::vector<double> b = sums(a, transposed);
            std::vector<double> x(b.size());
            const sparse::GivenColumns column = {reinterpret_cast<const char*>(b.data()), 1, 8, 0, false, false};
            for (const bool forward : {false, true}) {
                const sparse::SparseGate gate = {1e-13, 1.0, 0.0, 1e-200, 1e200, false, forward};
                sparse::SparseFound found;
                good = good && factors->solve(column, transposed, false, gate, x.data(), found) ==
                                   sparse::SparseStatus::accepted && from_ones(x) < (forward ? 1e-15 : 1e-12);
            }
        }
    return good;
}

}  // namespace

int main() {
    const Matrix symmetric = cube(9, 0), skew = cube(9, 0.25);
    const std::vector<double> costs(skew.values.size(), 1);
    bool good = sparse::cheapest_assignment(skew.n, skew.indptr.data(), skew.indices.data(), costs.data(), 1 << 30)
                       .size() == static_cast<std::size_t>(skew.n);
    for (const std::string& level : available_levels()) {
        set_level(level);
        good = left_looking(symmetric, false) && left_looking(skew, false) && good;
        good = left_looking(symmetric, true) && left_looking(skew, true) && good;
        for (const int threads : {1, 2}) {
            for (const sparse::Kind kind : {sparse::Kind::cholesky, sparse::Kind::ldl, sparse::Kind::lu})
                good = supernodal<float>(symmetric, kind, threads) &&
                       supernodal<double>(symmetric, kind, threads) && good;
            good = supernodal<double>(skew, sparse::Kind::lu, threads) && good;
        }
        std::printf("%s %s\n", level.c_str(), good ? "good" : "WRONG");
    }
    return good ? 0 : 1;
}
