// Smoothed aggregation (Vanek, Mandel & Brezina 1996): unknowns that are strongly connected are taken together, vectors
// that A hardly changes are kept exactly, and what interpolates between both is smoothed by one step of Jacobi.
#pragma once

#include <vector>

#include "iterative/csr.hpp"

namespace roundwise::iterative {

// Unknowns of one place, say the displacements of a point, count as one node: node k has the unknowns starts[k] to
// starts[k + 1] - 1. Empty where each unknown is a node.
using Nodes = std::vector<Index>;

// A block of columns that A hardly changes, columns one after the other.
struct NearNullSpace {
    Index rows = 0, columns = 0;
    std::vector<double> values;
};

struct Tentative {
    Csr P;               // its columns are orthonormal; P coarse = the near null space, exactly
    NearNullSpace coarse;
    Nodes nodes;         // of the coarse unknowns
};

// Whether each entry of the nodes' matrix G is strong. Symmetric: g_ij^2 > theta^2 g_ii g_jj; otherwise, where A is
// unsymmetric, |g_ij| > theta_row max_k |g_ik|. What is a quarter of its diagonal entry is strong, too: to a leaf of a
// graph its hub is, though not the other way round.
Buffer<unsigned char> strength(const CsrView& G, double theta, bool symmetric, int threads);

// The aggregate of each node; -1 of those without strong connections, which no coarse unknown stands for. Greedy in
// the order of the nodes: whole neighbourhoods first, then their neighbours, then what is left.
std::vector<Index> aggregates(const CsrView& G, const unsigned char* strong, Index& count);

// The matrix of the nodes: Frobenius norms of blocks.
Csr nodes_of(const CsrView& A, const Nodes& nodes, int threads);

Tentative tentative(const std::vector<Index>& aggregate, Index count, const Nodes& nodes, const NearNullSpace& B);

// (I - omega / largest D^-1 A) P, where weak entries of A are added to the diagonal. `strong` may be null: all are;
// `largest` bounds the eigenvalues of D^-1 A.
Csr smoothed(const CsrView& A, const unsigned char* strong, const CsrView& P, double largest, int threads);

}  // namespace roundwise::iterative
