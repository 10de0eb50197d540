// Compiled once per instruction set, without fusing multiply-adds (see CMakeLists.txt).
#include "native/band.hpp"
#include "native/side_by_side.hpp"
#include "native/zeros.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

template <int parts>
constexpr BandKernels<parts> band = {band_factorize<parts>, band_substitute<parts>, band_residual<parts>,
                                     band_residual_of_one<parts>, band_largest_row_sum};
extern const BandKernels<1> real_band;
extern const BandKernels<2> complex_band;
extern const TriangleKernels triangle;
extern const ZeroKernels zeros;
extern const TinyKernels tiny;
constexpr BandKernels<1> real_band = band<1>;
constexpr BandKernels<2> complex_band = band<2>;
constexpr TriangleKernels triangle = {2 * strip_lanes,          triangle_strip_workspace,
                                      solve_triangle_strips,    triangle_single_workspace,
                                      solve_triangle_of_one};
constexpr ZeroKernels zeros = {structure_of_matrix, triangular_orders};
constexpr TinyKernels tiny = {Lanes<double>::count,
                              {solve_side_by_side<1, tiny_order>, solve_side_by_side<2, tiny_order>}};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
