// The words that the kernels are written in. All inline PTX is here; where the kernels are compiled for the processor
// to be tested (SAPIENS_EMULATED), the same words come from the emulator.
//
// Compiled without CUDA's headers, for SAPIENS_ARCH 75 (Turing: no bfloat16, no asynchronous copies) or 80 (Ampere and
// everything later).
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;
using f32 = float;
using f64 = double;

constexpr u32 WARP = 32;

// Sixteen bytes that travel together.
struct alignas(16) Four {
    u32 x, y, z, w;
};
struct alignas(8) Two {
    u32 x, y;
};
struct alignas(8) TwoFloats {
    f32 x, y;
};
struct alignas(16) FourFloats {
    f32 x, y, z, w;
};

#ifdef SAPIENS_EMULATED
#include "device.hpp"
#else

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

// A kernel of `threads` threads a block, with registers for `blocks` of them on a multiprocessor, which runs `body` on
// its arguments. `name` is what the host asks for.
#define ENTRY(name, threads, blocks, Arguments, body)                                                       \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const Arguments arguments) {         \
        body(arguments);                                                                                    \
    }

// As many bytes as the launch asks for.
DEVICE char *shared_memory() {
    extern __shared__ __align__(128) char shared[];
    return shared;
}

DEVICE u32 lane_index() { return threadIdx.x % WARP; }

DEVICE u32 bits_of(f32 x) { return __float_as_uint(x); }
DEVICE f32 float_of(u32 bits) { return __uint_as_float(bits); }

DEVICE u32 f16_bits(f32 x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

DEVICE f32 f16_value(u32 bits) {
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(u16(bits)));
    return x;
}

DEVICE f32 bf16_value(u32 bits) { return float_of(bits << 16); }

