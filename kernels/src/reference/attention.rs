//! Softmax attention over all tokens, in float64 inside.

/// Sizes of one attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` neighbouring query heads.
    pub kv_heads: usize,
    /// Length of one head's vectors.
    pub head_dim: usize,
}

/// `softmax(q k^T * head_dim^-0.5) v` per head: `q [N, heads, head_dim]`, `k` and `v` `[N, kv_heads, head_dim]`, giving
/// `[N, heads, head_dim]`.
pub fn attention(q: &[f32], k: &[f32], v: &[f32], shape: AttentionShape) -> Vec<f32> {
    let AttentionShape { heads, kv_heads, head_dim } = shape;
    let tokens = super::rows(q.len(), heads * head_dim, "attention, q");
    assert_eq!(k.len(), tokens * kv_heads * head_dim, "attention, k");
    assert_eq!(v.len(), k.len(), "attention, v");
    assert!(heads.is_multiple_of(kv_heads), "attention: {heads} heads over {kv_heads} key/value heads");
    let scale = (head_dim as f64).powf(-0.5);
    let vector = |x: &[f32], heads: usize, token: usize, head: usize| {
        let start = (token * heads + head) * head_dim;
        x[start..start + head_dim].iter().map(|&value| f64::from(value)).collect::<Vec<_>>()
    };
    let mut out = vec![0.0; q.len()];
    for head in 0..heads {
        let kv_head = head / (heads / kv_heads);
        let keys: Vec<_> = (0..tokens).map(|token| vector(k, kv_heads, token, kv_head)).collect();
        let values: Vec<_> = (0..tokens).map(|token| vector(v, kv_heads, token, kv_head)).collect();
        for token in 0..tokens {
            let query = vector(q, heads, token, head);
            let dot = |key: &Vec<f64>| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale;
            let mut shares: Vec<f64> = keys.iter().map(dot).collect();
            softmax(&mut shares);
            for (i, out) in out[(token * heads + head) * head_dim..][..head_dim].iter_mut().enumerate() {
                *out = shares.iter().zip(&values).map(|(share, value)| share * value[i]).sum::<f64>() as f32;
            }
        }
    }
    out
}

/// `exp(x - max) / sum` over `x`.
pub fn softmax(x: &mut [f64]) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}
