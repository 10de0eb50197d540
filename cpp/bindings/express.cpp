// Small dense systems, solved and verified in one call each, and stacks of them, shared among threads.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nanobind/stl/unique_ptr.h>

#include "bindings/given_numbers.hpp"
#include "common/parallel.hpp"
#include "native/structured_solve.hpp"
#include "sparse/rows.hpp"

namespace roundwise {

namespace {

// The smallest n for which bands and triangles are looked for. (A taste: LU of smaller ones takes a microsecond.)
constexpr std::int64_t structured_from = 16;

// A contiguous vector of the caller's, without a copy.
class Contiguous {
    Py_buffer view_;

  public:
    explicit Contiguous(nb::handle array) {
        if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
            PyErr_Clear();
            throw std::invalid_argument("an array is not contiguous; pass vectors without gaps");
        }
        if (view_.ndim != 1) {
            PyBuffer_Release(&view_);
            throw std::invalid_argument("an array is no vector; pass the vectors of a sparse matrix");
        }
    }
    Contiguous(const Contiguous&) = delete;
    ~Contiguous() { PyBuffer_Release(&view_); }

    std::int64_t size() const { return view_.shape[0]; }
    std::string_view format() const { return view_.format; }
    // Of integers with a sign: their bytes; 0 of other numbers.
    std::int64_t bytes_of_integers() const {
        return format() == "i" || format() == "l" || format() == "q" ? view_.itemsize : 0;
    }
    const void* data() const { return view_.buf; }
};

// Adds the entries of a sparse matrix (sparse/rows.hpp) to n x n numbers. False if an index is out of range.
template <class Index, class T>
bool add_entries(sparse::Form form, std::int64_t n, std::int64_t entries, const Index* first, const Index* second,
                 const T* values, int parts, double* dense) {
    const auto add = [&](Index i, Index j, std::int64_t e) {
        if (!(i >= 0 && i < n && j >= 0 && j < n)) return false;
        double* place = dense + (i * n + j) * parts;
        for (int p = 0; p < parts; ++p) place[p] += static_cast<double>(values[e * parts + p]);
        return true;
    };
    if (form == sparse::Form::coordinates) {
        for (std::int64_t e = 0; e < entries; ++e)
            if (!add(first[e], second[e], e)) return false;
        return true;
    }
    if (first[0] != 0) return false;
    for (std::int64_t line = 0; line < n; ++line) {
        if (first[line + 1] < first[line] || first[line + 1] > entries) return false;
        const Index here = static_cast<Index>(line);
        for (std::int64_t e = first[line]; e < first[line + 1]; ++e)
            if (!(form == sparse::Form::rows ? add(here, second[e], e) : add(second[e], here, e))) return false;
    }
    return true;
}

// The same for any types; false also where they are none that this call reads.
bool add_entries(sparse::Form form, std::int64_t n, const Contiguous& first, const Contiguous& second,
                 const Contiguous& values, bool is_single, int parts, double* dense) {
    const std::int64_t entries = std::min(second.size(), values.size());
    const bool by_place = form == sparse::Form::coordinates;
    if (by_place ? first.size() != second.size() || values.size() != second.size() : first.size() != n + 1)
        return false;
    if (first.bytes_of_integers() != second.bytes_of_integers()) return false;
    const auto with = [&](auto index) {
        using Index = decltype(index);
        const auto *from = static_cast<const Index*>(first.data()), *to = static_cast<const Index*>(second.data());
        if (is_single)
            return add_entries(form, n, entries, from, to, static_cast<const float*>(values.data()), parts, dense);
        return add_entries(form, n, entries, from, to, static_cast<const double*>(values.data()), parts, dense);
    };
    if (first.bytes_of_integers() == 4) return with(std::int32_t{});
    return first.bytes_of_integers() == 8 && with(std::int64_t{});
}

// The format of factors, as Python names it.
Storage storage_of(const char* format) {
    const std::string_view name(format);
    if (name == "fp64") return Storage::fp64;
    if (name == "fp32") return Storage::fp32;
    if (name == "fp16") return Storage::fp16;
    require(name == "bf16", "factors are of another format; pass fp64, fp32, fp16 or bf16");
    return Storage::bf16;
}

// Calls body(matrix, columns) with what solves for these numbers: of a real A and a complex b, both parts are
// columns.
template <int parts, class T, class Body>
void with_solver_of(Storage storage, bool twice, bool single, std::int64_t n, std::int64_t columns,
                    const ExpressGate& gate, const Body& body) {
    body(ExpressMatrix<parts, T>(n, storage),
         ExpressColumns<ExpressMatrix<parts, T>>(n, twice ? 2 * columns : columns, single, gate));
}

template <class Body>
void with_solver(bool is_complex, Storage storage, const Numbers& b, bool single, std::int64_t n,
                 std::int64_t columns, const ExpressGate& gate, const Body& body) {
    const bool twice = !is_complex && b.is_complex, low = storage != Storage::fp64;
    if (is_complex && low) with_solver_of<2, float>(storage, twice, single, n, columns, gate, body);
    else if (is_complex) with_solver_of<2, double>(storage, twice, single, n, columns, gate, body);
    else if (low) with_solver_of<1, float>(storage, twice, single, n, columns, gate, body);
    else with_solver_of<1, double>(storage, twice, single, n, columns, gate, body);
}

// Calls work(i) for each of `count` systems of `numbers` numbers, on several threads if they are many; each has the
// `work` that start(scratch) makes. A thread takes as many systems at a time as take some microseconds.
template <class Start>
void share_systems(std::int64_t count, std::int64_t numbers, int threads, std::int64_t bytes, const Start& start) {
    const std::int64_t step = std::max<std::int64_t>(1, 4096 / numbers);
    threads = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, count / (4 * step))));
    const Workspace workspace(bytes * threads);
    std::int64_t claimed = 0;
    const auto share = [&](int member) {
        auto work = start(static_cast<char*>(workspace.get()) + member * bytes);
        for (;;) {
            const std::int64_t begin = __atomic_fetch_add(&claimed, step, __ATOMIC_RELAXED);
            if (begin >= count) return;
            for (std::int64_t i = begin; i < std::min(begin + step, count); ++i) work(i);
        }
    };
    run_members(
        threads, [](void* context, int member) { (*static_cast<decltype(&share)>(context))(member); },
        const_cast<void*>(static_cast<const void*>(&share)));
}

