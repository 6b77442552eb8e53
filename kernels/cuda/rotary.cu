// RMSNorm of queries and keys, head by head, and their rotary embedding, in place: a warp for each vector.
//
// The embedding is defined in bfloat16 with every step rounded, whatever the rest is computed in
// (kernels/src/reference/rope.rs). Its results are stored as they are: float16 holds them too, as long as they are
// neither huge nor tiny.
#include "device.cuh"

struct Rotary {
    // Query heads of token 0, then heads of keys; those of the next token are `stride` further.
    u16 *x;
    // Of the norms, `[head_dim]` each.
    const f32 *q_weight, *k_weight;
    // Of all tokens but the first `prefix`, `[tokens - prefix, head_dim / 2]`: the second half of a vector has the
    // first one's angles.
    const f32 *sin, *cos;
    u32 tokens, prefix;
    u32 heads, kv_heads;
    // Values of a head, and from the start of one to that of the next.
    u32 head_dim, head_stride;
    u32 stride;
    f32 epsilon;
};

constexpr u32 THREADS = 128, WARPS = THREADS / WARP;
// Pairs of values that turn together, of a lane: heads of up to 128.
constexpr u32 PAIRS = 2;

DEVICE f32 rounded(f32 x) { return bf16_value(bf16_bits(x)); }

template <class T>
DEVICE void rotary(const Rotary &p) {
    const u32 heads = p.heads + p.kv_heads, index = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (index >= p.tokens * heads) return;
    const u32 token = index / heads, head = index % heads, half = p.head_dim / 2;
    u16 *x = p.x + u64(token) * p.stride + head * p.head_stride;
    const f32 *weight = head < p.heads ? p.q_weight : p.k_weight;
    f32 first[PAIRS], second[PAIRS], squares = 0.0f;
    UNROLL for (u32 i = 0; i < PAIRS; i++) {
        const u32 at = i * WARP + lane_index();
        first[i] = at < half ? T::value(load<u16>(x + at)) : 0.0f;
        second[i] = at < half ? T::value(load<u16>(x + half + at)) : 0.0f;
        squares += first[i] * first[i] + second[i] * second[i];
    }
    const f32 root = root_reciprocal(warp_sum(squares) / f32(p.head_dim) + p.epsilon);
    UNROLL for (u32 i = 0; i < PAIRS; i++) {
        const u32 at = i * WARP + lane_index();
        if (at < half) {
            f32 a = rounded(first[i] * root * weight[at]), b = rounded(second[i] * root * weight[half + at]);
            if (token >= p.prefix) {
                const u64 angle = u64(token - p.prefix) * half + at;
                const f32 sin = p.sin[angle], cos = p.cos[angle];
                const f32 turned = rounded(add_rounded(rounded(a * cos), rounded(-b * sin)));
                b = rounded(add_rounded(rounded(b * cos), rounded(a * sin)));
                a = turned;
            }
            store(x + at, u16(T::bits(a)));
            store(x + half + at, u16(T::bits(b)));
        }
    }
}

ENTRY(rotary_f16, THREADS, 4, Rotary, rotary<F16>)
#if SAPIENS_ARCH >= 80
ENTRY(rotary_bf16, THREADS, 4, Rotary, rotary<Bf16>)
#endif
