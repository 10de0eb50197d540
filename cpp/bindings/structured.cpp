// Dense matrices with many zeros in known places: found, solved with and verified by one call.
#include <memory>

#include <nanobind/stl/unique_ptr.h>

#include "bindings/given_numbers.hpp"
#include "native/structured_solve.hpp"

namespace roundwise {

namespace {

struct Call {
    const Numbers &b, &x;
    const ExpressGate& gate;
    int threads;
};

// Columns with a band that is factorized, in groups that threads share.
template <int parts> ExpressResult solve_band(const BandMatrix<parts>& matrix, const Call& call) {
    using Columns = ExpressColumns<BandMatrix<parts>>;
    const std::int64_t given = columns_of(call.b, 0), columns = given * (parts == 1 && call.b.is_complex ? 2 : 1);
    const std::int64_t groups = (columns + Columns::at_a_time - 1) / Columns::at_a_time;
    const std::int64_t products = 32 * matrix.n * columns;  // of a narrow band, with what copies take
    const int threads = static_cast<int>(std::min<std::int64_t>(structured_threads(products, call.threads), groups));
    const Columns solver(matrix.n, columns, call.x.is_single, call.gate);
    const Workspace scratch(solver.scratch_bytes() * threads);
    std::vector<ExpressResult> found(static_cast<std::size_t>(groups));
    share_tasks(groups, threads, [&](std::int64_t group, int member) {
        Columns own = solver;
        const std::int64_t begin = group * Columns::at_a_time, end = std::min(begin + Columns::at_a_time, columns);
        found[static_cast<std::size_t>(group)] =
            own.solve(matrix, call.b.given(0), call.x.data(),
                      static_cast<char*>(scratch.get()) + member * solver.scratch_bytes(), begin, end);
    });
    ExpressResult worst = found[0];
    for (const ExpressResult& one : found) {
        if (one.status != ExpressStatus::accepted) return one;
        worst.backward_error = std::max(worst.backward_error, one.backward_error);
        worst.corrections = std::max(worst.corrections, one.corrections);
    }
    return worst;
}

// What is kept of a matrix with a structure, to solve with it: A itself, and the factors of a band.
class StructuredFactors {
    std::unique_ptr<Numbers> kept_;
    std::unique_ptr<Workspace> memory_;
    BandMatrix<1> real_{1, 0, 0};
    BandMatrix<2> complex_{1, 0, 0};

    template <int parts> bool made(BandMatrix<parts>& band, double suspicious) {
        band = BandMatrix<parts>(n, structure.below, structure.above);
        memory_ = std::make_unique<Workspace>(band.place(nullptr));
        band.place(static_cast<char*>(memory_->get()));
        band.read(strided(given));
        const bool good = band.factorize(suspicious);
        pivot_ratio = band.pivot_ratio;
        return good;
    }

  public:
    std::int64_t n;
    GivenNumbers given;
    Structure structure;
    double pivot_ratio = 1;
    bool is_accepted;

    // Of a matrix that stays where it is until this ends.
    StructuredFactors(const GivenNumbers& a, const Structure& found, double suspicious)
        : n(a.rows), given(a), structure(found) {
        is_accepted = found.kind != StructureKind::band ||
                      (a.is_complex ? made(complex_, suspicious) : made(real_, suspicious));
    }

    void keep(std::unique_ptr<Numbers> a) { kept_ = std::move(a); }

