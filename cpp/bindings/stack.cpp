// A stack of small dense systems, solved and verified in one call, and threads shared among systems.
#include <algorithm>
#include <cmath>

#include "bindings/bindings.hpp"
#include "common/parallel.hpp"
#include "native/backward_error.hpp"
#include "native/dispatch.hpp"

namespace roundwise {

namespace {

using StackIn = nb::ndarray<const double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using StackOut = nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Larger systems are factorized in blocks: what blocks cost is gained back there.
constexpr std::int64_t largest_eliminated = 128;

// Systems that a thread takes at a time, as many as take some microseconds.
std::int64_t systems_at_a_time(std::int64_t n) { return std::max<std::int64_t>(1, 4096 / (n * n)); }

std::int64_t padded(std::int64_t numbers) { return (numbers + 7) / 8 * 8; }

// What the gate asks of an answer: its backward error and the ratio of its pivots.
struct Gate {
    double accepted, suspicious, least, most;
    std::int64_t block;
    bool single;  // x is rounded to float before it is verified
};

struct Stack {
    std::int64_t n, columns, count;
    const double *a, *b;
    const std::int64_t *which_a, *which_b;  // of each system
    double* x;
    std::uint8_t* passed;
    Gate gate;

    bool eliminated() const { return n <= largest_eliminated; }
    std::int64_t block() const { return padded(n * columns); }
    std::int64_t scratch_bytes() const {  // of one thread
        const std::int64_t numbers = padded(n * n) + 4 * block();
        const std::int64_t lu = eliminated() ? 0
                                             : native_kernels<double>().lu_workspace(n, 1) +
                                                   native_kernels<double>().solve_workspace(columns);
        return 8 * (numbers + padded((n + 1) / 2)) + (lu + 63) / 64 * 64;
    }

    // Factorizes A', whose columns are A's rows, and solves with its transpose; B is column-major.
    double solve_in_blocks(double* work, double* right, std::int32_t* swaps, void* workspace) const {
        const NativeKernels<double>& kernels = native_kernels<double>();
        if (kernels.lu(n, work, swaps, 1, workspace) != 0) return 0;
        kernels.solve(Storage::fp64, Factors::lu, n, work, true, columns, right, 1, workspace);
        for (std::int64_t c = 0; c < columns; ++c)
            for (std::int64_t i = n - 1; i >= 0; --i) std::swap(right[c * n + i], right[c * n + swaps[i]]);
        double smallest = HUGE_VAL, largest = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const double pivot = std::fabs(work[i * n + i]);
            smallest = std::min(smallest, pivot), largest = std::max(largest, pivot);
        }
        return smallest / largest;
    }

    // to (column-major) = from (row-major), both of n x columns, or back.
    void transpose(const double* from, double* to, bool back) const {
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t c = 0; c < columns; ++c)
                if (back) to[i * columns + c] = from[c * n + i];
                else to[c * n + i] = from[i * columns + c];
    }

    void solve(std::int64_t system, double* scratch) const {
        const double *matrix = a + which_a[system] * n * n, *given = b + which_b[system] * n * columns;
        double *work = scratch, *answer = work + padded(n * n), *right = answer + block();
        double *residual = right + block(), *other = residual + block();
        std::int32_t* swaps = reinterpret_cast<std::int32_t*>(other + block());
        double* target = x + system * n * columns;
        std::copy_n(matrix, n * n, work);
        const double* rights = given;  // column-major, as the residual wants it
        if (columns > 1) transpose(given, right, false), rights = right;
        double ratio;
        if (eliminated()) {
            double* rows = columns > 1 ? other : answer;
            std::copy_n(given, n * columns, rows);
            ratio = stack_kernels().eliminate(n, work, columns, rows);
            if (columns > 1) transpose(rows, answer, false);
        } else {
            std::copy_n(rights, n * columns, answer);
            ratio = solve_in_blocks(work, answer, swaps, other + block() + padded((n + 1) / 2));
        }
        passed[system] = 0;
        if (!(ratio > gate.suspicious)) return;
        if (gate.single)
            for (std::int64_t i = 0; i < n * columns; ++i) answer[i] = static_cast<float>(answer[i]);
        exact_kernels().residual(n, n, matrix, true, columns, answer, rights, residual, gate.block, 1);
        const double norm = exact_kernels().largest_row_sum(n, n, matrix, true);
        const double error = worst_backward_error(n, columns, norm, answer, rights, residual, gate.least,
                                                  gate.most);
        passed[system] = error <= gate.accepted;  // not if it is NaN
        transpose(answer, target, true);
    }
};

}  // namespace

void bind_stack(nb::module_& m) {
    // X_i = A_j^-1 B_k for j = which_a[i], k = which_b[i], in float64; passed[i] is 1 if the smallest pivot
    // is more than `suspicious` times the largest, and the backward error, computed with residuals in
    // blocks of `block` products (exact.hpp), is at most `accepted`. Other answers are not to be used.
    define(m, "native_solve_stack",
           [](StackIn a, StackIn b, VectorIn<std::int64_t> which_a, VectorIn<std::int64_t> which_b,
              StackOut x, VectorOut<std::uint8_t> passed, double accepted, double suspicious,
              std::int64_t block, double least, double most, bool single, int threads) {
        const std::int64_t n = length(a.shape(1)), columns = length(b.shape(2));
        const std::int64_t count = length(which_a.size());
        require(n >= 1 && columns >= 1 && length(a.shape(2)) == n && length(b.shape(1)) == n,
                "the shapes of A and B do not match; pass stacks of n x n and n x k");
        require(length(which_b.size()) == count && length(x.shape(0)) == count &&
                    length(x.shape(1)) == n && length(x.shape(2)) == columns &&
                    length(passed.size()) == count,
                "X, passed and the indices differ in length; pass one of each for every system");
        require(threads >= 1, "threads < 1; pass at least 1");
        require_block(block);
        for (std::int64_t i = 0; i < count; ++i)
            require(which_a.data()[i] >= 0 && which_a.data()[i] < length(a.shape(0)) &&
                        which_b.data()[i] >= 0 && which_b.data()[i] < length(b.shape(0)),
                    "an index is out of range; pass one of a system");
        const Stack stack = {n, columns, count, a.data(), b.data(), which_a.data(), which_b.data(),
                             x.data(), passed.data(), {accepted, suspicious, least, most, block, single}};
        nb::gil_scoped_release release;
        const std::int64_t step = systems_at_a_time(n), bytes = (stack.scratch_bytes() + 63) / 64 * 64;
        threads = static_cast<int>(std::max<std::int64_t>(
            1, std::min<std::int64_t>(threads, count / (4 * step))));
        const Workspace workspace(bytes * threads);
        struct Shared {
            const Stack& stack;
            char* scratch;
            std::int64_t bytes, step, claimed;
        } shared = {stack, static_cast<char*>(workspace.get()), bytes, step, 0};
        run_members(
            threads,
            [](void* context, int member) {
                Shared& all = *static_cast<Shared*>(context);
                double* scratch = reinterpret_cast<double*>(all.scratch + member * all.bytes);
                for (;;) {
                    const std::int64_t begin = __atomic_fetch_add(&all.claimed, all.step, __ATOMIC_RELAXED);
                    if (begin >= all.stack.count) return;
                    const std::int64_t end = std::min(begin + all.step, all.stack.count);
                    for (std::int64_t i = begin; i < end; ++i) all.stack.solve(i, scratch);
                }
            },
            &shared);
    });
}

}  // namespace roundwise
