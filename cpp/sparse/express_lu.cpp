#include "sparse/express_lu.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

namespace roundwise::sparse {

namespace {

// Not above the inverse of the square root of 2.
constexpr double over_root_2 = 0.7071067811865475;

// Scratch memory, aligned to a cache line.
class Doubles {
    struct Free {
        void operator()(double* p) const { ::operator delete(p, std::align_val_t{64}); }
    };
    std::unique_ptr<double, Free> memory_;

  public:
    explicit Doubles(std::int64_t count)
        : memory_(static_cast<double*>(
              ::operator new(static_cast<std::size_t>(count) * sizeof(double), std::align_val_t{64}))) {}
    double* get() const { return memory_.get(); }
};

template <class S> double number_at(const char* p) {
    S value;  // it may not be aligned
    std::memcpy(&value, p, sizeof value);
    return static_cast<double>(value);
}

// Columns `first` to `first + count - 1` of b as part p of lane c, or as lane 2 c + p of real systems.
template <class S>
void read_block(const GivenColumns& b, std::int64_t n, std::int64_t first, std::int64_t count, std::int64_t lanes,
                int parts, double sign, double* block) {
    const int b_parts = b.is_complex ? 2 : 1;
    const std::int64_t lane_step = parts == 1 ? b_parts : 1, part_step = parts == 1 ? 1 : lanes;
    if (count * lane_step < lanes || b_parts < parts) std::fill_n(block, n * parts * lanes, 0.0);
    for (std::int64_t i = 0; i < n; ++i, block += parts * lanes) {
        const char* row = b.data + i * b.row_step + first * b.column_step;
        for (std::int64_t c = 0; c < count; ++c, row += b.column_step) {
            block[c * lane_step] = number_at<S>(row);
            if (b_parts == 2) block[c * lane_step + part_step] = sign * number_at<S>(row + sizeof(S));
        }
    }
}

// The way back: x has `columns` numbers of `x_parts` parts in a row.
template <class S>
void write_block(const double* block, std::int64_t n, std::int64_t columns, std::int64_t first, std::int64_t count,
                 std::int64_t lanes, int parts, int x_parts, double sign, S* x) {
    const std::int64_t lane_step = parts == 1 ? x_parts : 1, part_step = parts == 1 ? 1 : lanes;
    for (std::int64_t i = 0; i < n; ++i, block += parts * lanes) {
        S* row = x + (i * columns + first) * x_parts;
        for (std::int64_t c = 0; c < count; ++c) {
            row[c * x_parts] = static_cast<S>(block[c * lane_step]);
            if (x_parts == 2) row[c * x_parts + 1] = static_cast<S>(sign * block[c * lane_step + part_step]);
        }
    }
}

}  // namespace

template <class T> void ExpressLU<T>::factorize(bool low) {
    lu_.factorize(low);
    if (is_factorized()) plain_ = side_of(false);
}

template <class T>
ExpressLU<T>::ExpressLU(const ExpressLU& before, Rows<T> rows, bool low) : lu_(before.lu_, std::move(rows), low) {
    if (is_factorized()) plain_ = side_of(false);
}

template <class T> const ExpressKernel<ExpressLU<T>::parts>& ExpressLU<T>::kernel_for(bool one) const {
    const auto& kernels = express_sparse_kernels<parts>();
    if (lu_.is_low()) return one ? kernels.low_one : kernels.low_several;
    return one ? kernels.one : kernels.several;
}

template <class T> std::unique_ptr<typename ExpressLU<T>::Side> ExpressLU<T>::side_of(bool transposed) const {
    auto side = std::make_unique<Side>();
    side->rows = &lu_.rows();
    if (transposed) {
        side->transpose = sparse::transposed(lu_.rows());
        side->rows = &side->transpose;
    }
    const Rows<T>& rows = *side->rows;
    const std::int64_t n = rows.n;
    side->sums.assign(static_cast<std::size_t>(n), 0.0);
    double norm = 0, least = n > 0 ? HUGE_VAL : 0;
    for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int32_t e = rows.starts[i]; e < rows.starts[i + 1]; ++e) sum += size_of(rows.values[e]);
        side->sums[i] = sum;
        norm = sum > norm ? sum : norm;  // NaN is in the residual, too
        least = sum < least ? sum : least;
    }
    const auto& structure = lu_.structure();
    const auto numbers = [&](const auto& low, const auto& values) {
        return lu_.is_low() ? static_cast<const void*>(low.data()) : static_cast<const void*>(values.data());
    };
    const auto &values = lu_.values(), &low_values = lu_.low_values();
    ExpressSystem& s = side->system;
    s = {rows.n, transposed, structure.row_at.data(), structure.column_at.data(), structure.block_start.data(),
         static_cast<std::int64_t>(structure.block_start.size()) - 1, structure.lower.start.data(),
         structure.upper.start.data(), structure.lower.rows.data(), structure.upper.rows.data(),
         numbers(low_values.lower, values.lower), numbers(low_values.upper, values.upper),
         numbers(low_values.inverse_diagonal, values.inverse_diagonal), lu_.is_low(), lu_.scale().data(),
         rows.starts.data(), rows.places.data(), reinterpret_cast<const double*>(rows.values.data()),
         side->sums.data(), parts == 1 ? norm : norm * over_root_2, least, 0.0};
    const Doubles work(3 * parts * n);
    double *image = work.get(), *y = image + parts * n;
    for (std::int64_t i = 0; i < n; ++i)
        for (int p = 0; p < parts; ++p)
            image[parts * i + p] = side->sums[i] * random_number(static_cast<std::uint64_t>(parts * i + p));
    kernel_for(true).substitute(s, image, y, y + parts * n);
    for (std::int64_t i = 0; i < n; ++i) {
        const double size = size_of(reinterpret_cast<const T*>(y)[i]);
        if (size > s.stretch || size != size) s.stretch = size;
    }
    return side;
}

