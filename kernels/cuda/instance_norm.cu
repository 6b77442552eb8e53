// InstanceNorm without weights, and SiLU: from the moments that a product leaves beside its results to statistics of each
// channel, and those applied in place.
#include "activation.cuh"

struct Statistics {
    // `[phases * blocks, 2, columns]`: see product.cu.
    const f32 *moments;
    // `[2, columns]`: means and what distances from them are multiplied by.
    f32 *statistics;
    u32 phases, blocks;
    // Rows of each phase and of each block; the last block of a phase has what is left.
    u32 rows, block_rows;
    u32 columns;
    f32 epsilon;
};

struct Apply {
    // `[rows, columns]`.
    u16 *x;
    const f32 *statistics;
    u64 values;
    u32 columns;
};

constexpr u32 STATISTICS_THREADS = 1024, STATISTICS_WARPS = STATISTICS_THREADS / WARP;

// Sum over the warps of what each brought for its lane; all get it.
DEVICE f32 sum_over_warps(f32 x, f32 *shared) {
    const u32 lane = lane_index();
    // Those of an earlier sum have been read.
    barrier();
    shared[threadIdx.x] = x;
    barrier();
    f32 sum = 0.0f;
    for (u32 warp = 0; warp < STATISTICS_WARPS; warp++) sum += shared[warp * WARP + lane];
    return sum;
}

// A lane has a column, a warp every 32nd block of rows. Two passes: the mean first, then the squared distances from it,
// so that nothing large cancels.
DEVICE void statistics(const Statistics &p) {
    f32 *shared = reinterpret_cast<f32 *>(shared_memory());
    const u32 column = blockIdx.x * WARP + lane_index(), warp = threadIdx.x / WARP;
    const bool there = column < p.columns;
    const u32 last_rows = p.rows - (p.blocks - 1) * p.block_rows;
    const f32 all = f32(p.rows) * f32(p.phases);
    f32 sum = 0.0f;
    for (u32 block = warp; there && block < p.phases * p.blocks; block += STATISTICS_WARPS) {
        const f32 rows = f32(block % p.blocks + 1 == p.blocks ? last_rows : p.block_rows);
        sum += rows * p.moments[u64(block) * 2 * p.columns + column];
    }
    const f32 mean = sum_over_warps(sum, shared) / all;
    f32 squares = 0.0f;
    for (u32 block = warp; there && block < p.phases * p.blocks; block += STATISTICS_WARPS) {
        const f32 rows = f32(block % p.blocks + 1 == p.blocks ? last_rows : p.block_rows);
        const f32 *of = p.moments + u64(block) * 2 * p.columns + column;
        const f32 distance = of[0] - mean;
        squares += of[p.columns] + rows * distance * distance;
    }
    const f32 variance = sum_over_warps(squares, shared) / all;
    if (there && warp == 0) {
        p.statistics[column] = mean;
        p.statistics[p.columns + column] = root_reciprocal(variance + p.epsilon);
    }
}

constexpr u32 APPLY_THREADS = 256;

// Eight neighbouring channels a thread.
template <class T>
DEVICE void apply(const Apply &p) {
    const u64 at = (u64(blockIdx.x) * APPLY_THREADS + threadIdx.x) * 8;
    if (at >= p.values) return;
    const f32 *mean = p.statistics + u32(at % p.columns), *factor = mean + p.columns;
    Four x = load<Four>(p.x + at);
    u32 *pairs = &x.x;
    UNROLL for (u32 i = 0; i < 4; i++) {
        const f32 low = (T::low(pairs[i]) - mean[2 * i]) * factor[2 * i];
        const f32 high = (T::high(pairs[i]) - mean[2 * i + 1]) * factor[2 * i + 1];
        pairs[i] = T::pair(silu(low), silu(high));
    }
    store(p.x + at, x);
}

ENTRY(instance_norm_statistics, STATISTICS_THREADS, 1, Statistics, statistics)
ENTRY(instance_norm_silu_f16, APPLY_THREADS, 1, Apply, apply<F16>)
#if SAPIENS_ARCH >= 80
ENTRY(instance_norm_silu_bf16, APPLY_THREADS, 1, Apply, apply<Bf16>)
#endif