// The i-th answer of a stack.
char* answer_at(const Numbers& x, std::int64_t i) {
    const std::int64_t size = (x.is_single ? 4 : 8) * (x.is_complex ? 2 : 1);
    return static_cast<char*>(x.data()) + i * size * x.shape(1) * x.shape(2);
}

// The numbers of one matrix to a lane: part p of number e to to[(e * parts + p) * lanes].
void to_lane(const GivenNumbers& given, std::int64_t lanes, double* to) {
    const std::int64_t columns = given.columns, parts = given.parts();
    given.read([=](std::int64_t i, std::int64_t j, int part, double value) {
        to[((i * columns + j) * parts + part) * lanes] = value;
    });
}

// Whether systems of a stack are solved side by side, as many as a vector has lanes at a time.
bool are_tiny(const Numbers& a, const Numbers& b, std::int64_t n, std::int64_t columns, std::int64_t count,
              Storage storage, bool forward) {
    constexpr std::int64_t most = 1024;  // right-hand sides of one: a copy of them stays in the first caches
    return n <= tiny_order && n * columns <= most && count >= tiny_kernels().lanes &&
           a.is_complex == b.is_complex && storage == Storage::fp64 && !forward;
}

// Solves such systems; errors are infinite for those that are to be solved one by one.
template <class MatrixAt, class ColumnsAt>
void solve_tiny(std::int64_t n, std::int64_t columns, std::int64_t count, const MatrixAt& matrix_at,
                const ColumnsAt& columns_at, const Numbers& x, const ExpressGate& gate, int threads, double* errors) {
    const TinyKernels& kernels = tiny_kernels();
    const std::int64_t lanes = kernels.lanes, groups = (count + lanes - 1) / lanes;
    const std::int64_t parts = x.is_complex ? 2 : 1, of_b = parts * n * columns;
    const std::int64_t numbers = parts * n * n + 2 * of_b + 1;
    const auto start = [&](char* scratch) {
        double *a = reinterpret_cast<double*>(scratch), *b = a + parts * n * n * lanes, *found = b + of_b * lanes;
        double* group_errors = found + of_b * lanes;
        return [&, a, b, found, group_errors](std::int64_t group) {
            const std::int64_t first = group * lanes, last = std::min(first + lanes, count);
            for (std::int64_t lane = 0; lane < lanes; ++lane) {  // those that do not exist are copies of the last one
                const std::int64_t i = std::min(first + lane, last - 1);
                to_lane(matrix_at(i), lanes, a + lane);
                to_lane(columns_at(i), lanes, b + lane);
            }
            kernels.solve[parts - 1](n, columns, a, b, found, x.is_single, gate, group_errors);
            for (std::int64_t i = first; i < last; ++i) {
                errors[i] = group_errors[i - first];
                char* to = answer_at(x, i);
                for (std::int64_t e = 0; e < of_b; ++e) {
                    const double value = found[e * lanes + i - first];
                    if (x.is_single) reinterpret_cast<float*>(to)[e] = static_cast<float>(value);
                    else reinterpret_cast<double*>(to)[e] = value;
                }
            }
        };
    };
    share_systems(groups, n * n * lanes, threads, (numbers * lanes * 8 + 63) / 64 * 64, start);
}

