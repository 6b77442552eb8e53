//! The network of either family with its weights on the device, and its forward pass.
//!
//! Tokens and maps are channels-last throughout. The residual stream is float32 and everything else is stored in 16 bits, as in
//! the processor's engine.

use std::sync::Arc;

use sapiens_kernels::cpu::attention::MAX_HEAD_DIM;
use sapiens_kernels::cuda::attention::{Angles, Attention, QkNorm, QkvShape, Rotary};
use sapiens_kernels::cuda::cublaslt::Room;
use sapiens_kernels::cuda::norm::{InstanceNorm, MAX_COLUMNS, Norm as NormKernel};
use sapiens_kernels::cuda::product::{Linear as Weighted, Map, MomentBlocks, Out, Products, Rows, Then};
use sapiens_kernels::cuda::{Buffer, Gpu, Precision, Stream};

use super::load::Loader;
use super::workspace::Workspace;
use crate::card::{Family, ModelCard};
use crate::engine::Stage;
use crate::engine::sizes::Sizes;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::weights::{PATCH, Weights};

/// Epsilon of LayerNorm and RMSNorm in both families.
const NORM_EPSILON: f32 = 1e-6;
/// Epsilon of the head's InstanceNorms.
const INSTANCE_NORM_EPSILON: f32 = 1e-5;
/// Kernels read eight values at once: what they multiply over is padded with zeros to that.
pub(super) const CHUNK: usize = 8;

/// Is told after each operation which stage it was, and how many kernels and copies were queued for it.
pub(super) type Queued<'a> = &'a mut dyn FnMut(Stage, usize) -> Result<()>;

/// A network ready to run, shared by all who run it.
#[derive(Debug)]
pub(crate) struct Network {
    gpu: Arc<Gpu>,
    products: Products,
    attention: Attention,
    rotary: Rotary,
    norm: NormKernel,
    instance_norm: InstanceNorm,
    sizes: Sizes,
    patch_embed: Linear,
    pub(super) positions: Positions,
    layers: Vec<Layer>,
    ln1: Norm,
    deconv_layers: Vec<Linear>,
    conv_layers: Vec<Linear>,
    conv_seg: Linear,
}

/// The card's sizes, with the channels of maps padded.
///
/// # Errors
/// If the kernels don't have them.
pub(super) fn sizes(card: &ModelCard) -> Result<Sizes> {
    let sizes = Sizes::of(card);
    let refuse = |what: String| Err(SegmentError::new(ErrorKind::BackendUnavailable, what));
    for (what, size) in [("embed_dim", sizes.embed_dim), ("ffn_dim", sizes.ffn_dim)] {
        if !size.is_multiple_of(CHUNK) {
            return refuse(format!(
                "the card has {what} {size}: the kernels on a GPU run multiples of {CHUNK}"
            ));
        }
    }
    let head_dim = sizes.head_dim();
    if !head_dim.is_multiple_of(4) || head_dim > MAX_HEAD_DIM {
        return refuse(format!(
            "the card has a head dim of {head_dim}: the kernels run multiples of 4 up to {MAX_HEAD_DIM}"
        ));
    }
    if sizes.embed_dim > MAX_COLUMNS {
        let dim = sizes.embed_dim;
        return refuse(format!("the card has embed_dim {dim}: the kernels on a GPU run up to {MAX_COLUMNS}"));
    }
    let padded = |channels: &[usize]| channels.iter().map(|c| c.next_multiple_of(CHUNK)).collect();
    Ok(Sizes {
        deconv_channels: padded(&sizes.deconv_channels),
        conv_channels: padded(&sizes.conv_channels),
        ..sizes
    })
}

/// Values from one head to the next.
pub(super) fn head_stride(sizes: &Sizes) -> usize {
    sizes.head_dim().next_multiple_of(CHUNK)
}

/// Values from one pixel's logits to the next's.
pub(super) fn logits_stride(sizes: &Sizes) -> usize {
    sizes.classes.next_multiple_of(4)
}

