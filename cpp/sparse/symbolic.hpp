// The symbolic factorization of a symmetric pattern: what numeric factorizations work on.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// The pattern of L in P A P' = L L' (or L D L', or L U on the pattern of A + A'), in supernodes:
// neighbouring columns with nearly the same pattern, stored as one, so that some stored numbers are
// zeros.
struct Symbolic {
    std::int32_t n;
    std::vector<std::int32_t> order;   // row and column k of the factor are row and column order[k] of A
    std::vector<std::int32_t> first;   // supernode s holds the columns first[s] .. first[s + 1] - 1
    std::vector<std::int64_t> start;   // its rows are rows[start[s]] .. rows[start[s + 1] - 1],
    std::vector<std::int32_t> rows;    //   ascending: first its own columns, then those below
    std::vector<std::int32_t> parent;  // of each supernode: that of its first row below, -1 if none;
                                       //   in postorder, so that parent[s] > s
    double entries;  // of L with its diagonal, without the zeros that supernodes add
    double flops;    // of L L': the sum of the squares of its columns' entries
    double stored;   // numbers in all supernodes, each a rectangle of its rows and columns
};

// indptr, indices: the pattern of A + A' without the diagonal, each row ascending. `order` is a
// permutation of 0 .. n - 1, nullptr for the natural order. The result's order is another one with
// the same fill: supernodes are made of columns that are apart in the given one.
Symbolic analyse(std::int32_t n, const std::int64_t* indptr, const std::int32_t* indices,
                 const std::int32_t* order);

// Entries and flops alone, as `analyse` gives them, for a fraction of its time.
struct Counts {
    double entries, flops;
};
Counts count(std::int32_t n, const std::int64_t* indptr, const std::int32_t* indices,
             const std::int32_t* order);

}  // namespace roundwise::sparse
