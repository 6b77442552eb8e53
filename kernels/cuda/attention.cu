// softmax(q k^T * head_dim^-0.5) v, a block of queries against all keys, without ever storing a score.
//
// A warp has QUERIES of 16 rows each; keys and values come in blocks of KEYS through two buffers. Scores stay in
// registers, where the running maximum and sum of each row are kept (flash attention); as probabilities they are the
// left operand of the second product, whose layout is the first one's result's.
#include "device.cuh"

struct Attention {
    // Query, key and value of token 0; those of the next token are `stride` further.
    const u16 *q, *k, *v;
    u16 *out;
    u32 tokens;
    // Query heads for each head of keys and values.
    u32 group;
    // Values of a head, a multiple of 8; heads follow each other.
    u32 head_dim;
    u32 stride, out_stride;
    // What scores are multiplied by, times log2 e.
    f32 scale;
};

constexpr u32 WARPS = 4, CHUNK = 8;

template <class T, u32 HEAD, u32 QUERIES, u32 KEYS>
struct Block {
    static constexpr u32 ROWS = WARPS * QUERIES * 16, THREADS = WARPS * WARP;
    // A chunk more than a row has: rows that follow each other then start in different banks.
    static constexpr u32 ROW = HEAD + CHUNK;
    // Keys, then values. The queries pass through the second of the two buffers before it gets its first keys.
    static constexpr u32 STAGE = 2 * KEYS * ROW;
    static_assert(ROWS <= 2 * KEYS, "queries pass through a buffer");
    // Steps of 16 along a block of keys and along a head, and how many of these are summed in one go.
    static constexpr u32 KEY_STEPS = KEYS / 16, STEPS = HEAD / 16;
    static constexpr u32 DEPTH = STEPS <= 5 ? STEPS : 4;
    static_assert(STEPS % DEPTH == 0, "all of a head is multiplied");

    // `count` rows of a head's values, from token `first` on; zeros where there are none.
    static DEVICE void copy(const Attention &p, const u16 *from, u32 first, u32 count, u16 *to) {
        constexpr u32 CHUNKS = HEAD / CHUNK;
        for (u32 i = threadIdx.x; i < count * CHUNKS; i += THREADS) {
            const u32 row = i / CHUNKS, chunk = i % CHUNKS, token = first + row;
            const bool inside = token < p.tokens && chunk * CHUNK < p.head_dim;
            copy_async<16>(to + row * ROW + chunk * CHUNK,
                           inside ? from + u64(token) * p.stride + chunk * CHUNK : from, inside);
        }
    }

