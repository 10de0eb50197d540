// Compiled once per instruction set (see CMakeLists.txt), each time into its own namespace.
#include "native/array.hpp"
#include "native/cholesky.hpp"
#include "native/complex_lu.hpp"
#include "native/complex_solve.hpp"
#include "native/look.hpp"
#include "native/scaling.hpp"
#include "native/vectors.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class S> struct Stored {
    using type = S;
};

// Calls body with the stored type, which is not wider than T.
template <class T, class Body> inline void with_storage(Storage storage, const Body& body) {
    if (storage == Storage::bf16) body(Stored<Bf16>{});
    else if (storage == Storage::fp16) body(Stored<Fp16>{});
    else if (storage == Storage::fp32) body(Stored<float>{});
    else if constexpr (sizeof(T) == 8) body(Stored<double>{});
}

template <class T>
void matvec(Storage storage, std::int64_t rows, std::int64_t columns, const void* a, bool transpose,
            const T* x, T* y, int threads) {
    with_storage<T>(storage, [=](auto stored) {
        using S = typename decltype(stored)::type;
        matvec_stored(rows, columns, static_cast<const S*>(a), transpose, x, y, threads);
    });
}

template <class T>
void solve(Storage storage, Factors factors, std::int64_t n, const void* a, bool transpose,
           std::int64_t columns, T* b, int threads, void* workspace) {
    with_storage<T>(storage, [=](auto stored) {
        using S = typename decltype(stored)::type;
        solve_stored(factors, n, static_cast<const S*>(a), transpose, columns, b, threads, workspace);
    });
}

template <class T>
void complex_solve(Storage storage, std::int64_t n, const void* a, bool transpose, std::int64_t columns, T* b,
                   int threads, void* workspace) {
    const auto solve = [=](auto stored) {
        using S = typename decltype(stored)::type;
        complex_solve_stored(n, static_cast<const S*>(a), transpose, columns, b, threads, workspace);
    };
    if (storage == Storage::fp32) solve(Stored<float>{});
    else solve(Stored<T>{});
}

template <class T> void narrow(Storage storage, std::int64_t n, const T* x, void* y, int threads) {
    with_storage<T>(storage, [=](auto stored) {
        narrow_array(n, x, static_cast<typename decltype(stored)::type*>(y), threads);
    });
}

template <class T> void widen(Storage storage, std::int64_t n, const void* x, T* y, int threads) {
    with_storage<T>(storage, [=](auto stored) {
        widen_array(n, static_cast<const typename decltype(stored)::type*>(x), y, threads);
    });
}

// A constant, so that no code of this level runs when the module is loaded: the processor may not
// have the instructions.
template <class T>
constexpr NativeKernels<T> native_table = {{lu_workspace<PlainTile<T>>, lu<PlainTile<T>>,
                                            cholesky_workspace<PlainTile<T>>, cholesky<PlainTile<T>>},
                                           matvec<T>,
                                           solve<T>,
                                           solve_workspace<T, 1>,
                                           complex_lu_workspace<T>,
                                           complex_lu<T>,
                                           complex_solve<T>,
                                           solve_workspace<T, 2>,
                                           narrow<T>,
                                           widen<T>,
                                           norms<T>,
                                           column_norms<T>,
                                           copy_array<T>,
                                           symmetric<T>,
                                           axpy<T>,
                                           orthogonalize<T>};

extern const NativeKernels<float> float_kernels;
extern const NativeKernels<double> double_kernels;
constexpr NativeKernels<float> float_kernels = native_table<float>;
constexpr NativeKernels<double> double_kernels = native_table<double>;

extern const LookKernels look_kernels;
constexpr LookKernels look_kernels = {look_workspace, look, gram};

extern const ScalingKernels scaling_kernels;
constexpr ScalingKernels scaling_kernels = {scaling_workspace, largest_exponents, scale, magnitude_sums};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
