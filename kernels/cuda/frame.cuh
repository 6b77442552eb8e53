// A frame in memory, as frame.cu reads it and overlay.cu paints on it. The host's twin is in kernels/src/cuda/frame.rs.
#pragma once
#include "device.cuh"

struct Pixels {
    // The first samples of R, G and B, of Y, U and V, or of Y alone.
    u8 *parts[3];
    // Bytes from one row to the next and from one sample to the next. Neither is a multiple of anything.
    u32 strides[3], steps[3];
    u32 width, height;
    u32 colours;
    // A sample of U and V is for 2^block_x times 2^block_y pixels; 0 of others.
    u32 block_x, block_y;
    u32 unused;
};

constexpr u32 PACKED = 0, GRAY = 1, YUV = 2;

DEVICE u8 *sample(const Pixels &pixels, u32 part, u32 x, u32 y) {
    return pixels.parts[part] + u64(y) * pixels.strides[part] + x * pixels.steps[part];
}
