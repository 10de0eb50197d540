// Numbers in text, as files of other programs have them: every byte is checked, none is read twice.
#include <Python.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "bindings/bindings.hpp"

namespace roundwise {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The powers of ten that are float64 numbers.
constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int most = 22;

// The nearest float64 of the well-formed, unsigned number in begin..end.
double nearest(const char* begin, const char* end) {
#ifdef __cpp_lib_to_chars
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error == std::errc() && stop == end) return value;
#endif
    // Too large or too small, or a standard library without from_chars.
    const double found = PyOS_string_to_double(std::string(begin, end).c_str(), nullptr, nullptr);
    if (PyErr_Occurred()) throw nb::python_error();
    return found;
}

// nan, inf or infinity, in letters of any size.
bool read_word(const char* begin, const char* end, double& value) {
    std::string word(begin, end);
    for (char& c : word) c = static_cast<char>(c | 0x20);
    if (word == "nan") value = std::numeric_limits<double>::quiet_NaN();
    else if (word == "inf" || word == "infinity") value = std::numeric_limits<double>::infinity();
    else return false;
    return true;
}

// Reads one number and moves `at` behind it. Returns false if the text there is not one number up to
// the next space: [sign] digits [. digits] [e [sign] digits], with a digit before or after the point.
bool read_number(const char*& at, const char* end, double& value) {
    const bool negative = *at == '-';
    if (*at == '-' || *at == '+') ++at;
    const char* begin = at;
    std::uint64_t digits = 0;  // without the point, if there are few
    int count = 0;
    std::int64_t exponent = 0;
    const auto read_digits = [&](int step) {
        const char* first = at;
        for (; at < end && is_digit(*at); ++at)
            if (count < most) {
                digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
                count += digits > 0;
                exponent += step;
            }
        return at > first;
    };
    bool found = read_digits(0);
    if (at < end && *at == '.') {
        ++at;
        found = read_digits(-1) || found;
    }
    if (!found) {
        while (at < end && !is_space(*at)) ++at;
        if (!read_word(begin, at, value)) return false;
    } else {
        if (at < end && (*at == 'e' || *at == 'E')) {
            const bool small = ++at < end && *at == '-';
            if (at < end && (*at == '-' || *at == '+')) ++at;
            if (at == end || !is_digit(*at)) return false;
            int size = 0;
            for (; at < end && is_digit(*at); ++at) size = std::min(10 * size + (*at - '0'), 100000);
            exponent += small ? -size : size;
        }
        if (at < end && !is_space(*at)) return false;
        // Two float64 numbers, and one rounding: the nearest one (Clinger 1990).
        if (count <= 15 && exponent >= -most && exponent <= most) {
            value = static_cast<double>(digits);
            value = exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
        } else {
            value = nearest(begin, at);
        }
    }
    if (negative) value = -value;
    return true;
}

}  // namespace

void bind_text(nb::module_& m) {
    // Writes the numbers of a text into `numbers`. Returns how many it has (those beyond the end of
    // `numbers` are counted only), or -1 if something in it is no number.
    define(m, "read_numbers", [](nb::bytes text, VectorOut<double> numbers) {
        const char *at = text.c_str(), *end = at + text.size();
        std::int64_t count = 0;
        const std::int64_t room = length(numbers.size());
        while (true) {
            while (at < end && is_space(*at)) ++at;
            if (at == end) return count;
            double value;
            if (!read_number(at, end, value)) return std::int64_t{-1};
            if (count < room) numbers.data()[count] = value;
            ++count;
        }
    });
}

}  // namespace roundwise
