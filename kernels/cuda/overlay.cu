// Labels are painted over their frame, in its own format and memory: kernels/src/frame.rs says what a tint does.
//
// A thread has the pixels that share a sample of chroma, or one pixel where none do. Bound by memory: each byte of what is
// shown is read and written once, and pixels that stay as they are aren't touched.
#include "frame.cuh"

struct alignas(8) Tint {
    u16 keep, add[3];
};

struct Overlay {
    Pixels pixels;
    // `[height, width]`.
    const u8 *labels;
    // Of each label.
    const Tint *tints;
};

constexpr u32 OPAQUE = 256;
// Pixels, or blocks of them, that a block of threads has: a row of them to each warp.
constexpr u32 COLUMNS = WARP, ROWS = 4;

// Of so many pixels' tints together.
DEVICE void mix(u8 *value, u32 keep, u32 add, u32 pixels) {
    const u32 whole = OPAQUE * pixels;
    store(value, u8((load<u8>(value) * keep + add + whole / 2) / whole));
}

DEVICE void paint(const Overlay &p) {
    const Pixels &pixels = p.pixels;
    const u32 block_column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const u32 block_row = blockIdx.y * ROWS + threadIdx.x / COLUMNS;
    const u32 left = block_column << pixels.block_x, top = block_row << pixels.block_y;
    if (left >= pixels.width || top >= pixels.height) return;
    u32 keep = 0, add[3] = {0, 0, 0};
    for (u32 dy = 0; dy < 1u << pixels.block_y; dy++) {
        for (u32 dx = 0; dx < 1u << pixels.block_x; dx++) {
            // A block that the edge cuts counts its last pixels twice.
            const u32 x = smaller(left + dx, pixels.width - 1), y = smaller(top + dy, pixels.height - 1);
            const Tint tint = load<Tint>(p.tints + load<u8>(p.labels + u64(y) * pixels.width + x));
            keep += tint.keep;
            UNROLL for (u32 c = 0; c < 3; c++) add[c] += tint.add[c];
            if (tint.keep == OPAQUE || x != left + dx || y != top + dy) continue;
            mix(sample(pixels, 0, x, y), tint.keep, tint.add[0], 1);
            if (pixels.colours != PACKED) continue;
            UNROLL for (u32 c = 1; c < 3; c++) mix(sample(pixels, c, x, y), tint.keep, tint.add[c], 1);
        }
    }
    const u32 count = 1u << (pixels.block_x + pixels.block_y);
    if (pixels.colours != YUV || keep == OPAQUE * count) return;
    UNROLL for (u32 c = 1; c < 3; c++) mix(sample(pixels, c, block_column, block_row), keep, add[c], count);
}

ENTRY(overlay, (COLUMNS * ROWS), 8, Overlay, paint)
