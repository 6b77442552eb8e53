//! Which tensors a card's network has, under the checkpoints' own names. Knows no file.

use crate::card::{Family, ModelCard};

/// Side of the patches that the patch embedding cuts the frame into.
pub(crate) const PATCH: usize = 16;
/// Kernel side of the head's transposed convolutions.
const DECONV_KERNEL: usize = 4;
/// Register tokens of the second family, next to its class token.
const STORAGE_TOKENS: usize = 8;
/// Tokens in front of the patches' in the second family.
pub(crate) const PREFIX_TOKENS: usize = 1 + STORAGE_TOKENS;

pub(super) const POS_EMBED: &str = "backbone.pos_embed";
pub(crate) const PATCH_WEIGHT: &str = "backbone.patch_embed.projection.weight";
pub(super) const CONV_SEG_WEIGHT: &str = "decode_head.conv_seg.weight";
pub(super) const PERIODS: &str = "backbone.rope_embed.periods";

/// Name and shape of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The checkpoint's name for it.
    pub name: String,
    /// Its shape, row-major.
    pub shape: Vec<usize>,
}

/// Rows and columns of the grid that a position embedding of `tokens` rows was trained for: the first
/// family's grids are 4k rows by 3k columns.
pub fn pos_embed_grid(tokens: usize) -> Option<(usize, usize)> {
    let k = (tokens / 12).isqrt();
    (k > 0 && tokens == 12 * k * k).then_some((4 * k, 3 * k))
}

/// Every tensor that the card's network has, in the order the network uses them.
///
/// The position embedding's shape is that of the card's input size; a checkpoint may have been trained for
/// another, and the rotary embedding's buffer, which the network computes itself, is not among them.
pub fn expected_tensors(card: &ModelCard) -> Vec<TensorSpec> {
    let mut list = List(Vec::new());
    match card.family {
        Family::Sapiens => sapiens_backbone(card, &mut list),
        Family::Sapiens2 => sapiens2_backbone(card, &mut list),
    }
    head(card, &mut list);
    list.0
}

struct List(Vec<TensorSpec>);

impl List {
    fn tensor(&mut self, name: String, shape: &[usize]) {
        self.0.push(TensorSpec { name, shape: shape.to_vec() });
    }

    /// `name.weight` of that shape and `name.bias` of its first dimension.
    fn weight_and_bias(&mut self, name: &str, shape: &[usize]) {
        self.tensor(format!("{name}.weight"), shape);
        self.tensor(format!("{name}.bias"), &shape[..1]);
    }
}

fn sapiens_backbone(card: &ModelCard, list: &mut List) {
    let (dim, ffn) = (card.network.embed_dim, card.network.ffn_dim);
    list.weight_and_bias("backbone.patch_embed.projection", &[dim, 3, PATCH, PATCH]);
    // The 4k x 3k grid nearest to the card's own, which it equals for every 4:3 input.
    let tokens = (card.input.height / PATCH) * (card.input.width / PATCH);
    let k = ((tokens as f64 / 12.0).sqrt().round() as usize).max(1);
    list.tensor(POS_EMBED.into(), &[1, 12 * k * k, dim]);
    for layer in 0..card.network.layers {
        let layer = format!("backbone.layers.{layer}");
        list.weight_and_bias(&format!("{layer}.ln1"), &[dim]);
        list.weight_and_bias(&format!("{layer}.attn.qkv"), &[3 * dim, dim]);
        list.weight_and_bias(&format!("{layer}.attn.proj"), &[dim, dim]);
        list.weight_and_bias(&format!("{layer}.ln2"), &[dim]);
        list.weight_and_bias(&format!("{layer}.ffn.layers.0.0"), &[ffn, dim]);
        list.weight_and_bias(&format!("{layer}.ffn.layers.1"), &[dim, ffn]);
    }
    list.weight_and_bias("backbone.ln1", &[dim]);
}

