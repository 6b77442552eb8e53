//! The network of either family with its weights packed for one level, and its forward pass.
//!
//! Tokens and maps are channels-last throughout. The residual stream is float32 whatever the weights are: it is a
//! percent of the memory, and rounding it is what costs half precision most. Everything else is stored as `E`.

use sapiens_kernels::cpu::product::Weights as Packed;
use sapiens_kernels::cpu::product::{
    ConvTranspose, Epilogue, Then, conv_transpose, norm_silu, product, product_norm_silu,
};
use sapiens_kernels::cpu::{
    AttentionInput, AttentionShape, Element, Heads, Level, QkNorm, Rotary, Threads, layer_norm, rms_norm,
};

use super::load::Loader;
use super::workspace::Workspace;
use crate::card::{Family, ModelCard};
use crate::engine::sizes::Sizes;
use crate::engine::timing::{Stage, StageClock, StageTimes};
use crate::error::Result;
use crate::weights::{PATCH, Weights};

/// Epsilon of LayerNorm and RMSNorm in both families.
const NORM_EPSILON: f32 = 1e-6;
/// Epsilon of the head's InstanceNorms.
pub(super) const INSTANCE_NORM_EPSILON: f64 = 1e-5;

/// A network ready to run, shared by all who run it.
#[derive(Debug)]
pub(crate) struct Network<E> {
    pub(super) level: Level,
    pub(super) sizes: Sizes,
    patch_embed: Linear<E>,
    pub(super) positions: Positions,
    layers: Vec<Layer<E>>,
    ln1: Norm,
    deconv_layers: Vec<ConvTranspose<E>>,
    conv_layers: Vec<Linear<E>>,
    conv_seg: Linear<E>,
}

/// How tokens know their places.
#[derive(Debug)]
pub(super) enum Positions {
    /// The first family: an embedding `[rows * columns, D]` of the trained grid, added to the patches.
    Embedding { values: Vec<f32>, grid: (usize, usize) },
    /// The second: rotated queries and keys. The class and storage tokens `[9, D]` have no place.
    Rotary { prefix: Vec<f32> },
}

#[derive(Debug)]
pub(super) struct Linear<E> {
    pub weights: Packed<E>,
    pub bias: Vec<f32>,
}

#[derive(Debug)]
pub(super) enum Norm {
    Layer { weight: Vec<f32>, bias: Vec<f32> },
    Rms { weight: Vec<f32> },
}

#[derive(Debug)]
struct Layer<E> {
    ln1: Norm,
    kv_heads: usize,
    /// To all heads' queries, then keys, then values.
    qkv: Linear<E>,
    /// Weights of the queries' and the keys' norm.
    qk_norm: Option<[Vec<f32>; 2]>,
    proj: Linear<E>,
    /// LayerScale of the attention branch.
    gamma: Option<Vec<f32>>,
    ln2: Norm,
    expand: Linear<E>,
    activation: Activation,
    contract: Linear<E>,
}

#[derive(Debug, Clone, Copy)]
enum Activation {
    Gelu,
    SwiGlu,
}

impl Norm {
    fn run<E: Element>(&self, level: Level, threads: &mut Threads, x: &[f32], out: &mut [E]) {
        match self {
            Norm::Layer { weight, bias } => layer_norm(level, threads, x, (weight, bias), NORM_EPSILON, out),
            Norm::Rms { weight } => rms_norm(level, threads, x, weight, NORM_EPSILON, out),
        }
    }
}

impl<E: Element> Network<E> {
    /// Reads and packs the card's weights.
    ///
    /// # Errors
    /// Whatever reading them gives.
    pub(crate) fn load(
        card: &ModelCard,
        weights: &Weights,
        level: Level,
        threads: &mut Threads,
    ) -> Result<Self> {
        let network = &card.network;
        let mut loader = Loader::new(weights, level, threads);
        let (dim, patch) = (network.embed_dim, 3 * PATCH * PATCH);
        let sizes = Sizes::of(card);
        let patch_embed = loader.linear(&["backbone.patch_embed.projection"], patch)?;
        let (positions, ln1) = match card.family {
            Family::Sapiens => {
                let (values, grid) = loader.pos_embed()?;
                (Positions::Embedding { values, grid }, loader.layer_norm("backbone.ln1")?)
            }
            Family::Sapiens2 => {
                let mut prefix = loader.values("backbone.cls_token")?;
                prefix.extend(loader.values("backbone.storage_tokens")?);
                (Positions::Rotary { prefix }, loader.rms_norm("backbone.ln1")?)
            }
        };
        let layers = (0..network.layers)
            .map(|i| match card.family {
                Family::Sapiens => Layer::sapiens(&format!("backbone.layers.{i}"), card, &mut loader),
                Family::Sapiens2 => Layer::sapiens2(&format!("backbone.blocks.{i}"), i, card, &mut loader),
            })
            .collect::<Result<_>>()?;
        // Each convolution is followed by a norm and an activation without weights: hence the threes.
        let mut channels = dim;
        let mut deconv_layers = Vec::new();
        for (i, &outputs) in network.deconv_channels.iter().enumerate() {
            let name = format!("decode_head.deconv_layers.{}.weight", 3 * i);
            deconv_layers.push(loader.conv_transpose(&name, channels, outputs)?);
            channels = outputs;
        }
        let mut conv_layers = Vec::new();
        for (i, &outputs) in network.conv_channels.iter().enumerate() {
            conv_layers.push(loader.linear(&[&format!("decode_head.conv_layers.{}", 3 * i)], channels)?);
            channels = outputs;
        }
        let conv_seg = loader.linear(&["decode_head.conv_seg"], channels)?;
        Ok(Self { level, sizes, patch_embed, positions, layers, ln1, deconv_layers, conv_layers, conv_seg })
    }

