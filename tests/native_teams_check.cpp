// LU, Cholesky and substitution of one level by teams of threads; see test_portability.py and sanitize.py.
// Fails if the results of several threads are not the bits of one thread.
//
// On an idle core or two teams rarely form, because nobody waits for late threads. So this program
// has its own versions of the functions of common/parallel.cpp: all threads start, and the leader of
// the first panel waits until its team is complete. Some members are wanted back after some tasks; the
// others must do what is left.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#define ROUNDWISE_TEAM_ROWS 100  // so that small matrices have teams
#include "native/cholesky.hpp"
#include "native/complex_lu.hpp"
#include "native/complex_solve.hpp"

namespace roundwise {

void wait_for(const int& flag) {
    while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
}
void wait_for_count(const std::int64_t& counter, std::int64_t value) {
    while (__atomic_load_n(&counter, __ATOMIC_ACQUIRE) < value) std::this_thread::yield();
}
bool wait_briefly(const std::int64_t& counter, std::int64_t value, int) {
    wait_for_count(counter, value);
    return true;
}
// Every third member stays; the others return after a number of tasks that differs.
thread_local int asked = 0, patience = 0;
void task_done() {}
bool wanted_back() { return patience > 0 && ++asked >= patience; }

void run_members(int threads, MemberBody body, void* context) {
    std::vector<std::thread> others;
    static std::atomic<int> started{0};
    for (int member = 1; member < threads; ++member)
        others.emplace_back([=] {
            const int number = started.fetch_add(1);
            patience = number % 3 == 0 ? 0 : 1 + number % 17;
            asked = 0;
            body(context, member);
        });
    body(context, 0);
    for (std::thread& other : others) other.join();
}

}  // namespace roundwise

using namespace roundwise;
using namespace roundwise::ROUNDWISE_LEVEL;

struct alignas(64) Line {
    char bytes[64];
};

// What a factorization leaves: its code, its interchanges and its numbers.
template <class T> struct Result {
    int code;
    std::vector<std::int32_t> pivots;
    std::vector<T> numbers;
    bool operator==(const Result& other) const {
        return code == other.code &&
               (code != 0 || (pivots == other.pivots &&
                              std::memcmp(numbers.data(), other.numbers.data(),
                                          numbers.size() * sizeof(T)) == 0));
    }
};

template <class Tile, class T = typename Tile::Number>
Result<T> factorize(std::int64_t n, bool cholesky_of, const std::vector<T>& a, int threads) {
    Result<T> result{0, std::vector<std::int32_t>(static_cast<std::size_t>(n)), a};
    const std::int64_t bytes =
        cholesky_of ? cholesky_workspace<Tile>(n, threads) : lu_workspace<Tile>(n, threads);
    std::vector<Line> memory(static_cast<std::size_t>(bytes / 64 + 1));
    result.code = cholesky_of
                      ? cholesky<Tile>(n, result.numbers.data(), false, threads, memory.data())
                      : lu<Tile>(n, result.numbers.data(), result.pivots.data(), threads, memory.data());
    return result;
}

enum class Kind { uniform, ties, infinite, definite };

template <class T> std::vector<T> matrix(std::int64_t n, Kind kind) {
    std::vector<T> a(static_cast<std::size_t>(n * n));
    unsigned long long state = 1;
    for (T& x : a) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        if (kind == Kind::ties) x = static_cast<T>(static_cast<int>((state >> 33) % 3) - 1);
        else x = static_cast<T>(static_cast<double>(state >> 20) / 8796093022208.0 - 1);
    }
    const auto at = [&](std::int64_t i, std::int64_t j) -> T& {
        return a[static_cast<std::size_t>(i + j * n)];
    };
    if (kind == Kind::definite)
        for (std::int64_t i = 0; i < n; ++i) at(i, i) += static_cast<T>(n);
    // The first row stays where it is, and makes column 6 infinite, while it is factorized.
    if (kind == Kind::infinite) {
        at(0, 0) = 2;
        at(0, 6) = static_cast<T>(INFINITY);
    }
    return a;
}

