#include "sparse/rows.hpp"

#include <limits>

namespace roundwise::sparse {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

template <class Index> bool is_valid(const GivenPlaces<Index>& given) {
    const std::int64_t n = given.n;
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 2;
    if (n < 0 || n > most || given.entries > most) return false;
    std::int64_t entries = given.entries;
    bool valid = true;
    if (given.form != Form::coordinates) {
        valid = given.first[0] == 0 && given.first[n] <= entries;
        for (std::int64_t i = 0; i < n; ++i) valid = valid && given.first[i] <= given.first[i + 1];
        if (!valid) return false;
        entries = given.first[n];
    } else {
        for (std::int64_t e = 0; e < entries; ++e) valid &= given.first[e] >= 0 && given.first[e] < n;
    }
    for (std::int64_t e = 0; e < entries; ++e) valid &= given.second[e] >= 0 && given.second[e] < n;
    return valid;
}

// Calls body(row, column, entry) for each entry, column by column.
template <class Index, class Body> void by_columns(const GivenPlaces<Index>& given, const Body& body) {
    const std::int64_t n = given.n;
    if (given.form == Form::columns) {
        for (std::int64_t j = 0; j < n; ++j)
            for (Index e = given.first[j]; e < given.first[j + 1]; ++e)
                body(static_cast<std::int32_t>(given.second[e]), static_cast<std::int32_t>(j), e);
        return;
    }
    const std::int64_t entries = given.form == Form::rows ? given.first[n] : given.entries;
    std::vector<std::int32_t> next(size(n) + 2, 0), rows(size(entries)), which(size(entries));
    for (std::int64_t e = 0; e < entries; ++e) ++next[size(given.second[e]) + 2];
    for (std::int64_t j = 0; j < n; ++j) next[size(j) + 2] += next[size(j) + 1];
    const auto put = [&](std::int64_t row, std::int64_t e) {
        const std::int32_t to = next[size(given.second[e]) + 1]++;
        rows[size(to)] = static_cast<std::int32_t>(row);
        which[size(to)] = static_cast<std::int32_t>(e);
    };
    if (given.form == Form::rows) {
        for (std::int64_t i = 0; i < n; ++i)
            for (Index e = given.first[i]; e < given.first[i + 1]; ++e) put(i, e);
    } else {
        for (std::int64_t e = 0; e < entries; ++e) put(given.first[e], e);
    }
    for (std::int32_t j = 0; j < n; ++j)
        for (std::int32_t e = next[size(j)]; e < next[size(j) + 1]; ++e) body(rows[size(e)], j, which[size(e)]);
}

}  // namespace

template <class T, class Index>
bool read_rows(const GivenPlaces<Index>& given, const T* values, Rows<T>& rows) {
    if (!is_valid(given)) return false;
    const std::int64_t n = given.n;
    rows.n = static_cast<std::int32_t>(n);
    if (given.form == Form::rows) {
        bool canonical = true;
        for (std::int64_t i = 0; i < n; ++i)
            for (Index e = given.first[i] + 1; e < given.first[i + 1]; ++e)
                canonical &= given.second[e] > given.second[e - 1];
        if (canonical) {
            rows.starts.assign(given.first, given.first + n + 1);
            rows.places.assign(given.second, given.second + given.first[n]);
            rows.values.assign(values, values + given.first[n]);
            return true;
        }
    }
    const std::int64_t entries = given.form == Form::coordinates ? given.entries : given.first[n];
    std::vector<std::int32_t>& starts = rows.starts;
    starts.assign(size(n) + 2, 0);
    if (given.form == Form::columns) {
        for (std::int64_t e = 0; e < entries; ++e) ++starts[size(given.second[e]) + 2];
    } else if (given.form == Form::coordinates) {
        for (std::int64_t e = 0; e < entries; ++e) ++starts[size(given.first[e]) + 2];
    } else {
        for (std::int64_t i = 0; i < n; ++i)
            starts[size(i) + 2] = static_cast<std::int32_t>(given.first[i + 1] - given.first[i]);
    }
    for (std::int64_t i = 0; i < n; ++i) starts[size(i) + 2] += starts[size(i) + 1];
    std::vector<std::int32_t> first(starts.begin() + 1, starts.end());  // where each row begins
    rows.places.resize(size(entries));
    rows.values.resize(size(entries));
    std::int64_t kept = entries;
    by_columns(given, [&](std::int32_t i, std::int32_t j, std::int64_t e) {
        std::int32_t& next = starts[size(i) + 1];  // what ends row i at last
        if (next > first[size(i)] && rows.places[size(next) - 1] == j) {
            rows.values[size(next) - 1] += values[e];
            --kept;
            return;
        }
        rows.places[size(next)] = j;
        rows.values[size(next)] = values[e];
        ++next;
    });
    if (kept != entries) {
        std::int32_t to = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int32_t end = starts[size(i) + 1];
            for (std::int32_t e = first[size(i)]; e < end; ++e, ++to) {
                rows.places[size(to)] = rows.places[size(e)];
                rows.values[size(to)] = rows.values[size(e)];
            }
            starts[size(i) + 1] = to;
        }
        rows.places.resize(size(kept));
        rows.values.resize(size(kept));
    }
    starts.pop_back();
    return true;
}

template <class T> Rows<T> transposed(const Rows<T>& rows) {
    const GivenPlaces<std::int32_t> given = {Form::columns, rows.n, static_cast<std::int64_t>(rows.places.size()),
                                             rows.starts.data(), rows.places.data()};
    Rows<T> result;
    read_rows(given, rows.values.data(), result);
    return result;
}

#define ROUNDWISE_INSTANTIATE(T)                                                                       \
    template bool read_rows(const GivenPlaces<std::int32_t>&, const T*, Rows<T>&);                     \
    template bool read_rows(const GivenPlaces<std::int64_t>&, const T*, Rows<T>&);                     \
    template Rows<T> transposed(const Rows<T>&);
ROUNDWISE_INSTANTIATE(double)
ROUNDWISE_INSTANTIATE(Complex)
#undef ROUNDWISE_INSTANTIATE

}  // namespace roundwise::sparse
