// What the matrix units do when nothing else is asked of them: the rate that shares of it are given of. Only the check of
// a device runs it.
#include "device.cuh"

struct Probe {
    // A value for each thread, never looked at.
    f32 *out;
    u32 rounds;
};

constexpr u32 THREADS = 256;
// Chains of sums that don't wait for each other.
constexpr u32 CHAINS = 8;

template <class T>
DEVICE void probe(const Probe &p) {
    u32 a[1][4], b[2];
    UNROLL for (u32 i = 0; i < 4; i++) a[0][i] = T::pair(f32(threadIdx.x + i) * 1e-3f, 0.5f);
    UNROLL for (u32 i = 0; i < 2; i++) b[i] = T::pair(f32(threadIdx.x + i) * 1e-3f, -0.5f);
    f32 sums[CHAINS][4] = {};
    for (u32 round = 0; round < p.rounds; round++) {
        UNROLL for (u32 chain = 0; chain < CHAINS; chain++) T::template multiply<1>(sums[chain], a, b);
    }
    f32 sum = 0.0f;
    UNROLL for (u32 chain = 0; chain < CHAINS; chain++) sum += sums[chain][0] + sums[chain][3];
    p.out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// With sums in float16 throughout, as they are between two promotions.
DEVICE void probe_in_f16(const Probe &p) {
    u32 a[4], b[2];
    UNROLL for (u32 i = 0; i < 4; i++) a[i] = F16::pair(f32(threadIdx.x + i) * 1e-3f, 0.5f);
    UNROLL for (u32 i = 0; i < 2; i++) b[i] = F16::pair(f32(threadIdx.x + i) * 1e-3f, -0.5f);
    u32 sums[CHAINS][2] = {};
    for (u32 round = 0; round < p.rounds; round++) {
        UNROLL for (u32 chain = 0; chain < CHAINS; chain++) multiply_f16_in_f16(sums[chain], a, b);
    }
    u32 all = 0;
    UNROLL for (u32 chain = 0; chain < CHAINS; chain++) all ^= sums[chain][0] ^ sums[chain][1];
    p.out[blockIdx.x * THREADS + threadIdx.x] = float_of(all);
}

ENTRY(probe_f16, THREADS, 2, Probe, probe<F16>)
ENTRY(probe_f16_promoted, THREADS, 2, Probe, probe_in_f16)
#if SAPIENS_ARCH >= 80
ENTRY(probe_bf16, THREADS, 2, Probe, probe<Bf16>)
#endif