    ExpressResult solve(const Call& call) const {
        if (!is_accepted) return {ExpressStatus::suspicious, HUGE_VAL, pivot_ratio, 0};
        if (structure.kind == StructureKind::band)
            return given.is_complex ? solve_band(complex_, call) : solve_band(real_, call);
        return TriangleColumns(n, strided(given), structure.kind == StructureKind::upper, call.b.given(0),
                               call.x.data(), call.x.is_single, call.gate)
            .solve(call.threads);
    }
};

constexpr int to_be_found = -1;

Structure told_structure(std::int64_t n, int kind, std::int64_t below, std::int64_t above) {
    require(kind >= 1 && kind <= 3, "kind is 1 (band), 2 (lower triangle) or 3 (upper triangle)");
    require(below >= 0 && above >= 0, "a bandwidth is negative");
    return {static_cast<StructureKind>(kind), std::min(below, n - 1), std::min(above, n - 1)};
}

void require_square(const Numbers& a) {
    require(a.shape(0) >= 1 && a.shape(1) == a.shape(0), "A is not square; pass n x n numbers");
}

nb::tuple named(const Structure& found) {
    return nb::make_tuple(static_cast<int>(found.kind), found.below, found.above);
}

}  // namespace

void bind_structured(nb::module_& m) {
    // Where a dense A has nonzero entries: a kind (0: everywhere; 1: band; 2: lower triangle; 3: upper triangle;
    // 4: perhaps a triangle with rows and columns in disorder), and the diagonals below and above the main one.
    define(m, "structured_look", [](nb::handle A) {
        const Numbers a(A, false, 2, 2);
        require_square(a);
        Structure found{};
        without_lock_if(a.shape(0) * a.shape(0) > many_operations,
                        [&] { found = zero_kernels().structure(a.shape(0), strided(a.given(0))); });
        return named(found);
    });

    // Orders of rows and columns that make A lower triangular; False if counting entries finds none.
    define(m, "structured_orders", [](nb::handle A, VectorOut<std::int32_t> rows, VectorOut<std::int32_t> columns) {
        const Numbers a(A, false, 2, 2);
        require_square(a);
        const std::int64_t n = a.shape(0);
        require(length(rows.size()) == n && length(columns.size()) == n, "pass n numbers for rows, and for columns");
        const Workspace workspace(4 * n * static_cast<std::int64_t>(sizeof(std::int32_t)));
        bool found = false;
        std::int32_t *of_rows = rows.data(), *of_columns = columns.data();
        without_lock_if(n * n > many_operations, [&] {
            found = zero_kernels().triangular_orders(n, strided(a.given(0)), of_rows, of_columns,
                                                     static_cast<std::int32_t*>(workspace.get()));
        });
        return found;
    });

    // x = A^-1 b, verified: as express_solve (express.cpp), with the kind of structure after its results. kind = -1:
    // the structure is looked for; the status is 3 if there is none, and the kind says whether it may be permuted.
    define(m, "structured_solve",
           [](nb::handle A, nb::handle B, nb::handle X, int kind, std::int64_t below, std::int64_t above, int threads,
              double tolerance, double growth, double block_error, double exact_error, double suspicious,
              double least, double most, std::int64_t block) {
        const Numbers a(A, false, 2, 2), b(B, false, 1, 2), x(X, true, 1, 2);
        require_square(a);
        require_columns(a.shape(0), a.is_complex, a.is_single, b, x, 0);
        require(threads >= 1, "threads < 1; pass at least 1");
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block);
        const std::int64_t n = a.shape(0);
        Structure found{};
        if (kind != to_be_found) found = told_structure(n, kind, below, above);
        ExpressResult result{};
        bool has_structure = true;
        without_lock_if(n * n * columns_of(b, 0) > many_operations, [&] {
            if (kind == to_be_found) found = zero_kernels().structure(n, strided(a.given(0)));
            has_structure = found.kind != StructureKind::none && found.kind != StructureKind::perhaps_permuted;
            if (has_structure)
                result = StructuredFactors(a.given(0), found, suspicious).solve({b, x, gate, threads});
        });
        const int status = has_structure ? static_cast<int>(result.status) : 3;
        return nb::make_tuple(status, result.backward_error, result.pivot_ratio, result.corrections,
                              static_cast<int>(found.kind));
    });

    // Factors of A, which must not change while they are in use.
    define(m, "structured_factorize",
           [](nb::handle A, int kind, std::int64_t below, std::int64_t above, double suspicious) {
        auto a = std::make_unique<Numbers>(A, false, 2, 2);
        require_square(*a);
        const GivenNumbers given = a->given(0);
        const Structure found = told_structure(given.rows, kind, below, above);
        std::unique_ptr<StructuredFactors> made;
        without_lock_if(given.rows * (found.below + found.above) > many_operations, [&] {
            made = std::make_unique<StructuredFactors>(given, found, suspicious);
        });
        made->keep(std::move(a));
        return made;
    });

    nb::class_<StructuredFactors>(m, "StructuredFactors").def_ro("accepted", &StructuredFactors::is_accepted);

    define(m, "structured_substitute",
           [](const StructuredFactors& kept, nb::handle B, nb::handle X, int threads, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block) {
        const Numbers b(B, false, 1, 2), x(X, true, 1, 2);
        require_columns(kept.n, kept.given.is_complex, kept.given.is_single, b, x, 0);
        require(threads >= 1, "threads < 1; pass at least 1");
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block);
        ExpressResult result{};
        without_lock_if(kept.n * kept.n * columns_of(b, 0) > many_operations,
                        [&] { result = kept.solve({b, x, gate, threads}); });
        return told(result);
    });
}

}  // namespace roundwise