// Which of the given matrices, or columns, each of `count` systems has: indices, or none where system i has the
// i-th one, or the only one.
class Places {
    const std::int64_t* indices_;
    std::int64_t step_ = 0;

  public:
    Places(const VectorIn<std::int64_t>& which, std::int64_t given, std::int64_t count) : indices_(which.data()) {
        if (which.size() == 0 && (given == count || given == 1)) {
            indices_ = nullptr, step_ = given == count ? 1 : 0;
            return;
        }
        require(length(which.size()) == count,
                "X and the indices differ in length; pass one for every system, or none if A, or B, has one for all");
        for (std::int64_t i = 0; i < count; ++i)
            require(indices_[i] >= 0 && indices_[i] < given, "an index is out of range; pass one of a system");
    }
    std::int64_t operator[](std::int64_t i) const { return indices_ == nullptr ? i * step_ : indices_[i]; }
};

// The systems of a stack: those of X, which has an error for each.
std::int64_t systems_of(const Numbers& x, const VectorOut<double>& errors) {
    require(length(errors.size()) == x.shape(0), "X and errors differ in length; pass one for every system");
    return x.shape(0);
}

std::int64_t refused_of(const VectorOut<double>& errors) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < errors.size(); ++i) count += errors.data()[i] == HUGE_VAL;
    return count;
}

double error_of(const ExpressResult& found) {
    return found.status == ExpressStatus::accepted ? found.backward_error : HUGE_VAL;
}

// One matrix, or a stack of them, with factors that are kept.
struct KeptFactors {
    std::int64_t n, count;
    bool is_single, is_complex;
    Storage storage;
    std::vector<std::int64_t> refused;  // places of matrices with zero or suspiciously small pivots

    virtual ~KeptFactors() = default;
    // Of the matrix at this place, which is an ExpressMatrix with as many parts, and factors of that type.
    virtual const void* matrix(std::int64_t place) const = 0;
};

template <int parts, class T> struct KeptFactorsOf : KeptFactors {
    std::vector<ExpressMatrix<parts, T>> matrices;
    std::unique_ptr<Workspace> memory;

    KeptFactorsOf(const Numbers& a, int first, Storage format, bool scaled, double suspicious, bool forward,
                  int threads) {
        n = a.shape(first), count = first == 1 ? a.shape(0) : 1;
        is_single = a.is_single, is_complex = parts == 2, storage = format;
        const ExpressMatrix<parts, T> unplaced(n, storage);
        matrices.assign(static_cast<std::size_t>(count), unplaced);
        const std::int64_t bytes = ExpressMatrix<parts, T>(n, storage).place(nullptr);
        memory = std::make_unique<Workspace>(bytes * count);
        std::vector<std::uint8_t> good(static_cast<std::size_t>(count));
        const auto start = [&](char* scratch) {
            return [&, scratch](std::int64_t i) {
                ExpressMatrix<parts, T>& one = matrices[static_cast<std::size_t>(i)];
                one.place(static_cast<char*>(memory->get()) + i * bytes);
                one.read(a.given(first, i), true);
                const auto is_good = [&] {
                    return one.factorize(suspicious) && !(forward && one.has_weak_direction(scratch));
                };
                good[static_cast<std::size_t>(i)] = (!scaled && is_good()) || (one.scale() && is_good());
            };
        };
        without_lock_if(count * n * n * n > many_operations, [&] {
            share_systems(count, n * n, threads, forward ? unplaced.weakness_bytes(n) : 0, start);
        });
        for (std::int64_t i = 0; i < count; ++i)
            if (!good[static_cast<std::size_t>(i)]) refused.push_back(i);
    }
    const void* matrix(std::int64_t place) const override { return &matrices[static_cast<std::size_t>(place)]; }
};

