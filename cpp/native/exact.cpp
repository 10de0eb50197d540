// Compiled once per instruction set, without fusing multiply-adds (see CMakeLists.txt).
#include "native/rows_residual.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

extern const ExactKernels exact_kernels;
constexpr ExactKernels exact_kernels = {exact_residual<double>, exact_residual<float>, short_residual_in_single,
                                        exact_sparse_residual<std::int32_t>,
                                        exact_sparse_residual<std::int64_t>,
                                        exact_residual_by_columns, {residual_of_rows<1>, residual_of_rows<2>},
                                        largest_row_sum, keeps_rounding_errors};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