/// How tokens know their places.
#[derive(Debug)]
pub(super) enum Positions {
    /// The first family: an embedding `[rows * columns, D]` of the trained grid, added to the patches.
    Embedding { values: Vec<f32>, grid: (usize, usize) },
    /// The second: rotated queries and keys. The class and storage tokens `[9, D]` have no place.
    Rotary { prefix: Buffer<f32> },
}

/// `[columns, depth]`, and a bias where it isn't followed by an InstanceNorm.
#[derive(Debug)]
pub(super) struct Linear {
    pub weights: Buffer<u16>,
    pub bias: Option<Buffer<f32>>,
    pub columns: usize,
}

impl Linear {
    fn weighted(&self) -> Weighted<'_> {
        let bias = self.bias.as_ref().map(|bias| bias.slice(..));
        Weighted { weights: self.weights.slice(..), bias, columns: self.columns }
    }
}

#[derive(Debug)]
pub(super) struct Norm {
    pub weight: Buffer<f32>,
    /// None in an RMSNorm.
    pub bias: Option<Buffer<f32>>,
}

#[derive(Debug)]
struct Layer {
    ln1: Norm,
    kv_heads: usize,
    /// To all heads' queries, then keys, then values.
    qkv: Linear,
    /// Weights of the queries' and the keys' norm.
    qk_norm: Option<[Buffer<f32>; 2]>,
    proj: Linear,
    /// LayerScale of the attention branch.
    gamma: Option<Buffer<f32>>,
    ln2: Norm,
    expand: Linear,
    activation: Activation,
    contract: Linear,
}

#[derive(Debug, Clone, Copy)]
enum Activation {
    Gelu,
    SwiGlu,
}

impl Network {
    /// Reads the card's weights and brings them to the device, for `products` of them.
    ///
    /// # Errors
    /// If the kernels don't have the card's sizes, if memory runs out, and whatever reading weights gives.
    pub(crate) fn load(
        card: &ModelCard,
        weights: &Weights,
        gpu: &Arc<Gpu>,
        products: Products,
    ) -> Result<Self> {
        let (network, sizes, precision) = (&card.network, sizes(card)?, products.precision());
        let stream = Stream::new(gpu)?;
        let mut loader = Loader::new(weights, &stream, precision)?;
        let patch = 3 * PATCH * PATCH;
        let patch_embed = loader.linear("backbone.patch_embed.projection", patch)?;
        let (positions, ln1) = match card.family {
            Family::Sapiens => {
                let (values, grid) = loader.pos_embed()?;
                (Positions::Embedding { values, grid }, loader.layer_norm("backbone.ln1")?)
            }
            Family::Sapiens2 => {
                let prefix = loader.vector(&["backbone.cls_token", "backbone.storage_tokens"])?;
                (Positions::Rotary { prefix }, loader.rms_norm("backbone.ln1")?)
            }
        };
        let layers = (0..network.layers)
            .map(|i| match card.family {
                Family::Sapiens => Layer::sapiens(&format!("backbone.layers.{i}"), &sizes, &mut loader),
                Family::Sapiens2 => {
                    Layer::sapiens2(&format!("backbone.blocks.{i}"), i, card, &sizes, &mut loader)
                }
            })
            .collect::<Result<_>>()?;
        // Each convolution is followed by a norm and an activation without weights: hence the threes.
        let mut channels = network.embed_dim;
        let mut deconv_layers = Vec::new();
        for (i, &outputs) in network.deconv_channels.iter().enumerate() {
            let name = format!("decode_head.deconv_layers.{}.weight", 3 * i);
            deconv_layers.push(loader.conv_transpose(&name, channels, outputs)?);
            channels = outputs;
        }
        let mut conv_layers = Vec::new();
        for (i, &outputs) in network.conv_channels.iter().enumerate() {
            conv_layers.push(loader.conv(
                &format!("decode_head.conv_layers.{}", 3 * i),
                channels,
                outputs,
            )?);
            channels = outputs;
        }
        let conv_seg = loader.classifier("decode_head.conv_seg", channels, sizes.classes)?;
        loader.finish()?;
        Ok(Self {
            gpu: gpu.clone(),
            attention: Attention::new(gpu, precision, sizes.head_dim())?,
            rotary: Rotary::new(gpu, precision)?,
            norm: NormKernel::new(gpu, precision)?,
            instance_norm: InstanceNorm::new(gpu, precision)?,
            products,
            sizes,
            patch_embed,
            positions,
            layers,
            ln1,
            deconv_layers,
            conv_layers,
            conv_seg,
        })
    }

