// Kernels in the machine's own low-precision arithmetic: what each computes, and the tables of
// them that the instruction-set levels fill. Matrices are column-major.
//
// Unlike the emulated kernels, these may round differently on another level or compiler
// (a multiply-add may be fused). On one level, results do not depend on the number of threads:
// how the work is cut depends on sizes only, and each piece is computed by one thread.
#pragma once

#include <cstdint>

namespace roundwise {

// LU by BF16 products with FP32 sums: one table per level "portable", "avx512_bf16", "amx".
struct Bf16Kernels {
    // Bytes that lu or gemm needs as scratch memory, aligned to 64.
    std::int64_t (*lu_workspace)(std::int64_t n, int threads);
    std::int64_t (*gemm_workspace)(std::int64_t m, int threads);

    // In place PA = LU of a float32 matrix, L unit lower, all stored in float32. Row i was
    // interchanged with row pivots[i], for i = 0, 1, ... The pivot is the first entry of largest
    // magnitude. Returns 0; c + 1 where the pivot of column c is zero; -(c + 1) where it is not
    // finite. What a then holds is of no use.
    //
    // Blocks of 64 columns are factorized, and blocks of 64 rows are solved for, in float32. All
    // else is a_ij - sum_k l_ik u_kj with l and u rounded to BF16 (to nearest even), products
    // exact, sums in float32. vdpbf16ps and AMX take subnormal operands and results as zero and
    // round to nearest even whatever the processor's settings.
    int (*lu)(std::int64_t n, float* a, std::int32_t* pivots, int threads, void* workspace);

    // C (m x n) -= A (m x k) B (k x n) by the same inner kernel; k a multiple of 32.
    void (*gemm)(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                 float* c, int threads, void* workspace);
};

}  // namespace roundwise
