// Systems with bands and triangles, solved and verified in one call each. Bands are factorized, and then solved with as
// small dense systems are (express_solve.hpp). Triangles are read once: substitution finds x, the residual of x and the
// norms (triangle.hpp). Nothing is scaled: what is out of range is refused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "common/parallel.hpp"
#include "native/express_solve.hpp"
#include "native/structured.hpp"

namespace roundwise {

inline StridedMatrix strided(const GivenNumbers& a) {
    return {a.data, a.row_step, a.column_step, a.is_single, a.is_complex};
}

// A real part, or an imaginary one, that may not be aligned.
inline double part_of(const StridedMatrix& a, std::int64_t i, std::int64_t j, int part) {
    const char* from = a.data + i * a.row_step + j * a.column_step;
    if (a.is_single) {
        float value;
        std::memcpy(&value, from + 4 * part, sizeof value);
        return static_cast<double>(value);
    }
    double value;
    std::memcpy(&value, from + 8 * part, sizeof value);
    return value;
}

// The largest threads that pay: one more for every million products.
inline int structured_threads(std::int64_t products, int threads) {
    return static_cast<int>(std::clamp<std::int64_t>(products >> 20, 1, threads));
}

// Calls work(task, member) for tasks 0 to count - 1, shared among threads.
template <class Work> void share_tasks(std::int64_t count, int threads, const Work& work) {
    std::int64_t claimed = 0;
    const auto share = [&](int member) {
        for (;;) {
            const std::int64_t task = __atomic_fetch_add(&claimed, 1, __ATOMIC_RELAXED);
            if (task >= count) return;
            work(task, member);
        }
    };
    if (threads == 1) return share(0);
    run_members(
        threads, [](void* context, int member) { (*static_cast<decltype(&share)>(context))(member); },
        const_cast<void*>(static_cast<const void*>(&share)));
}

// A band and its factors: what ExpressColumns asks of a matrix.
template <int part_count> class BandMatrix {
  public:
    static constexpr int parts = part_count;
    static constexpr bool is_scaled = false;
    using Factor = double;
    std::int64_t n;
    double norm = 0, pivot_ratio = 0;
    const std::int32_t *row_exponents = nullptr, *column_exponents = nullptr;  // nothing is scaled
    const double *row_weights = nullptr, *column_weights = nullptr;

    BandMatrix(std::int64_t order, std::int64_t below, std::int64_t above) : n(order), below_(below), above_(above) {}

    std::int64_t place(char* memory) {
        Portions portions(memory);
        portions.take(band_, parts * (below_ + above_ + 1) * diagonal_step(n));
        portions.take(factors_, parts * band_plane(n, below_, above_));
        portions.take(swaps_, n);
        return portions.used();
    }

    void read(const StridedMatrix& a) {
        const std::int64_t step = diagonal_step(n), diagonals = below_ + above_ + 1;
        constexpr std::int64_t together = 16;  // rows: their lines stay in the first cache
        std::fill_n(band_, parts * diagonals * step, 0.0);
        for (std::int64_t begin = 0; begin < n; begin += together)
            for (std::int64_t d = 0; d < diagonals; ++d) {
                const std::int64_t end = std::min({begin + together, n, n + below_ - d});
                for (int part = 0; part < parts; ++part)
                    for (std::int64_t i = std::max(begin, below_ - d); i < end; ++i)
                        band_[(part * diagonals + d) * step + i] = part_of(a, i, i + d - below_, part);
            }
    }

    // False if pivots are zero or suspiciously small.
    bool factorize(double suspicious) {
        pivot_ratio = kernels().factorize(n, below_, above_, band_, factors_, swaps_);
        constexpr double over_root_2 = 0.7071067811865475;  // not above the inverse of the square root of 2
        norm = kernels().largest_row_sum(n, parts * (below_ + above_ + 1), band_) * (parts == 1 ? 1 : over_root_2);
        return pivot_ratio > suspicious;
    }

    void substitute(std::int64_t columns, double* b) const {
        kernels().substitute(n, below_, above_, factors_, swaps_, columns, b);
    }

    void residual(std::int64_t count, std::int64_t width, std::int64_t begin, std::int64_t end, const double* x,
                  const double* b, double* r, std::int64_t block, double* alone) const {
        if (count > 1) return kernels().residual(n, below_, above_, band_, width, begin, end, x, b, r, block);
        const std::int64_t step = x_step();
        double *right = alone + parts * step, *found = right + parts * n;
        std::fill_n(alone, parts * step, 0.0);
        for (int part = 0; part < parts; ++part)
            for (std::int64_t i = 0; i < n; ++i) {
                alone[part * step + below_ + i] = x[(part * n + i) * width];
                right[part * n + i] = b[(part * n + i) * width];
            }
        kernels().residual_of_one(n, below_, above_, band_, alone + below_, step, right, found, block);
        for (std::int64_t i = 0; i < parts * n; ++i) r[i * width] = found[i];
    }
    static std::int64_t numbers_alone(std::int64_t n, std::int64_t columns) {
        return columns == 1 ? parts * (5 * n + line_of<double>) : 0;
    }
    static std::int64_t weakness_bytes(std::int64_t) { return 0; }  // it is not asked whether directions are lost

    static int exponent_of(double value, int none, bool& regular) {
        return ExpressMatrix<parts, double>::exponent_of(value, none, regular);
    }

  private:
    std::int64_t below_, above_;
    double *band_, *factors_;
    std::int32_t* swaps_;

    std::int64_t x_step() const { return n + below_ + above_ + line_of<double>; }
    static const BandKernels<parts>& kernels() { return band_kernels<parts>(); }
};

// Columns of b by strips, for a triangle; of a real A and a complex b, both parts are columns.
class TriangleColumns {
  public:
    TriangleColumns(std::int64_t n, const StridedMatrix& a, bool upper, const GivenNumbers& b, void* x, bool single,
                    const ExpressGate& gate)
        : n_(n), a_(a), upper_(upper), b_(b), x_(x), single_(single), gate_(gate), parts_(a.is_complex ? 2 : 1) {
        columns_ = b.columns * (b.is_complex && parts_ == 1 ? 2 : 1);
    }

