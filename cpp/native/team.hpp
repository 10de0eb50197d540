// The members that factorize one panel together. Each owns some of its rows. They meet several
// times for every column, so meeting must be quick: a member writes into its own cache line only, and
// reads those of all others.
#pragma once

#include "common/carrier.hpp"
#include "common/parallel.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

constexpr int largest_team = 16;
constexpr std::int64_t owned_rows = 64;  // rows are given to members in blocks of this many
constexpr int pivot_columns = 8;         // columns that are factorized one by one

// What a member tells the others of a column: the largest magnitude in its rows, the row, and this
// row's numbers in all columns that are factorized one by one. `turn` tells that they are written, and
// lies beside them: another core fetches both at once.
template <class T> struct alignas(64) Candidate {
    std::int64_t turn;  // meetings that this member has come to, ever
    typename Carrier<T>::Signed size;
    std::int32_t row;
    T numbers[pivot_columns];
};

// What all read. Of everything that is written for a meeting there are two: while some still read that of
// one meeting, the next one may be written.
template <class T> struct Table {
    Candidate<T> candidates[largest_team][2];
    alignas(64) T top[2][pivot_columns];  // the row with which the pivot row is interchanged
    std::int64_t turn;                    // of the last meeting of the last team
};

struct Rows {
    std::int64_t begin, end;
};

// The part of 0..count that member `index` of `size` gets, in multiples of `grain`. The first member
// never gets nothing.
inline Rows part_of(std::int64_t count, std::int64_t grain, int index, int size) {
    const std::int64_t grains = (count + grain - 1) / grain;
    const auto bound = [=](std::int64_t member) {
        const std::int64_t first = (grains * member + size - 1) / size * grain;
        return first < count ? first : count;
    };
    return {bound(index), bound(index + 1)};
}

// A member's view of its team.
template <class T> struct Member {
    Table<T>* table;
    int index, size;
    std::int64_t turn;

    Rows rows(std::int64_t begin, std::int64_t end) const {
        const Rows part = part_of(end - begin, owned_rows, index, size);
        return {begin + part.begin, begin + part.end};
    }
    Rows share_of(std::int64_t count) const { return part_of(count, 1, index, size); }

    // Returns when all members have called it as often as this one.
    void meet() {
        ++turn;
        if (size == 1) return;
        __atomic_store_n(&table->candidates[index][turn % 2].turn, turn, __ATOMIC_RELEASE);
        for (int other = 0; other < size; ++other) wait_until(of(other).turn, turn);
    }

    // Where to write before the next meeting, and what to read after it.
    Candidate<T>& mine() const { return table->candidates[index][(turn + 1) % 2]; }
    T* next_top() const { return table->top[(turn + 1) % 2]; }
    const Candidate<T>& of(int other) const { return table->candidates[other][turn % 2]; }
    const T* top() const { return table->top[turn % 2]; }
};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
