// Compiled once per instruction set (see CMakeLists.txt), each time into its own namespace.
#include "emulated/dense.hpp"
#include "emulated/round_array.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// A constant, so that no code of this level runs when the module is loaded: the processor may not
// have the instructions.
template <class T>
constexpr Kernels<T> table = {
    round_array<T>, lu<T>,    cholesky<T>, solve_triangular<T>, matvec<T>, dot<T>,
    axpy<T>,        scale<T>, norm2<T>,    orthogonalize<T>,    givens<T>,
};

extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
constexpr Kernels<float> float_kernels = table<float>;
constexpr Kernels<double> double_kernels = table<double>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
