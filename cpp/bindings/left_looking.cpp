// Matching, the values' symmetry and scaling, and the left-looking LU of roundwise._kernels;
// sparse/matching.hpp, sparse/balance.hpp and sparse/left_looking.hpp state what they compute.
#include <nanobind/stl/complex.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <complex>
#include <limits>
#include <type_traits>

#include "bindings/bindings.hpp"
#include "sparse/balance.hpp"
#include "sparse/express_lu.hpp"
#include "sparse/matching.hpp"

namespace roundwise {

namespace {

// A read-only NumPy array of a vector within an object, which lives as long as the array.
template <class T> auto vector_of(nb::handle owner, const std::vector<T>& values) {
    return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(values.data(), {values.size()}, owner);
}

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

// An array of any numbers, to be read in any memory order, or to be written by rows: `noconvert` refuses others, of
// which nanobind would pass a copy.
using AnyIn = nb::ndarray<nb::ro, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::c_contig, nb::device::cpu>;

template <class T> constexpr bool is_complex_number = sizeof(T) == 2 * sizeof(double);

// Whether an array has numbers as a matrix of T has them: float64, or complex128.
template <class T, class Array> bool has_numbers_of(const Array& array) {
    const auto code = is_complex_number<T> ? nb::dlpack::dtype_code::Complex : nb::dlpack::dtype_code::Float;
    return array.dtype().code == static_cast<std::uint8_t>(code) && array.dtype().bits == 8 * sizeof(T);
}

template <class Index>
sparse::GivenPlaces<Index> places_of(int form, std::int64_t n, const AnyIn& first, const AnyIn& second,
                                     const AnyIn& values) {
    const auto place = static_cast<sparse::Form>(form);
    const std::int64_t entries = length(std::min(second.size(), values.size()));
    if (place == sparse::Form::coordinates)
        require(first.size() == second.size() && values.size() == second.size(),
                "rows, columns and values differ in length; pass as many of each");
    else
        require(n >= 0 && length(first.size()) == n + 1, "indptr has another length than A; pass n + 1 numbers");
    return {place, n, entries, static_cast<const Index*>(first.data()), static_cast<const Index*>(second.data())};
}

// Reads a matrix (sparse/rows.hpp), whose arrays are contiguous: indices of 32 or 64 bits, and values of
// double precision.
template <class T>
sparse::Rows<T> rows_of(int form, std::int64_t n, const AnyIn& first, const AnyIn& second, const AnyIn& values) {
    require(form >= 0 && form <= 2, "form is 0 for rows, 1 for columns and 2 for coordinates");
    for (const AnyIn* array : {&first, &second, &values})
        require(array->ndim() == 1 && (array->size() <= 1 || array->stride(0) == 1),
                "an array is no contiguous vector; pass such");
    require(has_numbers_of<T>(values),
            "the values have another type; pass float64, or complex128 for a complex matrix");
    require(first.dtype() == second.dtype(), "the arrays of indices differ in type; pass one type");
    const T* given = static_cast<const T*>(values.data());
    sparse::Rows<T> rows;
    bool valid;
    if (first.dtype() == nb::dtype<std::int32_t>())
        valid = sparse::read_rows(places_of<std::int32_t>(form, n, first, second, values), given, rows);
    else {
        require(first.dtype() == nb::dtype<std::int64_t>(), "indices are no int32 or int64; pass such");
        valid = sparse::read_rows(places_of<std::int64_t>(form, n, first, second, values), given, rows);
    }
    require(valid, "an index is out of range; pass a valid matrix");
    return rows;
}

// Columns of float32, float64, complex64 or complex128.
sparse::GivenColumns columns_of(const AnyIn& b, std::int64_t n) {
    const nb::dlpack::dtype type = b.dtype();
    const bool is_complex = type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Complex);
    require(is_complex || type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float),
            "b is of another type; pass float32, float64, complex64 or complex128");
    const int bits = type.bits / (is_complex ? 2 : 1);
    require(bits == 32 || bits == 64, "b is of another type; pass float32, float64, complex64 or complex128");
    require((b.ndim() == 1 || b.ndim() == 2) && length(b.shape(0)) == n,
            "b and A differ in shape; pass n numbers, or columns of them");
    const std::int64_t size = type.bits / 8, columns = b.ndim() == 1 ? 1 : length(b.shape(1));
    return {static_cast<const char*>(b.data()), columns, size * b.stride(0),
            b.ndim() == 1 ? 0 : size * b.stride(1), bits == 32, is_complex};
}

