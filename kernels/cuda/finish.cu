// What product.cu does with its sums, for products that are already stored as 16-bit values: GELU, SwiGLU, LayerScale and residual,
// each after a bias; or the moments that an InstanceNorm needs.
//
// All of it waits for memory, so a thread starts all its loads before it needs the first value.
#include "activation.cuh"

struct Finish {
    // Rows of `columns` values, `stride` apart.
    const u16 *raw;
    // `[columns]`, or null.
    const f32 *bias;
    // May be `raw`: who writes a value has read it.
    void *out;
    // What THEN_ADD scales by, `[columns]`, or null.
    const f32 *scale;
    u32 rows, columns;
    u32 stride, out_stride;
    u32 then;
    u32 unused;
};

// As in product.cu. Anything else goes through GELU in its exact form (1 on the host).
constexpr u32 THEN_SWIGLU = 2;
constexpr u32 THEN_ADD = 3;

struct Moments {
    // Rows of `columns` values, `stride` apart.
    const u16 *values;
    // `[rows / MOMENT_ROWS rounded up, 2, columns]`, mean and sum of squared distances from it.
    f32 *moments;
    u32 rows, columns;
    u32 stride;
    u32 unused;
};

constexpr u32 THREADS = 256;
// Of a thread, four columns each. Its bias and scale are read once for all of them.
constexpr u32 ROWS = 4;

template <class T>
DEVICE FourFloats floats(Two x) {
    return FourFloats{T::low(x.x), T::high(x.x), T::low(x.y), T::high(x.y)};
}

// Threads are counted along rows, whatever their length: neighbours have neighbouring columns, and none is idle.
template <class T>
DEVICE void finish(const Finish &p) {
    const u32 thread = blockIdx.x * THREADS + threadIdx.x, groups = p.columns / 4;
    const u32 column = thread % groups * 4, first = thread / groups * ROWS;
    if (first >= p.rows) return;
    const u32 count = smaller(ROWS, p.rows - first);
    Two raw[ROWS];
    FourFloats before[ROWS];
    UNROLL for (u32 i = 0; i < ROWS; i++) {
        if (i < count) {
            raw[i] = load<Two>(p.raw + u64(first + i) * p.stride + column);
            if (p.then == THEN_ADD) {
                before[i] = load<FourFloats>(static_cast<f32 *>(p.out) + u64(first + i) * p.out_stride + column);
            }
        }
    }
    FourFloats bias{0.0f, 0.0f, 0.0f, 0.0f}, scale{1.0f, 1.0f, 1.0f, 1.0f};
    if (p.bias) bias = load<FourFloats>(p.bias + column);
    if (p.scale) scale = load<FourFloats>(p.scale + column);
    UNROLL for (u32 i = 0; i < ROWS; i++) {
        if (i < count) {
            FourFloats x = floats<T>(raw[i]);
            x = FourFloats{x.x + bias.x, x.y + bias.y, x.z + bias.z, x.w + bias.w};
            const u64 row = u64(first + i) * p.out_stride;
            if (p.then == THEN_ADD) {
                store(static_cast<f32 *>(p.out) + row + column,
                      FourFloats{before[i].x + scale.x * x.x, before[i].y + scale.y * x.y, before[i].z + scale.z * x.z,
                                 before[i].w + scale.w * x.w});
            } else if (p.then == THEN_SWIGLU) {
                store(static_cast<u16 *>(p.out) + row + column / 2, T::pair(silu(x.x) * x.y, silu(x.z) * x.w));
            } else {
                x = FourFloats{gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w)};
                store(static_cast<u16 *>(p.out) + row + column, Two{T::pair(x.x, x.y), T::pair(x.z, x.w)});
            }
        }
    }
}

// Of a block, which leaves their moments.
constexpr u32 MOMENT_ROWS = 64;
constexpr u32 MOMENT_THREADS = 256, MOMENT_WARPS = MOMENT_THREADS / WARP;
// Of a warp, which has every eighth row.
constexpr u32 WARP_ROWS = MOMENT_ROWS / MOMENT_WARPS;

// Sums over the warps of what each brought for its lane's four columns; all get them. `partial` has room for four values
// of each thread, and is used once.
DEVICE FourFloats sum_over_warps(FourFloats x, f32 *partial) {
    store(partial + threadIdx.x * 4, x);
    barrier();
    FourFloats sum{0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (u32 warp = 0; warp < MOMENT_WARPS; warp++) {
        const FourFloats other = load<FourFloats>(partial + (warp * WARP + lane_index()) * 4);
        sum = FourFloats{sum.x + other.x, sum.y + other.y, sum.z + other.z, sum.w + other.w};
    }
    return sum;
}

// A lane has four columns. Values stay in registers for two passes: the mean first, then the squared distances from it,
// so that nothing large cancels.
template <class T>
DEVICE void moments(const Moments &p) {
    f32 *partial = reinterpret_cast<f32 *>(shared_memory());
    const u32 warp = threadIdx.x / WARP, column = (blockIdx.y * WARP + lane_index()) * 4;
    const u32 first = blockIdx.x * MOMENT_ROWS, count = smaller(MOMENT_ROWS, p.rows - first);
    const bool there = column < p.columns;
    Two values[WARP_ROWS];
    UNROLL for (u32 i = 0; i < WARP_ROWS; i++) {
        const u32 row = i * MOMENT_WARPS + warp;
        values[i] = Two{0, 0};
        if (there && row < count) values[i] = load<Two>(p.values + u64(first + row) * p.stride + column);
    }
    FourFloats sum{0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (u32 i = 0; i < WARP_ROWS; i++) {
        const FourFloats x = floats<T>(values[i]);
        sum = FourFloats{sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
    }
    sum = sum_over_warps(sum, partial);
    const FourFloats mean{sum.x / f32(count), sum.y / f32(count), sum.z / f32(count), sum.w / f32(count)};
    FourFloats squares{0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (u32 i = 0; i < WARP_ROWS; i++) {
        if (i * MOMENT_WARPS + warp < count) {
            FourFloats x = floats<T>(values[i]);
            x = FourFloats{x.x - mean.x, x.y - mean.y, x.z - mean.z, x.w - mean.w};
            squares = FourFloats{squares.x + x.x * x.x, squares.y + x.y * x.y, squares.z + x.z * x.z,
                                 squares.w + x.w * x.w};
        }
    }
    squares = sum_over_warps(squares, partial + MOMENT_THREADS * 4);
    if (there && warp == 0) {
        f32 *to = p.moments + u64(blockIdx.x) * 2 * p.columns + column;
        store(to, mean);
        store(to + p.columns, squares);
    }
}

ENTRY(finish_f16, THREADS, 4, Finish, finish<F16>)
ENTRY(finish_moments_f16, MOMENT_THREADS, 4, Moments, moments<F16>)
#if SAPIENS_ARCH >= 80
ENTRY(finish_bf16, THREADS, 4, Finish, finish<Bf16>)
ENTRY(finish_moments_bf16, MOMENT_THREADS, 4, Moments, moments<Bf16>)
#endif
