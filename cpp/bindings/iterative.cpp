// Preconditioners: cpp/iterative.
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cmath>

#include "bindings/bindings.hpp"
#include "iterative/hierarchy.hpp"
#include "iterative/incomplete.hpp"
#include "iterative/look.hpp"

namespace roundwise {

namespace {

using namespace iterative;

CsrView matrix_of(const VectorIn<std::int32_t>& starts, const VectorIn<std::int32_t>& indices, const VectorIn<double>& values) {
    require(starts.size() >= 1 && starts.data()[0] == 0, "starts does not begin with 0; pass the arrays of a CSR matrix");
    const auto n = static_cast<Index>(starts.size() - 1);
    for (Index i = 0; i < n; ++i)
        require(starts.data()[i] <= starts.data()[i + 1], "starts decreases; pass the arrays of a CSR matrix");
    require(length(indices.size()) == starts.data()[n] && indices.size() == values.size(),
            "starts, indices and values do not fit; pass the arrays of a CSR matrix");
    bool valid = true;
    for (std::size_t e = 0; e < indices.size(); ++e) valid = valid && indices.data()[e] >= 0 && indices.data()[e] < n;
    require(valid, "an index is out of range; pass the arrays of a square CSR matrix");
    return {n, n, starts.data(), indices.data(), values.data()};
}

template <class T> nb::object array_of(const T* numbers, std::int64_t count) {
    T* copy = new T[static_cast<std::size_t>(count)];
    std::copy_n(numbers, count, copy);
    nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy, {static_cast<std::size_t>(count)}, owner));
}

nb::tuple arrays_of(const Csr& A) {
    return nb::make_tuple(array_of(A.starts.data(), std::int64_t{A.rows} + 1), array_of(A.indices.data(), A.entries()),
                          array_of(A.values.data(), A.entries()), nb::make_tuple(A.rows, A.columns));
}

nb::list all_of(const std::vector<Csr>& matrices) {
    nb::list found;
    for (const Csr& one : matrices) found.append(arrays_of(one));
    return found;
}

}  // namespace

