// A checkpoint's values become weights as the kernels read them: converted, in another order, with zeros between and behind them.
//
// A thread makes one value. Done once, behind copies from the host that take far longer: what is read may lie scattered.
#include "device.cuh"

constexpr u32 THREADS = 256, DIMENSIONS = 4;

struct Pack {
    // The value that the first one is made of.
    const void *first;
    // Of `sizes`.
    void *out;
    // Values of the checkpoint from one index of a dimension to the next; negative where they are taken from the end.
    i64 strides[DIMENSIONS];
    u32 sizes[DIMENSIONS];
    // Indices from here on are zeros.
    u32 limits[DIMENSIONS];
    u32 count;
    u32 unused;
};

// How values are stored.
struct StoredF32 {
    using Bits = u32;
    static DEVICE f32 value(Bits bits) { return float_of(bits); }
    static DEVICE Bits bits(f32 x) { return bits_of(x); }
};

struct StoredF16 {
    using Bits = u16;
    static DEVICE f32 value(Bits bits) { return f16_value(bits); }
    static DEVICE Bits bits(f32 x) { return Bits(f16_bits(x)); }
};

struct StoredBf16 {
    using Bits = u16;
    static DEVICE f32 value(Bits bits) { return bf16_value(bits); }
    static DEVICE Bits bits(f32 x) { return Bits(bf16_bits(x)); }
};

template <class From, class To>
DEVICE void pack(const Pack &p) {
    const u32 at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= p.count) return;
    u32 rest = at;
    i64 from = 0;
    bool there = true;
    UNROLL for (u32 i = DIMENSIONS; i-- > 0;) {
        const u32 index = rest % p.sizes[i];
        rest /= p.sizes[i];
        if (index < p.limits[i]) {
            from += i64(index) * p.strides[i];
        } else {
            there = false;
        }
    }
    typename To::Bits bits = 0;
    if (there) {
        const auto *in = static_cast<const typename From::Bits *>(p.first) + from;
        bits = To::bits(From::value(load<typename From::Bits>(in)));
    }
    store(static_cast<typename To::Bits *>(p.out) + at, bits);
}

ENTRY(pack_f32_f32, THREADS, 4, Pack, (pack<StoredF32, StoredF32>))
ENTRY(pack_f16_f32, THREADS, 4, Pack, (pack<StoredF16, StoredF32>))
ENTRY(pack_bf16_f32, THREADS, 4, Pack, (pack<StoredBf16, StoredF32>))
ENTRY(pack_f32_f16, THREADS, 4, Pack, (pack<StoredF32, StoredF16>))
ENTRY(pack_f16_f16, THREADS, 4, Pack, (pack<StoredF16, StoredF16>))
ENTRY(pack_bf16_f16, THREADS, 4, Pack, (pack<StoredBf16, StoredF16>))
#if SAPIENS_ARCH >= 80
ENTRY(pack_f32_bf16, THREADS, 4, Pack, (pack<StoredF32, StoredBf16>))
ENTRY(pack_f16_bf16, THREADS, 4, Pack, (pack<StoredF16, StoredBf16>))
ENTRY(pack_bf16_bf16, THREADS, 4, Pack, (pack<StoredBf16, StoredBf16>))
#endif
