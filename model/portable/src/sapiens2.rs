//! The second family's backbone: prefix tokens, RMSNorm, rotary embedding, grouped keys, SwiGLU.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::backend::PortableBackend;
use crate::dims::{Dims, STORAGE_TOKENS};
use crate::layers::{Linear, PatchEmbed, RmsNorm};
use crate::model::Observer;
use crate::rope::Rope;
use crate::step::Step;
use crate::values::Values;

/// `backbone`: patch embedding behind the prefix tokens, the blocks, the final norm.
#[derive(Module, Debug)]
pub(crate) struct Sapiens2<B: Backend> {
    patch_embed: PatchEmbed<B>,
    /// `[1, 1, D]`.
    cls_token: Param<Tensor<B, 3>>,
    /// `[1, 8, D]`.
    storage_tokens: Param<Tensor<B, 3>>,
    blocks: Vec<Block<B>>,
    ln1: RmsNorm<B>,
}

/// `backbone.blocks.i`.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    ln1: RmsNorm<B>,
    attn: Attention<B>,
    ln2: RmsNorm<B>,
    ffn: SwiGlu<B>,
}

#[derive(Module, Debug)]
struct Attention<B: Backend> {
    head_dim: usize,
    wq: Linear<B>,
    wk: Linear<B>,
    wv: Linear<B>,
    q_norm: RmsNorm<B>,
    k_norm: RmsNorm<B>,
    proj: Linear<B>,
    /// `gamma.weight`, `[D]`: LayerScale.
    gamma: Param<Tensor<B, 1>>,
}

#[derive(Module, Debug)]
struct SwiGlu<B: Backend> {
    w12: Linear<B>,
    w3: Linear<B>,
}

impl<B: PortableBackend> Sapiens2<B> {
    pub(crate) fn load<E>(dims: &Dims, v: &mut Values<'_, B, E>) -> Result<Self, E> {
        let d = dims.embed_dim;
        Ok(Self {
            patch_embed: PatchEmbed::load(v, d)?,
            cls_token: v.param("backbone.cls_token", [1, 1, d])?,
            storage_tokens: v.param("backbone.storage_tokens", [1, STORAGE_TOKENS, d])?,
            blocks: (0..dims.layers).map(|i| Block::load(dims, i, v)).collect::<Result<_, E>>()?,
            ln1: RmsNorm::load(v, "backbone.ln1", d)?,
        })
    }

    /// `[batch, 3, 16 h, 16 w]` to tokens `[batch, h * w, D]`.
    pub(crate) fn forward(
        &self,
        input: Tensor<B, 4>,
        rope: &Rope<B>,
        observer: &mut Observer<'_, B>,
    ) -> Tensor<B, 3> {
        let patches = self.patch_embed.forward(input);
        observer.tokens(Step::PatchEmbed, &patches);
        let [batch, n, d] = patches.dims();
        let prefix = |tokens: &Param<Tensor<B, 3>>| tokens.val().expand([batch as i64, -1, -1]);
        let mut x = Tensor::cat(vec![prefix(&self.cls_token), prefix(&self.storage_tokens), patches], 1);
        for (i, block) in self.blocks.iter().enumerate() {
            let y = block.attn.forward(block.ln1.forward(x.clone()), rope);
            x = x + y * block.attn.gamma.val().reshape([1, 1, d]);
            observer.tokens(Step::Attention(i), &x);
            x = x.clone() + block.ffn.forward(block.ln2.forward(x));
            observer.tokens(Step::Block(i), &x);
        }
        self.ln1.forward(x).narrow(1, 1 + STORAGE_TOKENS, n)
    }
}

impl<B: PortableBackend> Block<B> {
    fn load<E>(dims: &Dims, layer: usize, v: &mut Values<'_, B, E>) -> Result<Self, E> {
        let (d, ffn_dim, head_dim) = (dims.embed_dim, dims.ffn_dim, dims.head_dim());
        let kv_dim = dims.kv_heads(layer) * head_dim;
        let name = format!("backbone.blocks.{layer}");
        Ok(Self {
            ln1: RmsNorm::load(v, &format!("{name}.ln1"), d)?,
            attn: Attention {
                head_dim,
                wq: Linear::load(v, &format!("{name}.attn.wq"), d, d)?,
                wk: Linear::load(v, &format!("{name}.attn.wk"), d, kv_dim)?,
                wv: Linear::load(v, &format!("{name}.attn.wv"), d, kv_dim)?,
                q_norm: RmsNorm::load(v, &format!("{name}.attn.q_norm"), head_dim)?,
                k_norm: RmsNorm::load(v, &format!("{name}.attn.k_norm"), head_dim)?,
                proj: Linear::load(v, &format!("{name}.attn.proj"), d, d)?,
                gamma: v.param(&format!("{name}.attn.gamma.weight"), [d])?,
            },
            ln2: RmsNorm::load(v, &format!("{name}.ln2"), d)?,
            ffn: SwiGlu {
                w12: Linear::load(v, &format!("{name}.ffn.w12"), d, 2 * ffn_dim)?,
                w3: Linear::load(v, &format!("{name}.ffn.w3"), ffn_dim, d)?,
            },
        })
    }
}

impl<B: PortableBackend> Attention<B> {
    /// Without `gamma`, which the block applies.
    fn forward(&self, x: Tensor<B, 3>, rope: &Rope<B>) -> Tensor<B, 3> {
        let [batch, n, _] = x.dims();
        let heads = |y: Tensor<B, 3>| {
            let heads = y.dims()[2] / self.head_dim;
            y.reshape([batch, n, heads, self.head_dim])
        };
        let q = rope.apply(self.q_norm.forward(heads(self.wq.forward(x.clone()))));
        let k = rope.apply(self.k_norm.forward(heads(self.wk.forward(x.clone()))));
        let v = heads(self.wv.forward(x));
        let [q, k, v] = [q, k, v].map(|y| y.swap_dims(1, 2));
        self.proj.forward(B::scaled_dot_product(q, k, v))
    }
}

impl<B: PortableBackend> SwiGlu<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.w3.forward(B::swiglu(self.w12.forward(x)))
    }
}
