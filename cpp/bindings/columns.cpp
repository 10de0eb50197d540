// Passes over blocks of columns; native/columns.hpp states what each computes.
#include <vector>

#include "bindings/orders.hpp"
#include "native/columns.hpp"

namespace roundwise {

namespace {

using Weights = std::optional<VectorIn<double>>;

template <class Norm>
void norms_of(const MatrixIn<double>& x, const Weights& weights, const VectorOut<double>& norms,
              const Norm& norm) {
    const std::int64_t rows = length(x.shape(0)), columns = length(x.shape(1));
    require(columns == length(norms.size()), "norms has another length; pass a number for each column");
    require(!weights || rows == length(weights->size()), "pass a weight for each row");
    nb::gil_scoped_release release;
    for (std::int64_t j = 0; j < columns; ++j) norms.data()[j] = norm(rows, x.data() + j * rows, pointer(weights));
}

void bind_norms_and_shifts(nb::module_& m) {
    define(m, "native_max_norms", [](MatrixIn<double> x, Weights weights, VectorOut<double> norms) {
        norms_of(x, weights, norms, max_norm);
    });
    define(m, "native_max_moduli", [](MatrixIn<double> x, Weights weights, VectorOut<double> norms) {
        require(x.shape(0) % 2 == 0, "the rows are odd in number; pass real and imaginary parts in turn");
        norms_of(x, weights, norms, [](std::int64_t rows, const double* column, const double* given) {
            return max_modulus(rows / 2, column, given);
        });
    });
    define(m, "native_shift", [](MatrixIn<double> x, VectorIn<std::int32_t> exponents, MatrixOut<double> y) {
        const std::int64_t rows = length(x.shape(0)), columns = length(x.shape(1));
        require(rows == length(y.shape(0)) && columns == length(y.shape(1)) &&
                    columns == length(exponents.size()),
                "the shapes do not match; pass two blocks of one shape, and an exponent for each column");
        nb::gil_scoped_release release;
        bool finite = true;
        for (std::int64_t j = 0; j < columns; ++j)
            finite &= shift(rows, x.data() + j * rows, exponents.data()[j], y.data() + j * rows);
        return finite;
    });
    // The max norms of the columns are computed unless they are given.
    define(m, "native_unit_columns", [](MatrixIn<double> x, Weights sizes, MatrixOut<double> y,
                                        VectorOut<std::int32_t> exponents) {
        const std::int64_t rows = length(x.shape(0)), columns = length(x.shape(1));
        require(rows == length(y.shape(0)) && columns == length(y.shape(1)) &&
                    columns == length(exponents.size()) && (!sizes || columns == length(sizes->size())),
                "the shapes do not match; pass two blocks of one shape, and numbers for each column");
        nb::gil_scoped_release release;
        for (std::int64_t j = 0; j < columns; ++j) {
            const double* column = x.data() + j * rows;
            const double size = sizes ? sizes->data()[j] : max_norm(rows, column, nullptr);
            exponents.data()[j] = to_unit_size(rows, column, size, y.data() + j * rows);
        }
    });
    define(m, "native_turn_pairs", [](MatrixIn<double> x, MatrixOut<double> y) {
        const std::int64_t rows = length(x.shape(0)), columns = length(x.shape(1));
        require(rows % 2 == 0 && rows == length(y.shape(0)) && 2 * columns == length(y.shape(1)),
                "the shapes do not match; pass pairs of real and imaginary parts, and twice the columns");
        nb::gil_scoped_release release;
        for (std::int64_t j = 0; j < columns; ++j) {
            double* for_re = y.data() + 2 * j * rows;
            turn_pairs(rows / 2, x.data() + j * rows, for_re, for_re + rows);
        }
    });
    define(m, "native_nearest", [](MatrixIn<double> points, VectorIn<double> place, double reach, int most) {
        require(points.shape(0) == place.size(), "the place has another length; pass a number for each row");
        require(most >= 1, "most < 1; pass at least 1");
        std::vector<std::int64_t> found(static_cast<std::size_t>(most));
        std::vector<double> squares(found.size());
        found.resize(static_cast<std::size_t>(
            nearest(length(place.size()), length(points.shape(1)), points.data(), place.data(), reach, most,
                    found.data(), squares.data())));
        return found;
    });
    define(m, "native_backward_errors", [](VectorIn<double> r, double norm, VectorIn<double> x,
                                           VectorIn<double> b, VectorOut<double> errors) {
        require(r.size() == errors.size() && x.size() == errors.size() && b.size() == errors.size(),
                "the lengths differ; pass a norm of r, x and b for each column");
        for (std::size_t j = 0; j < errors.size(); ++j)
            errors.data()[j] = backward_error(r.data()[j], norm, x.data()[j], b.data()[j]);
    });
    // The order that interchanges, row i with row swaps[i] for i = 0, 1, ..., bring rows into.
    define(m, "native_order", [](VectorIn<std::int32_t> swaps, VectorOut<std::int32_t> order) {
        const std::int64_t n = length(swaps.size());
        require(n == length(order.size()), "the lengths differ; pass as many rows as interchanges");
        std::int32_t* rows = order.data();
        for (std::int64_t i = 0; i < n; ++i) rows[i] = static_cast<std::int32_t>(i);
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int32_t other = swaps.data()[i];
            require(other >= 0 && other < n, "an interchange is out of range; pass indices of rows");
            const std::int32_t kept = rows[i];
            rows[i] = rows[other];
            rows[other] = kept;
        }
    });
}

template <class T> void bind_permutations(nb::module_& m) {
    define(m, "native_gather", [](Order order, MatrixIn<double> x, MatrixOut<T> y) {
        const std::int64_t n = length(x.shape(0)), columns = length(x.shape(1));
        require(n == length(y.shape(0)) && columns == length(y.shape(1)), "pass two blocks of one shape");
        require_order(order, n);
        nb::gil_scoped_release release;
        for (std::int64_t j = 0; j < columns; ++j)
            gather(n, pointer(order), x.data() + j * n, y.data() + j * n);
    });
    define(m, "native_scatter", [](Order order, MatrixIn<T> x, MatrixOut<double> y) {
        const std::int64_t n = length(x.shape(0)), columns = length(x.shape(1));
        require(n == length(y.shape(0)) && columns == length(y.shape(1)), "pass two blocks of one shape");
        require_order(order, n);
        nb::gil_scoped_release release;
        bool finite = true;
        for (std::int64_t j = 0; j < columns; ++j)
            finite &= scatter(n, pointer(order), x.data() + j * n, y.data() + j * n);
        return finite;
    });
    const auto require_pairs = [](const auto& pairs, const auto& parts) {
        require(pairs.shape(0) == 2 * parts.shape(0) && 2 * pairs.shape(1) == parts.shape(1),
                "the shapes do not match; pass 2 n x k numbers in pairs, and n x 2 k in columns");
    };
    define(m, "native_gather_pairs",
           [require_pairs](Order order, bool conjugate, MatrixIn<double> x, MatrixOut<T> y) {
        require_pairs(x, y);
        const std::int64_t n = length(y.shape(0)), columns = length(x.shape(1));
        require_order(order, n);
        nb::gil_scoped_release release;
        for (std::int64_t j = 0; j < columns; ++j) {
            T* re = y.data() + 2 * j * n;
            gather_pairs(n, pointer(order), conjugate ? -1 : 1, x.data() + 2 * j * n, re, re + n);
        }
    });
    define(m, "native_scatter_pairs",
           [require_pairs](Order order, bool conjugate, MatrixIn<T> x, MatrixOut<double> y) {
        require_pairs(y, x);
        const std::int64_t n = length(x.shape(0)), columns = length(y.shape(1));
        require_order(order, n);
        nb::gil_scoped_release release;
        bool finite = true;
        for (std::int64_t j = 0; j < columns; ++j) {
            const T* re = x.data() + 2 * j * n;
            finite &= scatter_pairs(n, pointer(order), conjugate ? -1 : 1, re, re + n, y.data() + 2 * j * n);
        }
        return finite;
    });
}

}  // namespace

void bind_columns(nb::module_& m) {
    bind_norms_and_shifts(m);
    bind_permutations<float>(m);
    bind_permutations<double>(m);
}

}  // namespace roundwise
