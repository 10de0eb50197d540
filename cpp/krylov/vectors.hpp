// What a Krylov method does to blocks of vectors between two products, in as few passes over memory as possible, by
// several threads. Sums are taken over strips of `strip` rows, and those of the strips in turn: the bits depend on
// neither the number of threads nor the instruction set, as these kernels are bound by memory and compiled once.
//
// Blocks are n x k, column by column; a, b and the sums have one number for each column.
#pragma once

#include <cstdint>

namespace roundwise::krylov {

constexpr std::int64_t strip = 4096;

// Three numbers for each column: ||r||_2^2, max |r_i| and max |x_i|. NaN is in the sum alone.
constexpr int sizes_per_column = 3;

// dots[j] = x_j' y_j.
void dots(std::int64_t n, std::int64_t k, const double* x, const double* y, double* dots, int threads);

// x_j = x_j + a_j p_j, r_j = r_j - a_j q_j, and the sizes of both.
void step(std::int64_t n, std::int64_t k, const double* a, const double* p, const double* q, double* x, double* r,
          double* sizes, int threads);

// y_j = a_j x_j + b_j y_j.
void combine(std::int64_t n, std::int64_t k, const double* a, const double* x, const double* b, double* y, int threads);

// w = w - V' h, then next = V w (not if it is null), and the sum of squares of w, which is returned: one pass of
// classical Gram-Schmidt. V has `rows` rows of n numbers; without h nothing is subtracted.
double project(std::int64_t n, std::int64_t rows, const double* v, const double* h, double* w, double* next,
               int threads);

// Y = A X for compressed rows of `columns` columns, X and Y column by column, each row's products added in turn; false
// if an index is out of range.
template <class Index>
bool rows_times(std::int64_t rows, std::int64_t columns, const Index* starts, const Index* places,
                const double* values, std::int64_t k, const double* x, double* y, int threads);

}  // namespace roundwise::krylov
