// out = a weights^T, with what follows a product in the networks done before anything is stored.
//
// A block computes BM x BN of the result, a warp WM x WN of that. Slices of 64 of the depth go through STAGES buffers in
// shared memory; while one is multiplied, asynchronous copies fill the others. A row of a slice is 128 bytes, eight chunks of
// 16, whose places are permuted by the row so that neither the copies nor the matrix loads meet in a bank.
//
// The same kernel is ConvTranspose2d with kernel 4, stride 2 and padding 1: each of four phases (even or odd rows and
// columns of the result) is a product of depth 4 * channels, whose row for a pixel is four pixels of the input side by
// side. They are gathered while they are copied; what lies outside of the image is zero.
#include "activation.cuh"

struct Product {
    // Rows of `depth` values, `a_stride` apart; for a ConvTranspose `[height, width, channels]`.
    const u16 *a;
    // `[columns, depth]`; for a ConvTranspose `[4, columns, 4, channels]`, phases by row and column, taps from the
    // pixel's own to its neighbour's in the phase's direction, columns faster.
    const u16 *weights;
    // `[columns]`, or null; none with THEN_MOMENTS.
    const f32 *bias;
    void *out;
    // What THEN_ADD scales by, `[columns]`, or null.
    const f32 *scale;
    // Of THEN_MOMENTS: `[phases, rows / WM rounded up, 2, columns]`, mean and sum of squared distances from it.
    f32 *moments;
    u32 rows, columns, depth;
    u32 a_stride, out_stride;
    u32 then;
    u32 height, width, channels;
    u32 unused;
};

// Anything else is stored as it is (0 on the host).
// Through GELU in its exact form.
constexpr u32 THEN_GELU = 1;
// Of every two neighbouring columns, silu of the first times the second: half as many columns.
constexpr u32 THEN_SWIGLU = 2;
// Added to the float32 values that are there.
constexpr u32 THEN_ADD = 3;
// In float32.
constexpr u32 THEN_STORE_F32 = 4;
// Stored, and each column's moments beside it.
constexpr u32 THEN_MOMENTS = 5;

// Depth of a slice, in values and in chunks.
constexpr u32 SLICE = 64, CHUNK = 8, CHUNKS = SLICE / CHUNK;

// Where a chunk of a row lies in its buffer: eight rows that follow each other have it in eight different places.
DEVICE u32 place(u32 row, u32 chunk) { return (row * CHUNKS + (chunk ^ (row & 7))) * CHUNK; }

// Rows of a matrix.
struct Dense {
    static DEVICE const u16 *weights(const Product &p) { return p.weights; }

    // One thread's share of a slice: chunk `chunk` of a row.
    struct Row {
        const u16 *start;
        bool there;

        DEVICE Row() {}
        DEVICE Row(const Product &p, u32 row) : start(p.a + u64(row) * p.a_stride), there(row < p.rows) {}
        DEVICE void copy(const Product &p, u32 k, u16 *to) const {
            const bool inside = there && k < p.depth;
            copy_async<16>(to, inside ? start + k : p.a, inside);
        }
    };

    static DEVICE u64 out_row(const Product &, u32 row) { return row; }
    static DEVICE u32 phase() { return 0; }
};

// Pixels and their neighbours.
struct Deconv {
    static DEVICE u32 phase() { return blockIdx.z; }
    static DEVICE const u16 *weights(const Product &p) { return p.weights + u64(phase()) * p.columns * p.depth; }

    struct Row {
        i32 y, x;
        bool there;

        DEVICE Row() {}
        DEVICE Row(const Product &p, u32 row) : y(row / p.width), x(row % p.width), there(row < p.rows) {}
        DEVICE void copy(const Product &p, u32 k, u16 *to) const {
            const u32 tap = k / p.channels;
            // Even rows of the result see the row above, odd ones the row below; columns alike.
            const i32 dy = (tap >> 1) ? (phase() >> 1 ? 1 : -1) : 0, dx = (tap & 1) ? (phase() & 1 ? 1 : -1) : 0;
            const u32 row = u32(y + dy), column = u32(x + dx);
            const bool inside = there && k < p.depth && row < p.height && column < p.width;
            const u64 at = (u64(row) * p.width + column) * p.channels + (k - tap * p.channels);
            copy_async<16>(to, inside ? p.a + at : p.a, inside);
        }
    };

