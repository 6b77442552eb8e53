// nvrtc: --fmad=false
// A frame becomes the patches that the network's first product reads: converted to 8-bit RGB, resized, normalised, rounded to
// what the network computes in. Nothing in between is stored.
//
// The host's arithmetic to the bit (kernels/src/resize, kernels/src/frame.rs): integers, and float32 with every operation rounded
// by itself, in the same order. Which source pixels a value is made of, and by which weights, is in tables that the host makes.
//
// A block makes one patch, a thread two pixels that lie side by side: the 32 lanes of a warp write four rows of the patch, 128
// bytes that follow each other for each colour. Neighbours read the same source pixels through the first-level cache; each is
// converted anew by whoever needs it, a dozen integer operations, which is less than keeping it would take. What should bound
// it, not measured, is the number of bytes that are loaded one by one, 12 for a pixel of `Linear` from NV12, and not memory: a
// frame is small.
#include "frame.cuh"

// The source pixels of each of the resized image's columns, or rows.
struct alignas(8) Span {
    // May lie off the image, whose edge pixels are repeated.
    i32 first;
    // Where its weights begin.
    u32 weights;
};

struct Axis {
    // One more than there are: a span's weights end where the next one's begin.
    const Span *spans;
    const f32 *weights;
};

struct Patches {
    Pixels pixels;
    // YUV to RGB, in units of 2^-16.
    i32 y_offset, y, v_to_r, u_to_g, v_to_g, u_to_b;
    Axis columns, rows;
    // What each level of R, G and B becomes: `[3, 256]`.
    const u16 *levels;
    // `[canvas height / 16, canvas width / 16, 3, 16, 16]`.
    u16 *out;
    // The resized frame's size; zeros beside and below it.
    u32 width, height;
    // Of boxes: what sums are multiplied by, or 0 where they are of four pixels.
    f32 scale;
    u32 unused;
};

constexpr u32 SIDE = 16, PATCH = SIDE * SIDE, THREADS = PATCH / 2;

// One destination pixel on one axis.
struct Taps {
    i32 first;
    u32 count;
    const f32 *weights;

    DEVICE Taps(const Axis &axis, u32 i) {
        const Span span = load<Span>(axis.spans + i), next = load<Span>(axis.spans + i + 1);
        first = span.first;
        count = next.weights - span.weights;
        weights = axis.weights + span.weights;
    }

    DEVICE f32 weight(u32 k) const { return load<f32>(weights + k); }
};

DEVICE u32 clamped(i32 i, u32 n) { return u32(smaller(larger(i, 0), i32(n) - 1)); }

DEVICE i32 level(i32 fixed) { return smaller(larger(fixed >> 16, 0), 255); }

// R, G and B of a source pixel; beyond the edges, of the pixel there.
DEVICE void read(const Patches &p, i32 x, i32 y, i32 (&rgb)[3]) {
    const Pixels &pixels = p.pixels;
    const u32 column = clamped(x, pixels.width), row = clamped(y, pixels.height);
    if (pixels.colours == PACKED) {
        UNROLL for (u32 c = 0; c < 3; c++) rgb[c] = load<u8>(sample(pixels, c, column, row));
        return;
    }
    const i32 luma = (i32(load<u8>(sample(pixels, 0, column, row))) - p.y_offset) * p.y + (1 << 15);
    i32 u = 0, v = 0;
    if (pixels.colours == YUV) {
        const u32 block_column = column >> pixels.block_x, block_row = row >> pixels.block_y;
        u = i32(load<u8>(sample(pixels, 1, block_column, block_row))) - 128;
        v = i32(load<u8>(sample(pixels, 2, block_column, block_row))) - 128;
    }
    rgb[0] = level(luma + p.v_to_r * v);
    rgb[1] = level(luma + (p.u_to_g * u + p.v_to_g * v));
    rgb[2] = level(luma + p.u_to_b * u);
}

// Rounded to the nearest whole number, ties to even, and clipped: around 1.5 * 2^23 float32 has whole numbers only.
DEVICE i32 to_byte(f32 value) {
    return i32(bits_of(add_rounded(smaller(larger(value, 0.0f), 255.0f), 12582912.0f)) & 0xFF);
}

// A row's sum over its columns in float32.
DEVICE void sum_columns(const Patches &p, const Taps &columns, u32 count, i32 y, f32 (&sums)[3]) {
    UNROLL for (u32 c = 0; c < 3; c++) sums[c] = 0.0f;
    for (u32 j = 0; j < count; j++) {
        i32 rgb[3];
        read(p, columns.first + i32(j), y, rgb);
        const f32 weight = columns.weight(j);
        UNROLL for (u32 c = 0; c < 3; c++) sums[c] = add_rounded(sums[c], multiply_rounded(f32(rgb[c]), weight));
    }
}

