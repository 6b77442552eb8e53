//! Values that are a function of their place.

/// `count` values, each `u * scale + offset` in two roundings of float32, where `u` is an element of the splitmix64 sequence from `base`,
/// from element `first` on: its upper 24 bits as a multiple of 2^-23 in [-1, 1). Whole numbers are modulo 2^64.
pub fn generate(base: u64, first: u64, count: usize, scale: f32, offset: f32) -> Vec<f32> {
    let value = |at: usize| {
        let index = first.wrapping_add(at as u64);
        let z = base.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let u = ((z ^ (z >> 31)) >> 40) as f32 / 8_388_608.0 - 1.0;
        u * scale + offset
    };
    (0..count).map(value).collect()
}
