// The supernodal factorizations of roundwise._kernels; sparse/kernels.hpp states what each computes.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/orders.hpp"
#include "common/parallel.hpp"
#include "native/refinement.hpp"
#include "sparse/kernels.hpp"
#include "sparse/matching.hpp"
#include "sparse/plan.hpp"

namespace roundwise {

namespace {

using sparse::Kind;
using sparse::Plan;

Kind kind_of(const std::string& name) {
    if (name == "cholesky") return Kind::cholesky;
    if (name == "ldl") return Kind::ldl;
    if (name == "lu") return Kind::lu;
    throw std::invalid_argument("no factorization '" + name + "'; use cholesky, ldl or lu");
}

// Compressed rows with n rows and columns, whose indices are in range.
void require_compressed_rows(std::size_t n, const VectorIn<std::int64_t>& indptr,
                             const VectorIn<std::int32_t>& indices) {
    const std::int64_t* first = indptr.data();
    require(first[0] == 0 && first[n] == length(indices.size()),
            "indptr does not end at the number of indices; pass the arrays of a CSR matrix");
    bool valid = true;
    for (std::size_t i = 0; i < n; ++i) valid = valid && first[i] <= first[i + 1];
    for (std::size_t e = 0; e < indices.size(); ++e)
        valid = valid && indices.data()[e] >= 0 && indices.data()[e] < length(n);
    require(valid, "an index is out of range; pass the arrays of a square CSR matrix");
}

void require_places(const VectorIn<std::int32_t>& places) {
    std::vector<bool> seen(places.size(), false);
    for (std::size_t i = 0; i < places.size(); ++i) {
        const std::int32_t place = places.data()[i];
        require(place >= 0 && place < length(places.size()) && !seen[static_cast<std::size_t>(place)],
                "the places are no permutation; pass each of 0 .. n - 1 once");
        seen[static_cast<std::size_t>(place)] = true;
    }
}

void make_plan(Plan* self, const std::string& kind, const sparse::Symbolic& symbolic,
               VectorIn<std::int64_t> indptr, VectorIn<std::int32_t> indices,
               VectorIn<std::int32_t> row_place, VectorIn<std::int32_t> column_place) {
    const auto n = static_cast<std::size_t>(symbolic.n);
    require(indptr.size() == n + 1 && row_place.size() == n && column_place.size() == n,
            "the places, A and its analysis differ in length; pass n, n + 1 and n numbers");
    const Kind which = kind_of(kind);
    require_compressed_rows(n, indptr, indices);
    require_places(row_place);
    require_places(column_place);
    nb::gil_scoped_release release;
    new (self) Plan(which, symbolic, indptr.data(), indices.data(), row_place.data(), column_place.data());
}

// For each panel its first column, its width and height, and where its rows and its numbers begin.
nb::object panels_of(const Plan& plan) {
    using Row = std::array<std::int64_t, 5>;
    const sparse::PlanView view = plan.view();
    auto* rows = new std::vector<Row>(static_cast<std::size_t>(view.panels));
    nb::capsule owner(rows, [](void* p) noexcept { delete static_cast<std::vector<Row>*>(p); });
    for (std::int32_t p = 0; p < view.panels; ++p)
        (*rows)[static_cast<std::size_t>(p)] = {view.first[p], view.width(p), view.height[p],
                                                view.row_start[p], view.place[p]};
    auto* numbers = reinterpret_cast<std::int64_t*>(rows->data());
    return nb::cast(nb::ndarray<nb::numpy, std::int64_t, nb::ndim<2>>(numbers, {rows->size(), 5}, owner));
}

// The rows that a factorization exchanged: within a panel, and a pivot of two rows needs two.
void require_exchanges(const sparse::PlanView& view, const VectorIn<std::int32_t>& pivots) {
    if (view.kind == Kind::cholesky) return;  // exchanges none, and leaves them as they are
    for (std::int32_t p = 0; p < view.panels; ++p)
        for (std::int64_t i = 0; i < view.width(p); ++i) {
            const std::int32_t row = pivots.data()[view.first[p] + i];
            const bool first_of_two = row < 0 && i + 1 < view.width(p);
            require((row >= 0 && row < view.width(p)) || (first_of_two && ~row < view.width(p)),
                    "the pivots are of other factors; pass those that supernodal_factorize wrote");
        }
}

template <class T> void bind_kernels(nb::module_& m) {
    define(m, "supernodal_factorize",
           [](const Plan& plan, VectorIn<T> values, VectorOut<T> storage, VectorOut<std::int32_t> pivots,
              double tiny, double seconds, int threads) {
               const sparse::PlanView view = plan.view();
               require(length(storage.size()) == plan.stored() && length(pivots.size()) == view.n,
                       "storage or pivots do not fit the plan; pass plan.stored and n numbers");
               require(length(values.size()) == plan.given(),
                       "values has another length than A; pass a number for each index");
               require(seconds >= 0, "seconds < 0; pass a limit, or infinity");
               require(threads >= 1, "threads < 1; pass at least 1");
               const auto& kernels = sparse::sparse_kernels<T>();
               sparse::Report report;
               {
                   nb::gil_scoped_release release;
                   const Workspace workspace(kernels.factorize_workspace(view, threads));
                   report = kernels.factorize(view, values.data(), storage.data(), pivots.data(),
                                              static_cast<T>(tiny), deadline_after(seconds), threads, workspace.get());
               }
               return nb::make_tuple(static_cast<int>(report.result), report.column, report.replaced);
           });
    define(m, "supernodal_solve",
           [](const Plan& plan, VectorIn<T> storage, VectorIn<std::int32_t> pivots, MatrixOut<T> b,
              bool transpose, int threads) {
               const sparse::PlanView view = plan.view();
               require(length(storage.size()) == plan.stored() && length(pivots.size()) == view.n,
                       "storage or pivots do not fit the plan; pass plan.stored and n numbers");
               require(length(b.shape(0)) == view.n, "b and the factors differ in length; pass n rows");
               require_exchanges(view, pivots);
               require(threads >= 1, "threads < 1; pass at least 1");
               const auto& kernels = sparse::sparse_kernels<T>();
               nb::gil_scoped_release release;
               const std::int64_t columns = length(b.shape(1));
               const Workspace workspace(kernels.solve_workspace(view, columns, threads));
               kernels.solve(view, storage.data(), pivots.data(), transpose, columns, b.data(), threads,
                             workspace.get());
           });
    // As native_refine, with factors of A, whose rows are taken in the order `rows`, and whose unknowns go to `places`;
    // A is in compressed rows. Residuals are in twice the precision.
    define(m, "supernodal_refine",
           [](const Plan& plan, VectorIn<T> storage, VectorIn<std::int32_t> pivots, Order rows, Order places,
              VectorIn<std::int32_t> starts, VectorIn<std::int32_t> indices, VectorIn<double> values, double norm,
              double target, int most_steps, ArrayIn<double> b, ArrayOut<double> x, ArrayOut<double> r,
              VectorOut<double> errors, int threads, int pass_threads) {
        const sparse::PlanView view = plan.view();
        const std::int64_t n = view.n;
        require(length(storage.size()) == plan.stored() && length(pivots.size()) == n,
                "storage or pivots do not fit the plan; pass plan.stored and n numbers");
        require_exchanges(view, pivots);
        require(length(starts.size()) == n + 1 && starts.data()[n] <= length(indices.size()) &&
                    starts.data()[n] <= length(values.size()),
                "A does not fit the plan; pass its compressed rows");
        const auto columns = [&](const auto& v) {
            require(v.ndim() >= 1 && v.ndim() <= 2 && length(v.shape(0)) == n,
                    "the shapes do not match; pass blocks of n rows");
            return v.ndim() == 1 ? std::int64_t{1} : length(v.shape(1));
        };
        const std::int64_t count = columns(b);
        require(count >= 1 && count == columns(x) && count == columns(r) && count == length(errors.size()),
                "the shapes do not match; pass blocks of as many columns, and an error for each");
        require(threads >= 1 && pass_threads >= 1, "threads < 1; pass at least 1");
        require(most_steps >= 0, "most_steps < 0; pass at least 0");
        require_order(rows, n);
        require_order(places, n);
        Refinement<T> refinement{n, 1, nullptr, false, false, pointer(rows), pointer(places), nullptr, false,
                                 norm, target, 0, 0, 0, most_steps, threads, pass_threads};
        const auto& kernels = sparse::sparse_kernels<T>();
        refinement.solve_by = [&](std::int64_t some, T* y) {
            const Workspace workspace(kernels.solve_workspace(view, some, threads));
            kernels.solve(view, storage.data(), pivots.data(), false, some, y, threads, workspace.get());
        };
        refinement.residual_by = [&](std::int64_t some, const double* columns_x, const double* columns_b, double* left) {
            return exact_kernels().sparse_residual(n, n, starts.data(), indices.data(), values.data(), some, columns_x,
                                                   columns_b, left, pass_threads);
        };
        bool converged;
        double worst = 0;
        {
            nb::gil_scoped_release release;
            converged = refinement.run(count, b.data(), x.data(), r.data(), errors.data());
            for (std::int64_t j = 0; j < count; ++j) worst = std::max(worst, errors.data()[j]);
        }
        return nb::make_tuple(converged, worst, refinement.largest, refinement.stretch, refinement.history);
    });
}

}  // namespace

void bind_supernodal(nb::module_& m) {
    nb::class_<Plan>(m, "SupernodalPlan")
        .def("__init__", &make_plan, nb::arg(), nb::arg(), nb::arg().noconvert(), nb::arg().noconvert(),
             nb::arg().noconvert(), nb::arg().noconvert(), nb::keep_alive<1, 3>())
        .def_prop_ro("panels", &panels_of)
        .def_prop_ro("stored", &Plan::stored)
        .def_prop_ro("entries", &Plan::entries)
        .def_prop_ro("flops", &Plan::flops);
    bind_kernels<float>(m);
    bind_kernels<double>(m);
    // Writes the row of each column into `rows`; returns false if there is no assignment, or if it
    // takes visits of more than `limit` entries to find one.
    define(m, "sparse_assignment", [](VectorIn<std::int64_t> indptr, VectorIn<std::int32_t> indices,
                                      VectorIn<double> costs, VectorOut<std::int32_t> rows,
                                      std::int64_t limit) {
        require(indptr.size() == rows.size() + 1 && indices.size() == costs.size(),
                "the arrays differ in length; pass n + 1 starts, n rows, and a cost for each entry");
        require_compressed_rows(rows.size(), indptr, indices);
        nb::gil_scoped_release release;
        const std::vector<std::int32_t> found = sparse::cheapest_assignment(
            static_cast<std::int32_t>(rows.size()), indptr.data(), indices.data(), costs.data(),
            limit);
        std::copy(found.begin(), found.end(), rows.data());
        return found.size() == rows.size();
    });
}

}  // namespace roundwise
