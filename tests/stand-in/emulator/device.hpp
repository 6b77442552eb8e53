// What `device.cuh` does with instructions of the GPU, done on the processor: the same names with the same meaning.
#pragma once

#include <cmath>
#include <cstring>

#include "emulator.hpp"

#define DEVICE inline
#define UNROLL
#define threadIdx (emulator::now.thread)
#define blockIdx (emulator::now.block)
#define gridDim (emulator::now.grid_size)

#define ENTRY(name, threads, blocks, Arguments, body)                                                       \
    namespace {                                                                                             \
    void name##_call(void *const *arguments) {                                                              \
        Arguments copy;                                                                                     \
        memcpy(&copy, arguments[0], sizeof copy);                                                           \
        body(copy);                                                                                         \
    }                                                                                                       \
    emulator::Registration<Arguments> name##_registration(#name, SAPIENS_ARCH, threads, name##_call);       \
    }

namespace {

DEVICE char *shared_memory() { return emulator::now.shared; }
DEVICE u32 lane_index() { return emulator::now.lane; }

DEVICE u32 bits_of(f32 x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}

DEVICE f32 float_of(u32 bits) {
    f32 x;
    memcpy(&x, &bits, 4);
    return x;
}

// Rounded to nearest, ties to even, as the device does.
DEVICE u32 f16_bits(f32 x) {
    _Float16 half = _Float16(x);
    u16 bits;
    memcpy(&bits, &half, 2);
    return bits;
}

DEVICE f32 f16_value(u32 bits) {
    u16 low = u16(bits);
    _Float16 half;
    memcpy(&half, &low, 2);
    return f32(half);
}

DEVICE u32 bf16_bits(f32 x) {
    const u32 bits = bits_of(x);
    if (x != x) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

DEVICE f32 bf16_value(u32 bits) { return float_of(bits << 16); }

DEVICE u32 f16x2(f32 low, f32 high) { return f16_bits(low) | f16_bits(high) << 16; }
DEVICE u32 bf16x2(f32 low, f32 high) { return bf16_bits(low) | bf16_bits(high) << 16; }

DEVICE f32 exp2_fast(f32 x) { return exp2f(x); }
DEVICE f32 reciprocal_fast(f32 x) { return 1.0f / x; }
DEVICE f32 root_reciprocal(f32 x) { return 1.0f / sqrtf(x); }
DEVICE f32 error_function(f32 x) { return erff(x); }
DEVICE f32 larger(f32 a, f32 b) { return fmaxf(a, b); }

// Each rounded by itself: never one fused operation.
DEVICE f32 multiply_rounded(f32 a, f32 b) { return a * b; }
DEVICE f32 add_rounded(f32 a, f32 b) { return a + b; }
DEVICE f32 divide_rounded(f32 a, f32 b) { return a / b; }
DEVICE f32 fused_multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }

DEVICE f64 multiply_rounded(f64 a, f64 b) { return a * b; }
DEVICE f64 add_rounded(f64 a, f64 b) { return a + b; }

template <class T>
DEVICE T load(const void *from) {
    emulator::check_aligned(from, sizeof(T), "load");
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
DEVICE void store(void *to, T value) {
    emulator::check_aligned(to, sizeof(T), "store");
    memcpy(to, &value, sizeof value);
}

DEVICE void barrier() { emulator::block_barrier(); }

DEVICE void warp_barrier() {
    emulator::warp_meeting("warp_barrier", [](void **) {}, nullptr);
}

DEVICE u32 shuffle_xor(u32 value, u32 mask) {
    struct Exchange {
        u32 value, mask, result;
    } mine{value, mask, 0};
    emulator::warp_meeting(
        "shuffle_xor",
        [](void **operands) {
            auto of = [&](u32 lane) { return static_cast<Exchange *>(operands[lane % emulator::LANES]); };
            for (u32 lane = 0; lane < emulator::LANES; lane++) of(lane)->result = of(lane ^ of(lane)->mask)->value;
        },
        &mine);
    return mine.result;
}

DEVICE f32 shuffle_xor(f32 value, u32 mask) { return float_of(shuffle_xor(bits_of(value), mask)); }

// Four 8 x 8 matrices of 16-bit values: lanes 8 i to 8 i + 7 give the addresses of matrix i's rows of 16 bytes; lane l
// gets values 2 (l % 4) and the next of row l / 4, of each matrix. Transposed: of columns instead of rows.
struct MatrixLoad {
    const void *row;
    u32 *result;
    bool transposed;
};

DEVICE void matrix_meeting(void **operands) {
    using emulator::LANES;
    const auto *first = static_cast<MatrixLoad *>(operands[0]);
    u16 matrices[4][8][8];
    for (u32 lane = 0; lane < LANES; lane++) {
        memcpy(matrices[lane / 8][lane % 8], static_cast<MatrixLoad *>(operands[lane])->row, 16);
    }
    for (u32 lane = 0; lane < LANES; lane++) {
        const u32 row = lane / 4, column = lane % 4 * 2;
        for (u32 i = 0; i < 4; i++) {
            const auto &m = matrices[i];
            const u32 low = first->transposed ? m[column][row] : m[row][column];
            const u32 high = first->transposed ? m[column + 1][row] : m[row][column + 1];
            static_cast<MatrixLoad *>(operands[lane])->result[i] = low | high << 16;
        }
    }
}

DEVICE void load_matrices(u32 (&result)[4], const void *row) {
    emulator::check_aligned(row, 16, "load_matrices");
    MatrixLoad mine{row, result, false};
    emulator::warp_meeting("load_matrices", matrix_meeting, &mine);
}

DEVICE void load_matrices_transposed(u32 (&result)[4], const void *row) {
    emulator::check_aligned(row, 16, "load_matrices_transposed");
    MatrixLoad mine{row, result, true};
    emulator::warp_meeting("load_matrices_transposed", matrix_meeting, &mine);
}

// d += a b with a 16 x 16, b 16 x 8 and d 16 x 8, spread over the lanes as `mma.m16n8k16` has them.
struct Multiply {
    const u32 *a, *b;
    void *d;
};

template <f32 (*VALUE)(u32)>
DEVICE void gather(void **operands, f32 (&a)[16][16], f32 (&b)[16][8]) {
    for (u32 lane = 0; lane < emulator::LANES; lane++) {
        const auto *mine = static_cast<Multiply *>(operands[lane]);
        const u32 group = lane / 4, pair = lane % 4 * 2;
        for (u32 half = 0; half < 2; half++) {
            const u32 shift = 16 * half;
            for (u32 i = 0; i < 4; i++) {
                a[group + i % 2 * 8][pair + half + i / 2 * 8] = VALUE(mine->a[i] >> shift & 0xFFFF);
            }
            for (u32 i = 0; i < 2; i++) b[pair + half + i * 8][group] = VALUE(mine->b[i] >> shift & 0xFFFF);
        }
    }
}

template <f32 (*VALUE)(u32)>
DEVICE void multiply_meeting(void **operands) {
    f32 a[16][16], b[16][8];
    gather<VALUE>(operands, a, b);
    for (u32 lane = 0; lane < emulator::LANES; lane++) {
        auto *d = static_cast<f32 *>(static_cast<Multiply *>(operands[lane])->d);
        for (u32 i = 0; i < 4; i++) {
            const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            f32 sum = 0.0f;
            for (u32 k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            d[i] += sum;
        }
    }
}

DEVICE void multiply_f16_meeting(void **operands) {
    f32 a[16][16], b[16][8];
    gather<f16_value>(operands, a, b);
    for (u32 lane = 0; lane < emulator::LANES; lane++) {
        auto *d = static_cast<u32 *>(static_cast<Multiply *>(operands[lane])->d);
        for (u32 i = 0; i < 2; i++) {
            u32 packed = 0;
            for (u32 half = 0; half < 2; half++) {
                const u32 row = lane / 4 + i * 8, column = lane % 4 * 2 + half;
                f32 sum = f16_value(d[i] >> 16 * half & 0xFFFF);
                for (u32 k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
                packed |= f16_bits(sum) << 16 * half;
            }
            d[i] = packed;
        }
    }
}

DEVICE void multiply_f16(f32 (&d)[4], const u32 (&a)[4], const u32 *b) {
    Multiply mine{a, b, d};
    emulator::warp_meeting("multiply_f16", multiply_meeting<f16_value>, &mine);
}

DEVICE void multiply_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 *b) {
    Multiply mine{a, b, d};
    emulator::warp_meeting("multiply_bf16", multiply_meeting<bf16_value>, &mine);
}

DEVICE void multiply_f16_in_f16(u32 (&d)[2], const u32 (&a)[4], const u32 *b) {
    Multiply mine{a, b, d};
    emulator::warp_meeting("multiply_f16_in_f16", multiply_f16_meeting, &mine);
}

template <u32 BYTES>
DEVICE void copy_async(void *shared, const void *global, bool there) {
    emulator::copy_later({shared, global, BYTES, there ? BYTES : 0});
}

DEVICE void copy_async_commit() { emulator::copies_commit(); }

template <u32 PENDING>
DEVICE void copy_async_wait() {
    emulator::copies_wait(PENDING);
}

}  // namespace