template <class T> const typename ExpressLU<T>::Side& ExpressLU<T>::turned() const {
    if (Side* found = turned_.load(std::memory_order_acquire)) return *found;
    std::unique_ptr<Side> made = side_of(true);
    Side* before = nullptr;
    if (turned_.compare_exchange_strong(before, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *before;  // another thread was faster
}

template <class T> void ExpressLU<T>::substitute(const T* b, T* x) const {
    const Doubles work(parts * static_cast<std::int64_t>(lu_.n()));
    kernel_for(true).substitute(plain_->system, reinterpret_cast<const double*>(b), reinterpret_cast<double*>(x),
                                work.get());
}

template <class T>
SparseStatus ExpressLU<T>::solve(const GivenColumns& b, bool transposed, bool conjugated, const SparseGate& gate,
                                 void* x, SparseFound& found) const {
    const Side& side = transposed ? turned() : *plain_;
    const std::int64_t n = lu_.n(), b_lanes = parts == 1 && b.is_complex ? 2 : 1;
    const ExpressKernel<parts>& kernel = kernel_for(b.columns * b_lanes == 1);
    const std::int64_t lanes = kernel.lanes, size = parts * n * lanes, step = lanes / b_lanes;
    const Doubles memory(6 * size);
    double *block = memory.get(), *answer = block + size, *work = answer + size;
    const int x_parts = parts == 2 || b.is_complex ? 2 : 1;
    const double sign = conjugated ? -1 : 1;
    SparseStatus status = SparseStatus::accepted;
    for (std::int64_t first = 0; first < b.columns && status == SparseStatus::accepted; first += step) {
        const std::int64_t count = std::min(step, b.columns - first);
        (b.is_single ? read_block<float> : read_block<double>)(b, n, first, count, lanes, parts, sign, block);
        status = kernel.solve(side.system, gate, count * b_lanes, block, answer, work, found);
        if (gate.is_single)
            write_block(answer, n, b.columns, first, count, lanes, parts, x_parts, sign, static_cast<float*>(x));
        else
            write_block(answer, n, b.columns, first, count, lanes, parts, x_parts, sign, static_cast<double*>(x));
    }
    return status;
}

template class ExpressLU<double>;
template class ExpressLU<Complex>;

}  // namespace roundwise::sparse
