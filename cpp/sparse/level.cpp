// Compiled once per instruction set (see CMakeLists.txt), each time into its own namespace.
#include "sparse/factorize.hpp"
#include "sparse/solve.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <class T>
constexpr sparse::SparseKernels<T> sparse_table = {sparse_workspace<T>, sparse_solve_workspace<T>,
                                                   sparse_factorize<T>, sparse_solve<T>};

extern const sparse::SparseKernels<float> float_kernels;
extern const sparse::SparseKernels<double> double_kernels;
constexpr sparse::SparseKernels<float> float_kernels = sparse_table<float>;
constexpr sparse::SparseKernels<double> double_kernels = sparse_table<double>;

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
