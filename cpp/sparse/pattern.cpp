#include "sparse/pattern.hpp"

#include <limits>
#include <stdexcept>

namespace roundwise::sparse {

namespace {

template <class Index>
void require_compressed_rows(std::int64_t n, const Index* indptr, const Index* indices,
                             std::int64_t entries) {
    if (n > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("A has more than 2147483647 rows; pass a smaller matrix");
    bool valid = indptr[0] == 0 && indptr[n] == static_cast<Index>(entries);
    for (std::int64_t i = 0; i < n; ++i) valid &= indptr[i] <= indptr[i + 1];
    if (!valid)
        throw std::invalid_argument(
            "indptr does not rise from 0 to the number of indices; pass the arrays of a CSR matrix");
    for (std::int64_t e = 0; e < entries; ++e) valid &= 0 <= indices[e] && indices[e] < n;
    if (!valid)
        throw std::invalid_argument("a column index is not in 0 .. n - 1; pass a square CSR matrix");
}

// The transpose of a pattern. Its rows ascend, whatever the order within the given rows.
template <class Pointer, class Index>
Pattern transposed(std::int32_t n, const Pointer* indptr, const Index* indices) {
    Pattern result{n, std::vector<std::int64_t>(static_cast<std::size_t>(n) + 2, 0), {}};
    const std::int64_t entries = indptr[n];
    result.indices.resize(static_cast<std::size_t>(entries));
    // next[j + 1] is where the next entry of row j goes; at the end it is where row j + 1 starts.
    std::vector<std::int64_t>& next = result.indptr;
    for (std::int64_t e = 0; e < entries; ++e) ++next[indices[e] + 2];
    for (std::int32_t j = 0; j < n; ++j) next[j + 2] += next[j + 1];
    for (std::int32_t i = 0; i < n; ++i)
        for (std::int64_t e = indptr[i]; e < indptr[i + 1]; ++e) result.indices[next[indices[e] + 1]++] = i;
    next.pop_back();
    return result;
}

template <class Index>
bool rows_ascend(std::int32_t n, const Index* indptr, const Index* indices) {
    for (std::int32_t i = 0; i < n; ++i)
        for (std::int64_t e = indptr[i] + 1; e < indptr[i + 1]; ++e)
            if (indices[e - 1] > indices[e]) return false;
    return true;
}

// Merges the ascending rows of two patterns, and leaves out the diagonal.
template <class Pointer, class Index>
Pattern merged(std::int32_t n, const Pointer* indptr, const Index* indices, const Pattern& other) {
    Pattern result{n, {}, {}};
    result.indptr.resize(static_cast<std::size_t>(n) + 1);
    result.indices.resize(static_cast<std::size_t>(indptr[n]) + other.indices.size());
    std::int32_t* const out = result.indices.data();
    std::int64_t end = 0;
    result.indptr[0] = 0;
    for (std::int32_t i = 0; i < n; ++i) {
        std::int64_t a = indptr[i], b = other.indptr[i];
        const std::int64_t a_end = indptr[i + 1], b_end = other.indptr[i + 1];
        std::int32_t previous = -1;
        while (a < a_end || b < b_end) {
            std::int32_t j;
            if (b == b_end || (a < a_end && indices[a] < static_cast<Index>(other.indices[b])))
                j = static_cast<std::int32_t>(indices[a++]);
            else
                j = other.indices[b++];
            if (j != previous && j != i) out[end++] = j;
            previous = j;
        }
        result.indptr[i + 1] = end;
    }
    result.indices.resize(static_cast<std::size_t>(end));
    result.indices.shrink_to_fit();  // a symmetric pattern needs half of it
    return result;
}

}  // namespace

template <class Index>
Pattern symmetrized(std::int64_t n, const Index* indptr, const Index* indices, std::int64_t entries) {
    require_compressed_rows(n, indptr, indices, entries);
    const auto rows = static_cast<std::int32_t>(n);
    const Pattern transpose = transposed(rows, indptr, indices);
    if (rows_ascend(rows, indptr, indices)) return merged(rows, indptr, indices, transpose);
    const Pattern sorted = transposed(rows, transpose.indptr.data(), transpose.indices.data());
    return merged(rows, sorted.indptr.data(), sorted.indices.data(), transpose);
}

template Pattern symmetrized(std::int64_t, const std::int32_t*, const std::int32_t*, std::int64_t);
template Pattern symmetrized(std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t);

}  // namespace roundwise::sparse
