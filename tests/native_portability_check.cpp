// Solves a system with the native kernels of every level; see test_portability.py. Prints one line per
// combination of levels. The program fails if an error is larger than the formats allow.
#include <cmath>
#include <cstdio>
#include <vector>

#include "native/dispatch.hpp"

using namespace roundwise;

constexpr int n = 333, threads = 2;

std::vector<float> matrix() {
    std::vector<float> a(n * n);
    unsigned long long state = 1;
    for (float& x : a) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        x = static_cast<float>(static_cast<double>(state >> 20) / 8796093022208.0 - 1);
    }
    for (int i = 0; i < n; ++i) a[i + i * n] += 32;
    return a;
}

void* aligned(std::vector<char>& memory) {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
}

// Solves A x = b, b the row sums of A, with factors stored as fp16; the error of x.
template <class T>
double error_of_solution(const std::vector<float>& a, const std::vector<T>& factors,
                         const std::vector<std::int32_t>& pivots) {
    const NativeKernels<double>& kernels = native_kernels<double>();
    std::vector<std::uint16_t> stored(n * n);
    native_kernels<T>().narrow(Storage::fp16, n * n, factors.data(), stored.data(), threads);
    std::vector<double> ones(n, 1), b(n);
    kernels.matvec(Storage::fp32, n, n, a.data(), false, ones.data(), b.data(), threads);
    for (int i = 0; i < n; ++i) std::swap(b[i], b[pivots[i]]);
    std::vector<char> memory(static_cast<std::size_t>(kernels.solve_workspace(n, 1, threads)) + 64);
    kernels.solve(Storage::fp16, Factors::lu, n, stored.data(), false, 1, b.data(), threads,
                  aligned(memory));
    double error = 0;
    for (double x : b) error = std::fmax(error, std::fabs(x - 1));
    return error;
}

template <class T>
int factorize(const LuKernels<T>& kernels, std::vector<T>& factors, std::vector<std::int32_t>& pivots) {
    std::vector<char> memory(static_cast<std::size_t>(kernels.lu_workspace(n, threads)) + 64);
    return kernels.lu(n, factors.data(), pivots.data(), threads, aligned(memory));
}

// Factorizes in T and solves with the factors stored as fp16; whether the error is as fp16 allows.
template <class T> bool check(const std::string& name, const LuKernels<T>& kernels) {
    const std::vector<float> a = matrix();
    std::vector<T> factors(a.begin(), a.end());
    std::vector<std::int32_t> pivots(n);
    const int code = factorize(kernels, factors, pivots);
    bool good = true;
    for (const std::string& simd : available_levels()) {
        set_level(simd);
        const double error = error_of_solution(a, factors, pivots);
        std::printf("%s %s %d %.1e\n", name.c_str(), simd.c_str(), code, error);
        good = good && code == 0 && error > 1e-7 && error < 0.02;  // 2^-8 times a condition of 4
    }
    return good;
}

// Cholesky of a diagonally dominant matrix in T: whether LL' is the matrix, to what BF16 allows.
template <class T> bool check_cholesky(const std::string& name, const LuKernels<T>& kernels) {
    const std::vector<float> a = matrix();
    std::vector<T> l(a.begin(), a.end());
    std::vector<char> memory(static_cast<std::size_t>(kernels.cholesky_workspace(n, threads)) + 64);
    const int code = kernels.cholesky(n, l.data(), false, threads, aligned(memory));
    double error = 0;
    for (int j = 0; j < n; ++j)
        for (int i = j; i < n; ++i) {
            double sum = a[i + j * n];
            for (int k = 0; k <= j; ++k) sum -= static_cast<double>(l[i + k * n]) * l[j + k * n];
            error = std::fmax(error, std::fabs(sum));
        }
    std::printf("cholesky %s %d %.1e\n", name.c_str(), code, error);
    return code == 0 && error < 33 * 0.01;  // |L||L'| is at most the largest entry; two roundings of 2^-9
}

// Gram-Schmidt against two vectors of small integers, where nothing is rounded, and back by axpy.
template <class T> bool check_vectors() {
    std::vector<T> v(2 * n), w(n), h(2);
    for (int i = 0; i < n; ++i) {
        v[i] = static_cast<T>(i % 3 - 1);
        v[n + i] = static_cast<T>(i % 2);
        w[i] = static_cast<T>(i % 7);
    }
    const std::vector<T> start = w;
    const NativeKernels<T>& kernels = native_kernels<T>();
    bool good = kernels.orthogonalize(n, 2, v.data(), w.data(), h.data());
    for (int j = 0; j < 2; ++j) good = kernels.axpy(n, h[j], v.data() + j * n, w.data()) && good;
    T first = 0;
    for (int i = 0; i < n; ++i) first += v[i] * start[i];
    good = good && w == start && h[0] == first;
    w[n - 1] = static_cast<T>(INFINITY);
    return good && !kernels.axpy(n, h[0], v.data(), w.data());
}