    /// One frame, from the workspace's patches to its logits.
    pub(super) fn forward(&self, threads: &mut Threads, workspace: &mut Workspace<E>) -> StageTimes {
        let mut clock = StageClock::start();
        self.embed(threads, workspace);
        clock.end(Stage::PatchEmbed);
        for layer in &self.layers {
            layer.run(self, threads, workspace, &mut clock);
        }
        let Workspace { x, narrow, .. } = workspace;
        self.ln1.run(self.level, threads, x, narrow);
        clock.end(Stage::Norm);
        self.decode(threads, workspace, &mut clock);
        clock.times()
    }

    /// Patches to tokens, with what tells their places where that is added.
    fn embed(&self, threads: &mut Threads, workspace: &mut Workspace<E>) {
        let Workspace { size, product: memory, x, wide, pos_embed, .. } = workspace;
        let patches = &wide[..3 * size[0] * size[1]];
        let Linear { weights, bias } = &self.patch_embed;
        match &self.positions {
            Positions::Embedding { .. } => {
                x.copy_from_slice(pos_embed);
                product(threads, memory, patches, weights, Epilogue::bias(bias, Then::Add), x);
            }
            Positions::Rotary { prefix } => {
                let (before, x) = x.split_at_mut(prefix.len());
                before.copy_from_slice(prefix);
                product(threads, memory, patches, weights, Epilogue::bias(bias, Then::Store), x);
            }
        }
    }

    /// Features, in `narrow`, to logits.
    fn decode(&self, threads: &mut Threads, workspace: &mut Workspace<E>, clock: &mut StageClock) {
        let Workspace { size, product: memory, narrow, maps, moments, logits, .. } = workspace;
        let [mut from, mut to] = maps.each_mut();
        let [mut before, mut after] = moments.each_mut();
        let mut grid = size.map(|side| side / PATCH);
        for (i, deconv) in self.deconv_layers.iter().enumerate() {
            let (inputs, outputs) = (deconv.inputs(), deconv.outputs());
            let out = &mut to[..4 * grid[0] * grid[1] * outputs];
            let moments = Epilogue { bias: None, then: Then::Moments(&mut *after) };
            if i == 0 {
                let features = &narrow[self.sizes.prefix * inputs..];
                conv_transpose(threads, memory, features, grid, deconv, moments, out);
            } else {
                let x = &mut from[..grid[0] * grid[1] * inputs];
                norm_silu(self.level, threads, x, before);
                clock.end(Stage::DeconvNorm);
                conv_transpose(threads, memory, x, grid, deconv, moments, out);
            }
            clock.end(Stage::Deconv);
            std::mem::swap(&mut from, &mut to);
            std::mem::swap(&mut before, &mut after);
            grid = grid.map(|side| 2 * side);
        }
        let pixels = grid[0] * grid[1];
        // A bias before an InstanceNorm changes nothing but how much is lost to rounding.
        for Linear { weights, .. } in &self.conv_layers {
            let (x, out) = (&from[..pixels * weights.inputs()], &mut to[..pixels * weights.outputs()]);
            let moments = Epilogue { bias: None, then: Then::Moments(&mut *after) };
            product_norm_silu(threads, memory, x, before, weights, moments, out);
            clock.end(Stage::Conv);
            std::mem::swap(&mut from, &mut to);
            std::mem::swap(&mut before, &mut after);
        }
        let Linear { weights, bias } = &self.conv_seg;
        let x = &from[..pixels * weights.inputs()];
        let epilogue = Epilogue::bias(bias, Then::Store);
        product_norm_silu(threads, memory, x, before, weights, epilogue, logits);
        clock.end(Stage::Logits);
    }
}

