#include "iterative/aggregation.hpp"

#include <algorithm>
#include <cmath>

namespace roundwise::iterative {

namespace {

constexpr double smoothing = 4.0 / 3.0;     // over the largest eigenvalue: Vanek, Mandel & Brezina (1996)
constexpr double of_own_diagonal = 0.25;    // a taste: see `strength`
constexpr double of_strongest = 0.25;       // a taste, the usual one: Ruge & Stueben (1987)
constexpr double dependent = 1e-6;          // what is left of a vector that others span: sqrt(u) and some room
constexpr double least_diagonal = 0.1;      // of a diagonal entry, that weak entries may leave of it

std::vector<Index> node_of(const Nodes& nodes, Index n) {
    std::vector<Index> node(n);
    for (std::size_t k = 0; k + 1 < nodes.size(); ++k)
        std::fill(node.begin() + nodes[k], node.begin() + nodes[k + 1], static_cast<Index>(k));
    return node;
}

}  // namespace

Csr nodes_of(const CsrView& A, const Nodes& nodes, int threads) {
    const std::vector<Index> node = node_of(nodes, A.rows);
    const auto count = static_cast<Index>(nodes.size() - 1);
    Csr G = by_rows(count, count, threads, [&](Index k, Accumulator& sums) {
        for (Index e = A.starts[nodes[k]]; e < A.starts[nodes[k + 1]]; ++e)
            sums.take(node[A.indices[e]], A.values[e] * A.values[e]);
    });
    for (std::int64_t e = 0; e < G.entries(); ++e) G.values[e] = std::sqrt(G.values[e]);
    return G;
}

Buffer<unsigned char> strength(const CsrView& G, double theta, bool symmetric, int threads) {
    Buffer<double> d(G.rows);
    diagonal_of(G, d.data(), threads);
    Buffer<unsigned char> strong(G.entries());
    for_rows(G.rows, threads, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i) {
            double largest = 0;
            if (!symmetric)
                for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e)
                    if (G.indices[e] != i) largest = std::max(largest, std::fabs(G.values[e]));
            for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e) {
                const Index j = G.indices[e];
                const double g = std::fabs(G.values[e]);
                const bool usual = symmetric ? g * g > theta * theta * std::fabs(d[i] * d[j]) : g > of_strongest * largest;
                strong[e] = j != i && g > 0 && (usual || g > of_own_diagonal * std::fabs(d[i]));
            }
        }
    });
    return strong;
}

std::vector<Index> aggregates(const CsrView& G, const unsigned char* strong, Index& count) {
    constexpr Index free = -2, isolated = -1;
    const auto n = G.rows;
    std::vector<Index> found(n, free);
    count = 0;
    for (Index i = 0; i < G.rows; ++i) {
        if (found[i] != free) continue;
        bool any = false, whole = true;
        for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e)
            if (strong[e]) {
                any = true;
                if (found[G.indices[e]] >= 0) {
                    whole = false;
                    break;
                }
            }
        if (!any) found[i] = isolated;
        if (!any || !whole) continue;
        found[i] = count;
        for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e)
            if (strong[e]) found[G.indices[e]] = count;
        ++count;
    }
    std::vector<Index> joined;
    std::vector<Index> to;
    for (Index i = 0; i < G.rows; ++i) {
        if (found[i] != free) continue;
        double largest = 0;
        Index best = free;
        for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e) {
            const Index at = found[G.indices[e]];
            if (strong[e] && at >= 0 && std::fabs(G.values[e]) > largest) {
                largest = std::fabs(G.values[e]);
                best = at;
            }
        }
        if (best == free) continue;
        joined.push_back(i);
        to.push_back(best);
    }
    for (std::size_t k = 0; k < joined.size(); ++k) found[joined[k]] = to[k];
    for (Index i = 0; i < G.rows; ++i) {
        if (found[i] != free) continue;
        found[i] = count;
        for (Index e = G.starts[i]; e < G.starts[i + 1]; ++e)
            if (strong[e] && found[G.indices[e]] < 0) found[G.indices[e]] = count;
        ++count;
    }
    return found;
}

