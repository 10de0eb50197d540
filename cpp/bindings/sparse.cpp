// The analysis of sparse patterns for roundwise._kernels; the headers of sparse/ state what each part
// computes.
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>

#include "bindings/bindings.hpp"
#include "sparse/amd.hpp"
#include "sparse/dissection.hpp"
#include "sparse/pattern.hpp"
#include "sparse/symbolic.hpp"

namespace roundwise {

namespace {

using sparse::Pattern;
using sparse::Symbolic;

template <class T> using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

// A NumPy array that owns its numbers.
template <class T> nb::object owned(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// A read-only NumPy array of a vector within an object, which lives as long as the array.
template <class C, class T> auto view(std::vector<T> C::*member) {
    return [member](nb::handle self) {
        const std::vector<T>& values = nb::cast<const C&>(self).*member;
        return View<T>(values.data(), {values.size()}, self);
    };
}

// What is known of a matrix in compressed form, before anything else reads its indices.
enum Form { out_of_range, in_range, canonical };  // canonical: in order within a row, each once

template <class Index>
Form form_of(std::int64_t n, const Index* first, std::int64_t entries, const Index* place, std::int64_t width) {
    bool valid = first[0] == 0 && first[n] <= entries;
    for (std::int64_t i = 0; i < n; ++i) valid = valid && first[i] <= first[i + 1];
    if (!valid) return out_of_range;
    bool ordered = true;
    for (std::int64_t i = 0; i < n; ++i) {
        std::int64_t last = -1;
        for (Index e = first[i]; e < first[i + 1]; ++e) {
            const std::int64_t here = place[e];
            valid = valid && 0 <= here && here < width;
            ordered = ordered && here > last;
            last = here;
        }
    }
    return !valid ? out_of_range : ordered ? canonical : in_range;
}

template <class Index> void bind_pattern(nb::module_& m) {
    define(m, "sparse_form", [](VectorIn<Index> indptr, VectorIn<Index> indices, std::int64_t width) {
        nb::gil_scoped_release release;
        const std::int64_t n = length(indptr.size()) - 1;
        if (n < 0) return static_cast<int>(out_of_range);
        return static_cast<int>(form_of(n, indptr.data(), length(indices.size()), indices.data(), width));
    });
    define(m, "sparse_pattern", [](VectorIn<Index> indptr, VectorIn<Index> indices) {
        if (indptr.size() == 0)
            throw std::invalid_argument("indptr is empty; pass n + 1 numbers, the first of them 0");
        nb::gil_scoped_release release;
        return sparse::symmetrized<Index>(length(indptr.size()) - 1, indptr.data(), indices.data(),
                                          length(indices.size()));
    });
}

void bind_ordering(nb::module_& m, const char* name,
                   std::vector<std::int32_t> (*ordering)(const Pattern&)) {
    define(m, name, [ordering](const Pattern& pattern) {
        std::vector<std::int32_t> order;
        {
            nb::gil_scoped_release release;
            order = ordering(pattern);
        }
        return owned(std::move(order));
    });
}

using Order = std::optional<VectorIn<std::int32_t>>;

const std::int32_t* checked(const Pattern& pattern, const Order& order) {
    if (!order) return nullptr;
    const auto n = static_cast<std::size_t>(pattern.n);
    std::vector<bool> seen(n, false);
    bool valid = order->size() == n;
    for (std::size_t k = 0; valid && k < n; ++k) {
        const std::int32_t row = order->data()[k];
        valid = 0 <= row && row < pattern.n && !seen[static_cast<std::size_t>(row)];
        if (valid) seen[static_cast<std::size_t>(row)] = true;
    }
    if (!valid)
        throw std::invalid_argument("the order is no permutation; pass each of 0 .. n - 1 once");
    return order->data();
}

}  // namespace

void bind_sparse(nb::module_& m) {
    nb::class_<Pattern>(m, "SparsePattern")
        .def_ro("n", &Pattern::n)
        .def_prop_ro("indptr", view(&Pattern::indptr))
        .def_prop_ro("indices", view(&Pattern::indices));
    nb::class_<Symbolic>(m, "SparseSymbolic")
        .def_ro("n", &Symbolic::n)
        .def_prop_ro("order", view(&Symbolic::order))
        .def_prop_ro("first", view(&Symbolic::first))
        .def_prop_ro("start", view(&Symbolic::start))
        .def_prop_ro("rows", view(&Symbolic::rows))
        .def_prop_ro("parent", view(&Symbolic::parent))
        .def_ro("entries", &Symbolic::entries)
        .def_ro("flops", &Symbolic::flops)
        .def_ro("stored", &Symbolic::stored);
    bind_pattern<std::int32_t>(m);
    bind_pattern<std::int64_t>(m);
    bind_ordering(m, "sparse_amd", &sparse::approximate_minimum_degree);
    bind_ordering(m, "sparse_dissect", &sparse::nested_dissection);
    m.def(
        "sparse_analyse",
        [](const Pattern& pattern, const Order& order) {
            const std::int32_t* permutation = checked(pattern, order);
            nb::gil_scoped_release release;
            return sparse::analyse(pattern.n, pattern.indptr.data(), pattern.indices.data(), permutation);
        },
        nb::arg(), nb::arg().noconvert().none());
    m.def(
        "sparse_counts",
        [](const Pattern& pattern, const Order& order) {
            const std::int32_t* permutation = checked(pattern, order);
            sparse::Counts counts;
            {
                nb::gil_scoped_release release;
                counts = sparse::count(pattern.n, pattern.indptr.data(), pattern.indices.data(), permutation);
            }
            return nb::make_tuple(counts.entries, counts.flops);
        },
        nb::arg(), nb::arg().noconvert().none());
}

}  // namespace roundwise
