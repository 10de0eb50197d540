#include "iterative/incomplete.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "iterative/lent.hpp"
#include "iterative/slices.hpp"

namespace roundwise::iterative {

namespace {

constexpr double first_shift = 1e-3;     // of the diagonal: Scott & Tuma (2014)
constexpr int most_shifts = 12;          // the last one is 2, which makes most matrices dominant
constexpr double least_pivot = 1e-4;     // beside a diagonal of about 1: a taste, smaller ones spoil what follows
constexpr Index shared_from = 4096;      // rows of a level that is worth more than one thread: a taste

// The pattern of the factors: row i has columns below(i) in turn, its diagonal, and those above.
struct Pattern {
    std::vector<std::int64_t> starts, diagonal;
    std::vector<Index> columns;
};

// Entries of A have level 0; that of an entry that comes of l_ik u_kj is the sum of theirs and 1.
Pattern filled(const CsrView& A, int most, bool& has_diagonal) {
    const Index n = A.rows;
    Pattern pattern;
    pattern.starts.assign(1, 0);
    pattern.diagonal.resize(n);
    std::vector<int> levels;                       // of the entries kept
    std::vector<int> level(n, -1);                 // of this row's
    std::vector<Index> next(std::int64_t{n} + 1);  // a sorted list of this row's columns
    std::vector<Index> sorted;
    for (Index i = 0; i < n; ++i) {
        sorted.assign(A.indices + A.starts[i], A.indices + A.starts[i + 1]);
        std::sort(sorted.begin(), sorted.end());
        sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
        if (!std::binary_search(sorted.begin(), sorted.end(), i)) {
            has_diagonal = false;
            return pattern;
        }
        Index before = n;  // the head of the list
        for (const Index j : sorted) {
            next[before] = j;
            level[j] = 0;
            before = j;
        }
        next[before] = n;
        if (most > 0)
            for (Index k = next[n]; k < i; k = next[k]) {
                Index at = k;
                for (std::int64_t e = pattern.diagonal[k] + 1; e < pattern.starts[k + 1]; ++e) {
                    const Index j = pattern.columns[e];
                    const int sum = level[k] + levels[e] + 1;
                    if (sum > most) continue;
                    if (level[j] >= 0) {
                        level[j] = std::min(level[j], sum);
                        continue;
                    }
                    while (next[at] < j) at = next[at];
                    next[j] = next[at];
                    next[at] = j;
                    level[j] = sum;
                }
            }
        for (Index j = next[n]; j < n; j = next[j]) {
            if (j == i) pattern.diagonal[i] = static_cast<std::int64_t>(pattern.columns.size());
            pattern.columns.push_back(j);
            levels.push_back(level[j]);
            level[j] = -1;
        }
        pattern.starts.push_back(static_cast<std::int64_t>(pattern.columns.size()));
    }
    return pattern;
}

// The factors on a pattern: L without its unit diagonal, and U. False if a pivot is too small.
bool eliminate(const CsrView& A, const std::vector<double>& scale, const Pattern& pattern, double shift, bool definite,
               std::vector<double>& values) {
    const Index n = A.rows;
    std::vector<std::int64_t> place(n, -1);
    std::fill(values.begin(), values.end(), 0.0);
    for (Index i = 0; i < n; ++i) {
        const std::int64_t begin = pattern.starts[i], end = pattern.starts[i + 1];
        for (std::int64_t e = begin; e < end; ++e) place[pattern.columns[e]] = e;
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e)
            values[place[A.indices[e]]] += A.values[e] * scale[i] * scale[A.indices[e]];
        values[pattern.diagonal[i]] += std::copysign(shift, values[pattern.diagonal[i]]);
        for (std::int64_t e = begin; e < pattern.diagonal[i]; ++e) {
            const Index k = pattern.columns[e];
            const double factor = values[e] /= values[pattern.diagonal[k]];
            if (factor == 0) continue;
            for (std::int64_t f = pattern.diagonal[k] + 1; f < pattern.starts[k + 1]; ++f)
                if (const std::int64_t at = place[pattern.columns[f]]; at >= 0) values[at] -= factor * values[f];
        }
        for (std::int64_t e = begin; e < end; ++e) place[pattern.columns[e]] = -1;
        const double pivot = values[pattern.diagonal[i]];
        if (!((definite ? pivot : std::fabs(pivot)) >= least_pivot) || !std::isfinite(pivot)) return false;
    }
    return true;
}

// Rows by levels: those of a level need no other row of it. No levels where these are too narrow to be shared.
struct Schedule {
    std::vector<Index> order, starts;
};

Schedule scheduled(const CsrView& triangle, bool backward) {
    const Index n = triangle.rows;
    std::vector<Index> level(n, 0), count;
    for (Index k = 0; k < n; ++k) {
        const Index i = backward ? n - 1 - k : k;
        Index own = 0;
        for (Index e = triangle.starts[i]; e < triangle.starts[i + 1]; ++e) own = std::max(own, level[triangle.indices[e]] + 1);
        level[i] = own;
        if (own >= static_cast<Index>(count.size())) count.resize(std::int64_t{own} + 1, 0);
        ++count[own];
    }
    Schedule schedule;
    schedule.order.resize(n);
    schedule.starts.assign(1, 0);
    if (n < shared_from * static_cast<std::int64_t>(count.size())) {  // one thread takes them as they come
        for (Index k = 0; k < n; ++k) schedule.order[k] = backward ? n - 1 - k : k;
        return schedule;
    }
    for (const Index size : count) schedule.starts.push_back(schedule.starts.back() + size);
    std::vector<Index> next(schedule.starts.begin(), schedule.starts.end() - 1);
    for (Index k = 0; k < n; ++k) {
        const Index i = backward ? n - 1 - k : k;
        schedule.order[next[level[i]]++] = i;
    }
    return schedule;
}

template <class E> class Incomplete : public Preconditioner {
    using T = ComputedIn<E>;

    Index n_ = 0;
    Slices<E> lower_, upper_;
    Buffer<T> inverse_;  // of U's diagonal
    Schedule forward_, backward_;
    std::vector<double> scale_;
    Lent<Buffer<T>> lent_;

    void substitute(const Slices<E>& triangle, const T* inverse, const Schedule& schedule, T* x, int threads) const {
        const auto& kernels = product_kernels<E>();
        const SlicesView<E> view = triangle.view();
        const auto levels = static_cast<Index>(schedule.starts.size()) - 1;
        const Index* order = schedule.order.data();
        if (threads == 1 || levels == 0) {
            kernels.substitute(view, inverse, order, x, 0, n_);
            return;
        }
        for (Index l = 0; l < levels; ++l) {
            const Index first = schedule.starts[l], count = schedule.starts[l + 1] - first;
            const Index part = shared_from / 4;
            for_tasks((std::int64_t{count} + part - 1) / part, threads, [&](std::int64_t task, int) {
                const Index begin = first + static_cast<Index>(task) * part;
                kernels.substitute(view, inverse, order, x, begin, std::min(begin + part, first + count));
            });
        }
    }

  public:
    Made make(const CsrView& A, const Fill& fill) {
        n_ = A.rows;
        std::vector<double> d(n_);
        diagonal_of(A, d.data(), fill.threads);
        scale_.resize(n_);
        for (Index i = 0; i < n_; ++i) {
            if (fill.definite && !(d[i] > 0)) return Made::not_positive;
            if (d[i] == 0) return Made::zero_pivot;
            int exponent;
            std::frexp(d[i], &exponent);
            scale_[i] = std::ldexp(1.0, -(exponent >> 1));
        }
        bool has_diagonal = true;
        const Pattern pattern = filled(A, fill.levels, has_diagonal);
        if (!has_diagonal) return Made::zero_pivot;
        if (pattern.columns.size() > static_cast<std::size_t>(std::numeric_limits<Index>::max())) return Made::slow;
        std::vector<double> values(pattern.columns.size());
        double shift = 0;
        for (int tries = 0; !eliminate(A, scale_, pattern, shift, fill.definite, values); ++tries) {
            if (tries == most_shifts) return Made::not_positive;
            shift = shift > 0 ? 2 * shift : first_shift;
        }
        Csr lower = triangle(pattern, values, true), upper = triangle(pattern, values, false);
        const auto& kernels = product_kernels<E>();
        lower_ = Slices<E>(lower.view(), false, nullptr, nullptr, fill.threads, true);
        upper_ = Slices<E>(upper.view(), false, nullptr, nullptr, fill.threads, true);
        inverse_ = Buffer<T>(n_);
        bool finite = true;
        for (Index i = 0; i < n_; ++i) {
            inverse_[i] = static_cast<T>(1 / values[pattern.diagonal[i]]);
            finite = finite && std::isfinite(inverse_[i]);
        }
        for (const Slices<E>* one : {&lower_, &upper_}) {
            std::vector<double> back(one->values.size());
            kernels.widen(one->values.data(), one->values.size(), back.data());
            for (const double x : back) finite = finite && std::isfinite(x);
        }
        if (!finite) return Made::overflow;
        forward_ = scheduled(lower.view(), false);
        backward_ = scheduled(upper.view(), true);
        levels.push_back({n_, static_cast<std::int64_t>(pattern.columns.size()), shift});
        return Made::done;
    }

    static Csr triangle(const Pattern& pattern, const std::vector<double>& values, bool lower) {
        const auto n = static_cast<Index>(pattern.diagonal.size());
        Csr T{n, n, Buffer<Index>(std::int64_t{n} + 1), {}, {}};
        T.starts[0] = 0;
        const auto first = [&](Index i) { return lower ? pattern.starts[i] : pattern.diagonal[i] + 1; };
        const auto last = [&](Index i) { return lower ? pattern.diagonal[i] : pattern.starts[i + 1]; };
        for (Index i = 0; i < n; ++i) T.starts[i + 1] = T.starts[i] + static_cast<Index>(last(i) - first(i));
        T.indices = Buffer<Index>(T.starts[n]);
        T.values = Buffer<double>(T.starts[n]);
        for (Index i = 0; i < n; ++i) {
            std::copy(pattern.columns.begin() + first(i), pattern.columns.begin() + last(i), T.indices.data() + T.starts[i]);
            std::copy(values.begin() + first(i), values.begin() + last(i), T.values.data() + T.starts[i]);
        }
        return T;
    }

    Index rows() const override { return n_; }

    std::int64_t bytes() const override {
        return lower_.bytes() + upper_.bytes() + std::int64_t{n_} * (static_cast<std::int64_t>(sizeof(T)) + 16);
    }

    void apply(const double* R, double* Z, Index columns, int threads) const override {
        auto x = lent_.borrowed([&] { return std::make_unique<Buffer<T>>(n_); });
        for (Index c = 0; c < columns; ++c, R += n_, Z += n_)
            scaled_application<T>(n_, threads, R, scale_.data(), x->data(), Z, [&](T* numbers) {
                substitute(lower_, nullptr, forward_, numbers, threads);
                substitute(upper_, inverse_.data(), backward_, numbers, threads);
                return numbers;
            });
        lent_.give_back(std::move(x));
    }
};

}  // namespace

template <class E> std::unique_ptr<Preconditioner> make_incomplete(const CsrView& A, const Fill& fill, Made& made) {
    auto factors = std::make_unique<Incomplete<E>>();
    made = factors->make(A, fill);
    if (made != Made::done) return nullptr;
    return factors;
}

template std::unique_ptr<Preconditioner> make_incomplete<double>(const CsrView&, const Fill&, Made&);
template std::unique_ptr<Preconditioner> make_incomplete<float>(const CsrView&, const Fill&, Made&);
template std::unique_ptr<Preconditioner> make_incomplete<Bf16>(const CsrView&, const Fill&, Made&);
template std::unique_ptr<Preconditioner> make_incomplete<Fp16>(const CsrView&, const Fill&, Made&);

}  // namespace roundwise::iterative
