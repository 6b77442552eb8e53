//! One tensor laid out as another.

/// A tensor of `sizes` made of `values`: index `i` of it is value `first + i[0] * strides[0] + ... + i[3] * strides[3]`, or 0 where an
/// index isn't below its dimension's limit.
pub fn gather(
    values: &[f32],
    first: usize,
    sizes: [usize; 4],
    limits: [usize; 4],
    strides: [isize; 4],
) -> Vec<f32> {
    let count = sizes.iter().product();
    let value = |at: usize| {
        let mut rest = at;
        let mut index = [0; 4];
        for dim in (0..4).rev() {
            index[dim] = rest % sizes[dim];
            rest /= sizes[dim];
        }
        if (0..4).any(|dim| index[dim] >= limits[dim]) {
            return 0.0;
        }
        let steps = (0..4).map(|dim| index[dim] as isize * strides[dim]).sum();
        values[first.strict_add_signed(steps)]
    };
    (0..count).map(value).collect()
}
