#include "iterative/hierarchy.hpp"

#include <algorithm>
#include <cmath>

#include "iterative/dense_inverse.hpp"
#include "iterative/lent.hpp"
#include "iterative/slices.hpp"

namespace roundwise::iterative {

namespace {

constexpr int most_levels = 25;
constexpr double least_coarsening = 0.9;   // a taste: levels that shrink less cost more than they bring
constexpr int most_terms = 60;             // of a product, for each entry of A: a taste, 7-point stencils take 10
constexpr double most_growth = 1.5;        // entries of the next level over those of this one: a taste
constexpr Index most_dense = 1500;         // a price: its inverse takes about a second
constexpr int lanczos_steps = 8;
constexpr double lanczos_margin = 1.1;     // a taste: after 8 steps the largest Ritz value lacks a few per cent
constexpr double tight_bound = 2.2;        // bounds as small are hardly above the eigenvalue (2 of most stencils)

// Multiplies row i and column i of A by 2^e_i such that its diagonal lies in [1/2, 2): powers of two change no digit.
Made scale(Csr& A, std::vector<double>& factors, bool definite, int threads) {
    std::vector<double> d(A.rows);
    diagonal_of(A.view(), d.data(), threads);
    factors.resize(A.rows);
    for (Index i = 0; i < A.rows; ++i) {
        if (definite && !(d[i] > 0)) return Made::not_positive;
        if (d[i] == 0) return Made::zero_pivot;
        int exponent;
        std::frexp(d[i], &exponent);
        factors[i] = std::ldexp(1.0, -(exponent >> 1));
    }
    std::atomic<bool> finite{true};
    for_rows(A.rows, threads, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i)
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
                A.values[e] *= factors[i] * factors[A.indices[e]];
                if (!std::isfinite(A.values[e])) finite = false;
            }
    });
    return finite ? Made::done : Made::overflow;
}

// The largest eigenvalue of a symmetric tridiagonal matrix, by bisection and Sturm's sequence.
double largest_eigenvalue(const std::vector<double>& a, const std::vector<double>& b) {
    double low = 0, high = 0;
    for (std::size_t k = 0; k < a.size(); ++k)
        high = std::max(high, std::fabs(a[k]) + (k ? std::fabs(b[k - 1]) : 0) + (k < b.size() ? std::fabs(b[k]) : 0));
    for (int step = 0; step < 50; ++step) {
        const double middle = (low + high) / 2;
        double q = 1;
        bool below = true;  // all eigenvalues are below the middle
        for (std::size_t k = 0; k < a.size(); ++k) {
            q = a[k] - middle - (k ? b[k - 1] * b[k - 1] / q : 0);
            if (q == 0) q = -1e-300;
            below = below && q < 0;
        }
        (below ? high : low) = middle;
    }
    return high;
}

// About the largest eigenvalue of D^-1 A, at most its bound by rows. Lanczos on D^-1/2 A D^-1/2, from a fixed vector.
double largest_of(const CsrView& A, const std::vector<double>& d, bool symmetric, int threads) {
    const double bound = row_bound(A, d.data(), threads);
    if (!symmetric || bound <= tight_bound) return bound;
    const Index n = A.rows;
    std::vector<double> root(n), v(n), before(n, 0.0), w(n), a, b;
    for (Index i = 0; i < n; ++i) {
        root[i] = 1 / std::sqrt(d[i]);
        std::uint64_t bits = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
        bits ^= bits >> 29;
        bits *= 0xbf58476d1ce4e5b9u;
        v[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
    }
    double norm = std::sqrt(inner(v.data(), v.data(), n, threads)), coupling = 0;
    for (Index i = 0; i < n; ++i) v[i] /= norm;
    std::vector<double> scaled(n);
    for (int step = 0; step < lanczos_steps; ++step) {
        for_rows(n, threads, [&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) scaled[i] = root[i] * v[i];
        });
        multiply(A, scaled.data(), w.data(), threads);
        for_rows(n, threads, [&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) w[i] = root[i] * w[i] - coupling * before[i];
        });
        const double along = inner(v.data(), w.data(), n, threads);
        a.push_back(along);
        for_rows(n, threads, [&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) w[i] -= along * v[i];
        });
        norm = std::sqrt(inner(w.data(), w.data(), n, threads));
        if (!(norm > 1e-12 * bound)) break;
        if (step + 1 < lanczos_steps) b.push_back(norm);
        coupling = norm;
        before.swap(v);
        for_rows(n, threads, [&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) v[i] = w[i] / norm;
        });
    }
    b.resize(a.size() - 1);
    return std::min(bound, lanczos_margin * largest_eigenvalue(a, b));
}

