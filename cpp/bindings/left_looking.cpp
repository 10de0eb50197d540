// Matching, the values' symmetry and scaling, and the left-looking LU of roundwise._kernels;
// sparse/matching.hpp, sparse/balance.hpp and sparse/left_looking.hpp state what they compute.
#include <limits>

#include "bindings/bindings.hpp"
#include "sparse/balance.hpp"
#include "sparse/left_looking.hpp"
#include "sparse/matching.hpp"

namespace roundwise {

namespace {

using sparse::LeftLookingLU;

// A vector, or a matrix by columns.
template <class T> using ColumnsOf = nb::ndarray<T, nb::f_contig, nb::device::cpu>;

// The n of a square matrix in compressed form, whose indices are in range.
template <class Index>
std::int32_t checked(const VectorIn<Index>& indptr, const VectorIn<Index>& indices) {
    require(indptr.size() >= 1, "indptr is empty; pass a matrix in compressed form");
    const std::int64_t n = length(indptr.size()) - 1, entries = length(indices.size());
    require(n <= std::numeric_limits<std::int32_t>::max(), "A has too many rows; pass at most 2147483647");
    const Index *first = indptr.data(), *place = indices.data();
    bool valid = first[0] == 0 && first[n] <= entries;
    for (std::int64_t i = 0; valid && i < n; ++i) valid = first[i] <= first[i + 1];
    for (std::int64_t e = 0; valid && e < first[n]; ++e) valid = 0 <= place[e] && place[e] < n;
    require(valid, "an index is out of range; pass a valid matrix in compressed form");
    return static_cast<std::int32_t>(n);
}

template <class Index> void bind_matching(nb::module_& m) {
    define(m, "sparse_is_regular", [](VectorIn<Index> indptr, VectorIn<Index> indices) {
        nb::gil_scoped_release release;
        const std::int32_t n = checked<Index>(indptr, indices);
        return sparse::is_structurally_regular<Index>(n, indptr.data(), indices.data());
    });
    define(m, "sparse_partners",
           [](VectorIn<Index> indptr, VectorIn<Index> indices, std::int64_t step) {
               require(step >= 1, "step < 1; pass at least 1");
               const std::int32_t n = checked<Index>(indptr, indices);
               const auto found = sparse::partners<Index>(n, indptr.data(), indices.data(), step);
               return nb::make_tuple(found.off_diagonal, found.found);
           });
}

template <class Index, class T> void bind_values(nb::module_& m) {
    const auto checked_values = [](const VectorIn<Index>& indptr, const VectorIn<Index>& indices,
                                   const VectorIn<T>& values) {
        require(values.size() == indices.size(), "values and indices differ in length; pass as many");
        return checked<Index>(indptr, indices);
    };
    define(m, "sparse_is_symmetric",
           [=](VectorIn<Index> indptr, VectorIn<Index> indices, VectorIn<T> values) {
               const std::int32_t n = checked_values(indptr, indices, values);
               nb::gil_scoped_release release;
               return sparse::is_symmetric<Index, T>(n, indptr.data(), indices.data(), values.data());
           });
    // Writes the exponents of rows and columns; returns false if there is nothing to scale.
    define(m, "sparse_balance",
           [=](VectorIn<Index> indptr, VectorIn<Index> indices, VectorIn<T> values, bool symmetric,
               VectorOut<std::int32_t> rows, VectorOut<std::int32_t> columns) {
               const std::int32_t n = checked_values(indptr, indices, values);
               require(length(rows.size()) == n && length(columns.size()) == n,
                       "rows and columns differ in length from A; pass n numbers each");
               nb::gil_scoped_release release;
               return sparse::balance<Index, T>(n, indptr.data(), indices.data(), values.data(), symmetric,
                                                rows.data(), columns.data());
           });
    define(m, "sparse_scale",
           [=](VectorIn<Index> indptr, VectorIn<Index> indices, VectorIn<T> values,
               VectorIn<std::int32_t> rows, VectorIn<std::int32_t> columns, VectorOut<T> scaled) {
               const std::int32_t n = checked_values(indptr, indices, values);
               require(length(rows.size()) == n && length(columns.size()) == n &&
                           scaled.size() == values.size(),
                       "the arrays differ in length; pass n exponents each, and as many numbers as A has");
               nb::gil_scoped_release release;
               sparse::scale<Index, T>(n, indptr.data(), indices.data(), values.data(), rows.data(),
                                       columns.data(), scaled.data());
           });
}

void factorize(LeftLookingLU* self, VectorIn<std::int32_t> indptr, VectorIn<std::int32_t> indices,
               VectorIn<double> values, bool by_columns, double most_work, double most_counted,
               double most_if_weak, double most_if_strong) {
    require(values.size() == indices.size(), "values and indices differ in length; pass as many");
    const IeeeArithmetic arithmetic;
    nb::gil_scoped_release release;
    const std::int32_t n = checked<std::int32_t>(indptr, indices);
    new (self) LeftLookingLU(n, indptr.data(), indices.data(), values.data(), by_columns,
                             most_work, most_counted, most_if_weak, most_if_strong);
}

void solve(const LeftLookingLU& self, ColumnsOf<const double> b, ColumnsOf<double> x) {
    using Result = LeftLookingLU::Result;
    require(self.result() == Result::factorized, "there are no factors; look at `result` before");
    const bool fits = (b.ndim() == 1 || b.ndim() == 2) && b.ndim() == x.ndim() &&
                      length(b.shape(0)) == self.n() && length(x.shape(0)) == self.n() &&
                      (b.ndim() == 1 || b.shape(1) == x.shape(1));
    require(fits, "b, x and the factors differ in shape; pass n numbers, or columns of them");
    const IeeeArithmetic arithmetic;
    nb::gil_scoped_release release;
    const std::int64_t count = b.ndim() == 1 ? 1 : length(b.shape(1));
    for (std::int64_t c = 0; c < count; ++c)
        self.solve(b.data() + c * self.n(), x.data() + c * self.n());
}

const char* result_of(const LeftLookingLU& lu) {
    switch (lu.result()) {
        case LeftLookingLU::Result::factorized: return "factorized";
        case LeftLookingLU::Result::singular_pattern: return "singular pattern";
        case LeftLookingLU::Result::zero_pivot: return "zero pivot";
        case LeftLookingLU::Result::weak_diagonal: return "weak diagonal";
        default: return "too much work";
    }
}

}  // namespace

void bind_left_looking(nb::module_& m) {
    bind_matching<std::int32_t>(m);
    bind_matching<std::int64_t>(m);
    bind_values<std::int32_t, float>(m);
    bind_values<std::int32_t, double>(m);
    bind_values<std::int64_t, float>(m);
    bind_values<std::int64_t, double>(m);
    nb::class_<LeftLookingLU>(m, "LeftLookingLU")
        .def("__init__", &factorize, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(),
             nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg())
        .def_prop_ro("result", &result_of)
        .def_prop_ro("entries", &LeftLookingLU::entries)
        .def_prop_ro("counted", &LeftLookingLU::counted)
        .def_prop_ro("work", &LeftLookingLU::work)
        .def_prop_ro("has_strong_diagonal", &LeftLookingLU::has_strong_diagonal)
        .def_prop_ro("pattern", &LeftLookingLU::pattern, nb::rv_policy::reference_internal)
        .def_prop_ro("order",
                     [](nb::handle self) {
                         const auto& order = nb::cast<const LeftLookingLU&>(self).order();
                         using View = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>>;
                         return View(order.data(), {order.size()}, self);
                     })
        .def("solve", &solve, nb::arg().noconvert(), nb::arg().noconvert());
}

}  // namespace roundwise
