// Sparse matrices in compressed rows while a preconditioner is made of them, and what is computed with them there:
// products, transposes, all by rows. Each row is one thread's, so that results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "common/parallel.hpp"

namespace roundwise::iterative {

using Index = std::int32_t;

// An array whose numbers nobody sets before they are computed.
template <class T> class Buffer {
    std::unique_ptr<T[]> data_;
    std::int64_t size_ = 0;

  public:
    Buffer() = default;
    explicit Buffer(std::int64_t size) : data_(new T[size]), size_(size) {}
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::int64_t size() const { return size_; }
    T& operator[](std::int64_t i) { return data_[i]; }
    const T& operator[](std::int64_t i) const { return data_[i]; }
};

struct CsrView {
    Index rows, columns;
    const Index *starts, *indices;
    const double* values;
    std::int64_t entries() const { return starts[rows]; }
};

struct Csr {
    Index rows = 0, columns = 0;
    Buffer<Index> starts, indices;
    Buffer<double> values;
    CsrView view() const { return {rows, columns, starts.data(), indices.data(), values.data()}; }
    std::int64_t entries() const { return rows ? starts[rows] : 0; }
};

// Calls body(task, member) for each task, on up to `threads` threads; `member` is below `threads`, and no two tasks
// run with the same one at the same time. What a task throws is thrown here.
template <class Body> void for_tasks(std::int64_t tasks, int threads, const Body& body) {
    struct Context {
        const Body& body;
        std::int64_t tasks;
        std::atomic<std::int64_t> next{0};
        std::atomic<bool> failed{false};
        std::exception_ptr failure{};
    } context{body, tasks};
    run_members(
        tasks < threads ? static_cast<int>(tasks < 1 ? 1 : tasks) : threads,
        [](void* given, int member) {
            Context& shared = *static_cast<Context*>(given);
            for (;;) {
                const std::int64_t task = shared.next.fetch_add(1);
                if (task >= shared.tasks) return;
                try {
                    shared.body(task, member);
                } catch (...) {
                    if (!shared.failed.exchange(true)) shared.failure = std::current_exception();
                    shared.next.store(shared.tasks);
                }
                task_done();
            }
        },
        &context);
    if (context.failure) std::rethrow_exception(context.failure);
}

constexpr std::int64_t rows_of_task = 4096;

// The same for ranges of rows: body(begin, end, member).
template <class Body> void for_rows(std::int64_t rows, int threads, const Body& body) {
    const std::int64_t tasks = (rows + rows_of_task - 1) / rows_of_task;
    for_tasks(tasks, threads, [&](std::int64_t task, int member) {
        const std::int64_t begin = task * rows_of_task, end = begin + rows_of_task;
        body(static_cast<Index>(begin), static_cast<Index>(end < rows ? end : rows), member);
    });
}

// Calls body(begin, end) on ranges of rows; one thread where there are few.
constexpr int rows_of_pass = 8192;

template <class Body> void pass(Index rows, int threads, const Body& body) {
    if (threads == 1 || rows <= 2 * rows_of_pass) return body(0, rows);
    for_tasks((std::int64_t{rows} + rows_of_pass - 1) / rows_of_pass, threads, [&](std::int64_t task, int) {
        const Index begin = static_cast<Index>(task) * rows_of_pass;
        body(begin, rows - begin < rows_of_pass ? rows : begin + rows_of_pass);
    });
}

// The rows of a matrix that are made one after the other: row(i, accumulator) takes each of row i's terms. Terms of one
// column are added up in the order in which they come.
class Accumulator {
    struct Term {
        Index column;
        double value;
    };
    Buffer<Index> place_;  // of each column among the terms, if that is at least first_
    Buffer<Term> terms_;
    Index first_ = 0, count_ = 0, columns_;

  public:
    explicit Accumulator(Index columns) : place_(columns), terms_(std::int64_t{columns} + rows_of_task), columns_(columns) {}
    void begin_task() {
        count_ = 0;
        std::fill_n(place_.data(), columns_, -1);
    }
    void begin_row() {
        first_ = count_;
        if (count_ + columns_ <= terms_.size()) return;
        Buffer<Term> larger(2 * terms_.size());
        std::copy_n(terms_.data(), count_, larger.data());
        terms_ = std::move(larger);
    }
    Index end_row() const { return count_ - first_; }
    void take(Index column, double value) {
        const Index place = place_[column];
        if (place >= first_) {
            terms_[place].value += value;
            return;
        }
        place_[column] = count_;
        terms_[count_++] = {column, value};
    }
    Index count() const { return count_; }
    void give(Index* columns, double* values) const {
        for (Index k = 0; k < count_; ++k) {
            columns[k] = terms_[k].column;
            values[k] = terms_[k].value;
        }
    }
};

// The matrix whose row i has the terms that row(i, accumulator) takes; throws std::length_error if it has 2^31 entries.
template <class Row> Csr by_rows(Index rows, Index columns, int threads, const Row& row);

Csr product(const CsrView& A, const CsrView& B, int threads);
Csr transposed(const CsrView& A);

// y = A x.
void multiply(const CsrView& A, const double* x, double* y, int threads);

// The sum of x_i y_i, in blocks that do not depend on the threads.
double inner(const double* x, const double* y, Index n, int threads);

// diagonal[i] = a_ii, 0 where none is stored.
void diagonal_of(const CsrView& A, double* diagonal, int threads);

// The largest sum of |a_ij / d_i| of a row; infinite where a d_i is 0.
double row_bound(const CsrView& A, const double* d, int threads);

}  // namespace roundwise::iterative

#include "iterative/csr_rows.hpp"