template <class Tile> bool check(const char* name) {
    bool good = true;
    for (std::int64_t n : {7, 449})
        for (Kind kind : {Kind::uniform, Kind::ties, Kind::infinite, Kind::definite}) {
            const auto a = matrix<typename Tile::Number>(n, kind);
            const bool definite = kind == Kind::definite;
            const auto alone = factorize<Tile>(n, definite, a, 1);
            if ((alone.code == -7) != (kind == Kind::infinite)) {
                std::printf("%s n %d: code %d\n", name, static_cast<int>(n), alone.code);
                good = false;
            }
            for (int threads : {2, 4})
                if (!(factorize<Tile>(n, definite, a, threads) == alone)) {
                    std::printf("%s n %d kind %d threads %d: other bits\n", name, static_cast<int>(n),
                                static_cast<int>(kind), threads);
                    good = false;
                }
        }
    return good;
}

// The numbers of a matrix twice as wide serve as pairs. An infinite row 0 stays where it is, too.
bool check_complex() {
    bool good = true;
    for (std::int64_t n : {7, 449})
        for (Kind kind : {Kind::uniform, Kind::ties, Kind::infinite}) {
            std::vector<double> a = matrix<double>(2 * n, kind == Kind::infinite ? Kind::uniform : kind);
            a.resize(static_cast<std::size_t>(2 * n * n));
            if (kind == Kind::infinite) {
                a[0] = 4;
                a[static_cast<std::size_t>(12 * n + 1)] = INFINITY;
            }
            const auto factorized = [&](int threads) {
                Result<float> result{0, std::vector<std::int32_t>(static_cast<std::size_t>(n)),
                                     std::vector<float>(a.size())};
                const std::int64_t bytes = complex_lu_workspace<float>(n, threads);
                std::vector<Line> memory(static_cast<std::size_t>(bytes / 64 + 1));
                result.code = complex_lu<float>(n, a.data(), result.numbers.data(), result.pivots.data(),
                                                threads, memory.data());
                return result;
            };
            const auto alone = factorized(1);
            bool same = (alone.code == -7) == (kind == Kind::infinite);
            for (int threads : {2, 4}) same = factorized(threads) == alone && same;
            if (!same)
                std::printf("complex n %d kind %d: code %d, or other bits\n", static_cast<int>(n),
                            static_cast<int>(kind), alone.code);
            good = good && same;
        }
    return good;
}

// The matrix serves as factors. It has so many rows that threads share it, and the last block is not full; many
// columns are cut into strips, of which the last is not full.
template <class T> bool check_substitution(const char* name, std::int64_t columns) {
    constexpr std::int64_t n = 601;
    std::vector<T> packed = matrix<T>(n, Kind::definite), planes = matrix<T>(2 * n, Kind::definite);
    planes.resize(static_cast<std::size_t>(2 * n * n));
    for (auto* a : {&packed, &planes})
        for (T& x : *a) x /= n;  // so that solutions stay finite
    const auto solved = [&](int kind, bool transpose, int threads) {
        std::vector<T> b(static_cast<std::size_t>(2 * n * columns), T{1});
        const std::int64_t bytes = kind == 2 ? solve_workspace<T, 2>(n, columns, threads)
                                             : solve_workspace<T, 1>(n, columns, threads);
        std::vector<Line> memory(static_cast<std::size_t>(bytes / 64 + 1));
        if (kind == 2) complex_solve_stored<T, T>(n, planes.data(), transpose, columns, b.data(), threads,
                                                  memory.data());
        else solve_stored<T, T>(kind == 1 ? Factors::cholesky : Factors::lu, n, packed.data(), transpose, columns,
                                b.data(), threads, memory.data());
        return b;
    };
    bool good = true;
    for (int kind : {0, 1, 2})
        for (bool transpose : {false, true})
            for (int threads : {2, 4})
                if (const auto x = solved(kind, transpose, threads), alone = solved(kind, transpose, 1);
                    std::memcmp(x.data(), alone.data(), x.size() * sizeof(T)) != 0) {
                    std::printf("substitution in %s, kind %d, columns %d, transposed %d, threads %d: other bits\n", name,
                                kind, static_cast<int>(columns), transpose, threads);
                    good = false;
                }
    return good;
}

int main() {
    bool good = check<Bf16Tile>("bf16");
    good = check_complex() && good;
    good = check<PlainTile<float>>("fp32") && good;
    good = check<PlainTile<double>>("fp64") && good;
    for (std::int64_t columns : {7, 77}) {
        good = check_substitution<float>("fp32", columns) && good;
        good = check_substitution<double>("fp64", columns) && good;
    }
    return good ? 0 : 1;
}