fn sapiens2_backbone(card: &ModelCard, list: &mut List) {
    let network = &card.network;
    let (dim, ffn, head_dim) = (network.embed_dim, network.ffn_dim, network.head_dim());
    list.weight_and_bias("backbone.patch_embed.projection", &[dim, 3, PATCH, PATCH]);
    list.tensor("backbone.cls_token".into(), &[1, 1, dim]);
    list.tensor("backbone.storage_tokens".into(), &[1, STORAGE_TOKENS, dim]);
    for index in 0..network.layers {
        let block = format!("backbone.blocks.{index}");
        let kv_dim = network.kv_heads(index) * head_dim;
        list.tensor(format!("{block}.ln1.weight"), &[dim]);
        list.weight_and_bias(&format!("{block}.attn.wq"), &[dim, dim]);
        list.weight_and_bias(&format!("{block}.attn.wk"), &[kv_dim, dim]);
        list.weight_and_bias(&format!("{block}.attn.wv"), &[kv_dim, dim]);
        list.tensor(format!("{block}.attn.q_norm.weight"), &[head_dim]);
        list.tensor(format!("{block}.attn.k_norm.weight"), &[head_dim]);
        list.weight_and_bias(&format!("{block}.attn.proj"), &[dim, dim]);
        list.tensor(format!("{block}.attn.gamma.weight"), &[dim]);
        list.tensor(format!("{block}.ln2.weight"), &[dim]);
        list.weight_and_bias(&format!("{block}.ffn.w12"), &[2 * ffn, dim]);
        list.weight_and_bias(&format!("{block}.ffn.w3"), &[dim, ffn]);
    }
    list.tensor("backbone.ln1.weight".into(), &[dim]);
}

fn head(card: &ModelCard, list: &mut List) {
    let mut channels = card.network.embed_dim;
    // Each convolution is followed by a normalisation and an activation without weights: hence the threes.
    for (index, &out) in card.network.deconv_channels.iter().enumerate() {
        let name = format!("decode_head.deconv_layers.{}.weight", 3 * index);
        list.tensor(name, &[channels, out, DECONV_KERNEL, DECONV_KERNEL]);
        channels = out;
    }
    for (index, &out) in card.network.conv_channels.iter().enumerate() {
        let name = format!("decode_head.conv_layers.{}", 3 * index);
        list.weight_and_bias(&name, &[out, channels, 1, 1]);
        channels = out;
    }
    list.weight_and_bias("decode_head.conv_seg", &[card.classes.len(), channels, 1, 1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variant;

    #[test]
    fn full_size_models_have_their_published_number_of_parameters() {
        let billions = |variant: &str| {
            let card = ModelCard::of(variant.parse().unwrap());
            let count: usize =
                expected_tensors(&card).iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
            count as f64 / 1e9
        };
        for (variant, expected) in [
            ("0.3b", 0.339),
            ("0.6b", 0.67),
            ("1b", 1.18),
            ("2b", 2.2),
            ("sapiens2-0.4b", 0.407),
            ("sapiens2-0.8b", 0.83),
            ("sapiens2-1b", 1.47),
            ("sapiens2-5b", 5.09),
        ] {
            let found = billions(variant);
            assert!((found / expected - 1.0).abs() < 0.02, "{variant}: {found} billion, expected {expected}");
        }
    }

    #[test]
    fn names_are_unique() {
        for variant in Variant::all() {
            let mut names: Vec<_> =
                expected_tensors(&ModelCard::of(variant)).into_iter().map(|spec| spec.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{variant}");
        }
    }

    #[test]
    fn grids_are_four_by_three() {
        assert_eq!(pos_embed_grid(3072), Some((64, 48)));
        assert_eq!(pos_embed_grid(48), Some((8, 6)));
        assert_eq!(pos_embed_grid(12), Some((4, 3)));
        for tokens in [0, 1, 11, 13, 49, 3073, 4096, usize::MAX] {
            assert_eq!(pos_embed_grid(tokens), None, "{tokens}");
        }
    }
}
