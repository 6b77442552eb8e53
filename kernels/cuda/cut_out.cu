// Pixels whose label isn't shown become transparent, in the frame's own memory: kernels/src/reference/frame.rs says how.
//
// A thread has several pixels, a warp's width apart: their labels are on the way together. Bound by memory: no pixel is read,
// and what keeps its alpha isn't touched.
#include "frame.cuh"

struct CutOut {
    // Packed, four bytes each.
    Pixels pixels;
    // `[height, width]`, or null: no pixel is shown.
    const u8 *labels;
    // Of each label, 0 or 1.
    const u8 *shown;
    // Bytes from a pixel's R to its alpha.
    i32 alpha;
    // Whether alpha of what is shown stays; it becomes opaque otherwise.
    u32 keeps;
};

// Pixels of a block of threads, as many rows of them as it has warps.
constexpr u32 PIXELS = 4, COLUMNS = PIXELS * WARP, ROWS = 4;

DEVICE void cut(const CutOut &p) {
    const u32 left = blockIdx.x * COLUMNS + lane_index(), y = blockIdx.y * ROWS + threadIdx.x / WARP;
    if (y >= p.pixels.height) return;
    bool shown[PIXELS];
    UNROLL for (u32 i = 0; i < PIXELS; i++) {
        const u32 x = left + i * WARP;
        const u64 at = u64(y) * p.pixels.width + x;
        shown[i] = p.labels && x < p.pixels.width && load<u8>(p.shown + load<u8>(p.labels + at));
    }
    UNROLL for (u32 i = 0; i < PIXELS; i++) {
        const u32 x = left + i * WARP;
        if (x >= p.pixels.width || (shown[i] && p.keeps)) continue;
        store(sample(p.pixels, 0, x, y) + p.alpha, u8(shown[i] ? 255 : 0));
    }
}

ENTRY(cut_out, (ROWS * WARP), 8, CutOut, cut)