const char* result_of(sparse::LeftLookingResult result) {
    using Result = sparse::LeftLookingResult;
    switch (result) {
        case Result::read: return "read";
        case Result::analysed: return "analysed";
        case Result::factorized: return "factorized";
        case Result::singular_pattern: return "singular pattern";
        case Result::zero_pivot: return "zero pivot";
        case Result::weak_diagonal: return "weak diagonal";
        default: return "too much work";
    }
}

template <class T> void bind_lu(nb::module_& m, const char* name) {
    using LU = sparse::ExpressLU<T>;
    const auto require_factors = [](const LU& self) {
        require(self.is_factorized(), "there are no factors; look at `result` before");
    };
    nb::class_<LU>(m, name)
        .def("__init__",
             [](LU* self, int form, std::int64_t n, AnyIn first, AnyIn second, AnyIn values) {
                 const IeeeArithmetic arithmetic;
                 new (self) LU(rows_of<T>(form, n, first, second, values));
             })
        .def("analyse",
             [](LU& self, double most, double most_if_weak) {
                 require(self.lu().result() == sparse::LeftLookingResult::read,
                         "the matrix is analysed; read it anew");
                 const IeeeArithmetic arithmetic;
                 nb::gil_scoped_release release;
                 self.analyse(most, most_if_weak);
             })
        .def("factorize",
             [](LU& self, bool low) {
                 require(self.lu().result() == sparse::LeftLookingResult::analysed,
                         "there is nothing to go on with; look at `result` before");
                 const IeeeArithmetic arithmetic;
                 nb::gil_scoped_release release;
                 self.factorize(low);
             },
             nb::arg("low") = false)
        .def_prop_ro("n", [](const LU& self) { return self.lu().n(); })
        .def_prop_ro("stored", [](const LU& self) { return self.lu().rows().places.size(); })
        // The entries of A into n x n numbers that are zero.
        .def("fill",
             [](const LU& self, AnyOut dense) {
                 const sparse::Rows<T>& rows = self.lu().rows();
                 const bool fits = dense.ndim() == 2 && length(dense.shape(0)) == rows.n &&
                                   length(dense.shape(1)) == rows.n && has_numbers_of<T>(dense);
                 require(fits, "the array has another shape or type; pass n x n numbers in double precision");
                 T* to = static_cast<T*>(dense.data());
                 for (std::int64_t i = 0; i < rows.n; ++i, to += rows.n)
                     for (std::int32_t e = rows.starts[i]; e < rows.starts[i + 1]; ++e)
                         to[rows.places[e]] = rows.values[e];
             },
             nb::arg("dense").noconvert())
        // The factors of a matrix with the same places, with the same pivots; None if its places are others.
        .def("refactored",
             [=](const LU& self, int form, AnyIn first, AnyIn second, AnyIn values,
                 bool low) -> std::unique_ptr<LU> {
                 require_factors(self);
                 const IeeeArithmetic arithmetic;
                 sparse::Rows<T> rows = rows_of<T>(form, self.lu().n(), first, second, values);
                 nb::gil_scoped_release release;
                 const sparse::Rows<T>& known = self.lu().rows();
                 if (rows.starts != known.starts || rows.places != known.places) return nullptr;
                 return std::make_unique<LU>(self, std::move(rows), low);
             },
             nb::arg("form"), nb::arg("first"), nb::arg("second"), nb::arg("values"), nb::arg("low") = false)
        .def_prop_ro("result", [](const LU& self) { return result_of(self.lu().result()); })
        .def_prop_ro("is_low", [](const LU& self) { return self.lu().is_low(); })
        .def_prop_ro("entries", [](const LU& self) { return self.lu().entries(); })
        .def_prop_ro("counted", [](const LU& self) { return self.lu().counted(); })
        .def_prop_ro("filled", [](const LU& self) { return self.lu().filled(); })
        .def_prop_ro("has_weak_diagonal", [](const LU& self) { return self.lu().has_weak_diagonal(); })
        .def_prop_ro("work", [](const LU& self) { return self.lu().work(); })
        .def_prop_ro("has_strong_diagonal", [](const LU& self) { return self.lu().has_strong_diagonal(); })
        .def_prop_ro("pattern", [](const LU& self) -> const sparse::Pattern& { return self.lu().pattern(); },
                     nb::rv_policy::reference_internal)
        .def_prop_ro("order", [](nb::handle self) { return vector_of(self, nb::cast<const LU&>(self).lu().order()); })
        // The matrix in canonical compressed rows: indptr, indices and values.
        .def_prop_ro("rows",
                     [](nb::handle self) {
                         const sparse::Rows<T>& rows = nb::cast<const LU&>(self).lu().rows();
                         using Number = std::conditional_t<is_complex_number<T>, std::complex<double>, double>;
                         using View = nb::ndarray<nb::numpy, const Number, nb::ndim<1>>;
                         const auto* values = reinterpret_cast<const Number*>(rows.values.data());
                         return nb::make_tuple(vector_of(self, rows.starts), vector_of(self, rows.places),
                                               View(values, {rows.values.size()}, self));
                     })
        // x = A^-1 b for one vector, nothing verified.
        .def("substitute",
             [=](const LU& self, AnyIn b, AnyOut x) {
                 require_factors(self);
                 const bool fits = b.ndim() == 1 && x.ndim() == 1 && length(b.size()) == self.lu().n() &&
                                   x.size() == b.size() && has_numbers_of<T>(b) && has_numbers_of<T>(x) &&
                                   (b.size() <= 1 || b.stride(0) == 1);
                 require(fits, "b, x and the factors differ in shape or type; pass n numbers each");
                 const IeeeArithmetic arithmetic;
                 nb::gil_scoped_release release;
                 self.substitute(static_cast<const T*>(b.data()), static_cast<T*>(x.data()));
             },
             nb::arg("b"), nb::arg("x").noconvert())
        // x = A^-1 b, verified (sparse/express.hpp). Returns the status (0: accepted; 1: perhaps few digits are
        // right; 2: above the tolerance), the upper bound of the backward error, and the corrections that were made.
        .def("solve",
             [=](const LU& self, AnyIn b, AnyOut x, bool transposed, bool conjugated, bool forward,
                 double tolerance, double growth, double residual_error, double least, double most) {
                 require_factors(self);
                 const std::int64_t n = self.lu().n();
                 const sparse::GivenColumns given = columns_of(b, n);
                 const sparse::GivenColumns answer = columns_of(AnyIn(x), n);
                 require(answer.columns == given.columns && x.ndim() == b.ndim(),
                         "x has another shape than b; pass one of the same shape");
                 require(answer.is_complex == (given.is_complex || is_complex_number<T>),
                         "x has another type than the answer; pass an array of A's and b's common type");
                 sparse::SparseFound found;
                 sparse::SparseStatus status;
                 {
                     const IeeeArithmetic arithmetic;
                     nb::gil_scoped_release release;
                     const sparse::SparseGate gate = {tolerance, growth, residual_error,
                                                      least,     most,   answer.is_single, forward};
                     status = self.solve(given, transposed, conjugated, gate, x.data(), found);
                 }
                 return nb::make_tuple(static_cast<int>(status), found.error, found.steps);
             },
             nb::arg("b"), nb::arg("x").noconvert(), nb::arg("transposed"), nb::arg("conjugated"), nb::arg("forward"),
             nb::arg("tolerance"), nb::arg("growth"), nb::arg("residual_error"), nb::arg("least"), nb::arg("most"));
}

}  // namespace

void bind_left_looking(nb::module_& m) {
    bind_matching<std::int32_t>(m);
    bind_matching<std::int64_t>(m);
    bind_values<std::int32_t, float>(m);
    bind_values<std::int32_t, double>(m);
    bind_values<std::int64_t, float>(m);
    bind_values<std::int64_t, double>(m);
    bind_lu<double>(m, "LeftLookingLU");
    bind_lu<sparse::Complex>(m, "ComplexLeftLookingLU");
}

}  // namespace roundwise