    static DEVICE u64 out_row(const Product &p, u32 row) {
        const u32 y = row / p.width, x = row % p.width;
        return u64(2 * y + (phase() >> 1)) * (2 * p.width) + 2 * x + (phase() & 1);
    }
};

template <class T, class Source, u32 BM, u32 BN, u32 WM, u32 WN, u32 STAGES, u32 DEPTH>
struct Tile {
    static constexpr u32 WARPS_M = BM / WM, WARPS_N = BN / WN, THREADS = WARPS_M * WARPS_N * WARP;
    static constexpr u32 TILES_M = WM / 16, TILES_N = WN / 8;
    // Rows that all threads together copy at once, eight threads a row.
    static constexpr u32 ROWS = THREADS / CHUNKS;
    static constexpr u32 STAGE = (BM + BN) * SLICE;
    static_assert(BM * BN * sizeof(f32) <= STAGES * STAGE * sizeof(u16), "results take the buffers' place");

    static DEVICE void copy(const Product &p, const typename Source::Row (&rows)[BM / ROWS], u32 slice, u16 *stage) {
        const u32 chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS, k = slice * SLICE + chunk * CHUNK;
        UNROLL for (u32 i = 0; i < BM / ROWS; i++) {
            rows[i].copy(p, k, stage + place(first + i * ROWS, chunk));
        }
        const u16 *weights = Source::weights(p);
        UNROLL for (u32 i = 0; i < BN / ROWS; i++) {
            const u32 row = first + i * ROWS, column = blockIdx.y * BN + row;
            const bool inside = column < p.columns && k < p.depth;
            const u16 *from = inside ? weights + u64(column) * p.depth + k : weights;
            copy_async<16>(stage + BM * SLICE + place(row, chunk), from, inside);
        }
    }

    // Adds a slice's part to the sums of this warp: sums[i][j] is its rows from 16 i on and its columns from 8 j on.
    static DEVICE void multiply(const u16 *stage, u32 warp_m, u32 warp_n, f32 (&sums)[TILES_M][TILES_N][4]) {
        const u32 lane = lane_index(), matrix = lane / 8, row = lane % 8;
        const u32 a_row = warp_m * WM + row + matrix % 2 * 8, weights_row = warp_n * WN + row + matrix / 2 * 8;
        UNROLL for (u32 k = 0; k < SLICE / 16; k += DEPTH) {
            u32 a[TILES_M][DEPTH][4];
            UNROLL for (u32 i = 0; i < TILES_M; i++) {
                UNROLL for (u32 d = 0; d < DEPTH; d++) {
                    load_matrices(a[i][d], stage + place(a_row + i * 16, 2 * (k + d) + matrix / 2));
                }
            }
            UNROLL for (u32 j = 0; j < TILES_N; j += 2) {
                u32 b[2][2 * DEPTH];
                UNROLL for (u32 d = 0; d < DEPTH; d++) {
                    u32 m[4];
                    load_matrices(m, stage + BM * SLICE + place(weights_row + j * 8, 2 * (k + d) + matrix % 2));
                    b[0][2 * d] = m[0];
                    b[0][2 * d + 1] = m[1];
                    b[1][2 * d] = m[2];
                    b[1][2 * d + 1] = m[3];
                }
                UNROLL for (u32 i = 0; i < TILES_M; i++) {
                    T::template multiply<DEPTH>(sums[i][j], a[i], b[0]);
                    T::template multiply<DEPTH>(sums[i][j + 1], a[i], b[1]);
                }
            }
        }
    }

