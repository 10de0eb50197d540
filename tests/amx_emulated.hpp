// The AMX instructions in software, as Intel's manual describes them. test_portability.py includes
// this before cpp/native/bf16.cpp, to test the level "amx" on a processor that has AVX512-BF16 but no
// AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace amx_emulated {

struct Register {
    int rows = 0, bytes = 0;
    unsigned char data[16][64];
};
inline thread_local Register registers[8];

inline void load_shape(const void* memory) {
    const auto* shape = static_cast<const unsigned char*>(memory);
    for (int i = 0; i < 8; ++i) {
        std::uint16_t bytes;
        std::memcpy(&bytes, shape + 16 + 2 * i, 2);
        registers[i].bytes = shape[0] == 1 ? bytes : 0;  // of palette 1
        registers[i].rows = shape[0] == 1 ? shape[48 + i] : 0;
    }
}
inline void release() {
    for (Register& r : registers) r.rows = r.bytes = 0;
}
inline void zero(int i) { std::memset(registers[i].data, 0, sizeof registers[i].data); }
inline void load(int i, const void* base, long stride) {
    Register& r = registers[i];
    zero(i);
    for (int row = 0; row < r.rows; ++row)
        std::memcpy(r.data[row], static_cast<const char*>(base) + row * stride, r.bytes);
}
inline void store(int i, void* base, long stride) {
    const Register& r = registers[i];
    for (int row = 0; row < r.rows; ++row)
        std::memcpy(static_cast<char*>(base) + row * stride, r.data[row], r.bytes);
}
inline float bf16_at(const unsigned char* row, int index) {
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, row + 2 * index, 2);
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
// c[m][n] += a[m][2k] b[k][2n] + a[m][2k + 1] b[k][2n + 1]
inline void multiply(int c, int a, int b) {
    for (int m = 0; m < registers[c].rows; ++m)
        for (int k = 0; k < registers[a].bytes / 4; ++k)
            for (int n = 0; n < registers[c].bytes / 4; ++n) {
                float sum;
                std::memcpy(&sum, registers[c].data[m] + 4 * n, 4);
                for (int half = 0; half < 2; ++half)
                    sum += bf16_at(registers[a].data[m], 2 * k + half) *
                           bf16_at(registers[b].data[k], 2 * n + half);
                std::memcpy(registers[c].data[m] + 4 * n, &sum, 4);
            }
}

}  // namespace amx_emulated

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_release
#define _tile_zero amx_emulated::zero
#define _tile_loadd amx_emulated::load
#define _tile_stored amx_emulated::store
#define _tile_dpbf16ps amx_emulated::multiply
#define _tile_loadconfig amx_emulated::load_shape
#define _tile_release amx_emulated::release
