// Factorizations of the block on the diagonal of a panel, in place. Each returns the column where it
// stops, or -1.
#pragma once

#include "native/panel.hpp"
#include "sparse/blocks.hpp"
#include "sparse/kernels.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T> inline bool is_finite(T x) {
    return magnitude(x) < static_cast<typename Carrier<T>::Signed>(Carrier<T>::infinity);
}

// What a factorization of a block needs to know and to tell.
template <class T> struct Pivoting {
    T tiny;
    T *packed, *columns;  // memory for `multiply`, and for widest x widest numbers
    sparse::Result result = sparse::Result::done;
    std::int64_t replaced = 0;

    // The pivot to use for this one. Leaves a result if there is none.
    T checked(T pivot) {
        if (!is_finite(pivot)) result = sparse::Result::overflow;
        else if (pivot == 0 && tiny == 0) result = sparse::Result::zero_pivot;
        else if ((pivot < 0 ? -pivot : pivot) < tiny) {
            ++replaced;
            return pivot < 0 ? -tiny : tiny;
        }
        return pivot;
    }
    bool failed() const { return result != sparse::Result::done; }
};

template <class T> inline void exchange(T& x, T& y) {
    const T kept = x;
    x = y;
    y = kept;
}

// LL' of the lower triangle, n x n; the upper one is neither read nor kept.
template <class T>
inline std::int64_t cholesky_diagonal(std::int64_t n, T* a, std::int64_t step, Pivoting<T>& pivoting) {
    for (std::int64_t block = 0; block < n; block += 8) {
        const std::int64_t end = block + 8 < n ? block + 8 : n;
        multiply<true>(n - block, end - block, block, a + block, step, a + block, step,
                       a + block + block * step, step, n, pivoting.packed);
        T inverse[8];
        for (std::int64_t j = block; j < end; ++j) {
            T* column = a + j * step;
            const T pivot = column[j], root = square_root(pivot);
            if (!(is_finite(pivot) && pivot > 0 && is_finite(1 / root))) {
                pivoting.result =
                    is_finite(pivot) ? sparse::Result::not_positive : sparse::Result::overflow;
                return j;
            }
            column[j] = root;
            const T factor = inverse[j - block] = 1 / root;
            for (std::int64_t i = j + 1; i < end; ++i) column[i] *= factor;
            for (std::int64_t l = j + 1; l < end; ++l)
                for (std::int64_t i = l; i < end; ++i) a[i + l * step] -= column[i] * column[l];
        }
        solve_rows<false>(n - end, end - block, a + end + block * step, step, a + block + block * step,
                          step, inverse);
    }
    return -1;
}

// PA = LU with partial pivoting, L unit lower; row i of LU is row perm[i] of A.
template <class T>
inline std::int64_t lu_diagonal(std::int64_t n, T* a, std::int64_t step, std::int32_t* perm,
                                Pivoting<T>& pivoting) {
    const auto at = [=](std::int64_t i, std::int64_t j) -> T& { return a[i + j * step]; };
    for (std::int64_t i = 0; i < n; ++i) perm[i] = static_cast<std::int32_t>(i);
    for (std::int64_t block = 0; block < n; block += 8) {
        const std::int64_t end = block + 8 < n ? block + 8 : n;
        for (std::int64_t j = block; j < end; ++j) {
            const std::int64_t found = j + find_pivot(n - j, &at(j, j));
            const T pivot = pivoting.checked(at(found, j));
            if (pivoting.failed()) return j;
            if (found != j) {
                exchange(perm[j], perm[found]);
                for (std::int64_t c = 0; c < n; ++c) exchange(at(j, c), at(found, c));
            }
            at(j, j) = pivot;
            T* column = &at(0, j);
            for (std::int64_t i = j + 1; i < n; ++i) column[i] /= pivot;  // keeps |l| <= 1
            for (std::int64_t c = j + 1; c < end; ++c) {
                T* target = &at(0, c);
                const T factor = target[j];
                for (std::int64_t i = j + 1; i < n; ++i) target[i] -= column[i] * factor;
            }
        }
        // The rows of U right of these columns, and their transpose for the product.
        const std::int64_t left = n - end;
        for (std::int64_t c = end; c < n; ++c)
            for (std::int64_t j = block; j < end; ++j) {
                for (std::int64_t i = j + 1; i < end; ++i) at(i, c) -= at(i, j) * at(j, c);
                pivoting.columns[c - end + (j - block) * left] = at(j, c);
            }
        if (left > 0)
            multiply<true>(left, left, end - block, &at(end, block), step, pivoting.columns, left,
                           &at(end, end), step, n, pivoting.packed);
    }
    return -1;
}

