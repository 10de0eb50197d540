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
    struct Member {
        std::vector<Index> indices;
        std::vector<double> values;
        std::unique_ptr<Accumulator> sums;
    };
    std::vector<Part> parts(tasks);
    std::vector<Member> members(threads);
    Csr C{rows, columns, Buffer<Index>(std::int64_t{rows} + 1), {}, {}};
    for_rows(rows, threads, [&](Index begin, Index end, int number) {
        Member& own = members[number];
        if (!own.sums) own.sums = std::make_unique<Accumulator>(columns, own.indices, own.values);
        own.sums->begin_task();
        for (Index i = begin; i < end; ++i) {
            const std::size_t before = own.indices.size();
            own.sums->begin_row();
            row(i, *own.sums);
            C.starts[i + 1] = static_cast<Index>(own.indices.size() - before);
        }
        Part& part = parts[begin / rows_of_task];
        const auto count = static_cast<std::int64_t>(own.indices.size());
        part.indices = Buffer<Index>(count);
        part.values = Buffer<double>(count);
        std::copy(own.indices.begin(), own.indices.end(), part.indices.data());
        std::copy(own.values.begin(), own.values.end(), part.values.data());
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
