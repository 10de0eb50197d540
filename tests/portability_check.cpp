// Prints, for every level, hashes of what the emulated kernels compute; see test_portability.py.
#include <cmath>
#include <cstdio>
#include <vector>

#include "common/levels.hpp"
#include "emulated/kernels.hpp"

using namespace roundwise;

template <class E> unsigned long long hash(const std::vector<E>& values) {
    unsigned long long h = 1469598103934665603ull;  // FNV-1a
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    for (std::size_t i = 0; i < values.size() * sizeof(E); ++i) h = (h ^ bytes[i]) * 1099511628211ull;
    return h;
}

template <class T> void check(const Format& f) {
    constexpr int n = 77;
    std::vector<double> numbers(n * n), rounded(n * n);
    unsigned long long state = 1;
    for (double& x : numbers) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        x = static_cast<double>(state >> 20) / 8796093022208.0 - 1;
    }
    for (Mode mode : {Mode::stochastic, Mode::up, Mode::nearest}) {
        active_kernels<double>().round(f, mode, 5, n * n, numbers.data(), rounded.data(), 1);
        std::printf("%016llx ", hash(rounded));
    }
    std::vector<T> a(rounded.begin(), rounded.end()), x(a.begin(), a.begin() + n), y(n);
    std::vector<std::int32_t> perm(n);
    active_kernels<T>().matvec(f, n, n, a.data(), true, x.data(), y.data(), 1);
    const Kernels<T>& kernels = active_kernels<T>();
    std::vector<T> spd = a, w = x, h(8), cosines(1, 1), sines(1), column{T(0.5), T(0.25)}, g{T(1), T(0)};
    for (int i = 0; i < n; ++i) spd[i + i * n] = 64;
    const Verdict positive = kernels.cholesky(f, n, spd.data(), 2);
    kernels.orthogonalize(f, n, 8, a.data(), w.data(), h.data());
    kernels.givens(f, 0, cosines.data(), sines.data(), column.data(), g.data());
    const std::vector<T> numbers_out{kernels.dot(f, n, x.data(), y.data()), kernels.norm2(f, n, x.data()),
                                     column[0], g[0], g[1]};
    kernels.axpy(f, n, x[0], y.data(), w.data());
    const Verdict verdict = kernels.lu(f, n, a.data(), perm.data(), 2);
    kernels.solve_triangular(f, n, a.data(), false, false, false, 1, x.data(), 1);
    std::printf("%d %d ", static_cast<int>(positive.status), static_cast<int>(verdict.status));
    for (const auto& values : {y, spd, w, h, numbers_out, a, x}) std::printf("%016llx ", hash(values));
    std::printf("\n");
}

int main() {
    for (const std::string& level : available_levels()) {
        set_level(level);
        std::printf("level\n");
        check<float>({8, std::ldexp(255, 120), std::ldexp(1, -126), std::ldexp(1, -133), Overflow::inf});
        check<float>({11, 65504, std::ldexp(1, -14), std::ldexp(1, -24), Overflow::inf});
        check<float>({11, std::ldexp(2047, 117), std::ldexp(1, -126), std::ldexp(1, -136), Overflow::inf});
        check<double>({53, std::ldexp(9007199254740991, 971), std::ldexp(1, -1022), std::ldexp(1, -1074),
                       Overflow::inf});
    }
}