    static DEVICE void run(const Attention &p) {
        u16 *stages = reinterpret_cast<u16 *>(shared_memory());
        const u32 lane = lane_index(), warp = threadIdx.x / WARP, matrix = lane / 8, row = lane % 8;
        const u32 head = blockIdx.y, first = blockIdx.x * ROWS;
        const u16 *k = p.k + head / p.group * p.head_dim, *v = p.v + head / p.group * p.head_dim;
        copy(p, p.q + head * p.head_dim, first, ROWS, stages + STAGE);
        copy(p, k, 0, KEYS, stages);
        copy(p, v, 0, KEYS, stages + KEYS * ROW);
        copy_async_commit();
        copy_async_wait<0>();
        barrier();

        u32 queries[QUERIES][STEPS / DEPTH][DEPTH][4];
        UNROLL for (u32 i = 0; i < QUERIES; i++) {
            UNROLL for (u32 s = 0; s < STEPS; s++) {
                const u32 at = (warp * QUERIES + i) * 16 + row + matrix % 2 * 8;
                u32(&q)[4] = queries[i][s / DEPTH][s % DEPTH];
                load_matrices(q, stages + STAGE + at * ROW + (2 * s + matrix / 2) * CHUNK);
                if (T::HEADROOM != 1.0f) {
                    UNROLL for (u32 e = 0; e < 4; e++) {
                        q[e] = T::pair(T::low(q[e]) * T::HEADROOM, T::high(q[e]) * T::HEADROOM);
                    }
                }
            }
        }
        // All have their queries: the buffer is free.
        barrier();

        const f32 scale = p.scale / T::HEADROOM;
        f32 out[QUERIES][HEAD / 8][4] = {};
        f32 most[QUERIES][2], sum[QUERIES][2];
        UNROLL for (u32 i = 0; i < QUERIES; i++) {
            UNROLL for (u32 h = 0; h < 2; h++) {
                most[i][h] = minus_infinity();
                sum[i][h] = 0.0f;
            }
        }
        const u32 blocks = (p.tokens + KEYS - 1) / KEYS;
        for (u32 block = 0; block < blocks; block++) {
            if (block > 0) {
                // These keys have arrived for all, and all are done with those whose buffer is filled next.
                copy_async_wait<0>();
                barrier();
            }
            if (block + 1 < blocks) {
                u16 *next = stages + (block + 1) % 2 * STAGE;
                copy(p, k, (block + 1) * KEYS, KEYS, next);
                copy(p, v, (block + 1) * KEYS, KEYS, next + KEYS * ROW);
            }
            copy_async_commit();
            const u16 *keys = stages + block % 2 * STAGE, *values = keys + KEYS * ROW;

            f32 scores[QUERIES][KEYS / 8][4] = {};
            UNROLL for (u32 j = 0; j < KEYS / 16; j++) {
                UNROLL for (u32 s = 0; s < STEPS / DEPTH; s++) {
                    u32 b[2][2 * DEPTH];
                    UNROLL for (u32 d = 0; d < DEPTH; d++) {
                        u32 m[4];
                        const u32 key = j * 16 + row + matrix / 2 * 8, chunk = 2 * (s * DEPTH + d) + matrix % 2;
                        load_matrices(m, keys + key * ROW + chunk * CHUNK);
                        b[0][2 * d] = m[0];
                        b[0][2 * d + 1] = m[1];
                        b[1][2 * d] = m[2];
                        b[1][2 * d + 1] = m[3];
                    }
                    UNROLL for (u32 i = 0; i < QUERIES; i++) {
                        T::template multiply<DEPTH>(scores[i][2 * j], queries[i][s], b[0]);
                        T::template multiply<DEPTH>(scores[i][2 * j + 1], queries[i][s], b[1]);
                    }
                }
            }
            if ((block + 1) * KEYS > p.tokens) {
                // There are no such keys.
                UNROLL for (u32 j = 0; j < KEYS / 8; j++) {
                    UNROLL for (u32 e = 0; e < 2; e++) {
                        if (block * KEYS + j * 8 + lane % 4 * 2 + e >= p.tokens) {
                            UNROLL for (u32 i = 0; i < QUERIES; i++) scores[i][j][e] = scores[i][j][2 + e] = minus_infinity();
                        }
                    }
                }
            }

            UNROLL for (u32 i = 0; i < QUERIES; i++) {
                UNROLL for (u32 h = 0; h < 2; h++) {
                    f32 largest = minus_infinity();
                    UNROLL for (u32 j = 0; j < KEYS / 8; j++) {
                        largest = larger(largest, larger(scores[i][j][2 * h], scores[i][j][2 * h + 1]));
                    }
                    // Four lanes share a row.
                    largest = larger(largest, shuffle_xor(largest, 1));
                    largest = larger(largest, shuffle_xor(largest, 2));
                    const f32 before = most[i][h];
                    most[i][h] = larger(before, largest * scale);
                    const f32 shrink = exp2_fast(before - most[i][h]);
                    sum[i][h] *= shrink;
                    UNROLL for (u32 c = 0; c < HEAD / 8; c++) {
                        out[i][c][2 * h] *= shrink;
                        out[i][c][2 * h + 1] *= shrink;
                    }
                    UNROLL for (u32 j = 0; j < KEYS / 8; j++) {
                        UNROLL for (u32 e = 2 * h; e < 2 * h + 2; e++) {
                            scores[i][j][e] = exp2_fast(fused_multiply_add(scores[i][j][e], scale, -most[i][h]));
                            sum[i][h] += scores[i][j][e];
                        }
                    }
                }
            }

            u32 shares[QUERIES][KEY_STEPS][4];
            UNROLL for (u32 i = 0; i < QUERIES; i++) {
                UNROLL for (u32 s = 0; s < KEY_STEPS; s++) {
                    UNROLL for (u32 e = 0; e < 4; e++) {
                        const f32 *pair = scores[i][2 * s + e / 2] + e % 2 * 2;
                        shares[i][s][e] = T::pair(pair[0], pair[1]);
                    }
                }
            }
            UNROLL for (u32 c = 0; c < HEAD / 16; c++) {
                u32 b[2][2 * KEY_STEPS];
                UNROLL for (u32 s = 0; s < KEY_STEPS; s++) {
                    u32 m[4];
                    const u32 key = s * 16 + row + matrix % 2 * 8, chunk = 2 * c + matrix / 2;
                    load_matrices_transposed(m, values + key * ROW + chunk * CHUNK);
                    b[0][2 * s] = m[0];
                    b[0][2 * s + 1] = m[1];
                    b[1][2 * s] = m[2];
                    b[1][2 * s + 1] = m[3];
                }
                UNROLL for (u32 i = 0; i < QUERIES; i++) {
                    T::template multiply<KEY_STEPS>(out[i][2 * c], shares[i], b[0]);
                    T::template multiply<KEY_STEPS>(out[i][2 * c + 1], shares[i], b[1]);
                }
            }
        }

        UNROLL for (u32 i = 0; i < QUERIES; i++) {
            UNROLL for (u32 h = 0; h < 2; h++) {
                f32 whole = sum[i][h];
                whole += shuffle_xor(whole, 1);
                whole += shuffle_xor(whole, 2);
                const f32 share = 1.0f / whole;
                const u32 token = first + (warp * QUERIES + i) * 16 + h * 8 + lane / 4;
                UNROLL for (u32 c = 0; c < HEAD / 8; c++) {
                    const u32 column = c * 8 + lane % 4 * 2;
                    if (token < p.tokens && column < p.head_dim) {
                        store(p.out + u64(token) * p.out_stride + head * p.head_dim + column,
                              T::pair(out[i][c][2 * h] * share, out[i][c][2 * h + 1] * share));
                    }
                }
            }
        }
    }
};

