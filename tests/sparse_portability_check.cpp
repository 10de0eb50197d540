// Prints hashes of the analysis of two patterns; see test_portability.py.
#include <cstdio>
#include <vector>

#include "sparse/amd.hpp"
#include "sparse/dissection.hpp"
#include "sparse/pattern.hpp"
#include "sparse/symbolic.hpp"

using namespace roundwise::sparse;

template <class T> unsigned long long hash(const std::vector<T>& values) {
    unsigned long long h = 1469598103934665603ull;  // FNV-1a, over numbers instead of bytes
    for (const T value : values) h = (h ^ static_cast<unsigned long long>(value)) * 1099511628211ull;
    return h;
}

void check(int n, const std::vector<std::int64_t>& indptr, const std::vector<std::int64_t>& indices) {
    const Pattern p = symmetrized<std::int64_t>(n, indptr.data(), indices.data(),
                                                static_cast<std::int64_t>(indices.size()));
    const std::vector<std::int32_t> order = approximate_minimum_degree(p);
    const Symbolic s = analyse(n, p.indptr.data(), p.indices.data(), order.data());
    std::printf("%016llx ", hash(nested_dissection(p)));
    std::printf("%016llx %016llx %016llx %016llx %016llx %016llx %.0f %.0f %.0f\n", hash(order),
                hash(s.order), hash(s.first), hash(s.start), hash(s.rows), hash(s.parent), s.entries,
                s.flops, s.stored);
}

int main() {
    constexpr int m = 12, n = m * m * m;
    std::vector<std::int64_t> indptr{0}, indices;
    for (int i = 0; i < n; ++i) {  // a cube: each point and the next one in each direction
        if (i % m + 1 < m) indices.push_back(i + 1);
        if (i / m % m + 1 < m) indices.push_back(i + m);
        if (i / m / m + 1 < m) indices.push_back(i + m * m);
        indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
    check(n, indptr, indices);

    unsigned long long state = 1;
    indptr = {0};
    indices.clear();
    for (int i = 0; i < n; ++i) {
        for (int k = 0; k < 3; ++k) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            indices.push_back(static_cast<std::int64_t>((state >> 33) % n));
        }
        indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
    check(n, indptr, indices);
}
