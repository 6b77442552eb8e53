// LayerNorm and RMSNorm of rows of float32: a block for each row, whose values it keeps in registers.
#include "device.cuh"

struct Norm {
    const f32 *x;
    const f32 *weight;
    // Null for RMSNorm.
    const f32 *bias;
    u16 *out;
    u32 columns;
    f32 epsilon;
};

constexpr u32 THREADS = 128, WARPS = THREADS / WARP;
// Of each thread, four values each: rows of up to 4096.
constexpr u32 PARTS = 8;

// Sum over the block; all get it. `partial` has room for a value of each warp, and is used once.
DEVICE f32 block_sum(f32 x, f32 *partial) {
    x = warp_sum(x);
    if (lane_index() == 0) partial[threadIdx.x / WARP] = x;
    barrier();
    f32 sum = 0.0f;
    UNROLL for (u32 i = 0; i < WARPS; i++) sum += partial[i];
    return sum;
}

template <class T>
DEVICE void norm(const Norm &p) {
    f32 *partial = reinterpret_cast<f32 *>(shared_memory());
    const f32 *x = p.x + u64(blockIdx.x) * p.columns;
    FourFloats parts[PARTS];
    f32 sum = 0.0f;
    UNROLL for (u32 i = 0; i < PARTS; i++) {
        const u32 column = (i * THREADS + threadIdx.x) * 4;
        parts[i] = FourFloats{0.0f, 0.0f, 0.0f, 0.0f};
        if (column < p.columns) parts[i] = load<FourFloats>(x + column);
        sum += parts[i].x + parts[i].y + parts[i].z + parts[i].w;
    }
    f32 mean = 0.0f;
    if (p.bias) mean = block_sum(sum, partial) / f32(p.columns);
    f32 squares = 0.0f;
    UNROLL for (u32 i = 0; i < PARTS; i++) {
        if ((i * THREADS + threadIdx.x) * 4 < p.columns) {
            parts[i] = FourFloats{parts[i].x - mean, parts[i].y - mean, parts[i].z - mean, parts[i].w - mean};
            squares += parts[i].x * parts[i].x + parts[i].y * parts[i].y + parts[i].z * parts[i].z +
                       parts[i].w * parts[i].w;
        }
    }
    const f32 root = root_reciprocal(block_sum(squares, partial + WARPS) / f32(p.columns) + p.epsilon);
    UNROLL for (u32 i = 0; i < PARTS; i++) {
        const u32 column = (i * THREADS + threadIdx.x) * 4;
        if (column < p.columns) {
            const FourFloats weight = load<FourFloats>(p.weight + column);
            FourFloats bias{0.0f, 0.0f, 0.0f, 0.0f};
            if (p.bias) bias = load<FourFloats>(p.bias + column);
            store(p.out + u64(blockIdx.x) * p.columns + column,
                  Two{T::pair(parts[i].x * root * weight.x + bias.x, parts[i].y * root * weight.y + bias.y),
                      T::pair(parts[i].z * root * weight.z + bias.z, parts[i].w * root * weight.w + bias.w)});
        }
    }
}

ENTRY(norm_f16, THREADS, 4, Norm, norm<F16>)
#if SAPIENS_ARCH >= 80
ENTRY(norm_bf16, THREADS, 4, Norm, norm<Bf16>)
#endif