// Calls body(matrix at a place, columns) for kept factors of any type.
template <class Body>
void with_factors(const KeptFactors& kept, const Numbers& b, const Numbers& x, std::int64_t columns,
                  const ExpressGate& gate, const Body& body) {
    with_solver(kept.is_complex, kept.storage, b, x.is_single, kept.n, columns, gate,
                [&](const auto& matrix, const auto& solver) {
        using Matrix = std::decay_t<decltype(matrix)>;
        body([&](std::int64_t place) -> const Matrix& { return *static_cast<const Matrix*>(kept.matrix(place)); },
             solver);
    });
}

}  // namespace

void bind_express(nb::module_& m) {
    m.attr("EXPRESS_LOOKS_FROM") = structured_from;
    // x = A^-1 b, verified, on the calling thread, with factors in a format. Returns the status (0:
    // accepted; 1: a pivot is zero or suspiciously small; 2: above the tolerance), the upper bound of the
    // backward error, the ratio of the smallest pivot to the largest, and the corrections that were made. x is
    // of use only if it is accepted. With `look` nothing is done if A is a band or a triangle: the status is 3.
    define(m, "express_solve",
           [](nb::handle A, nb::handle B, nb::handle X, bool look, const char* format, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block, bool forward) {
        const Numbers a(A, false, 2, 2), b(B, false, 1, 2), x(X, true, 1, 2);
        const std::int64_t n = a.shape(0), columns = columns_of(b, 0);
        require(n >= 1 && a.shape(1) == n, "A is not square; pass n x n numbers");
        require_columns(n, a.is_complex, a.is_single, b, x, 0);
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward);
        if (look && n >= structured_from && zero_kernels().structure(n, strided(a.given(0))).kind != StructureKind::none)
            return nb::make_tuple(3, HUGE_VAL, 0.0, 0);
        ExpressResult found{};
        with_solver(a.is_complex, storage_of(format), b, x.is_single, n, columns, gate, [&](auto matrix, auto solver) {
            const std::int64_t bytes = matrix.place(nullptr);
            const Workspace workspace(bytes + solver.scratch_bytes());
            char* scratch = static_cast<char*>(workspace.get());
            without_lock_if(n * n * (n + columns) > many_operations, [&] {
                matrix.place(scratch);
                matrix.read(a.given(0), false);
                found = solver.solve_anew(matrix, b.given(0), x.data(), scratch + bytes);
            });
        });
        return told(found);
    });

    // The same for a sparse A of order n, whose three vectors are those of a form of sparse/rows.hpp. The status is
    // 3 if an index is out of range, or if the vectors are others than this call reads.
    define(m, "express_solve_sparse",
           [](int form, std::int64_t n, nb::handle First, nb::handle Second, nb::handle Values, nb::handle B,
              nb::handle X, const char* format, double tolerance, double growth, double block_error,
              double exact_error, double suspicious, double least, double most, std::int64_t block, bool forward) {
        require(form >= 0 && form <= 2, "form is 0 for rows, 1 for columns and 2 for coordinates");
        require(n >= 1 && n <= 1024, "A is empty or too large to be made dense; pass at most 1024 rows");
        const Contiguous first(First), second(Second), values(Values);
        const Numbers b(B, false, 1, 2), x(X, true, 1, 2);
        const bool is_complex = values.format() == "Zd" || values.format() == "Zf";
        const bool is_single = values.format() == "f" || values.format() == "Zf";
        require(is_complex || is_single || values.format() == "d",
                "the values have another type; pass float32, float64, complex64 or complex128");
        const std::int64_t columns = columns_of(b, 0);
        require_columns(n, is_complex, is_single, b, x, 0);
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward);
        ExpressResult found{};
        bool valid = false;
        with_solver(is_complex, storage_of(format), b, x.is_single, n, columns, gate, [&](auto matrix, auto solver) {
            const int parts = is_complex ? 2 : 1;
            const std::int64_t dense_bytes = (8 * parts * n * n + 63) / 64 * 64, bytes = matrix.place(nullptr);
            const Workspace workspace(dense_bytes + bytes + solver.scratch_bytes());
            char* scratch = static_cast<char*>(workspace.get());
            without_lock_if(n * n * (n + columns) > many_operations, [&] {
                double* dense = reinterpret_cast<double*>(scratch);
                std::fill_n(dense, parts * n * n, 0.0);
                valid = add_entries(static_cast<sparse::Form>(form), n, first, second, values, is_single, parts, dense);
                if (!valid) return;
                matrix.place(scratch + dense_bytes);
                matrix.read({scratch, n, n, 8 * parts * n, 8 * parts, false, is_complex}, false);
                found = solver.solve_anew(matrix, b.given(0), x.data(), scratch + dense_bytes + bytes);
            });
        });
        if (!valid) return nb::make_tuple(3, HUGE_VAL, 0.0, 0);
        return told(found);
    });

    // X_i = A_j^-1 B_k for j = which_a[i], k = which_b[i]; without indices, each has its own one, or all have the
    // only one. Returns how many were not accepted. errors[i] is the upper bound of its backward error,
    // and infinite if it was not accepted.
    define(m, "express_solve_stack",
           [](nb::handle A, nb::handle B, VectorIn<std::int64_t> which_a, VectorIn<std::int64_t> which_b,
              nb::handle X, VectorOut<double> errors, const char* format, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block, bool forward, int threads) {
        const Numbers a(A, false, 3, 3), b(B, false, 3, 3), x(X, true, 3, 3);
        const std::int64_t n = a.shape(1), columns = columns_of(b, 1);
        require(n >= 1 && a.shape(2) == n, "A is not square; pass stacks of n x n");
        require_columns(n, a.is_complex, a.is_single, b, x, 1);
        const std::int64_t count = systems_of(x, errors);
        const Places matrices(which_a, a.shape(0), count), blocks(which_b, b.shape(0), count);
        require(threads >= 1, "threads < 1; pass at least 1");
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward);
        double* found = errors.data();
        const bool tiny = are_tiny(a, b, n, columns, count, storage_of(format), forward);
        if (tiny)
            without_lock_if(count * n * n * (n + columns) > many_operations, [&] {
                solve_tiny(n, columns, count, [&](std::int64_t i) { return a.given(1, matrices[i]); },
                           [&](std::int64_t i) { return b.given(1, blocks[i]); }, x, gate, threads, found);
            });
        if (tiny && refused_of(errors) == 0) return std::int64_t{0};
        with_solver(a.is_complex, storage_of(format), b, x.is_single, n, columns, gate, [&](auto given, const auto& solver) {
            const std::int64_t bytes = given.place(nullptr);
            const auto start = [&](char* scratch) {
                auto own_matrix = given;
                own_matrix.place(scratch);
                return [&, matrix = own_matrix, own = solver, scratch](std::int64_t i) mutable {
                    if (tiny && found[i] != HUGE_VAL) return;
                    matrix.read(a.given(1, matrices[i]), false);
                    found[i] = error_of(own.solve_anew(matrix, b.given(1, blocks[i]), answer_at(x, i),
                                                       scratch + bytes));
                };
            };
            without_lock_if(count * n * n * (n + columns) > many_operations, [&] {
                share_systems(count, n * n, threads, bytes + solver.scratch_bytes(), start);
            });
        });
        return refused_of(errors);
    });

    // Factors of A, or of each of a stack, with a copy of A; `scaled` by powers of two, where they are not
    // scaled anyhow. `refused` has the places of those whose pivots are zero or suspiciously small.
    define(m, "express_factorize",
           [](nb::handle A, const char* format, bool scaled, double suspicious, bool forward,
              int threads) -> std::unique_ptr<KeptFactors> {
        const Numbers a(A, false, 2, 3);
        const int first = a.dimensions() - 2;
        const std::int64_t n = a.shape(first);
        require(n >= 1 && a.shape(first + 1) == n && a.shape(0) >= 1, "A is not square; pass n x n numbers");
        require(threads >= 1, "threads < 1; pass at least 1");
        const Storage storage = storage_of(format);
        const bool low = storage != Storage::fp64;
        const auto made = [&](auto like) -> std::unique_ptr<KeptFactors> {
            return std::make_unique<KeptFactorsOf<decltype(like)::parts, typename decltype(like)::Factor>>(
                a, first, storage, scaled, suspicious, forward, threads);
        };
        if (a.is_complex && low) return made(ExpressMatrix<2, float>(n, storage));
        if (a.is_complex) return made(ExpressMatrix<2, double>(n, storage));
        if (low) return made(ExpressMatrix<1, float>(n, storage));
        return made(ExpressMatrix<1, double>(n, storage));
    });

    nb::class_<KeptFactors>(m, "ExpressFactors").def_ro("refused", &KeptFactors::refused);

    // As express_solve, with kept factors of one matrix that was not refused.
    define(m, "express_substitute",
           [](const KeptFactors& kept, nb::handle B, nb::handle X, double tolerance, double growth,
              double block_error, double exact_error, double suspicious, double least, double most,
              std::int64_t block, bool forward) {
        const Numbers b(B, false, 1, 2), x(X, true, 1, 2);
        require(kept.refused.empty() && kept.count == 1, "pass factors of one matrix, not refused");
        require_columns(kept.n, kept.is_complex, kept.is_single, b, x, 0);
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward);
        ExpressResult found{};
        const std::int64_t columns = columns_of(b, 0);
        with_factors(kept, b, x, columns, gate, [&](const auto& at, auto solver) {
            const Workspace workspace(solver.scratch_bytes());
            without_lock_if(kept.n * kept.n * columns > many_operations, [&] {
                found = solver.solve(at(0), b.given(0), x.data(), static_cast<char*>(workspace.get()));
            });
        });
        return told(found);
    });

    // As express_solve_stack, with kept factors; systems with refused ones are not accepted.
    define(m, "express_substitute_stack",
           [](const KeptFactors& kept, nb::handle B, VectorIn<std::int64_t> which_a,
              VectorIn<std::int64_t> which_b, nb::handle X, VectorOut<double> errors, double tolerance,
              double growth, double block_error, double exact_error, double suspicious, double least,
              double most, std::int64_t block, bool forward, int threads) {
        const Numbers b(B, false, 3, 3), x(X, true, 3, 3);
        require_columns(kept.n, kept.is_complex, kept.is_single, b, x, 1);
        const std::int64_t count = systems_of(x, errors);
        const Places matrices(which_a, kept.count, count), blocks(which_b, b.shape(0), count);
        require(threads >= 1, "threads < 1; pass at least 1");
        const ExpressGate gate =
            gate_of(tolerance, growth, block_error, exact_error, suspicious, least, most, block, forward);
        const std::int64_t columns = columns_of(b, 1);
        double* found = errors.data();
        with_factors(kept, b, x, columns, gate, [&](const auto& at, const auto& solver) {
            const auto start = [&](char* scratch) {
                return [&, own = solver, scratch](std::int64_t i) mutable {
                    found[i] = HUGE_VAL;
                    const std::int64_t place = matrices[i];
                    if (!std::binary_search(kept.refused.begin(), kept.refused.end(), place))
                        found[i] =
                            error_of(own.solve(at(place), b.given(1, blocks[i]), answer_at(x, i), scratch));
                };
            };
            without_lock_if(count * kept.n * kept.n * columns > many_operations, [&] {
                share_systems(count, kept.n * kept.n, threads, solver.scratch_bytes(), start);
            });
        });
        return refused_of(errors);
    });
}

}  // namespace roundwise
