// The words of device.cuh one by one, so that a device can be held against what the emulator takes for granted. Only
// tests and the check of a device run them: one warp, whose lanes read and write by their index.
#include "device.cuh"

struct Words {
    const u32 *in;
    u32 *out;
};

// Of float32 values: both halves of pairs, single ones, and those back.
DEVICE void convert(const Words &p) {
    const u32 lane = lane_index();
    const f32 low = float_of(p.in[2 * lane]), high = float_of(p.in[2 * lane + 1]);
    u32 *out = p.out + 8 * lane;
    out[0] = F16::pair(low, high);
    out[1] = F16::bits(low);
    out[2] = bits_of(F16::low(out[0]));
    out[3] = bits_of(F16::high(out[0]));
    out[4] = bf16_bits(low);
    out[5] = bits_of(bf16_value(out[4]));
#if SAPIENS_ARCH >= 80
    out[6] = Bf16::pair(low, high);
    out[7] = bits_of(Bf16::high(out[6]));
#else
    out[6] = bf16_bits(low) | bf16_bits(high) << 16;
    out[7] = bits_of(bf16_value(bf16_bits(high)));
#endif
}

// Of a float32 value.
DEVICE void functions(const Words &p) {
    const u32 lane = lane_index();
    const f32 x = float_of(p.in[lane]);
    u32 *out = p.out + 8 * lane;
    out[0] = bits_of(exp2_fast(x));
    out[1] = bits_of(reciprocal_fast(x));
    out[2] = bits_of(root_reciprocal(x * x + 1.0f));
    out[3] = bits_of(error_function(x));
    out[4] = bits_of(multiply_rounded(x, 1.1f));
    out[5] = bits_of(add_rounded(multiply_rounded(x, 1.1f), 0.3f));
    out[6] = bits_of(divide_rounded(x, 1.1f));
    out[7] = bits_of(fused_multiply_add(x, 1.1f, 0.3f));
}

// Exchange within a warp.
DEVICE void exchange(const Words &p) {
    const u32 lane = lane_index();
    u32 *out = p.out + 8 * lane;
    UNROLL for (u32 i = 0; i < 5; i++) out[i] = shuffle_xor(p.in[lane], 1u << i);
    out[5] = bits_of(warp_sum(float_of(p.in[lane])));
    out[6] = bits_of(larger(float_of(p.in[lane]), minus_infinity()));
    out[7] = lane;
}

// Four matrices of 8 x 8, row by row; out as they are and transposed.
DEVICE void matrices(const Words &p) {
    u32 *shared = reinterpret_cast<u32 *>(shared_memory());
    const u32 lane = lane_index();
    UNROLL for (u32 i = 0; i < 4; i++) shared[lane * 4 + i] = p.in[lane * 4 + i];
    warp_barrier();
    u32 m[4];
    load_matrices(m, shared + lane * 4);
    UNROLL for (u32 i = 0; i < 4; i++) p.out[8 * lane + i] = m[i];
    load_matrices_transposed(m, shared + lane * 4);
    UNROLL for (u32 i = 0; i < 4; i++) p.out[8 * lane + 4 + i] = m[i];
}

// Copies of 16 and of 8 bytes, every third of which isn't there; then all of shared memory.
DEVICE void copies(const Words &p) {
    u32 *shared = reinterpret_cast<u32 *>(shared_memory());
    const u32 lane = lane_index();
    copy_async<16>(shared + 4 * lane, p.in + 4 * lane, lane % 3 != 0);
    copy_async_commit();
    copy_async<8>(shared + 128 + 2 * lane, p.in + 2 * lane, lane % 3 != 1);
    copy_async_commit();
    copy_async_wait<1>();
    warp_barrier();
    UNROLL for (u32 i = 0; i < 4; i++) p.out[8 * lane + i] = shared[4 * (lane ^ 1) + i];
    copy_async_wait<0>();
    warp_barrier();
    UNROLL for (u32 i = 0; i < 2; i++) p.out[8 * lane + 4 + i] = shared[128 + 2 * (lane ^ 1) + i];
}

// A lane's parts of two left operands and two right ones, and of the sums before: 8, 4 and 4 values.
template <class T>
DEVICE void multiply(const Words &p) {
    const u32 *in = p.in + 16 * lane_index();
    u32 a[2][4], b[4];
    f32 d[4];
    UNROLL for (u32 i = 0; i < 8; i++) a[i / 4][i % 4] = in[i];
    UNROLL for (u32 i = 0; i < 4; i++) b[i] = in[8 + i];
    UNROLL for (u32 i = 0; i < 4; i++) d[i] = float_of(in[12 + i]);
    T::template multiply<2>(d, a, b);
    UNROLL for (u32 i = 0; i < 4; i++) p.out[8 * lane_index() + i] = bits_of(d[i]);
}

ENTRY(words_convert, WARP, 1, Words, convert)
ENTRY(words_functions, WARP, 1, Words, functions)
ENTRY(words_exchange, WARP, 1, Words, exchange)
ENTRY(words_matrices, WARP, 1, Words, matrices)
ENTRY(words_copies, WARP, 1, Words, copies)
ENTRY(words_multiply_f16, WARP, 1, Words, multiply<F16>)
ENTRY(words_multiply_f16_promoted, WARP, 1, Words, multiply<F16Promoted>)
#if SAPIENS_ARCH >= 80
ENTRY(words_multiply_bf16, WARP, 1, Words, multiply<Bf16>)
#endif
