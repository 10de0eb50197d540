#include "sparse/balance.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace roundwise::sparse {

namespace {

constexpr double balanced = 16;  // largest entries of lines may differ by this factor, and are not scaled
constexpr int sweeps = 3;        // each halves the distance of the exponents from those of a balanced matrix

bool differ_by_little(const std::vector<double>& maxima) {
    const auto [least, most] = std::minmax_element(maxima.begin(), maxima.end());
    return maxima.empty() || *least * balanced >= *most;
}

// The binary exponent of the square root; 0 for zero.
std::int32_t half_exponent(double maximum) {
    int exponent = 0;
    if (maximum > 0) std::frexp(maximum, &exponent);
    return static_cast<std::int32_t>(std::nearbyint(exponent / 2.0));
}

}  // namespace

template <class Index, class T>
bool is_symmetric(std::int32_t n, const Index* indptr, const Index* indices, const T* values) {
    // Rows come in ascending order, so that the entries above the diagonal of a row are asked for in the
    // order in which they are stored: next[j] is the first of row j that was not.
    std::vector<Index> next(indptr, indptr + n);
    for (std::int32_t i = 0; i < n; ++i) {
        Index e = indptr[i];
        const Index end = indptr[i + 1];
        for (; e < end && indices[e] < i; ++e) {
            const auto j = static_cast<std::int32_t>(indices[e]);
            const Index across = next[j]++;
            if (across >= indptr[j + 1] || indices[across] != i || !(values[across] == values[e]))
                return false;
        }
        if (e < end && indices[e] == i) {
            if (!(values[e] == values[e])) return false;
            ++e;
        }
        next[i] = e;
    }
    for (std::int32_t i = 0; i < n; ++i)
        if (next[i] != indptr[i + 1]) return false;
    return true;
}

template <class Index>
Partners partners(std::int32_t n, const Index* indptr, const Index* indices, std::int64_t step) {
    Partners result{0, 0};
    std::int32_t i = 0;
    for (std::int64_t e = 0; e < indptr[n]; e += step) {
        while (indptr[i + 1] <= e) ++i;
        const Index j = indices[e];
        if (j == i) continue;
        ++result.off_diagonal;
        result.found += std::binary_search(indices + indptr[j], indices + indptr[j + 1], Index{i});
    }
    return result;
}

template Partners partners(std::int32_t, const std::int32_t*, const std::int32_t*, std::int64_t);
template Partners partners(std::int32_t, const std::int64_t*, const std::int64_t*, std::int64_t);

template <class Index, class T>
bool balance(std::int32_t n, const Index* indptr, const Index* indices, const T* values, bool symmetric,
             std::int32_t* rows, std::int32_t* columns) {
    std::vector<double> row_maxima(static_cast<std::size_t>(n)), column_maxima(row_maxima);
    const auto find_maxima = [&](const auto& size) {
        std::fill(column_maxima.begin(), column_maxima.end(), 0.0);
        for (std::int32_t i = 0; i < n; ++i) {
            double largest = 0;
            for (Index e = indptr[i]; e < indptr[i + 1]; ++e) {
                const double here = size(i, e);
                largest = std::max(largest, here);
                double& column = column_maxima[static_cast<std::size_t>(indices[e])];
                column = std::max(column, here);
            }
            row_maxima[static_cast<std::size_t>(i)] = largest;
        }
    };
    find_maxima([&](std::int32_t, Index e) { return std::fabs(static_cast<double>(values[e])); });
    if (differ_by_little(row_maxima) && (symmetric || differ_by_little(column_maxima))) return false;
    std::fill(rows, rows + n, 0);
    std::fill(columns, columns + n, 0);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        if (sweep > 0)
            find_maxima([&](std::int32_t i, Index e) {
                return std::ldexp(std::fabs(static_cast<double>(values[e])), rows[i] + columns[indices[e]]);
            });
        for (std::int32_t i = 0; i < n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            rows[i] -= half_exponent(row_maxima[at]);
            columns[i] -= half_exponent(symmetric ? row_maxima[at] : column_maxima[at]);
        }
    }
    return true;
}

template <class Index, class T>
void scale(std::int32_t n, const Index* indptr, const Index* indices, const T* values,
           const std::int32_t* rows, const std::int32_t* columns, T* scaled) {
    for (std::int32_t i = 0; i < n; ++i)
        for (Index e = indptr[i]; e < indptr[i + 1]; ++e)
            scaled[e] = std::ldexp(values[e], rows[i] + columns[indices[e]]);
}

#define ROUNDWISE_INSTANCES(Index, T)                                                                        \
    template bool is_symmetric(std::int32_t, const Index*, const Index*, const T*);                          \
    template bool balance(std::int32_t, const Index*, const Index*, const T*, bool, std::int32_t*,           \
                          std::int32_t*);                                                                    \
    template void scale(std::int32_t, const Index*, const Index*, const T*, const std::int32_t*,             \
                        const std::int32_t*, T*);
ROUNDWISE_INSTANCES(std::int32_t, float)
ROUNDWISE_INSTANCES(std::int32_t, double)
ROUNDWISE_INSTANCES(std::int64_t, float)
ROUNDWISE_INSTANCES(std::int64_t, double)
#undef ROUNDWISE_INSTANCES

}  // namespace roundwise::sparse
