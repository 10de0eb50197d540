// Matrices as products.hpp multiplies with them.
#pragma once

#include <algorithm>
#include <cmath>

#include "iterative/kernels.hpp"

namespace roundwise::iterative {

constexpr double most_padding = 1.5;  // a taste: zeros are read, too; rows of very different lengths stay as they are

template <class E> struct Slices {
    Index rows = 0, lanes = 1;
    Buffer<std::int64_t> starts;
    Buffer<Index> indices;
    Buffer<E> values;

    SlicesView<E> view() const { return {rows, lanes, starts.data(), indices.data(), values.data()}; }
    std::int64_t bytes() const {
        return starts.size() * 8 + indices.size() * (4 + static_cast<std::int64_t>(sizeof(E)));
    }

    // The entries of A, those on the diagonal left out if `hollow`. `changes`, if given, receives for each row the sum
    // of what rounding has taken from its entries, each times weights[column] / weights[row]. `compressed` rows have no
    // slices.
    Slices(const CsrView& A, bool hollow, const double* weights, double* changes, int threads, bool compressed = false)
        : rows(A.rows) {
        const auto kept = [&](Index i, Index e) { return !hollow || A.indices[e] != i; };
        const auto length = [&](Index i) {
            Index count = 0;
            for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) count += kept(i, e);
            return count;
        };
        const std::int64_t slices = (std::int64_t{rows} + lanes_of_slice - 1) / lanes_of_slice;
        Buffer<std::int64_t> wide(slices + 1);
        Buffer<Index> lengths(rows);
        for_rows(rows, threads, [&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) lengths[i] = length(i);
        });
        std::int64_t total = 0, padded = 0;
        for (std::int64_t s = 0; s < slices; ++s) {
            wide[s] = padded;
            Index most = 0;
            for (std::int64_t i = s * lanes_of_slice; i < std::min<std::int64_t>(rows, (s + 1) * lanes_of_slice); ++i) {
                most = std::max(most, lengths[i]);
                total += lengths[i];
            }
            padded += std::int64_t{most} * lanes_of_slice;
        }
        wide[slices] = padded;
        if (!compressed && static_cast<double>(padded) <= most_padding * static_cast<double>(total) + 64) {
            lanes = lanes_of_slice;
            starts = std::move(wide);
        } else {
            starts = Buffer<std::int64_t>(std::int64_t{rows} + 1);
            starts[0] = 0;
            for (Index i = 0; i < rows; ++i) starts[i + 1] = starts[i] + lengths[i];
        }
        const std::int64_t count = starts[lanes == 1 ? rows : slices];
        indices = Buffer<Index>(count);
        values = Buffer<E>(count);
        const auto& kernels = product_kernels<E>();
        // rows_of_task is a multiple of lanes_of_slice: a task has whole slices.
        for_rows(rows, threads, [&](Index begin, Index end, int) {
            const std::int64_t first = starts[begin / lanes];
            const std::int64_t size = starts[(end + lanes - 1) / lanes] - first;
            Buffer<double> exact(size), back(changes ? size : 0);
            std::fill_n(exact.data(), size, 0.0);
            std::fill_n(indices.data() + first, size, 0);
            for (Index i = begin; i < end; ++i) {
                std::int64_t at = starts[i / lanes] + i % lanes;
                const std::int64_t last = starts[i / lanes + 1];
                for (Index e = A.starts[i]; e < A.starts[i + 1]; ++e) {
                    if (!kept(i, e)) continue;
                    exact[at - first] = A.values[e];
                    indices[at] = A.indices[e];
                    at += lanes;
                }
                for (; at < last; at += lanes) indices[at] = hollow ? i : 0;
            }
            kernels.round(exact.data(), size, values.data() + first);
            if (!changes) return;
            kernels.widen(values.data() + first, size, back.data());
            for (Index i = begin; i < end; ++i) {
                double sum = 0;
                for (std::int64_t at = starts[i / lanes] + i % lanes; at < starts[i / lanes + 1]; at += lanes)
                    sum += (exact[at - first] - back[at - first]) * weights[indices[at]];
                changes[i] = weights[i] != 0 ? sum / weights[i] : 0;
            }
        });
    }
    Slices() = default;
};

}  // namespace roundwise::iterative
