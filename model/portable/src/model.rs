//! The whole network: backbone, then head.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::backend::PortableBackend;
use crate::dims::{Dims, Family, PATCH};
use crate::head::Head;
use crate::rope::Rope;
use crate::sapiens::Sapiens;
use crate::sapiens2::Sapiens2;
use crate::step::Step;
use crate::values::Values;

/// The network as a burn module: its parameters have the checkpoint's layouts, its forward pass is differentiable on
/// a backend that differentiates.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    head_dim: usize,
    backbone: Backbone<B>,
    decode_head: Head<B>,
}

#[derive(Module, Debug)]
enum Backbone<B: Backend> {
    Sapiens(Sapiens<B>),
    Sapiens2(Sapiens2<B>),
}

/// What depends on the input's size alone; see [`Model::tables`].
#[derive(Debug, Clone)]
pub struct Tables<B: PortableBackend>(TablesOf<B>);

#[derive(Debug, Clone)]
enum TablesOf<B: PortableBackend> {
    /// The position embedding, where the grid isn't the trained one.
    Sapiens(Option<Tensor<B, 3>>),
    Sapiens2(Rope<B>),
}

/// Shows activations to the caller.
pub(crate) struct Observer<'a, B: Backend>(&'a mut dyn FnMut(Step, &Tensor<B, 4>));

impl<B: Backend> Observer<'_, B> {
    /// Shows a map `[batch, rows, columns, channels]`.
    pub(crate) fn map(&mut self, step: Step, x: &Tensor<B, 4>) {
        (self.0)(step, x);
    }

    /// Shows tokens `[batch, n, channels]`.
    pub(crate) fn tokens(&mut self, step: Step, x: &Tensor<B, 3>) {
        (self.0)(step, &x.clone().unsqueeze_dim(1));
    }
}

impl<B: PortableBackend> Model<B> {
    /// As [`Network::load`](crate::Network::load), which explains `values`.
    ///
    /// # Errors
    /// Whatever `values` returns, unchanged.
    ///
    /// # Panics
    /// If `values` returns another count of values than the shape has, or `dims` contradicts itself.
    pub fn load<E>(
        dims: &Dims,
        device: &B::Device,
        mut values: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, E>,
    ) -> Result<Self, E> {
        assert_eq!(dims.embed_dim % dims.heads, 0, "embed_dim {} in {} heads", dims.embed_dim, dims.heads);
        let v = &mut Values::new(device, &mut values);
        Ok(Self {
            head_dim: dims.head_dim(),
            backbone: match dims.family {
                Family::Sapiens { pos_embed_grid } => {
                    Backbone::Sapiens(Sapiens::load(dims, pos_embed_grid, v)?)
                }
                Family::Sapiens2 { .. } => {
                    assert_eq!(dims.head_dim() % 4, 0, "rotary embedding of head dim {}", dims.head_dim());
                    Backbone::Sapiens2(Sapiens2::load(dims, v)?)
                }
            },
            decode_head: Head::load(dims, v)?,
        })
    }

    /// What the network needs to know about inputs of `height` x `width`, computed once.
    pub fn tables(&self, height: usize, width: usize, device: &B::Device) -> Tables<B> {
        let grid = [height / PATCH, width / PATCH];
        Tables(match &self.backbone {
            Backbone::Sapiens(backbone) => TablesOf::Sapiens(backbone.pos_embed_table(grid)),
            Backbone::Sapiens2(_) => TablesOf::Sapiens2(Rope::new(grid, self.head_dim, device)),
        })
    }

    /// Inputs `[batch, 3, height, width]`, normalised, to logits `[batch, classes, rows, columns]`. `tables` are those
    /// of this size.
    ///
    /// # Panics
    /// If a side of the input is no multiple of the patch, or the tables are another size's.
    pub fn forward(&self, input: Tensor<B, 4>, tables: &Tables<B>) -> Tensor<B, 4> {
        self.forward_with(input, tables, &mut |_, _| {}).permute([0, 3, 1, 2])
    }

    /// As `forward`, showing each step's activation to `observe`; the logits are channels-last,
    /// `[batch, rows, columns, classes]`.
    pub(crate) fn forward_with(
        &self,
        input: Tensor<B, 4>,
        tables: &Tables<B>,
        observe: &mut dyn FnMut(Step, &Tensor<B, 4>),
    ) -> Tensor<B, 4> {
        let [_, _, height, width] = input.dims();
        let observer = &mut Observer(observe);
        let tokens = match (&self.backbone, &tables.0) {
            (Backbone::Sapiens(backbone), TablesOf::Sapiens(pos_embed)) => {
                backbone.forward(input, pos_embed.clone(), observer)
            }
            (Backbone::Sapiens2(backbone), TablesOf::Sapiens2(rope)) => {
                backbone.forward(input, rope, observer)
            }
            _ => panic!("tables of the other family"),
        };
        let [batch, _, d] = tokens.dims();
        let features = tokens.reshape([batch, height / PATCH, width / PATCH, d]);
        observer.map(Step::Features, &features);
        self.decode_head.forward(features, observer)
    }
}
