// nvrtc: --fmad=false
// Labels at the frame's size from logits: a bilinear resize with the argmax over classes done before anything is stored.
// Logits of the frame's size never exist.
//
// The arithmetic is the naive twin's, every operation rounded by itself, so labels are equal: along x in each of two source rows,
// then along y between them; the lowest of the largest classes wins, NaN never.
//
// Four lanes share a pixel. Each has every fourth of the pixel's vectors of four classes, so that a warp's loads are whole
// sectors of 64 bytes for eight pixels; two exchanges find the winner. A block's 64 columns walk down eight rows of labels
// together: a source row is stretched along x once for all rows of labels that lie on it (its values stay in registers), and what
// neighbours read twice comes from the first-level cache.
//
// What bounds it, counted and not measured: every logit is read from memory once, 100 MB of 1024 x 768 pixels with a stride of
// 32 classes, 0.22 ms at 448 GB/s; and each label takes about 9 instructions of a warp, 0.05 ms for 1920 x 1080 on 36
// multiprocessors. So it is memory, until frames are several times larger than the logits.
#include "device.cuh"

struct ResizeArgmax {
    // `[height, width, stride]`, the first of every `stride` values being the classes.
    const f32 *logits;
    // `[rows, columns]`: the top left of what the logits are stretched to.
    u8 *labels;
    u32 classes, stride, height, width;
    u32 full_height, full_width, rows, columns;
    // Logits to a label, down and across.
    f32 step_y, step_x;
};

// Lanes of a pixel, vectors of four classes of a lane, and the classes of those.
constexpr u32 LANES = 4, VECTORS = 2, VALUES = 4 * VECTORS, CHUNK = LANES * VALUES;
constexpr u32 THREADS = 256, COLUMNS = THREADS / LANES, ROWS = 8;

// The two source positions of an output position and their weights.
struct Taps {
    u32 index[2];
    f32 weight[2];

    DEVICE Taps(u32 i, u32 n, u32 full, f32 step) {
        index[0] = index[1] = i;
        weight[0] = 1.0f;
        weight[1] = 0.0f;
        if (n == full) return;
        const f32 centre = multiply_rounded(step, add_rounded(f32(i), 0.5f));
        const f32 position = larger(add_rounded(centre, -0.5f), 0.0f);
        index[0] = smaller(u32(position), n - 1);
        index[1] = smaller(index[0] + 1, n - 1);
        weight[1] = smaller(larger(add_rounded(position, -f32(index[0])), 0.0f), 1.0f);
        weight[0] = add_rounded(1.0f, -weight[1]);
    }

    DEVICE f32 blend(f32 a, f32 b) const {
        return add_rounded(multiply_rounded(weight[0], a), multiply_rounded(weight[1], b));
    }
};

// A lane's classes, from `first` on, of source row `y` at a column of labels.
DEVICE void stretch(const ResizeArgmax &p, u32 y, const Taps &column, u32 first, f32 (&values)[VALUES]) {
    const f32 *left = p.logits + (u64(y) * p.width + column.index[0]) * p.stride;
    const f32 *right = p.logits + (u64(y) * p.width + column.index[1]) * p.stride;
    UNROLL for (u32 v = 0; v < VECTORS; v++) {
        const u32 at = first + v * 4 * LANES;
        FourFloats a{0.0f, 0.0f, 0.0f, 0.0f}, b = a;
        if (at < p.classes) {
            a = load<FourFloats>(left + at);
            b = load<FourFloats>(right + at);
        }
        const f32 blended[4] = {column.blend(a.x, b.x), column.blend(a.y, b.y), column.blend(a.z, b.z),
                                column.blend(a.w, b.w)};
        UNROLL for (u32 i = 0; i < 4; i++) values[4 * v + i] = at + i < p.classes ? blended[i] : minus_infinity();
    }
}

DEVICE void copy(const f32 (&from)[VALUES], f32 (&to)[VALUES]) {
    UNROLL for (u32 i = 0; i < VALUES; i++) to[i] = from[i];
}

DEVICE void label_rows(const ResizeArgmax &p) {
    const u32 lane = threadIdx.x % LANES, x = blockIdx.x * COLUMNS + threadIdx.x / LANES;
    const u32 first_row = blockIdx.y * ROWS, last_row = smaller(first_row + ROWS, p.rows);
    // Lanes beyond the last column do its work again, since a warp exchanges as a whole.
    const Taps column(smaller(x, p.columns - 1), p.width, p.full_width, p.step_x);
    // Two source rows, and which they are; none yet.
    f32 upper[VALUES], lower[VALUES];
    u32 held[2] = {~0u, ~0u};
    for (u32 y = first_row; y < last_row; y++) {
        const Taps row(y, p.height, p.full_height, p.step_y);
        f32 best = minus_infinity();
        u32 winner = 0;
        for (u32 chunk = 0; chunk < p.classes; chunk += CHUNK) {
            const u32 first = chunk + lane * 4;
            // More classes than registers hold: every row of labels reads anew.
            if (p.classes > CHUNK) held[0] = held[1] = ~0u;
            if (held[0] != row.index[0]) {
                if (held[1] == row.index[0]) {
                    copy(lower, upper);
                } else {
                    stretch(p, row.index[0], column, first, upper);
                }
                held[0] = row.index[0];
            }
            if (held[1] != row.index[1]) {
                if (held[0] == row.index[1]) {
                    copy(upper, lower);
                } else {
                    stretch(p, row.index[1], column, first, lower);
                }
                held[1] = row.index[1];
            }
            UNROLL for (u32 i = 0; i < VALUES; i++) {
                const f32 value = row.blend(upper[i], lower[i]);
                if (value > best) {
                    best = value;
                    winner = first + i / 4 * 4 * LANES + i % 4;
                }
            }
        }
        UNROLL for (u32 mask = 1; mask < LANES; mask *= 2) {
            const f32 value = shuffle_xor(best, mask);
            const u32 label = shuffle_xor(winner, mask);
            if (value > best || (value == best && label < winner)) {
                best = value;
                winner = label;
            }
        }
        if (lane == 0 && x < p.columns) store(p.labels + u64(y) * p.columns + x, u8(winner));
    }
}

ENTRY(resize_argmax, THREADS, 4, ResizeArgmax, label_rows)