// PAP' = LDL' by the pivots of Bunch and Kaufman (1977), from the lower triangle of A, which becomes
// L; D is on its diagonal and, for a 2 x 2 pivot, on the entry below, where L has a zero. Row i is row
// perm[i] of A, or ~perm[i] if rows i and i + 1 are a 2 x 2 pivot.
template <class T>
inline std::int64_t ldl_diagonal(std::int64_t n, T* a, std::int64_t step, std::int32_t* perm,
                                 Pivoting<T>& pivoting) {
    const auto at = [=](std::int64_t i, std::int64_t j) -> T& { return a[i + j * step]; };
    const auto size = [](T x) { return x < 0 ? -x : x; };
    for (std::int64_t i = 0; i < n; ++i) perm[i] = static_cast<std::int32_t>(i);
    const auto interchange = [&](std::int64_t p, std::int64_t q) {  // p < q
        exchange(perm[p], perm[q]);
        exchange(at(p, p), at(q, q));
        for (std::int64_t c = 0; c < p; ++c) exchange(at(p, c), at(q, c));
        for (std::int64_t i = p + 1; i < q; ++i) exchange(at(i, p), at(q, i));
        for (std::int64_t i = q + 1; i < n; ++i) exchange(at(i, p), at(i, q));
    };
    const T alpha = static_cast<T>(0.6403882032022076);  // (1 + sqrt(17)) / 8
    for (std::int64_t j = 0; j < n;) {
        std::int64_t r = j;
        T largest = 0;
        for (std::int64_t i = j + 1; i < n; ++i) {
            if (!is_finite(at(i, j))) pivoting.result = sparse::Result::overflow;
            if (size(at(i, j)) > largest) largest = size(at(i, j)), r = i;
        }
        bool pair = false;
        if (size(at(j, j)) < alpha * largest && largest >= pivoting.tiny) {
            T other = 0;  // the largest entry of row and column r besides the diagonal
            for (std::int64_t c = j; c < r; ++c) other = size(at(r, c)) > other ? size(at(r, c)) : other;
            for (std::int64_t i = r + 1; i < n; ++i)
                other = size(at(i, r)) > other ? size(at(i, r)) : other;
            if (size(at(j, j)) * (other / largest) >= alpha * largest) {
            } else if (size(at(r, r)) >= alpha * other) {
                interchange(j, r);
            } else {
                pair = true;
                if (r != j + 1) interchange(j + 1, r);
            }
        }
        if (!pair) {
            const T pivot = at(j, j) = pivoting.checked(at(j, j));
            if (pivoting.failed()) return j;
            T* column = &at(0, j);
            for (std::int64_t c = j + 1; c < n; ++c) {
                T* target = &at(0, c);
                const T factor = column[c] / pivot;
                for (std::int64_t i = c; i < n; ++i) target[i] -= column[i] * factor;
            }
            for (std::int64_t i = j + 1; i < n; ++i) column[i] /= pivot;
            ++j;
            continue;
        }
        if (pivoting.failed()) return j;
        perm[j] = ~perm[j];
        T *first = &at(0, j), *second = &at(0, j + 1);
        const T off = first[j + 1], p = second[j + 1] / off, q = first[j] / off;
        const T scale = 1 / (p * q - 1) / off;  // |p q| < 1 by the choice of pivots
        for (std::int64_t c = j + 2; c < n; ++c) {
            T* target = &at(0, c);
            const T x = scale * (p * first[c] - second[c]), y = scale * (q * second[c] - first[c]);
            for (std::int64_t i = c; i < n; ++i) target[i] -= first[i] * x + second[i] * y;
        }
        for (std::int64_t i = j + 2; i < n; ++i) {
            const T x = scale * (p * first[i] - second[i]);
            second[i] = scale * (q * second[i] - first[i]);
            first[i] = x;
        }
        j += 2;
    }
    return -1;
}

// Calls one(l) for 1 x 1 pivots and two(l) for pivots of columns l and l + 1.
template <class One, class Two>
inline void for_each_pivot(std::int64_t n, const std::int32_t* perm, const One& one, const Two& two) {
    for (std::int64_t l = 0; l < n; ++l) {
        if (perm[l] < 0) two(l++);
        else one(l);
    }
}

// B = L D, both m x n, for the D of such a block.
template <class T>
inline void multiply_by_pivots(std::int64_t m, std::int64_t n, const T* block, std::int64_t step,
                               const std::int32_t* perm, const T* l, std::int64_t l_step, T* b,
                               std::int64_t b_step) {
    for_each_pivot(
        n, perm,
        [&](std::int64_t c) {
            const T d = block[c + c * step];
            for (std::int64_t i = 0; i < m; ++i) b[i + c * b_step] = l[i + c * l_step] * d;
        },
        [&](std::int64_t c) {
            const T *d = block + c + c * step, *x = l + c * l_step, *y = x + l_step;
            for (std::int64_t i = 0; i < m; ++i) {
                b[i + c * b_step] = x[i] * d[0] + y[i] * d[1];
                b[i + (c + 1) * b_step] = x[i] * d[1] + y[i] * d[1 + step];
            }
        });
}

// In place X = X D^-1, m x n.
template <class T>
inline void divide_by_pivots(std::int64_t m, std::int64_t n, const T* block, std::int64_t step,
                             const std::int32_t* perm, T* x, std::int64_t x_step) {
    for_each_pivot(
        n, perm,
        [&](std::int64_t c) {
            const T inverse = 1 / block[c + c * step];
            for (std::int64_t i = 0; i < m; ++i) x[i + c * x_step] *= inverse;
        },
        [&](std::int64_t c) {
            const T *d = block + c + c * step;
            T *first = x + c * x_step, *second = first + x_step;
            const T p = d[1 + step] / d[1], q = d[0] / d[1], scale = 1 / (p * q - 1) / d[1];
            for (std::int64_t i = 0; i < m; ++i) {
                const T left = scale * (p * first[i] - second[i]);
                second[i] = scale * (q * second[i] - first[i]);
                first[i] = left;
            }
        });
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
