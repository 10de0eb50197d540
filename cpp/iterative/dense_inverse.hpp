// Inverses of the small dense matrices on which a hierarchy ends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace roundwise::iterative {

// In place, column-major, of a symmetric positive semidefinite matrix: by sweeps (Goodnight 1979). A pivot that is lost
// in rounding errors leaves its unknown out: a singular matrix, as that of a Neumann problem, has an inverse of
// the rest. False if a pivot is negative beyond rounding.
inline bool invert_definite(double* A, std::int64_t n) {
    const double tiny = static_cast<double>(n) * 0x1p-52;
    std::vector<double> own(n), column(n);
    for (std::int64_t i = 0; i < n; ++i) own[i] = A[i * n + i];
    std::vector<char> left_out(n, 0);
    for (std::int64_t k = 0; k < n; ++k) {
        const double pivot = A[k * n + k];
        if (!(pivot > tiny * own[k])) {
            if (!(pivot >= -1e3 * tiny * own[k])) return false;
            left_out[k] = 1;
            continue;
        }
        std::copy_n(A + k * n, n, column.data());
        for (std::int64_t j = 0; j < n; ++j) {
            if (j == k || left_out[j]) continue;
            double* a = A + j * n;
            const double factor = column[j] / pivot;
            for (std::int64_t i = 0; i < n; ++i) a[i] -= column[i] * factor;
            a[k] = factor;
        }
        for (std::int64_t i = 0; i < n; ++i) A[k * n + i] = column[i] / pivot;
        A[k * n + k] = -1 / pivot;
    }
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < n; ++i) A[j * n + i] = left_out[i] || left_out[j] ? 0.0 : -A[j * n + i];
    return true;
}

// In place, column-major, by Gauss-Jordan elimination with partial pivoting. False if there is no pivot.
inline bool invert_any(double* A, std::int64_t n) {
    std::vector<std::int64_t> rows(n);
    std::vector<double> column(n);
    for (std::int64_t k = 0; k < n; ++k) {
        std::int64_t p = k;
        for (std::int64_t i = k; i < n; ++i)
            if (std::fabs(A[k * n + i]) > std::fabs(A[k * n + p])) p = i;
        const double pivot = A[k * n + p];
        if (!(std::fabs(pivot) > 0) || !std::isfinite(pivot)) return false;
        rows[k] = p;
        if (p != k)
            for (std::int64_t j = 0; j < n; ++j) std::swap(A[j * n + k], A[j * n + p]);
        for (std::int64_t i = 0; i < n; ++i) {
            column[i] = i == k ? 0.0 : A[k * n + i];
            A[k * n + i] = i == k ? 1 / pivot : -column[i] / pivot;
        }
        for (std::int64_t j = 0; j < n; ++j) {
            if (j == k) continue;
            double* a = A + j * n;
            const double factor = a[k] / pivot;
            for (std::int64_t i = 0; i < n; ++i) a[i] -= column[i] * factor;
            a[k] = factor;
        }
    }
    for (std::int64_t k = n; k-- > 0;)
        if (rows[k] != k) std::swap_ranges(A + k * n, A + (k + 1) * n, A + rows[k] * n);
    return true;
}

}  // namespace roundwise::iterative