    pub(super) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(super) fn precision(&self) -> Precision {
        self.products.precision()
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Memory beside the operands of products over so many tokens, where something needs it.
    pub(super) fn room(&self, tokens: usize) -> Result<Option<Room>> {
        let Some(cublaslt) = self.products.cublaslt() else { return Ok(None) };
        let of_layer = |layer: &Layer| {
            let expanded = match layer.activation {
                Activation::Gelu => 0,
                Activation::SwiGlu => tokens * layer.expand.columns,
            };
            let scaled = if layer.gamma.is_some() { tokens * layer.proj.columns } else { 0 };
            expanded.max(scaled).max(layer.qkv.columns)
        };
        Ok(Some(cublaslt.room(self.layers.iter().map(of_layer).max().unwrap_or(0))?))
    }

    /// How the moments of the head's layers are laid out: of the ConvTransposes, then of the convolutions.
    pub(super) fn moments(&self, mut grid: [usize; 2]) -> Vec<MomentBlocks> {
        let mut blocks = Vec::new();
        for &columns in &self.sizes.deconv_channels {
            blocks.push(self.products.deconv_moments(grid[0], grid[1], columns));
            grid = grid.map(|side| 2 * side);
        }
        let convs = self.sizes.conv_channels.iter();
        blocks.extend(convs.map(|&columns| self.products.moments(grid[0] * grid[1], columns)));
        blocks
    }

    /// Queues one frame, from the workspace's patches to its logits.
    pub(super) fn forward(
        &self,
        stream: &Stream,
        workspace: &mut Workspace,
        queued: Queued<'_>,
    ) -> Result<()> {
        self.embed(stream, workspace)?;
        queued(Stage::PatchEmbed, 2)?;
        for layer in &self.layers {
            layer.run(self, stream, workspace, queued)?;
        }
        self.normalize(stream, &self.ln1, workspace)?;
        queued(Stage::Norm, 1)?;
        self.decode(stream, workspace, queued)
    }

    /// Patches to tokens, with what tells their places where that is added.
    fn embed(&self, stream: &Stream, workspace: &mut Workspace) -> Result<()> {
        let dim = self.sizes.embed_dim;
        let Workspace { size, wide, x, pos_embed, room, .. } = workspace;
        let (patch, patches) = (3 * PATCH * PATCH, size[0] / PATCH * (size[1] / PATCH));
        let rows = Rows { values: wide.slice(..), rows: patches, depth: patch, stride: patch };
        let weighted = self.patch_embed.weighted();
        let then = match (&self.positions, pos_embed) {
            (Positions::Rotary { prefix }, _) => {
                stream.copy(prefix.slice(..), x.slice_mut(..prefix.len()))?;
                Then::StoreF32(Out { values: x.slice_mut(prefix.len()..), stride: dim })
            }
            (Positions::Embedding { .. }, embedding) => {
                stream.copy(embedding.slice(..), x.slice_mut(..))?;
                Then::Add(Out { values: x.slice_mut(..), stride: dim }, None)
            }
        };
        Ok(self.products.product(stream, rows, weighted, then, room.as_mut())?)
    }

    /// `narrow` becomes the norm of `x`.
    fn normalize(&self, stream: &Stream, norm: &Norm, workspace: &mut Workspace) -> Result<()> {
        let Workspace { x, narrow, .. } = workspace;
        let bias = norm.bias.as_ref().map(|bias| bias.slice(..));
        let (weight, out) = (norm.weight.slice(..), narrow.slice_mut(..x.len()));
        Ok(self.norm.run(stream, x.slice(..), weight, bias, NORM_EPSILON, out)?)
    }

    /// Features, in `narrow`, to logits.
    fn decode(&self, stream: &Stream, workspace: &mut Workspace, queued: Queued<'_>) -> Result<()> {
        let Workspace { size, narrow, maps, moments, moment_blocks, statistics, logits, room, .. } =
            workspace;
        let [mut from, mut to] = maps.each_mut();
        let mut grid = size.map(|side| side / PATCH);
        let mut channels = self.sizes.embed_dim;
        let layers = self.deconv_layers.iter().map(|layer| (layer, true));
        let layers = layers.chain(self.conv_layers.iter().map(|layer| (layer, false)));
        for (i, ((layer, doubles), &blocks)) in layers.zip(moment_blocks.iter()).enumerate() {
            let values = if i == 0 { narrow.slice(self.sizes.prefix * channels..) } else { from.slice(..) };
            let ([height, width], inputs) = (grid, channels);
            if doubles {
                grid = grid.map(|side| 2 * side);
            }
            channels = layer.columns;
            let len = grid[0] * grid[1] * channels;
            let out = Out { values: to.slice_mut(..len), stride: channels };
            let then = Then::Moments(out, moments.slice_mut(..blocks.len()));
            if doubles {
                let map = Map { values, height, width, channels: inputs };
                self.products.deconv(stream, map, layer.weighted(), then)?;
            } else {
                let rows = Rows { values, rows: height * width, depth: inputs, stride: inputs };
                self.products.product(stream, rows, layer.weighted(), then, room.as_mut())?;
            }
            queued(if doubles { Stage::Deconv } else { Stage::Conv }, 1)?;
            let (x, moments) = (to.slice_mut(..len), moments.slice(..blocks.len()));
            let statistics = statistics.slice_mut(..);
            self.instance_norm.run(stream, x, blocks, moments, INSTANCE_NORM_EPSILON, statistics)?;
            queued(if doubles { Stage::DeconvNorm } else { Stage::Conv }, 2)?;
            std::mem::swap(&mut from, &mut to);
        }
        let pixels = grid[0] * grid[1];
        let rows = Rows { values: from.slice(..), rows: pixels, depth: channels, stride: channels };
        let then = Then::StoreF32(Out { values: logits.slice_mut(..), stride: logits_stride(&self.sizes) });
        self.products.product(stream, rows, self.conv_seg.weighted(), then, room.as_mut())?;
        queued(Stage::Logits, 1)
    }
}

impl Layer {
    fn sapiens(name: &str, sizes: &Sizes, loader: &mut Loader<'_>) -> Result<Self> {
        let dim = sizes.embed_dim;
        Ok(Self {
            ln1: loader.layer_norm(&format!("{name}.ln1"))?,
            kv_heads: sizes.heads,
            qkv: loader.heads(&[&format!("{name}.attn.qkv")], sizes)?,
            qk_norm: None,
            proj: loader.projection(&format!("{name}.attn.proj"), sizes)?,
            gamma: None,
            ln2: loader.layer_norm(&format!("{name}.ln2"))?,
            expand: loader.linear(&format!("{name}.ffn.layers.0.0"), dim)?,
            activation: Activation::Gelu,
            contract: loader.linear(&format!("{name}.ffn.layers.1"), sizes.ffn_dim)?,
        })
    }

