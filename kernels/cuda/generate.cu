// Values that are a function of their place: weights for tests and checks, made where a checkpoint's would be copied to.
// kernels/src/reference/generate.rs says how; every bit is the host's, so each operation is rounded by itself.
//
// A thread makes one value. Done once: three products of 64 bits should take less than the copy that they spare, which is not measured.
#include "device.cuh"

constexpr u32 THREADS = 256;

struct Generate {
    f32 *out;
    // Where the sequence begins that they are taken from.
    u64 base;
    // The first value's place in it.
    u64 first;
    // What uniform values are multiplied by, and what is added then.
    f32 scale, offset;
    u32 count;
    u32 unused;
};

// The upper 24 bits of an element of the splitmix64 sequence, which its last mixture doesn't reach.
DEVICE u32 upper_bits(u64 base, u64 index) {
    u64 z = base + (index + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return u32(z >> 40);
}

DEVICE void generated(const Generate &p) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.count) return;
    const u32 bits = upper_bits(p.base, p.first + at);
    // A multiple of 2^-23 in [-1, 1): exact.
    const f32 uniform = add_rounded(multiply_rounded(f32(bits), 1.0f / (1 << 23)), -1.0f);
    store(p.out + at, add_rounded(multiply_rounded(uniform, p.scale), p.offset));
}

ENTRY(generate, THREADS, 4, Generate, generated)