    // What follows for four columns of one row.
    static DEVICE void finish(const Product &p, u64 row, u32 column, FourFloats x) {
        const u64 at = row * p.out_stride + column;
        if (p.then == THEN_ADD) {
            f32 *to = static_cast<f32 *>(p.out) + at;
            FourFloats before = load<FourFloats>(to), scale{1.0f, 1.0f, 1.0f, 1.0f};
            if (p.scale) scale = load<FourFloats>(p.scale + column);
            store(to, FourFloats{before.x + scale.x * x.x, before.y + scale.y * x.y, before.z + scale.z * x.z,
                                 before.w + scale.w * x.w});
        } else if (p.then == THEN_STORE_F32) {
            store(static_cast<f32 *>(p.out) + at, x);
        } else if (p.then == THEN_SWIGLU) {
            u16 *to = static_cast<u16 *>(p.out) + row * p.out_stride + column / 2;
            store(to, T::pair(silu(x.x) * x.y, silu(x.z) * x.w));
        } else {
            if (p.then == THEN_GELU) x = FourFloats{gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w)};
            store(static_cast<u16 *>(p.out) + at, Two{T::pair(x.x, x.y), T::pair(x.z, x.w)});
        }
    }

    // A warp's results in shared memory, where it can walk along rows: groups of eight columns, permuted so that the
    // eight rows which are written at once meet in no bank.
    static DEVICE u32 result(u32 row, u32 column) { return row * WN + ((column / 8) ^ (row & 3)) * 8 + column % 8; }

    // Lanes that share a row of results, and rows that a warp walks along at once.
    static constexpr u32 ROW_LANES = WN / 4, ROWS_AT_ONCE = WARP / ROW_LANES;

    // Sum over the lanes that have the same columns.
    static DEVICE f32 column_sum(f32 x) {
        UNROLL for (u32 mask = ROW_LANES; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
        return x;
    }

    // Mean and squared distances from it of each column of the warp's first `count` rows.
    static DEVICE void moments(const Product &p, const f32 *results, u32 first_row, u32 column, u32 count) {
        const u32 lane = lane_index(), lane_column = lane % ROW_LANES * 4;
        f32 mean[4], squares[4];
        UNROLL for (u32 c = 0; c < 4; c++) {
            f32 sum = 0.0f;
            for (u32 row = lane / ROW_LANES; row < count; row += ROWS_AT_ONCE) {
                sum += results[result(row, lane_column + c)];
            }
            mean[c] = column_sum(sum) / f32(count);
            f32 square = 0.0f;
            for (u32 row = lane / ROW_LANES; row < count; row += ROWS_AT_ONCE) {
                const f32 distance = results[result(row, lane_column + c)] - mean[c];
                square += distance * distance;
            }
            squares[c] = column_sum(square);
        }
        if (lane < ROW_LANES && column < p.columns) {
            const u32 blocks = (p.rows + WM - 1) / WM, block = Source::phase() * blocks + first_row / WM;
            f32 *to = p.moments + u64(block) * 2 * p.columns + column;
            store(to, FourFloats{mean[0], mean[1], mean[2], mean[3]});
            store(to + p.columns, FourFloats{squares[0], squares[1], squares[2], squares[3]});
        }
    }

    static DEVICE void run(const Product &p) {
        u16 *stages = reinterpret_cast<u16 *>(shared_memory());
        const u32 warp = threadIdx.x / WARP, warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
        typename Source::Row rows[BM / ROWS];
        UNROLL for (u32 i = 0; i < BM / ROWS; i++) {
            rows[i] = typename Source::Row(p, blockIdx.x * BM + threadIdx.x / CHUNKS + i * ROWS);
        }
        const u32 slices = (p.depth + SLICE - 1) / SLICE;
        UNROLL for (u32 s = 0; s < STAGES - 1; s++) {
            if (s < slices) copy(p, rows, s, stages + s * STAGE);
            copy_async_commit();
        }
        f32 sums[TILES_M][TILES_N][4] = {};
        for (u32 slice = 0; slice < slices; slice++) {
            // This slice has arrived, for this thread and then for all; and all are done with the one before, whose
            // buffer is filled next.
            copy_async_wait<STAGES - 2>();
            barrier();
            const u32 next = slice + STAGES - 1;
            if (next < slices) copy(p, rows, next, stages + next % STAGES * STAGE);
            copy_async_commit();
            multiply(stages + slice % STAGES * STAGE, warp_m, warp_n, sums);
        }

        // The buffers are free once all are done with the last slice.
        barrier();
        const u32 lane = lane_index();
        f32 *results = reinterpret_cast<f32 *>(stages) + warp * WM * WN;
        UNROLL for (u32 i = 0; i < TILES_M; i++) {
            UNROLL for (u32 j = 0; j < TILES_N; j++) {
                UNROLL for (u32 h = 0; h < 2; h++) {
                    f32 *to = results + result(i * 16 + h * 8 + lane / 4, j * 8 + lane % 4 * 2);
                    store(to, TwoFloats{sums[i][j][2 * h], sums[i][j][2 * h + 1]});
                }
            }
        }
        warp_barrier();
        const u32 first_row = blockIdx.x * BM + warp_m * WM, lane_column = lane % ROW_LANES * 4;
        const u32 column = blockIdx.y * BN + warp_n * WN + lane_column;
        if (first_row >= p.rows) return;
        const u32 count = smaller(WM, p.rows - first_row);
        // A bias before InstanceNorm changes nothing, so these two never meet.
        if (p.then == THEN_MOMENTS) moments(p, results, first_row, column, count);
        if (column >= p.columns) return;
        FourFloats bias{0.0f, 0.0f, 0.0f, 0.0f};
        if (p.bias) bias = load<FourFloats>(p.bias + column);
        for (u32 row = lane / ROW_LANES; row < count; row += ROWS_AT_ONCE) {
            const FourFloats x = load<FourFloats>(results + result(row, lane_column));
            finish(p, Source::out_row(p, first_row + row), column,
                   FourFloats{x.x + bias.x, x.y + bias.y, x.z + bias.z, x.w + bias.w});
        }
    }
};