// Row i of A is 2^40, i, -2^40 and 1 + 2^-30, x ends with 1 + 2^-30: only twice the precision sees
// b - A x = -i - 2^-60. Both layouts of A.
bool check_exact() {
    constexpr int rows = 21, columns = 4;
    const double near_one = 1 + std::ldexp(1.0, -30), large = std::ldexp(1.0, 40);
    std::vector<double> a(rows * columns), across(rows * columns), r(rows);
    std::vector<double> x = {1, 1, 1, near_one}, b(rows, 1 + std::ldexp(1.0, -29));
    for (int i = 0; i < rows; ++i) {
        const double row[columns] = {large, static_cast<double>(i), -large, near_one};
        for (int j = 0; j < columns; ++j) a[i + j * rows] = across[j + i * columns] = row[j];
    }
    bool good = true;
    const auto verify = [&] {
        for (int i = 0; i < rows; ++i) good = r[i] == -i - (i == 0 ? std::ldexp(1.0, -60) : 0) && good;
    };
    exact_kernels().residual(rows, columns, a.data(), false, 1, x.data(), b.data(), r.data(), 0, threads);
    verify();
    exact_kernels().residual(columns, rows, across.data(), true, 1, x.data(), b.data(), r.data(), 0,
                             threads);
    verify();
    if (!good) std::printf("residuals are not exact\n");
    return good;
}

// Row i of A has 1 at column n - 1 - i and 1/2 below it: elimination must interchange all rows, and is
// exact. X has two columns; with two parts all is times 1 + i, whose imaginary parts follow the real ones.
template <int parts, class T> bool check_express(const SmallLu<T>& lu) {
    constexpr int n = 13, width = 24, wide = line_of<T>;  // row_step of n, and padded of 2
    alignas(64) T a[parts * n * width * 2] = {}, b[parts * n * wide] = {}, x[parts * n * wide] = {};
    std::int32_t swaps[n];
    const int step = static_cast<int>(row_step<T>(n));
    for (int i = 0; i < n; ++i) {
        a[i * step + n - 1 - i] = 1;
        if (i > 0) a[i * step + n - i] = T(0.5);
        for (int c = 0; c < 2; ++c) x[i * wide + c] = static_cast<T>(2 * i + c - 7);
    }
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            for (int c = 0; c < 2; ++c) b[i * wide + c] += a[i * step + j] * x[j * wide + c];
    alignas(64) T transposed[parts * width * 2] = {};
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            for (int part = 0; part < parts; ++part) transposed[part * step + j] += a[i * step + j] * x[i * wide];
    if (parts == 2) {
        for (int i = 0; i < n * step; ++i) a[n * step + i] = a[i];
        for (int i = 0; i < n * wide; ++i) b[n * wide + i] = b[i];
    }
    bool good = step <= 2 * width && padded<T>(2) == wide;
    good = lu.factorize(n, a, swaps, 0) == 1 && good;
    lu.substitute(n, a, swaps, 2, b);
    const double room = (parts - 1) * (sizeof(T) == 4 ? 1e-4 : 1e-13);
    for (int i = 0; i < parts * n * wide; ++i) good = good && std::abs(b[i] - x[i]) <= room;
    lu.substitute_transposed(n, a, swaps, transposed);
    for (int i = 0; i < n; ++i) good = good && std::abs(transposed[i] - x[i * wide]) <= room;
    for (int i = 0; parts == 2 && i < n; ++i) good = good && std::abs(transposed[step + i]) <= room;
    if (!good) std::printf("a small system of %d parts is not solved exactly\n", parts);
    return good;
}

// The residuals of check_exact for columns side by side, the imaginary parts of A, X and B being zero.
template <int parts> bool check_rows() {
    constexpr int n = 4, wide = 8;
    const double large = std::ldexp(1.0, 40), near_one = 1 + std::ldexp(1.0, -30);
    std::vector<double> a(parts * n * n), x(parts * n * wide), b(parts * n * wide), r(parts * n * wide);
    const double value[n] = {1, 1, 1, near_one};
    for (int i = 0; i < n; ++i) {
        const double row[n] = {large, static_cast<double>(i), -large, near_one};
        for (int j = 0; j < n; ++j) a[(i * n + j) * parts] = row[j];
        x[i * wide + 2] = value[i], b[i * wide + 2] = 1 + std::ldexp(1.0, -29);
    }
    exact_kernels().residual_of_rows[parts - 1](n, a.data(), wide, 0, wide, x.data(), b.data(), r.data(), 0);
    bool good = true;
    for (int i = 0; i < n; ++i)
        good = good && r[i * wide + 2] == -i - (i == 0 ? std::ldexp(1.0, -60) : 0) && r[i * wide] == 0;
    if (!good) std::printf("residuals of rows with %d parts are not exact\n", parts);
    return good;
}

int main() {
    bool good = true;
    for (const std::string& level : bf16_levels()) {
        good = check(level, bf16_kernels(level)) && good;
        good = check_cholesky(level, bf16_kernels(level)) && good;
    }
    for (const std::string& level : available_levels()) {
        set_level(level);
        const NativeKernels<float>& single = native_kernels<float>();
        const NativeKernels<double>& twice = native_kernels<double>();
        good = check("fp32 " + level, single) && good;
        good = check("fp64 " + level, twice) && good;
        good = check_cholesky("fp32 " + level, single) && check_cholesky("fp64 " + level, twice) && good;
        good = check_vectors<float>() && check_vectors<double>() && check_exact() && good;
        good = check_express<1>(express_kernels<1>().double_lu) && check_rows<1>() && good;
        good = check_express<2>(express_kernels<2>().double_lu) && check_rows<2>() && good;
        good = check_express<1>(express_kernels<1>().float_lu) && good;
        good = check_express<2>(express_kernels<2>().float_lu) && good;
    }
    return good ? 0 : 1;
}
