// A fill-reducing order: approximate minimum degree.
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/pattern.hpp"
#include "sparse/symbolic.hpp"

namespace roundwise::sparse {

// Whether a row has so many entries that orders put it last: it would make all degrees large and all
// lists long.
bool is_dense(const Pattern& pattern, std::int32_t row);

// The order in which the rows (and columns) should be eliminated. After Amestoy, Davis & Duff, "An
// approximate minimum degree ordering algorithm", SIAM J. Matrix Anal. Appl. 17 (1996), with
// supervariables, mass elimination, aggressive absorption, and dense rows put last. Deterministic.
std::vector<std::int32_t> approximate_minimum_degree(const Pattern& pattern);

// The same, given up (an empty order) where the factorization would take more than `most_flops`. `counts`
// gets the entries and flops of the columns ordered, as `count` gives them where no row is dense, and
// `heights` the entries of each column of L, in this order, the diagonal included; the entries of dense
// rows in other columns are not counted.
std::vector<std::int32_t> approximate_minimum_degree_within(const Pattern& pattern, double most_flops,
                                                            Counts& counts,
                                                            std::vector<std::int32_t>& heights);

}  // namespace roundwise::sparse