void bind_iterative(nb::module_& m) {
    nb::class_<Preconditioner>(m, "Preconditioner")
        .def_prop_ro("bytes", &Preconditioner::bytes)
        .def_prop_ro("levels",
                     [](const Preconditioner& self) {
                         nb::list facts;
                         for (const LevelFacts& one : self.levels)
                             facts.append(nb::make_tuple(one.rows, one.entries, one.largest));
                         return facts;
                     })
        .def_prop_ro("kept", [](const Preconditioner& self) {
            return nb::make_tuple(all_of(self.kept_A), all_of(self.kept_P), all_of(self.kept_R));
        });
    define(m, "preconditioner_apply", [](const Preconditioner& self, MatrixIn<double> R, MatrixOut<double> Z, int threads) {
        require(R.shape(0) == Z.shape(0) && R.shape(1) == Z.shape(1) && length(R.shape(0)) == self.rows(),
                "the shapes do not match; pass blocks of n rows");
        require(threads >= 1, "threads < 1; pass at least 1");
        require_apart(R, Z, true);
        nb::gil_scoped_release release;
        self.apply(R.data(), Z.data(), static_cast<Index>(R.shape(1)), threads);
    });
    // Returns (0, the hierarchy), or why there is none (`Made`) and None. `near_null` has the vectors one after the
    // other, or nothing for constants; `nodes` the first unknown of each node and n, or nothing.
    define(m, "iterative_hierarchy",
           [](const std::string& storage, VectorIn<std::int32_t> starts, VectorIn<std::int32_t> indices, VectorIn<double> values,
              VectorIn<double> near_null, VectorIn<std::int32_t> nodes, bool symmetric, double theta, int degree, double ratio,
              int coarsest, bool keep, int threads) {
               const CsrView A = matrix_of(starts, indices, values);
               require(A.rows >= 1, "A has no rows; pass at least one");
               require(threads >= 1 && degree >= 1 && ratio > 1 && coarsest >= 1 && theta >= 0,
                       "threads, degree or coarsest < 1, ratio <= 1 or theta < 0; pass larger ones");
               require(near_null.size() % static_cast<std::size_t>(A.rows) == 0, "near_null has no whole columns; pass n numbers for each");
               require(std::all_of(near_null.data(), near_null.data() + near_null.size(), [](double x) { return std::isfinite(x); }),
                       "near_null has NaN or inf; pass finite numbers");
               NearNullSpace B{A.rows, static_cast<Index>(near_null.size() / static_cast<std::size_t>(A.rows)),
                               std::vector<double>(near_null.data(), near_null.data() + near_null.size())};
               Nodes first(nodes.data(), nodes.data() + nodes.size());
               bool rising = first.empty() || (first.front() == 0 && first.back() == A.rows && first.size() > 1);
               for (std::size_t k = 0; rising && k + 1 < first.size(); ++k) rising = first[k] < first[k + 1];
               require(rising, "nodes do not rise from 0 to n; pass the first unknown of each, and n");
               const Choices choices{symmetric, theta, degree, ratio, coarsest, threads};
               Made made = Made::done;
               std::unique_ptr<Preconditioner> found;
               {
                   nb::gil_scoped_release release;
                   if (storage == "fp64") found = make_hierarchy<double>(A, std::move(B), std::move(first), choices, keep, made);
                   else if (storage == "fp32") found = make_hierarchy<float>(A, std::move(B), std::move(first), choices, keep, made);
                   else if (storage == "bf16") found = make_hierarchy<Bf16>(A, std::move(B), std::move(first), choices, keep, made);
                   else if (storage == "fp16") found = make_hierarchy<Fp16>(A, std::move(B), std::move(first), choices, keep, made);
                   else throw std::invalid_argument("no such storage; pass fp64, fp32, bf16 or fp16");
               }
               return nb::make_tuple(static_cast<int>(made), nb::cast(std::move(found)));
           });
    // The same for incomplete factors: `levels` of it has the entries of both and the shift of the diagonal.
    define(m, "iterative_incomplete",
           [](const std::string& storage, VectorIn<std::int32_t> starts, VectorIn<std::int32_t> indices, VectorIn<double> values,
              bool definite, int levels, int threads) {
               const CsrView A = matrix_of(starts, indices, values);
               require(A.rows >= 1, "A has no rows; pass at least one");
               require(threads >= 1 && levels >= 0, "threads < 1 or levels < 0; pass larger ones");
               const Fill fill{definite, levels, threads};
               Made made = Made::done;
               std::unique_ptr<Preconditioner> found;
               {
                   nb::gil_scoped_release release;
                   if (storage == "fp64") found = make_incomplete<double>(A, fill, made);
                   else if (storage == "fp32") found = make_incomplete<float>(A, fill, made);
                   else if (storage == "bf16") found = make_incomplete<Bf16>(A, fill, made);
                   else if (storage == "fp16") found = make_incomplete<Fp16>(A, fill, made);
                   else throw std::invalid_argument("no such storage; pass fp64, fp32, bf16 or fp16");
               }
               return nb::make_tuple(static_cast<int>(made), nb::cast(std::move(found)));
           });
    // Unknowns connected with the first one, levels and width of the graph, and the share of positive entries.
    define(m, "iterative_look", [](VectorIn<std::int32_t> starts, VectorIn<std::int32_t> indices, VectorIn<double> values) {
        const CsrView A = matrix_of(starts, indices, values);
        require(A.rows >= 1, "A has no rows; pass at least one");
        Look found;
        {
            nb::gil_scoped_release release;
            found = look(A);
        }
        return nb::make_tuple(found.reached, found.levels, found.width, found.positive);
    });
}

}  // namespace roundwise
