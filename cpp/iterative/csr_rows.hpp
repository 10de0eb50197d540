// by_rows of csr.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "iterative/csr.hpp"

namespace roundwise::iterative {

template <class Row> Csr by_rows(Index rows, Index columns, int threads, const Row& row) {
    const std::int64_t tasks = (rows + rows_of_task - 1) / rows_of_task;
    struct Part {
        Buffer<Index> indices;
        Buffer<double> values;
    };
    std::vector<Part> parts(tasks);
    std::vector<std::unique_ptr<Accumulator>> members(std::max<std::int64_t>(1, std::min<std::int64_t>(tasks, threads)));
    Csr C{rows, columns, Buffer<Index>(std::int64_t{rows} + 1), {}, {}};
    for_rows(rows, threads, [&](Index begin, Index end, int number) {
        std::unique_ptr<Accumulator>& own = members[number];
        if (!own) own = std::make_unique<Accumulator>(columns);
        Accumulator& sums = *own;
        sums.begin_task();
        for (Index i = begin; i < end; ++i) {
            sums.begin_row();
            row(i, sums);
            C.starts[i + 1] = sums.end_row();
        }
        Part& part = parts[begin / rows_of_task];
        part.indices = Buffer<Index>(sums.count());
        part.values = Buffer<double>(sums.count());
        sums.give(part.indices.data(), part.values.data());
    });
    std::int64_t total = 0;
    C.starts[0] = 0;
    for (Index i = 0; i < rows; ++i) {
        total += C.starts[i + 1];
        if (total > std::numeric_limits<Index>::max())
            throw std::length_error("a product has 2^31 entries or more; use a smaller matrix");
        C.starts[i + 1] = static_cast<Index>(total);
    }
    C.indices = Buffer<Index>(total);
    C.values = Buffer<double>(total);
    for_tasks(tasks, threads, [&](std::int64_t task, int) {
        Part& part = parts[task];
        const Index at = C.starts[task * rows_of_task];
        std::copy_n(part.indices.data(), part.indices.size(), C.indices.data() + at);
        std::copy_n(part.values.data(), part.values.size(), C.values.data() + at);
        part = Part{};
    });
    return C;
}

}  // namespace roundwise::iterative
