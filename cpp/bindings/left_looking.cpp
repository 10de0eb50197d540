// Matching and the left-looking LU of roundwise._kernels; sparse/matching.hpp and sparse/left_looking.hpp
// state what they compute.
#include <limits>

#include "bindings/bindings.hpp"
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
}

void factorize(LeftLookingLU* self, VectorIn<std::int32_t> indptr, VectorIn<std::int32_t> indices,
               VectorIn<double> values, bool by_columns, double most_work,
               double most_counted) {
    require(values.size() == indices.size(), "values and indices differ in length; pass as many");
    const IeeeArithmetic arithmetic;
    nb::gil_scoped_release release;
    const std::int32_t n = checked<std::int32_t>(indptr, indices);
    new (self) LeftLookingLU(n, indptr.data(), indices.data(), values.data(), by_columns,
                             most_work, most_counted);
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
        default: return "too much work";
    }
}

}  // namespace

void bind_left_looking(nb::module_& m) {
    bind_matching<std::int32_t>(m);
    bind_matching<std::int64_t>(m);
    nb::class_<LeftLookingLU>(m, "LeftLookingLU")
        .def("__init__", &factorize, nb::arg().noconvert(), nb::arg().noconvert(), nb::arg().noconvert(),
             nb::arg(), nb::arg(), nb::arg())
        .def_prop_ro("result", &result_of)
        .def_prop_ro("entries", &LeftLookingLU::entries)
        .def_prop_ro("counted", &LeftLookingLU::counted)
        .def_prop_ro("work", &LeftLookingLU::work)
        .def("solve", &solve, nb::arg().noconvert(), nb::arg().noconvert());
}

}  // namespace roundwise