// Two taps each way, whose weights are whole numbers.
struct Linear {
    static DEVICE void make(const Patches &p, const Taps &columns, const Taps &rows, i32 (&out)[3]) {
        const i32 left = i32(columns.weight(0)), right = i32(columns.weight(1));
        UNROLL for (u32 c = 0; c < 3; c++) out[c] = 2;
        UNROLL for (u32 k = 0; k < 2; k++) {
            i32 a[3], b[3];
            read(p, columns.first, rows.first + i32(k), a);
            read(p, columns.first + 1, rows.first + i32(k), b);
            const i32 weight = i32(rows.weight(k));
            UNROLL for (u32 c = 0; c < 3; c++) out[c] += ((a[c] * left + b[c] * right) >> 4) * weight >> 16;
        }
        UNROLL for (u32 c = 0; c < 3; c++) out[c] >>= 2;
    }
};

// Whole pixels, one of them where nothing is resized.
struct Box {
    static DEVICE void make(const Patches &p, const Taps &columns, const Taps &rows, i32 (&out)[3]) {
        u32 sums[3] = {0, 0, 0};
        for (u32 k = 0; k < rows.count; k++) {
            for (u32 j = 0; j < columns.count; j++) {
                i32 rgb[3];
                read(p, columns.first + i32(j), rows.first + i32(k), rgb);
                UNROLL for (u32 c = 0; c < 3; c++) sums[c] += u32(rgb[c]);
            }
        }
        UNROLL for (u32 c = 0; c < 3; c++) {
            // Ties of four pixels go up, others to even.
            out[c] = p.scale == 0.0f ? i32((sums[c] + 2) >> 2) : to_byte(multiply_rounded(f32(sums[c]), p.scale));
        }
    }
};

// Pixels and fractions of them.
struct Area {
    static DEVICE void make(const Patches &p, const Taps &columns, const Taps &rows, i32 (&out)[3]) {
        f32 sums[3] = {0.0f, 0.0f, 0.0f};
        for (u32 k = 0; k < rows.count; k++) {
            f32 row[3];
            sum_columns(p, columns, columns.count, rows.first + i32(k), row);
            const f32 weight = rows.weight(k);
            UNROLL for (u32 c = 0; c < 3; c++) sums[c] = add_rounded(sums[c], multiply_rounded(row[c], weight));
        }
        UNROLL for (u32 c = 0; c < 3; c++) out[c] = to_byte(sums[c]);
    }
};

// Four taps each way. Rows are added from the last one on.
struct Cubic {
    static DEVICE void make(const Patches &p, const Taps &columns, const Taps &rows, i32 (&out)[3]) {
        f32 sums[3] = {0.0f, 0.0f, 0.0f};
        for (u32 k = 4; k-- > 0;) {
            f32 row[3];
            sum_columns(p, columns, 4, rows.first + i32(k), row);
            const f32 weight = rows.weight(k);
            UNROLL for (u32 c = 0; c < 3; c++) sums[c] = add_rounded(multiply_rounded(row[c], weight), sums[c]);
        }
        UNROLL for (u32 c = 0; c < 3; c++) out[c] = to_byte(sums[c]);
    }
};

template <class Filter>
DEVICE void make_patch(const Patches &p) {
    const u32 x = threadIdx.x % (SIDE / 2) * 2, y = threadIdx.x / (SIDE / 2);
    const u32 column = blockIdx.x * SIDE + x, row = blockIdx.y * SIDE + y;
    u32 pairs[3] = {0, 0, 0};
    if (row < p.height) {
        const Taps rows(p.rows, row);
        UNROLL for (u32 i = 0; i < 2; i++) {
            if (column + i >= p.width) break;
            i32 rgb[3];
            Filter::make(p, Taps(p.columns, column + i), rows, rgb);
            UNROLL for (u32 c = 0; c < 3; c++) pairs[c] |= u32(load<u16>(p.levels + c * 256 + rgb[c])) << 16 * i;
        }
    }
    u16 *to = p.out + (u64(blockIdx.y) * gridDim.x + blockIdx.x) * 3 * PATCH + y * SIDE + x;
    UNROLL for (u32 c = 0; c < 3; c++) store(to + c * PATCH, pairs[c]);
}

ENTRY(patches_linear, THREADS, 4, Patches, make_patch<Linear>)
ENTRY(patches_box, THREADS, 4, Patches, make_patch<Box>)
ENTRY(patches_area, THREADS, 4, Patches, make_patch<Area>)
ENTRY(patches_cubic, THREADS, 4, Patches, make_patch<Cubic>)