// The host's table (kernels/src/cuda/attention.rs) has the same numbers. Two rows of 16 queries read each key once for both,
// as far as registers allow.
#define HEADS(type, T, HEAD, QUERIES, KEYS)                                             \
    using type##_##HEAD = Block<T, HEAD, QUERIES, KEYS>;                               \
    ENTRY(attention_##type##_##HEAD, (type##_##HEAD::THREADS), 1, Attention, type##_##HEAD::run)

#if SAPIENS_ARCH >= 80
constexpr u32 LONG_KEYS = 64;
HEADS(bf16, Bf16, 32, 2, 64)
HEADS(bf16, Bf16, 64, 2, 64)
HEADS(bf16, Bf16, 80, 2, 64)
HEADS(bf16, Bf16, 128, 1, 64)
#else
// Buffers of 64 keys of 128 values are more than a block of Turing has.
constexpr u32 LONG_KEYS = 32;
#endif
HEADS(f16, F16, 32, 2, 64)
HEADS(f16, F16, 64, 2, 64)
HEADS(f16, F16, 80, 2, 64)
HEADS(f16, F16, 128, 1, LONG_KEYS)
HEADS(f16_promoted, F16Promoted, 32, 2, 64)
HEADS(f16_promoted, F16Promoted, 64, 2, 64)
HEADS(f16_promoted, F16Promoted, 80, 2, 64)
HEADS(f16_promoted, F16Promoted, 128, 1, LONG_KEYS)
