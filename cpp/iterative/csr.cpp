#include "iterative/csr.hpp"

#include <cmath>

namespace roundwise::iterative {

Csr product(const CsrView& A, const CsrView& B, int threads) {
    return by_rows(A.rows, B.columns, threads, [&](Index i, Accumulator& sums) {
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
            const Index j = A.indices[e];
            const double a = A.values[e];
            for (Index f = B.starts[j]; f < B.starts[j + 1]; ++f) sums.take(B.indices[f], a * B.values[f]);
        }
    });
}

Csr transposed(const CsrView& A) {
    Csr T{A.columns, A.rows, Buffer<Index>(std::int64_t{A.columns} + 1), Buffer<Index>(A.entries()),
          Buffer<double>(A.entries())};
    Index* starts = T.starts.data();
    std::fill_n(starts, std::int64_t{A.columns} + 1, 0);
    for (std::int64_t e = 0; e < A.entries(); ++e) ++starts[A.indices[e] + 1];
    for (Index j = 0; j < A.columns; ++j) starts[j + 1] += starts[j];
    std::vector<Index> next(starts, starts + A.columns);
    for (Index i = 0; i < A.rows; ++i)
        for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
            const Index at = next[A.indices[e]]++;
            T.indices[at] = i;
            T.values[at] = A.values[e];
        }
    return T;
}

void multiply(const CsrView& A, const double* x, double* y, int threads) {
    for_rows(A.rows, threads, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i) {
            double sum = 0;
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) sum += A.values[e] * x[A.indices[e]];
            y[i] = sum;
        }
    });
}

double inner(const double* x, const double* y, Index n, int threads) {
    std::vector<double> parts((std::int64_t{n} + rows_of_task - 1) / rows_of_task);
    for_rows(n, threads, [&](Index begin, Index end, int) {
        double sum = 0;
        for (Index i = begin; i < end; ++i) sum += x[i] * y[i];
        parts[begin / rows_of_task] = sum;
    });
    double sum = 0;
    for (const double part : parts) sum += part;
    return sum;
}

void diagonal_of(const CsrView& A, double* diagonal, int threads) {
    for_rows(A.rows, threads, [&](Index begin, Index end, int) {
        for (Index i = begin; i < end; ++i) {
            diagonal[i] = 0;
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e)
                if (A.indices[e] == i) diagonal[i] += A.values[e];
        }
    });
}

double row_bound(const CsrView& A, const double* d, int threads) {
    std::vector<double> parts((std::int64_t{A.rows} + rows_of_task - 1) / rows_of_task);
    for_rows(A.rows, threads, [&](Index begin, Index end, int) {
        double largest = 0;
        for (Index i = begin; i < end; ++i) {
            double sum = 0;
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) sum += std::fabs(A.values[e]);
            sum /= std::fabs(d[i]);
            if (!(sum <= largest)) largest = sum;
        }
        parts[begin / rows_of_task] = largest;
    });
    double largest = 0;
    for (const double part : parts)
        if (!(part <= largest)) largest = part;
    return largest;
}

}  // namespace roundwise::iterative
