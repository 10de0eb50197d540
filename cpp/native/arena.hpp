// Scratch memory: one piece, cut into aligned parts.
#pragma once

#include <cstdint>
#include <cstring>

namespace roundwise {
namespace ROUNDWISE_LEVEL {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out parts of one piece of memory, each aligned to 64 bytes. With a null base it only counts
// the bytes that are needed.
struct Arena {
    char* base;
    std::int64_t used = 0;
    void clear(std::int64_t from = 0) const {  // sets all that was taken since then to zero
        if (base != nullptr) std::memset(base + from, 0, static_cast<std::size_t>(used - from));
    }
    template <class T> T* take(std::int64_t count) {
        const std::int64_t begin = used;
        used += aligned(count * static_cast<std::int64_t>(sizeof(T)));
        return base == nullptr ? nullptr : reinterpret_cast<T*>(base + begin);
    }
};

}  // namespace ROUNDWISE_LEVEL
}  // namespace roundwise