#if SAPIENS_ARCH >= 80
DEVICE u32 f16x2(f32 low, f32 high) {
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

DEVICE u32 bf16x2(f32 low, f32 high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

DEVICE u32 bf16_bits(f32 x) { return bf16x2(x, 0.0f) & 0xFFFF; }
#else
DEVICE u32 f16x2(f32 low, f32 high) { return f16_bits(low) | f16_bits(high) << 16; }

// Rounded to nearest, ties to even. Not a number becomes the device's own.
DEVICE u32 bf16_bits(f32 x) {
    const u32 bits = bits_of(x);
    return x == x ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FFF;
}
#endif

// Within two units of the last place.
DEVICE f32 exp2_fast(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE f32 reciprocal_fast(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE f32 root_reciprocal(f32 x) { return rsqrtf(x); }
DEVICE f32 error_function(f32 x) { return erff(x); }
DEVICE f32 larger(f32 a, f32 b) { return fmaxf(a, b); }

// Each rounded by itself: never one fused operation.
DEVICE f32 multiply_rounded(f32 a, f32 b) { return __fmul_rn(a, b); }
DEVICE f32 add_rounded(f32 a, f32 b) { return __fadd_rn(a, b); }
DEVICE f32 divide_rounded(f32 a, f32 b) { return __fdiv_rn(a, b); }
DEVICE f32 fused_multiply_add(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }

DEVICE f64 multiply_rounded(f64 a, f64 b) { return __dmul_rn(a, b); }
DEVICE f64 add_rounded(f64 a, f64 b) { return __dadd_rn(a, b); }

// A value at an address that is a multiple of its size.
template <class T>
DEVICE T load(const void *from) {
    return *static_cast<const T *>(from);
}

template <class T>
DEVICE void store(void *to, T value) {
    *static_cast<T *>(to) = value;
}

// Meeting of the whole block; what was written to shared memory before can be read after.
DEVICE void barrier() { __syncthreads(); }
// The same for a warp.
DEVICE void warp_barrier() { __syncwarp(); }

// What the lane whose index differs by `mask` brought.
DEVICE u32 shuffle_xor(u32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }
DEVICE f32 shuffle_xor(f32 value, u32 mask) { return __shfl_xor_sync(~0u, value, mask); }

DEVICE u32 shared_address(const void *shared) { return u32(__cvta_generic_to_shared(shared)); }

// Four 8 x 8 matrices of 16-bit values from shared memory: lanes 8 i to 8 i + 7 give the addresses of matrix i's rows
// of 16 bytes; lane l gets values 2 (l % 4) and the next of row l / 4, of each matrix.
DEVICE void load_matrices(u32 (&m)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same with rows and columns swapped in what lanes get.
DEVICE void load_matrices_transposed(u32 (&m)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a b: a is 16 x 16, b 16 x 8, d 16 x 8. Lane l has of d rows l / 4 and that plus 8, columns 2 (l % 4) and the
// next; of a the same rows, and columns (of b the rows) 2 (l % 4), the next, and those plus 8; of b column l / 4.
#if SAPIENS_ARCH >= 80
DEVICE void multiply_f16(f32 (&d)[4], const u32 (&a)[4], const u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEVICE void multiply_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// With sums in float16: twice as fast on GeForce cards. d has pairs of columns.
DEVICE void multiply_f16_in_f16(u32 (&d)[2], const u32 (&a)[4], const u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
// Turing multiplies half as deep.
DEVICE void multiply_f16(f32 (&d)[4], const u32 (&a)[4], const u32 *b) {
    UNROLL for (u32 half = 0; half < 2; half++) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
}

DEVICE void multiply_f16_in_f16(u32 (&d)[2], const u32 (&a)[4], const u32 *b) {
    UNROLL for (u32 half = 0; half < 2; half++) {
        asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
            : "+r"(d[0]), "+r"(d[1])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
    }
}
#endif

// Copies 8 or 16 bytes to shared memory while the thread goes on; zeros where nothing is there. Both addresses are
// multiples of BYTES, `global` is an address that may be read even then.
#if SAPIENS_ARCH >= 80
template <u32 BYTES>
DEVICE void copy_async(void *shared, const void *global, bool there) {
    const u32 to = shared_address(shared), bytes = there ? BYTES : 0;
    if constexpr (BYTES == 16) {
        // Past the first-level cache: nobody on this multiprocessor reads it again.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(BYTES), "r"(bytes)
                     : "memory");
    }
}

// Ends a group of copies.
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last PENDING groups of this thread have arrived.
template <u32 PENDING>
DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#else
// Turing has no such copies: they go through registers, and have arrived at once.
template <u32 BYTES>
DEVICE void copy_async(void *shared, const void *global, bool there) {
    if constexpr (BYTES == 16) {
        store(shared, there ? load<Four>(global) : Four{0, 0, 0, 0});
    } else {
        store(shared, there ? load<Two>(global) : Two{0, 0});
    }
}

DEVICE void copy_async_commit() {}

template <u32 PENDING>
DEVICE void copy_async_wait() {}
#endif

#endif  // SAPIENS_EMULATED

template <class T>
DEVICE T smaller(T a, T b) {
    return a < b ? a : b;
}

DEVICE i32 larger(i32 a, i32 b) { return a < b ? b : a; }

DEVICE f32 minus_infinity() { return float_of(0xFF800000); }

// Sum, or largest, over the lanes of a warp; all get it.
DEVICE f32 warp_sum(f32 x) {
    UNROLL for (u32 mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

// How values are stored, and how two matrices of them are multiplied.
struct F16 {
    static DEVICE u32 pair(f32 low, f32 high) { return f16x2(low, high); }
    static DEVICE u32 bits(f32 x) { return f16_bits(x); }
    static DEVICE f32 value(u32 bits) { return f16_value(bits); }
    static DEVICE f32 low(u32 pair) { return f16_value(pair & 0xFFFF); }
    static DEVICE f32 high(u32 pair) { return f16_value(pair >> 16); }

    // What queries are multiplied by before their products with keys.
    static constexpr f32 HEADROOM = 1.0f;

    // d += a b over DEPTH steps of 16: a[i] and b[2 i].
    template <u32 DEPTH>
    static DEVICE void multiply(f32 (&d)[4], const u32 (&a)[DEPTH][4], const u32 (&b)[2 * DEPTH]) {
        UNROLL for (u32 i = 0; i < DEPTH; i++) multiply_f16(d, a[i], b + 2 * i);
    }
};

// The same with sums in float16 within those steps, which are at most 80 of depth, and in float32 between them.
struct F16Promoted : F16 {
    // Float16 ends at 65504, and a power of two costs no precision.
    static constexpr f32 HEADROOM = 0.125f;

    template <u32 DEPTH>
    static DEVICE void multiply(f32 (&d)[4], const u32 (&a)[DEPTH][4], const u32 (&b)[2 * DEPTH]) {
        static_assert(DEPTH <= 5, "errors of float16 sums grow with their length");
        u32 sum[2] = {0, 0};
        UNROLL for (u32 i = 0; i < DEPTH; i++) multiply_f16_in_f16(sum, a[i], b + 2 * i);
        UNROLL for (u32 i = 0; i < 2; i++) {
            d[2 * i] += low(sum[i]);
            d[2 * i + 1] += high(sum[i]);
        }
    }
};

#if SAPIENS_ARCH >= 80
struct Bf16 {
    static DEVICE u32 pair(f32 low, f32 high) { return bf16x2(low, high); }
    static DEVICE u32 bits(f32 x) { return bf16_bits(x); }
    static DEVICE f32 value(u32 bits) { return bf16_value(bits); }
    static DEVICE f32 low(u32 pair) { return float_of(pair << 16); }
    static DEVICE f32 high(u32 pair) { return float_of(pair & 0xFFFF0000u); }

    static constexpr f32 HEADROOM = 1.0f;

    template <u32 DEPTH>
    static DEVICE void multiply(f32 (&d)[4], const u32 (&a)[DEPTH][4], const u32 (&b)[2 * DEPTH]) {
        UNROLL for (u32 i = 0; i < DEPTH; i++) multiply_bf16(d, a[i], b + 2 * i);
    }
};
#endif