impl<E: Element> Layer<E> {
    fn sapiens(name: &str, card: &ModelCard, loader: &mut Loader<'_>) -> Result<Self> {
        let network = &card.network;
        let dim = network.embed_dim;
        Ok(Self {
            ln1: loader.layer_norm(&format!("{name}.ln1"))?,
            kv_heads: network.heads,
            qkv: loader.linear(&[&format!("{name}.attn.qkv")], dim)?,
            qk_norm: None,
            proj: loader.linear(&[&format!("{name}.attn.proj")], dim)?,
            gamma: None,
            ln2: loader.layer_norm(&format!("{name}.ln2"))?,
            expand: loader.linear(&[&format!("{name}.ffn.layers.0.0")], dim)?,
            activation: Activation::Gelu,
            contract: loader.linear(&[&format!("{name}.ffn.layers.1")], network.ffn_dim)?,
        })
    }

    fn sapiens2(name: &str, index: usize, card: &ModelCard, loader: &mut Loader<'_>) -> Result<Self> {
        let network = &card.network;
        let dim = network.embed_dim;
        let projections = ["wq", "wk", "wv"].map(|part| format!("{name}.attn.{part}"));
        Ok(Self {
            ln1: loader.rms_norm(&format!("{name}.ln1"))?,
            kv_heads: network.kv_heads(index),
            qkv: loader.linear(&projections.each_ref().map(String::as_str), dim)?,
            qk_norm: Some([
                loader.values(&format!("{name}.attn.q_norm.weight"))?,
                loader.values(&format!("{name}.attn.k_norm.weight"))?,
            ]),
            proj: loader.linear(&[&format!("{name}.attn.proj")], dim)?,
            gamma: Some(loader.values(&format!("{name}.attn.gamma.weight"))?),
            ln2: loader.rms_norm(&format!("{name}.ln2"))?,
            expand: loader.gated(&format!("{name}.ffn.w12"), network.ffn_dim, dim)?,
            activation: Activation::SwiGlu,
            contract: loader.linear(&[&format!("{name}.ffn.w3")], network.ffn_dim)?,
        })
    }

    fn run(
        &self,
        network: &Network<E>,
        threads: &mut Threads,
        workspace: &mut Workspace<E>,
        clock: &mut StageClock,
    ) {
        let Workspace { product: memory, attention, x, narrow, wide, rotary, .. } = workspace;
        let Sizes { embed_dim, heads, ffn_dim, prefix, .. } = network.sizes;
        let tokens = x.len() / embed_dim;
        self.ln1.run(network.level, threads, x, narrow);
        clock.end(Stage::Norm);

        let Linear { weights, bias } = &self.qkv;
        let stride = weights.outputs();
        let qkv = &mut wide[..tokens * stride];
        product(threads, memory, narrow, weights, Epilogue::bias(bias, Then::Store), qkv);
        clock.end(Stage::Qkv);

        let shape =
            AttentionShape { tokens, heads, kv_heads: self.kv_heads, head_dim: network.sizes.head_dim() };
        let kv_dim = shape.kv_heads * shape.head_dim;
        let part = |first: usize| Heads::new(&qkv[first..], stride);
        let input = AttentionInput {
            q: part(0),
            k: part(embed_dim),
            v: part(embed_dim + kv_dim),
            norm: self.qk_norm.as_ref().map(|[q, k]| QkNorm { q, k, epsilon: NORM_EPSILON }),
            rotary: rotary.as_ref().map(|[sin, cos]| Rotary { prefix, sin, cos }),
        };
        attention.run(threads, shape, input, narrow);
        clock.end(Stage::Attention);

        let Linear { weights, bias } = &self.proj;
        let then = self.gamma.as_deref().map_or(Then::Add, Then::ScaleAdd);
        product(threads, memory, narrow, weights, Epilogue::bias(bias, then), x);
        clock.end(Stage::Projection);

        self.ln2.run(network.level, threads, x, narrow);
        clock.end(Stage::Norm);
        let Linear { weights, bias } = &self.expand;
        let hidden = &mut wide[..tokens * ffn_dim];
        let then = match self.activation {
            Activation::Gelu => Then::Gelu,
            Activation::SwiGlu => Then::SwiGlu,
        };
        product(threads, memory, narrow, weights, Epilogue::bias(bias, then), hidden);
        clock.end(Stage::Expand);
        let Linear { weights, bias } = &self.contract;
        product(threads, memory, hidden, weights, Epilogue::bias(bias, Then::Add), x);
        clock.end(Stage::Contract);
    }
}
