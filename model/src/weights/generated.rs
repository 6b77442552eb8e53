//! Weights out of a name, a shape and a seed, so that full-size networks run without a file. The definition
//! is shared with the reference data, bit for bit; knows no card.

/// Fewer values than this are not worth a thread.
const CHUNK: usize = 1 << 20;

/// What a tensor's values are made of: value `index` is [`uniform`] of `base` times `scale`, plus `offset`, both rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Generated {
    pub base: u64,
    pub scale: f32,
    pub offset: f32,
}

impl Generated {
    /// The tensor called `name`.
    pub fn of(name: &str, shape: &[usize], seed: u64) -> Self {
        let (scale, offset) = scale_and_offset(name, shape);
        Self { base: fnv1a64(name) ^ seed, scale, offset }
    }

    fn value(self, index: u64) -> f32 {
        uniform(self.base, index) * self.scale + self.offset
    }
}

/// Fills `out` with a tensor's values from its `first` on.
pub(super) fn fill(generated: Generated, first: usize, out: &mut [f32]) {
    let fill = |first: usize, chunk: &mut [f32]| {
        for (index, value) in (first as u64..).zip(chunk) {
            *value = generated.value(index);
        }
    };
    if out.len() <= CHUNK {
        return fill(first, out);
    }
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let chunk_len = out.len().div_ceil(threads).max(CHUNK);
    std::thread::scope(|scope| {
        for (index, chunk) in out.chunks_mut(chunk_len).enumerate() {
            scope.spawn(move || fill(first + index * chunk_len, chunk));
        }
    });
}

/// Scales that keep activations near one through the whole network.
fn scale_and_offset(name: &str, shape: &[usize]) -> (f32, f32) {
    if name.ends_with(".bias") {
        (0.1, 0.0)
    } else if name.ends_with(".weight") && shape.len() == 1 {
        if name.ends_with(".gamma.weight") { (0.5, 0.0) } else { (0.25, 1.0) }
    } else if name.ends_with(".weight") {
        // A transposed convolution's weight is `[in, out, 4, 4]`, and 4 of its 16 taps meet at each pixel.
        let fan =
            if name.contains("deconv_layers") { shape[0] * 4 } else { shape[1..].iter().product::<usize>() };
        ((3.0 / fan as f64).sqrt() as f32, 0.0)
    } else {
        (0.5, 0.0)
    }
}

pub(crate) fn fnv1a64(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Element `index` of the splitmix64 sequence from `base`, as a multiple of 2^-23 in [-1, 1).
pub(crate) fn uniform(base: u64, index: u64) -> f32 {
    let z = base.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let z = z ^ (z >> 31);
    (z >> 40) as f32 * (1.0 / (1 << 23) as f32) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tensors_are_the_same_in_chunks() {
        let count = 3 * CHUNK + 17;
        let mut whole = vec![0.0; count];
        let generated = Generated::of("a.bias", &[count], 3);
        fill(generated, 0, &mut whole);
        let base = fnv1a64("a.bias") ^ 3;
        for index in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, count - 1] {
            assert_eq!(whole[index], uniform(base, index as u64) * 0.1);
        }
        let mut part = vec![0.0; 2 * CHUNK];
        fill(generated, 12_345, &mut part);
        assert!(part == whole[12_345..][..part.len()]);
    }

    #[test]
    fn hash_is_fnv1a() {
        // Published test vectors.
        assert_eq!(fnv1a64(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a64("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a64("foobar"), 0x8594_4171_f739_67e8);
    }
}