    fn sapiens2(
        name: &str,
        index: usize,
        card: &ModelCard,
        sizes: &Sizes,
        loader: &mut Loader<'_>,
    ) -> Result<Self> {
        let projections = ["wq", "wk", "wv"].map(|part| format!("{name}.attn.{part}"));
        let norm = |part| loader.vector(&[&format!("{name}.attn.{part}_norm.weight")]);
        let [q, k] = ["q", "k"].map(norm);
        Ok(Self {
            ln1: loader.rms_norm(&format!("{name}.ln1"))?,
            kv_heads: card.network.kv_heads(index),
            qkv: loader.heads(&projections.each_ref().map(String::as_str), sizes)?,
            qk_norm: Some([q?, k?]),
            proj: loader.projection(&format!("{name}.attn.proj"), sizes)?,
            gamma: Some(loader.vector(&[&format!("{name}.attn.gamma.weight")])?),
            ln2: loader.rms_norm(&format!("{name}.ln2"))?,
            expand: loader.gated(&format!("{name}.ffn.w12"), sizes.ffn_dim, sizes.embed_dim)?,
            activation: Activation::SwiGlu,
            contract: loader.linear(&format!("{name}.ffn.w3"), sizes.ffn_dim)?,
        })
    }

    fn run(
        &self,
        network: &Network,
        stream: &Stream,
        workspace: &mut Workspace,
        queued: Queued<'_>,
    ) -> Result<()> {
        let (products, sizes) = (&network.products, &network.sizes);
        let (dim, head_stride) = (sizes.embed_dim, head_stride(sizes));
        let tokens = workspace.x.len() / dim;
        network.normalize(stream, &self.ln1, workspace)?;
        queued(Stage::Norm, 1)?;
        let shape = QkvShape {
            tokens,
            heads: sizes.heads,
            kv_heads: self.kv_heads,
            head_dim: sizes.head_dim(),
            head_stride,
        };
        let Workspace { x, narrow, wide, rotary, room, .. } = workspace;
        let rows = Rows { values: narrow.slice(..), rows: tokens, depth: dim, stride: dim };
        let out = Out { values: wide.slice_mut(..tokens * shape.stride()), stride: shape.stride() };
        products.product(stream, rows, self.qkv.weighted(), Then::Store(out), room.as_mut())?;
        queued(Stage::Qkv, 1)?;
        if let (Some([q, k]), Some([sin, cos])) = (&self.qk_norm, rotary) {
            let norm = QkNorm { q: q.slice(..), k: k.slice(..), epsilon: NORM_EPSILON };
            let angles = Angles { prefix: sizes.prefix, sin: sin.slice(..), cos: cos.slice(..) };
            network.rotary.run(stream, shape, wide.slice_mut(..tokens * shape.stride()), norm, angles)?;
            queued(Stage::Attention, 1)?;
        }
        network.attention.run(stream, shape, wide.slice(..), narrow.slice_mut(..))?;
        queued(Stage::Attention, 1)?;

        let depth = sizes.heads * head_stride;
        let rows = Rows { values: narrow.slice(..), rows: tokens, depth, stride: depth };
        let gamma = self.gamma.as_ref().map(|gamma| gamma.slice(..));
        let then = Then::Add(Out { values: x.slice_mut(..), stride: dim }, gamma);
        products.product(stream, rows, self.proj.weighted(), then, room.as_mut())?;
        queued(Stage::Projection, 1)?;

        network.normalize(stream, &self.ln2, workspace)?;
        queued(Stage::Norm, 1)?;
        let Workspace { x, narrow, wide, room, .. } = workspace;
        let rows = Rows { values: narrow.slice(..), rows: tokens, depth: dim, stride: dim };
        let hidden = Out { values: wide.slice_mut(..tokens * sizes.ffn_dim), stride: sizes.ffn_dim };
        let then = match self.activation {
            Activation::Gelu => Then::Gelu(hidden),
            Activation::SwiGlu => Then::SwiGlu(hidden),
        };
        products.product(stream, rows, self.expand.weighted(), then, room.as_mut())?;
        queued(Stage::Expand, 1)?;
        let rows = Rows { values: wide.slice(..), rows: tokens, depth: sizes.ffn_dim, stride: sizes.ffn_dim };
        let then = Then::Add(Out { values: x.slice_mut(..), stride: dim }, None);
        products.product(stream, rows, self.contract.weighted(), then, room.as_mut())?;
        queued(Stage::Contract, 1)
    }
}
