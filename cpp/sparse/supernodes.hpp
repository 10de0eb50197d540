// Supernodes: columns of L with the same pattern, and merged ones with nearly the same.
#pragma once

#include <cstdint>
#include <vector>

namespace roundwise::sparse {

// The columns of L, in postorder, as a forest of supernodes.
struct Supernodes {
    std::vector<std::int32_t> of;      // the supernode of each column
    std::vector<std::int32_t> parent;  // of each supernode, greater than itself; -1 for a root
    std::vector<std::int32_t> width;   // its number of columns
    std::vector<std::int32_t> below;   // its number of rows below these
};

// Fundamental supernodes: column j + 1 belongs to that of j if it has the same pattern below, and j is
// its only child in the elimination tree.
Supernodes fundamental(const std::vector<std::int32_t>& parent, const std::vector<std::int32_t>& counts);

// Merges supernodes with their parents where that adds few zeros. `counts`: entries of each column.
Supernodes amalgamated(const Supernodes& supernodes, const std::vector<std::int32_t>& counts);

// The columns such that each supernode's are together, in a postorder of the supernodes. Of siblings,
// those come first whose subtrees need the most memory beyond what they leave behind, so that the
// stack of a multifrontal factorization stays small (Liu 1986). Renumbers the supernodes accordingly.
std::vector<std::int32_t> arrange(Supernodes& supernodes);

}  // namespace roundwise::sparse
