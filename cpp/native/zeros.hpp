// Where a matrix has nothing but zeros: its bandwidths, and orders of rows and columns that make it a triangle.
//
// Of a matrix without structure few entries are read; of a band or a triangle those that have to be zero, once.
#pragma once

#include "native/structured.hpp"

namespace roundwise {
namespace ROUNDWISE_LEVEL {

// The numbers of one row, from `step` to `step` bytes; each has `parts` reals of type Bits.
template <class Bits> struct ZeroRow {
    const char* data;
    std::int64_t step;
    int parts;

    bool is_zero(std::int64_t j) const {
        Bits all = 0;
        for (int part = 0; part < parts; ++part) {
            Bits bits;
            __builtin_memcpy(&bits, data + j * step + part * static_cast<std::int64_t>(sizeof bits), sizeof bits);
            all |= static_cast<Bits>(bits << 1);  // without the sign
        }
        return all == 0;
    }

    // Whether `count` numbers from j on, side by side, are zero.
    bool are_zero(std::int64_t j, std::int64_t count) const {
        Bits all = 0;
        const char* from = data + j * step;
        for (std::int64_t k = 0; k < count * parts; ++k) {
            Bits bits;
            __builtin_memcpy(&bits, from + k * static_cast<std::int64_t>(sizeof bits), sizeof bits);
            all |= bits;
        }
        return static_cast<Bits>(all << 1) == 0;
    }

    bool is_contiguous() const { return step == parts * static_cast<std::int64_t>(sizeof(Bits)); }

    // The first nonzero number of `begin` to `end` - 1; `end` if there is none.
    std::int64_t first(std::int64_t begin, std::int64_t end) const {
        if (is_contiguous())
            while (end - begin >= chunk && are_zero(begin, chunk)) begin += chunk;
        while (begin < end && is_zero(begin)) ++begin;
        return begin;
    }
    // The last one; `begin` - 1 if there is none.
    std::int64_t last(std::int64_t begin, std::int64_t end) const {
        if (is_contiguous())
            while (end - begin >= chunk && are_zero(end - chunk, chunk)) end -= chunk;
        while (end > begin && is_zero(end - 1)) --end;
        return end - 1;
    }

    static constexpr std::int64_t chunk = 64;  // numbers that are read before one is asked for
};

template <class Bits> ZeroRow<Bits> zero_row(const StridedMatrix& a, std::int64_t i) {
    return {a.data + i * a.row_step, a.column_step, a.is_complex ? 2 : 1};
}

// Of a matrix whose rows are those of a; `turned`: whose columns are.
template <class Bits> Structure find_structure(std::int64_t n, const StridedMatrix& a, bool turned) {
    std::int64_t below = 0, above = 0;
    for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t i = k == 1 ? n - 1 : k > 1 ? k - 1 : 0;  // first and last row tell most
        const ZeroRow<Bits> row = zero_row<Bits>(a, i);
        if (i > below) {
            const std::int64_t j = row.first(0, i - below);
            below = i - j;
        }
        if (i + above + 1 < n) {
            const std::int64_t j = row.last(i + above + 1, n);
            above = j - i;
        }
        if (below > 0 && above > 0 && !is_cheap_band(n, turned ? above : below, turned ? below : above))
            return {StructureKind::none, 0, 0};
    }
    return turned ? structure_of(n, above, below) : structure_of(n, below, above);
}

// Half of a triangle is zero. A matrix counts as one that may be permuted if at least a quarter of a grid of
// 16 x 16 samples are, and if it has at least 64 rows. (Tastes: LU of smaller ones takes no longer than to put rows in
// order.)
template <class Bits> bool may_be_permuted(std::int64_t n, const StridedMatrix& a) {
    constexpr std::int64_t samples = 16;
    const std::int64_t step = n / samples;
    if (step < 4) return false;
    std::int64_t zeros = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
        const ZeroRow<Bits> row = zero_row<Bits>(a, i * step);
        for (std::int64_t j = 0; j < samples; ++j) zeros += row.is_zero(j * step);
    }
    return 4 * zeros >= samples * samples;
}

inline Structure structure_of_matrix(std::int64_t n, const StridedMatrix& a) {
    const bool turned = a.rows_are_apart();
    const StridedMatrix rows = turned ? a.transpose() : a;  // whose rows are contiguous, if one's are
    Structure found = a.is_single ? find_structure<std::uint32_t>(n, rows, turned)
                                  : find_structure<std::uint64_t>(n, rows, turned);
    const bool permuted = found.kind == StructureKind::none &&
                          (a.is_single ? may_be_permuted<std::uint32_t>(n, a) : may_be_permuted<std::uint64_t>(n, a));
    if (permuted) found.kind = StructureKind::perhaps_permuted;
    return found;
}

// Orders of rows and columns that make A lower triangular, if counting entries finds them: where all entries of
// the triangle are nonzero, as they are in most, their numbers tell. `workspace` has 4 n numbers.
template <class Bits>
bool find_orders(std::int64_t n, const StridedMatrix& a, std::int32_t* rows, std::int32_t* columns,
                 std::int32_t* workspace) {
    std::int32_t *of_row = workspace, *of_column = of_row + n, *starts = of_column + n;  // 2 n: starts, places
    __builtin_memset(workspace, 0, static_cast<std::size_t>(4 * n) * sizeof *workspace);
    for (std::int64_t i = 0; i < n; ++i) {
        const ZeroRow<Bits> row = zero_row<Bits>(a, i);
        std::int32_t count = 0;
        for (std::int64_t j = 0; j < n; ++j) {
            const std::int32_t here = row.is_zero(j) ? 0 : 1;
            count += here, of_column[j] += here;
        }
        if (count == 0) return false;
        of_row[i] = count;
    }
    // Rows by rising counts, columns by falling ones.
    const auto order = [&](const std::int32_t* counts, bool falls, std::int32_t* sorted) {
        __builtin_memset(starts, 0, static_cast<std::size_t>(n + 1) * sizeof *starts);
        const auto key = [&](std::int64_t i) { return falls ? n - counts[i] : counts[i] - 1; };
        for (std::int64_t i = 0; i < n; ++i) {
            if (counts[i] == 0) return false;
            ++starts[key(i) + 1];
        }
        for (std::int64_t i = 0; i < n; ++i) starts[i + 1] += starts[i];
        for (std::int64_t i = 0; i < n; ++i) sorted[starts[key(i)]++] = static_cast<std::int32_t>(i);
        return true;
    };
    if (!order(of_row, false, rows)) return false;
    for (std::int64_t i = 0; i < n; ++i)
        if (of_row[rows[i]] > i + 1) return false;
    if (!order(of_column, true, columns)) return false;
    std::int32_t* places = starts;
    for (std::int64_t j = 0; j < n; ++j) places[columns[j]] = static_cast<std::int32_t>(j);
    for (std::int64_t i = 0; i < n; ++i) {
        const ZeroRow<Bits> row = zero_row<Bits>(a, rows[i]);
        bool inside = true;
        for (std::int64_t j = 0; j < n; ++j) inside = inside && (places[j] <= i || row.is_zero(j));
        if (!inside) return false;
    }
    return true;
}

inline bool triangular_orders(std::int64_t n, const StridedMatrix& a, std::int32_t* rows, std::int32_t* columns,
                              std::int32_t* workspace) {
    return a.is_single ? find_orders<std::uint32_t>(n, a, rows, columns, workspace)
                       : find_orders<std::uint64_t>(n, a, rows, columns, workspace);
}

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