// The terms that the product of two matrices adds up.
double terms(const Csr& A, const Csr& B) {
    double sum = 0;
    for (std::int64_t e = 0; e < A.entries(); ++e) sum += B.starts[A.indices[e] + 1] - B.starts[A.indices[e]];
    return sum;
}

template <class E> class Hierarchy : public Preconditioner {
    using T = ComputedIn<E>;

    struct Level {
        Index rows;
        Slices<E> A;             // without its diagonal
        Buffer<T> diagonal, inverse;
        double largest;
        Slices<E> P, R;          // to and from the next level, if there is one
    };

    // Vectors of one application.
    struct Scratch {
        std::vector<Buffer<T>> b, x, y, d;
    };
    Lent<Scratch> lent_;

    std::vector<Level> made_;
    Buffer<T> coarse_;           // the inverse of the last level, dense; empty if it is only smoothed
    Index dense_ = 0;
    std::vector<double> scale_;  // of the unknowns of the first level
    Choices choices_;

    // Chebyshev's polynomial for the eigenvalues between largest / ratio and largest; x receives what it makes, from
    // zero or from what is there. The result is in scratch.x.
    void smooth(const Level& level, Scratch& scratch, std::size_t l, bool from_zero, int threads) const {
        const auto& kernels = product_kernels<E>();
        const T high = static_cast<T>(level.largest), low = static_cast<T>(level.largest / choices_.ratio);
        const T middle = (high + low) / 2, half = (high - low) / 2, sigma = middle / half;
        T rho = 1 / sigma;
        const T* b = scratch.b[l].data();
        T* d = scratch.d[l].data();
        for (int step = 0; step < choices_.degree; ++step) {
            T alpha = 0, beta = 1 / middle;
            if (step) {
                const T next = 1 / (2 * sigma - rho);
                alpha = next * rho;
                beta = 2 * next / half;
                rho = next;
            }
            T* x = scratch.x[l].data();
            if (step == 0 && from_zero) {
                pass(level.rows, threads, [&](Index begin, Index end) {
                    for (Index i = begin; i < end; ++i) x[i] = d[i] = beta * (level.inverse[i] * b[i]);
                });
                continue;
            }
            const Smoothing<T> smoothing{level.diagonal.data(), level.inverse.data(), b, x, d, scratch.y[l].data(), alpha, beta};
            const SlicesView<E> view = level.A.view();
            pass(level.rows, threads, [&](Index begin, Index end) { kernels.smooth(view, smoothing, begin, end); });
            std::swap(scratch.x[l], scratch.y[l]);
        }
    }

    void cycle(Scratch& scratch, std::size_t l, int threads) const {
        const auto& kernels = product_kernels<E>();
        const Level& level = made_[l];
        if (l + 1 == made_.size() && dense_) {
            const T *b = scratch.b[l].data(), *inverse = coarse_.data();
            T* x = scratch.x[l].data();
            for (Index i = 0; i < dense_; ++i) x[i] = 0;
            for (Index j = 0; j < dense_; ++j)
                for (Index i = 0; i < dense_; ++i) x[i] += inverse[std::int64_t{j} * dense_ + i] * b[j];
            return;
        }
        smooth(level, scratch, l, true, threads);
        if (l + 1 < made_.size()) {
            const Level& next = made_[l + 1];
            const SlicesView<E> A = level.A.view(), R = level.R.view(), P = level.P.view();
            T* r = scratch.y[l].data();
            pass(level.rows, threads, [&](Index begin, Index end) {
                kernels.residual(A, level.diagonal.data(), scratch.b[l].data(), scratch.x[l].data(), r, begin, end);
            });
            pass(next.rows, threads, [&](Index begin, Index end) { kernels.product(R, r, scratch.b[l + 1].data(), begin, end); });
            cycle(scratch, l + 1, threads);
            pass(level.rows, threads, [&](Index begin, Index end) {
                kernels.add_product(P, scratch.x[l + 1].data(), scratch.x[l].data(), begin, end);
            });
        }
        smooth(level, scratch, l, false, threads);
    }

    // Rounds one level to the format; false if something leaves its range.
    bool add(const Csr& A, const std::vector<double>& d, const double* weights, double largest, int threads) {
        Level level;
        level.rows = A.rows;
        std::vector<double> changes(A.rows);
        level.A = Slices<E>(A.view(), true, weights, changes.data(), threads);
        level.diagonal = Buffer<T>(A.rows);
        level.inverse = Buffer<T>(A.rows);
        level.largest = largest;
        bool finite = true;
        for (Index i = 0; i < A.rows; ++i) {
            level.diagonal[i] = static_cast<T>(d[i] + changes[i]);
            level.inverse[i] = static_cast<T>(1 / d[i]);
            finite = finite && std::isfinite(level.diagonal[i]) && std::isfinite(level.inverse[i]);
        }
        made_.push_back(std::move(level));
        levels.push_back({A.rows, A.entries(), largest});
        return finite;
    }

  public:
    explicit Hierarchy(const Choices& choices) : choices_(choices) {}

    Made make(const CsrView& given, NearNullSpace B, Nodes nodes, bool keep) {
        const int threads = choices_.threads;
        Csr A{given.rows, given.columns, Buffer<Index>(std::int64_t{given.rows} + 1), Buffer<Index>(given.entries()), Buffer<double>(given.entries())};
        std::copy_n(given.starts, std::int64_t{given.rows} + 1, A.starts.data());
        for_rows(given.rows, threads, [&](Index begin, Index end, int) {
            const Index first = given.starts[begin], count = given.starts[end] - first;
            std::copy_n(given.indices + first, count, A.indices.data() + first);
            std::copy_n(given.values + first, count, A.values.data() + first);
        });
        Made status = scale(A, scale_, choices_.symmetric, threads);
        if (status != Made::done) return status;
        if (B.values.empty()) {
            B.rows = A.rows;
            B.columns = 1;
            B.values.assign(A.rows, 1.0);
        }
        for (Index c = 0; c < B.columns; ++c)
            for (Index i = 0; i < A.rows; ++i) B.values[std::int64_t{c} * A.rows + i] /= scale_[i];
        double theta = choices_.theta;
        for (int l = 0; l < most_levels; ++l, theta /= 2) {
            std::vector<double> d(A.rows);
            diagonal_of(A.view(), d.data(), threads);
            for (const double one : d)
                if (one == 0 || (choices_.symmetric && !(one > 0))) return choices_.symmetric ? Made::not_positive : Made::zero_pivot;
            const bool direct = A.rows <= choices_.coarsest;
            const double largest = direct ? 1.0 : largest_of(A.view(), d, choices_.symmetric, threads);
            if (!std::isfinite(largest)) return Made::overflow;
            if (!add(A, d, B.values.data(), largest, threads)) return Made::overflow;
            if (keep) kept_A.push_back(copied(A));
            if (direct) return invert(A);
            Csr condensed;
            if (!nodes.empty()) condensed = nodes_of(A.view(), nodes, threads);
            const CsrView G = nodes.empty() ? A.view() : condensed.view();
            Buffer<unsigned char> strong = strength(G, theta, choices_.symmetric, threads);
            Index count;
            const std::vector<Index> aggregate = aggregates(G, strong.data(), count);
            Tentative found = tentative(aggregate, count, nodes, B);
            const Index rows = found.P.columns;
            if (rows > least_coarsening * A.rows) {
                if (A.rows <= most_dense) return invert(A);
                return rows == 0 ? Made::done : Made::slow;
            }
            if (rows == 0) return Made::done;  // the diagonal outweighs all others
            const unsigned char* filter = nodes.empty() ? strong.data() : nullptr;
            Csr P = smoothed(A.view(), filter, found.P.view(), largest, threads), R;
            if (choices_.symmetric) R = transposed(P.view());
            else {
                const Csr across = transposed(A.view());
                const Csr other = smoothed(across.view(), nullptr, found.P.view(), row_bound(across.view(), d.data(), threads), threads);
                R = transposed(other.view());
            }
            found.P = Csr{};
            strong = Buffer<unsigned char>{};
            condensed = Csr{};
            Csr coarse;
            if (terms(A, P) <= most_terms * A.entries()) {
                const Csr AP = product(A.view(), P.view(), threads);
                if (terms(R, AP) <= most_terms * A.entries()) coarse = product(R.view(), AP.view(), threads);
            }
            // Where everything is a neighbour of everything, smoothing alone converges well, and coarse levels cost most.
            if (coarse.rows == 0 || coarse.entries() > most_growth * A.entries()) return Made::done;
            A = std::move(coarse);
            // The next level is scaled as the first one was, and with it what leads there.
            std::vector<double> next;
            status = scale(A, next, choices_.symmetric, threads);
            if (status != Made::done) return status;
            for (std::int64_t e = 0; e < P.entries(); ++e) P.values[e] *= next[P.indices[e]];
            for (Index i = 0; i < R.rows; ++i)
                for (Index e = R.starts[i]; e < R.starts[i + 1]; ++e) R.values[e] *= next[i];
            B = std::move(found.coarse);
            for (Index c = 0; c < B.columns; ++c)
                for (Index i = 0; i < B.rows; ++i) B.values[std::int64_t{c} * B.rows + i] /= next[i];
            made_.back().P = Slices<E>(P.view(), false, nullptr, nullptr, threads);
            made_.back().R = Slices<E>(R.view(), false, nullptr, nullptr, threads);
            if (keep) {
                kept_P.push_back(std::move(P));
                kept_R.push_back(std::move(R));
            }
            nodes = std::move(found.nodes);
        }
        return Made::slow;
    }

    static Csr copied(const Csr& A) {
        Csr copy{A.rows, A.columns, Buffer<Index>(std::int64_t{A.rows} + 1), Buffer<Index>(A.entries()), Buffer<double>(A.entries())};
        std::copy_n(A.starts.data(), std::int64_t{A.rows} + 1, copy.starts.data());
        std::copy_n(A.indices.data(), A.entries(), copy.indices.data());
        std::copy_n(A.values.data(), A.entries(), copy.values.data());
        return copy;
    }

    Made invert(const Csr& A) {
        std::vector<double> dense(std::int64_t{A.rows} * A.rows, 0.0);
        for (Index i = 0; i < A.rows; ++i)
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) dense[std::int64_t{A.indices[e]} * A.rows + i] += A.values[e];
        if (!(choices_.symmetric ? invert_definite(dense.data(), A.rows) : invert_any(dense.data(), A.rows))) return Made::not_positive;
        dense_ = A.rows;
        coarse_ = Buffer<T>(std::int64_t{A.rows} * A.rows);
        for (std::int64_t i = 0; i < coarse_.size(); ++i) coarse_[i] = static_cast<T>(dense[i]);
        return Made::done;
    }

    void apply(const double* R, double* Z, Index columns, int threads) const override {
        const Index n = made_[0].rows;
        auto scratch = lent_.borrowed([&] {
            auto made = std::make_unique<Scratch>();
            for (const Level& level : made_)
                for (auto* vectors : {&made->b, &made->x, &made->y, &made->d}) vectors->emplace_back(level.rows);
            return made;
        });
        for (Index c = 0; c < columns; ++c, R += n, Z += n)
            scaled_application<T>(n, threads, R, scale_.data(), scratch->b[0].data(), Z, [&](T*) {
                cycle(*scratch, 0, threads);
                return scratch->x[0].data();
            });
        lent_.give_back(std::move(scratch));
    }

    Index rows() const override { return made_[0].rows; }

    std::int64_t bytes() const override {
        std::int64_t sum = coarse_.size() * static_cast<std::int64_t>(sizeof(T)) + 8 * static_cast<std::int64_t>(scale_.size());
        for (const Level& level : made_)
            sum += level.A.bytes() + level.P.bytes() + level.R.bytes() + 2 * level.rows * static_cast<std::int64_t>(sizeof(T));
        return sum;
    }
};

}  // namespace

template <class E>
std::unique_ptr<Preconditioner> make_hierarchy(const CsrView& A, NearNullSpace B, Nodes nodes, const Choices& choices,
                                               bool keep, Made& made) {
    auto hierarchy = std::make_unique<Hierarchy<E>>(choices);
    made = hierarchy->make(A, std::move(B), std::move(nodes), keep);
    if (made != Made::done) return nullptr;
    return hierarchy;
}

template std::unique_ptr<Preconditioner> make_hierarchy<double>(const CsrView&, NearNullSpace, Nodes, const Choices&, bool, Made&);
template std::unique_ptr<Preconditioner> make_hierarchy<float>(const CsrView&, NearNullSpace, Nodes, const Choices&, bool, Made&);
template std::unique_ptr<Preconditioner> make_hierarchy<Bf16>(const CsrView&, NearNullSpace, Nodes, const Choices&, bool, Made&);
template std::unique_ptr<Preconditioner> make_hierarchy<Fp16>(const CsrView&, NearNullSpace, Nodes, const Choices&, bool, Made&);

}  // namespace roundwise::iterative