// A tile for products and ConvTransposes. The host's table (kernels/src/cuda/product.rs) says where each is used, and has
// the same numbers.
#define TILES(type, T, BM, BN, WM, WN, STAGES, DEPTH, BLOCKS)                                                          \
    using type##_##BM##x##BN = Tile<T, Dense, BM, BN, WM, WN, STAGES, DEPTH>;                                         \
    using type##_##BM##x##BN##_deconv = Tile<T, Deconv, BM, BN, WM, WN, STAGES, DEPTH>;                               \
    ENTRY(product_##type##_##BM##x##BN, (type##_##BM##x##BN::THREADS), BLOCKS, Product, type##_##BM##x##BN::run)        \
    ENTRY(deconv_##type##_##BM##x##BN, (type##_##BM##x##BN::THREADS), BLOCKS, Product, type##_##BM##x##BN##_deconv::run)

#if SAPIENS_ARCH >= 80
TILES(f16, F16, 128, 256, 64, 64, 3, 1, 1)
TILES(f16, F16, 128, 128, 64, 32, 3, 1, 1)
TILES(f16, F16, 64, 64, 32, 32, 3, 1, 2)
TILES(f16_promoted, F16Promoted, 128, 128, 64, 32, 3, 4, 1)
TILES(f16_promoted, F16Promoted, 64, 64, 32, 32, 3, 4, 2)
TILES(bf16, Bf16, 128, 256, 64, 64, 3, 1, 1)
TILES(bf16, Bf16, 128, 128, 64, 32, 3, 1, 1)
TILES(bf16, Bf16, 64, 64, 32, 32, 3, 1, 2)
#else
// Two stages: a block of Turing has 64 KiB.
TILES(f16, F16, 128, 128, 64, 32, 2, 1, 1)
TILES(f16, F16, 64, 64, 32, 32, 2, 1, 2)
TILES(f16_promoted, F16Promoted, 128, 128, 64, 32, 2, 4, 1)
TILES(f16_promoted, F16Promoted, 64, 64, 32, 32, 2, 4, 2)
#endif
