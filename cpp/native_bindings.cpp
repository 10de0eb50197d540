// The native kernels of roundwise._kernels; native.hpp states what each computes. `threads` comes
// last. Shapes are checked here, as a wrong one would be read past its end.
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "bindings.hpp"
#include "native_dispatch.hpp"

namespace roundwise {

namespace {

void require(bool holds, const char* otherwise) {
    if (!holds) throw std::invalid_argument(otherwise);
}

// Zeroed memory, aligned to a cache line.
class Workspace {
    struct Free {
        void operator()(void* p) const { ::operator delete(p, std::align_val_t{64}); }
    };
    std::unique_ptr<void, Free> memory_;

  public:
    explicit Workspace(std::int64_t bytes)
        : memory_(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{64})) {
        std::memset(memory_.get(), 0, static_cast<std::size_t>(bytes));
    }
    void* get() const { return memory_.get(); }
};

void bind_bf16(nb::module_& m) {
    m.def("native_bf16_levels", &bf16_levels);
    define(m, "native_bf16_lu", [](MatrixOut<float> a, VectorOut<std::int32_t> pivots,
                                   const std::string& level, int threads) {
        const std::int64_t n = length(a.shape(0));
        require(n == length(a.shape(1)), "A is not square; pass an n x n matrix");
        require(n == length(pivots.shape(0)), "pivots and A differ in length; pass n pivots");
        const Bf16Kernels& kernels = bf16_kernels(level);
        nb::gil_scoped_release release;
        const Workspace workspace(kernels.lu_workspace(n, threads));
        return kernels.lu(n, a.data(), pivots.data(), threads, workspace.get());
    });
    define(m, "native_bf16_gemm", [](MatrixOut<float> c, MatrixIn<float> a, MatrixIn<float> b,
                                     const std::string& level, int threads) {
        const std::int64_t rows = length(c.shape(0)), columns = length(c.shape(1));
        const std::int64_t k = length(a.shape(1));
        require(rows == length(a.shape(0)) && columns == length(b.shape(1)) && k == length(b.shape(0)),
                "the shapes of C, A and B do not match; pass m x n, m x k and k x n");
        require(k % 32 == 0, "A has a number of columns that is no multiple of 32; add zero columns");
        const Bf16Kernels& kernels = bf16_kernels(level);
        nb::gil_scoped_release release;
        const Workspace workspace(kernels.gemm_workspace(rows, threads));
        kernels.gemm(rows, columns, k, a.data(), b.data(), c.data(), threads, workspace.get());
    });
}

}  // namespace

void bind_native(nb::module_& m) { bind_bf16(m); }

}  // namespace roundwise
