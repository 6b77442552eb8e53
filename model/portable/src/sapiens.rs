//! The first family's backbone: a plain vision transformer.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::backend::PortableBackend;
use crate::dims::Dims;
use crate::layers::{LayerNorm, Linear, PatchEmbed};
use crate::model::Observer;
use crate::pos_embed;
use crate::step::Step;
use crate::values::Values;

/// `backbone`: patch and position embedding, the layers, the final norm.
#[derive(Module, Debug)]
pub(crate) struct Sapiens<B: Backend> {
    patch_embed: PatchEmbed<B>,
    /// `[1, rows * columns, D]` of the trained grid.
    pos_embed: Param<Tensor<B, 3>>,
    pos_embed_grid: [usize; 2],
    layers: Vec<Layer<B>>,
    ln1: LayerNorm<B>,
}

/// `backbone.layers.i`.
#[derive(Module, Debug)]
struct Layer<B: Backend> {
    ln1: LayerNorm<B>,
    attn: Attention<B>,
    ln2: LayerNorm<B>,
    ffn: FeedForward<B>,
}

#[derive(Module, Debug)]
struct Attention<B: Backend> {
    heads: usize,
    /// D to 3 D, laid out `[3, heads, head_dim]`.
    qkv: Linear<B>,
    proj: Linear<B>,
}

/// `ffn.layers.0.0` and `ffn.layers.1`.
#[derive(Module, Debug)]
struct FeedForward<B: Backend> {
    expand: Linear<B>,
    contract: Linear<B>,
}

impl<B: PortableBackend> Sapiens<B> {
    pub(crate) fn load<E>(
        dims: &Dims,
        pos_embed_grid: [usize; 2],
        v: &mut Values<'_, B, E>,
    ) -> Result<Self, E> {
        let [rows, columns] = pos_embed_grid;
        Ok(Self {
            patch_embed: PatchEmbed::load(v, dims.embed_dim)?,
            pos_embed: v.param("backbone.pos_embed", [1, rows * columns, dims.embed_dim])?,
            pos_embed_grid,
            layers: (0..dims.layers)
                .map(|i| Layer::load(dims, &format!("backbone.layers.{i}"), v))
                .collect::<Result<_, E>>()?,
            ln1: LayerNorm::load(v, "backbone.ln1", dims.embed_dim)?,
        })
    }

    /// The position embedding for another grid than the trained one.
    pub(crate) fn pos_embed_table(&self, grid: [usize; 2]) -> Option<Tensor<B, 3>> {
        (grid != self.pos_embed_grid)
            .then(|| pos_embed::resized(self.pos_embed.val(), self.pos_embed_grid, grid))
    }

    /// `[batch, 3, 16 h, 16 w]` to tokens `[batch, h * w, D]`; `pos_embed` replaces the trained grid's.
    pub(crate) fn forward(
        &self,
        input: Tensor<B, 4>,
        pos_embed: Option<Tensor<B, 3>>,
        observer: &mut Observer<'_, B>,
    ) -> Tensor<B, 3> {
        let x = self.patch_embed.forward(input);
        observer.tokens(Step::PatchEmbed, &x);
        let mut x = x + pos_embed.unwrap_or_else(|| self.pos_embed.val());
        for (i, layer) in self.layers.iter().enumerate() {
            x = x.clone() + layer.attn.forward(layer.ln1.forward(x));
            observer.tokens(Step::Attention(i), &x);
            x = x.clone() + layer.ffn.forward(layer.ln2.forward(x));
            observer.tokens(Step::Block(i), &x);
        }
        self.ln1.forward(x)
    }
}

impl<B: PortableBackend> Layer<B> {
    fn load<E>(dims: &Dims, name: &str, v: &mut Values<'_, B, E>) -> Result<Self, E> {
        let Dims { embed_dim, ffn_dim, heads, .. } = *dims;
        Ok(Self {
            ln1: LayerNorm::load(v, &format!("{name}.ln1"), embed_dim)?,
            attn: Attention {
                heads,
                qkv: Linear::load(v, &format!("{name}.attn.qkv"), embed_dim, 3 * embed_dim)?,
                proj: Linear::load(v, &format!("{name}.attn.proj"), embed_dim, embed_dim)?,
            },
            ln2: LayerNorm::load(v, &format!("{name}.ln2"), embed_dim)?,
            ffn: FeedForward {
                expand: Linear::load(v, &format!("{name}.ffn.layers.0.0"), embed_dim, ffn_dim)?,
                contract: Linear::load(v, &format!("{name}.ffn.layers.1"), ffn_dim, embed_dim)?,
            },
        })
    }
}

impl<B: PortableBackend> Attention<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, n, embed_dim] = x.dims();
        let qkv = self.qkv.forward(x).reshape([batch, n, 3, self.heads, embed_dim / self.heads]);
        let [q, k, v] = [0, 1, 2].map(|i| qkv.clone().narrow(2, i, 1).squeeze_dim::<4>(2).swap_dims(1, 2));
        drop(qkv);
        self.proj.forward(B::scaled_dot_product(q, k, v))
    }
}

impl<B: PortableBackend> FeedForward<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.contract.forward(B::gelu_erf(self.expand.forward(x)))
    }
}