    ExpressResult solve(int threads) {
        const bool contiguous = (has_contiguous_rows(a_) || rows_are_apart(a_)) && is_aligned();
        return columns_ == 1 ? (contiguous ? solve_one(a_) : solve_copy()) : solve_many(threads);
    }

  private:
    std::int64_t n_, columns_;
    StridedMatrix a_;
    bool upper_;
    GivenNumbers b_;
    void* x_;
    bool single_;
    ExpressGate gate_;
    int parts_;

    bool is_aligned() const {
        const std::int64_t size = a_.is_single ? 4 : 8;
        return reinterpret_cast<std::uintptr_t>(a_.data) % static_cast<std::uintptr_t>(size) == 0 &&
               a_.row_step % size == 0 && a_.column_step % size == 0;
    }

    // The triangle in rows of doubles without gaps, which `copy` holds.
    StridedMatrix copied(std::vector<double>& copy) const {
        copy.resize(static_cast<std::size_t>(n_ * n_ * parts_));
        for (std::int64_t i = 0; i < n_; ++i)
            for (std::int64_t j = upper_ ? i : 0; j < (upper_ ? n_ : i + 1); ++j)
                for (int part = 0; part < parts_; ++part)
                    copy[static_cast<std::size_t>((i * n_ + j) * parts_ + part)] = part_of(a_, i, j, part);
        const std::int64_t size = 8 * parts_;
        return {reinterpret_cast<const char*>(copy.data()), n_ * size, size, false, parts_ == 2};
    }

    ExpressResult solve_copy() const {
        std::vector<double> copy;
        return solve_one(copied(copy));
    }

    ExpressResult solve_one(const StridedMatrix& a) const {
        const TriangleKernels& kernels = triangle_kernels();
        std::vector<double> memory(static_cast<std::size_t>(parts_ * n_ + kernels.single_workspace(n_)));
        double *y = memory.data(), *workspace = y + parts_ * n_, sizes[3];
        std::fill_n(y, parts_ * n_, 0.0);
        const std::int64_t parts = parts_;
        b_.read([=](std::int64_t i, std::int64_t, int part, double value) { y[i * parts + part] = value; });
        TriangleFacts facts;
        kernels.solve_one(n_, a, upper_, gate_.block, y, sizes, facts, workspace);
        double change = 0;
        for (std::int64_t i = 0; i < parts_ * n_; ++i) change = std::max(change, written(i, y[i]));
        ExpressResult result = begun(facts);
        if (result.status == ExpressStatus::accepted) judge(result, facts, sizes[0], sizes[1], sizes[2], change);
        return result;
    }