Tentative tentative(const std::vector<Index>& aggregate, Index count, const Nodes& nodes, const NearNullSpace& B) {
    const Index n = B.rows, m = B.columns;
    const bool plain = nodes.empty();
    // The unknowns of each aggregate, in their order.
    std::vector<Index> starts(count + 1, 0), of(n, -1);
    const auto place = [&](Index i, Index a) {
        of[i] = a;
        if (a >= 0) ++starts[a + 1];
    };
    for (std::size_t k = 0; k < aggregate.size(); ++k) {
        if (plain) place(static_cast<Index>(k), aggregate[k]);
        else for (Index i = nodes[k]; i < nodes[k + 1]; ++i) place(i, aggregate[k]);
    }
    for (Index a = 0; a < count; ++a) starts[a + 1] += starts[a];
    std::vector<Index> members(starts.back()), next(starts.begin(), starts.end() - 1);
    for (Index i = 0; i < n; ++i) {
        const Index a = of[i];
        if (a >= 0) members[next[a]++] = i;
    }
    // Modified Gram-Schmidt, twice, in each aggregate: B = Q R. Columns that others span are left out of Q.
    std::vector<double> Q(std::int64_t{n} * m);
    std::vector<double> R(std::int64_t{n} * m);  // `rank` rows of m numbers, where Q's columns are
    Tentative made;
    made.nodes.assign(count + 1, 0);
    std::vector<double> column;
    for (Index a = 0; a < count; ++a) {
        const Index first = starts[a], size = starts[a + 1] - first;
        double* q = Q.data() + std::int64_t{first} * m;  // rank columns of `size`
        double* r = R.data() + std::int64_t{first} * m;
        Index rank = 0;
        column.resize(size);
        for (Index c = 0; c < m; ++c) {
            double whole = 0, left = 0;
            for (Index k = 0; k < size; ++k) {
                column[k] =
                    B.values[std::int64_t{c} * n + (members[first + k])];
                whole += column[k] * column[k];
            }
            for (int pass = 0; pass < 2; ++pass)
                for (Index p = 0; p < rank; ++p) {
                    const double* other = q + std::int64_t{p} * size;
                    double sum = 0;
                    for (Index k = 0; k < size; ++k) sum += other[k] * column[k];
                    for (Index k = 0; k < size; ++k) column[k] -= sum * other[k];
                    r[std::int64_t{p} * m + c] += sum;
                }
            for (Index k = 0; k < size; ++k) left += column[k] * column[k];
            if (rank == size || !(left > dependent * dependent * whole)) continue;
            const double norm = std::sqrt(left);
            for (Index k = 0; k < size; ++k) q[std::int64_t{rank} * size + k] = column[k] / norm;
            r[std::int64_t{rank} * m + c] = norm;
            ++rank;
        }
        made.nodes[a + 1] = made.nodes[a] + rank;
    }
    const Index coarse = made.nodes.back();
    made.coarse.rows = coarse;
    made.coarse.columns = m;
    made.coarse.values.assign(std::int64_t{coarse} * m, 0.0);
    for (Index a = 0; a < count; ++a)
        for (Index p = made.nodes[a]; p < made.nodes[a + 1]; ++p)
            for (Index c = 0; c < m; ++c)
                made.coarse.values[std::int64_t{c} * coarse + p] =
                    R[(std::int64_t{starts[a]} + p - made.nodes[a]) * m + c];
    // The place of each unknown among its aggregate's members says where its row of Q is.
    made.P = Csr{n, coarse, Buffer<Index>(std::int64_t{n} + 1), {}, {}};
    made.P.starts[0] = 0;
    for (Index i = 0; i < n; ++i) {
        const Index a = of[i];
        made.P.starts[i + 1] =
            made.P.starts[i] + (a < 0 ? 0 : made.nodes[a + 1] - made.nodes[a]);
    }
    made.P.indices = Buffer<Index>(made.P.entries());
    made.P.values = Buffer<double>(made.P.entries());
    for (Index a = 0; a < count; ++a) {
        const Index first = starts[a], size = starts[a + 1] - first;
        const Index begin = made.nodes[a], rank = made.nodes[a + 1] - begin;
        const double* q = Q.data() + std::int64_t{first} * m;
        for (Index k = 0; k < size; ++k) {
            const Index at = made.P.starts[members[first + k]];
            for (Index p = 0; p < rank; ++p) {
                made.P.indices[at + p] = begin + p;
                made.P.values[at + p] = q[std::int64_t{p} * size + k];
            }
        }
    }
    if (m == 1 && coarse == count) made.nodes.clear();
    return made;
}

Csr smoothed(const CsrView& A, const unsigned char* strong, const CsrView& P, double largest, int threads) {
    return by_rows(A.rows, P.columns, threads, [&](Index i, Accumulator& sums) {
        if (P.starts[i] == P.starts[i + 1] && strong) return;  // no coarse unknown stands for it
        double own = 0, weak = 0;
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
            if (A.indices[e] == i) own += A.values[e];
            else if (strong && !strong[e]) weak += A.values[e];
        }
        const bool lumps = std::fabs(own + weak) > least_diagonal * std::fabs(own);
        const double d = lumps ? own + weak : own, factor = -smoothing / (largest * d);
        for (Index f = P.starts[i]; f < P.starts[i + 1]; ++f)
            sums.take(P.indices[f], P.values[f] * (1 + factor * d));
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
            const Index j = A.indices[e];
            if (j == i || (strong && !strong[e])) continue;
            for (Index f = P.starts[j]; f < P.starts[j + 1]; ++f)
                sums.take(P.indices[f], factor * A.values[e] * P.values[f]);
        }
    });
}

}  // namespace roundwise::iterative