    ExpressResult solve_many(int threads) const {
        std::vector<double> copy;
        const StridedMatrix a = a_.is_single ? copied(copy) : a_;  // numbers are packed much faster as doubles
        const TriangleKernels& kernels = triangle_kernels();
        const std::int64_t width = kernels.strip_width, of_strip = width / parts_;
        const std::int64_t strips = (columns_ + of_strip - 1) / of_strip;
        threads = static_cast<int>(std::min<std::int64_t>(structured_threads(n_ * n_ / 2 * columns_, threads), strips));
        const std::int64_t own = strips * width;
        const std::unique_ptr<double[]> memory(
            new double[static_cast<std::size_t>(own * n_ + 3 * own + threads * kernels.strip_workspace(n_))]);
        double *x = memory.get(), *sizes = x + own * n_, *packed = sizes + 3 * own;
        std::vector<double> changes(static_cast<std::size_t>(columns_));
        std::vector<TriangleFacts> facts(static_cast<std::size_t>(threads));
        share_tasks(threads, threads, [&](std::int64_t task, int member) {
            const std::int64_t begin = strips * task / threads, end = strips * (task + 1) / threads;
            read(x, width, of_strip, begin * of_strip, std::min(end * of_strip, columns_));
            kernels.solve_strips(n_, a, upper_, gate_.block, end - begin, x + begin * n_ * width,
                                 sizes + begin * 3 * width, facts[static_cast<std::size_t>(task)],
                                 packed + member * kernels.strip_workspace(n_));
            write(x, width, of_strip, begin * of_strip, std::min(end * of_strip, columns_), changes);
        });
        ExpressResult result = begun(facts[0]);
        for (std::int64_t c = 0; result.status == ExpressStatus::accepted && c < columns_; ++c) {
            const double* found = sizes + c / of_strip * 3 * width + c % of_strip;
            judge(result, facts[0], found[0], found[width], found[2 * width], changes[static_cast<std::size_t>(c)]);
        }
        return result;
    }

    // Columns `begin` to `end` - 1 of b in their strips.
    void read(double* x, std::int64_t width, std::int64_t of_strip, std::int64_t begin, std::int64_t end) const {
        const std::int64_t n = n_, whole = (end + of_strip - 1) / of_strip * of_strip;
        if (whole != end || parts_ > b_.parts())
            std::fill(x + begin / of_strip * n * width, x + whole / of_strip * n * width, 0.0);
        const auto put = [=](std::int64_t i, std::int64_t c, int part, double value) {
            x[(c / of_strip * n + i) * width + part * of_strip + c % of_strip] = value;
        };
        if (parts_ == 1 && b_.is_complex)
            b_.read(begin / 2, (end + 1) / 2, [=](std::int64_t i, std::int64_t c, int part, double value) {
                put(i, 2 * c + part, 0, value);
            });
        else
            for (std::int64_t first = begin; first < end; first += of_strip)  // a strip is small enough for a cache
                b_.read(first, std::min(first + of_strip, end), put);
    }

    void write(const double* x, std::int64_t width, std::int64_t of_strip, std::int64_t begin, std::int64_t end,
               std::vector<double>& changes) const {
        for (std::int64_t first = begin; first < end; first += of_strip)
            for (std::int64_t i = 0; i < n_; ++i) {
                const double* row = x + (first / of_strip * n_ + i) * width;
                for (std::int64_t c = first; c < std::min(first + of_strip, end); ++c) {
                    double& change = changes[static_cast<std::size_t>(c)];
                    for (int part = 0; part < parts_; ++part)
                        change = std::max(change, written((i * columns_ + c) * parts_ + part,
                                                          row[part * of_strip + c - first]));
                }
            }
    }

    // Writes a real of the answer, and returns by how much its type changed it.
    double written(std::int64_t place, double value) const {
        if (!single_) {
            static_cast<double*>(x_)[place] = value;
            return 0;
        }
        const float rounded = static_cast<float>(value);
        static_cast<float*>(x_)[place] = rounded;
        return std::fabs(static_cast<double>(rounded) - value);
    }

    ExpressResult begun(const TriangleFacts& facts) const {
        const double ratio = facts.largest > 0 ? facts.smallest / facts.largest : 0;
        if (!(ratio > gate_.suspicious)) return {ExpressStatus::suspicious, HUGE_VAL, ratio, 0};
        return {ExpressStatus::accepted, 0, ratio, 0};
    }

    // Rounding x by at most d changes the residual by at most ||A|| d, twice the computed norm if A is complex.
    void judge(ExpressResult& result, const TriangleFacts& facts, double x, double b, double r, double change) const {
        if (parts_ == 2) x = std::sqrt(x), b = std::sqrt(b), r = std::sqrt(r);
        double error = HUGE_VAL;
        const double size = facts.norm * x + b, moved = r + (parts_ == 2 ? 2 : 1) * facts.norm * change;
        if (size > gate_.least && size < gate_.most)
            error = moved / size * gate_.growth + (gate_.block < 2 ? gate_.exact_error : gate_.block_error);
        else if (x == 0 && b == 0) error = gate_.exact_error;  // nothing was rounded
        if (!(error <= gate_.tolerance)) result.status = ExpressStatus::above_tolerance;
        if (!(error <= result.backward_error)) result.backward_error = error;
    }
};

}  // namespace roundwise
