//! The network as a caller runs it: weights in by name, one normalised frame in, logits out.

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};

use crate::backend::PortableBackend;
use crate::dims::Dims;
use crate::model::{Model, Tables};
use crate::step::Step;

/// One frame's logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Planar and row-major: `[classes, height, width]`.
    pub values: Vec<f32>,
    /// Classes, the planes of `values`.
    pub classes: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Columns of a plane.
    pub width: usize,
}

/// A network with its weights on a device, ready for inference. Clones share the weights.
///
/// It is `Send` and `Sync`: `forward` takes `&self` and may run on several threads at once. On the CPU the work
/// runs on the rayon pool of the thread that calls.
#[derive(Debug, Clone)]
pub struct Network<B: PortableBackend> {
    shared: Arc<Shared<B>>,
}

#[derive(Debug)]
struct Shared<B: PortableBackend> {
    dims: Dims,
    device: B::Device,
    model: Model<B>,
    /// Tables of the last input size: a stream's frames all have one size.
    tables: Mutex<Option<([usize; 2], Tables<B>)>>,
}

impl<B: PortableBackend> Network<B> {
    /// Builds the network of `dims` on `device`.
    ///
    /// `values(name, shape)` is called once for each tensor of the checkpoint, by the authors' name, with the shape
    /// that `dims` demands, and returns its row-major values. `backbone.pos_embed` is asked for without a class
    /// token: `[1, rows * columns, D]` of [`Family::Sapiens`](crate::Family::Sapiens)'s grid.
    /// `backbone.rope_embed.periods` is never asked for: it follows from the head dim.
    ///
    /// # Errors
    /// Whatever `values` returns, unchanged.
    ///
    /// # Panics
    /// If `values` returns another count of values than `shape` has, or `dims` contradicts itself.
    pub fn load<E>(
        dims: &Dims,
        device: &B::Device,
        values: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, E>,
    ) -> Result<Self, E> {
        let model = Model::load(dims, device, values)?;
        Ok(Self::new(dims, device, model))
    }

    /// Wraps a model, for instance one just trained.
    pub fn new(dims: &Dims, device: &B::Device, model: Model<B>) -> Self {
        // Nothing here ever asks for a gradient.
        let (dims, device, model) = (dims.clone(), device.clone(), model.no_grad());
        Self { shared: Arc::new(Shared { dims, device, model, tables: Mutex::new(None) }) }
    }

    /// The sizes it was built for.
    pub fn dims(&self) -> &Dims {
        &self.shared.dims
    }

    /// Logits of one frame. `input` is planar, `[3, height, width]`, normalised; `height` and `width` are any
    /// multiples of [`PATCH`](crate::PATCH).
    ///
    /// # Panics
    /// If `input` has another length, or a side is no multiple of the patch.
    pub fn forward(&self, input: Vec<f32>, height: usize, width: usize) -> Logits {
        self.forward_with(input, height, width, &mut |_, _| {})
    }

    /// As [`Network::forward`], showing every step's activation to `observe` as the step ends.
    ///
    /// What it is shown is channels-last, `[1, rows, columns, channels]`: tokens (prefix tokens included) are one
    /// row. A backend that runs asynchronously may still be computing it.
    ///
    /// # Panics
    /// As [`Network::forward`].
    pub fn forward_with(
        &self,
        input: Vec<f32>,
        height: usize,
        width: usize,
        observe: &mut dyn FnMut(Step, &Tensor<B, 4>),
    ) -> Logits {
        let Shared { dims, device, model, .. } = &*self.shared;
        let input = Tensor::from_data(TensorData::new(input, [1, 3, height, width]), device);
        let tables = self.tables(height, width);
        let logits = model.forward_with(input, &tables, observe);
        let [_, height, width, classes] = logits.dims();
        debug_assert_eq!(classes, dims.classes);
        let values = logits.permute([0, 3, 1, 2]).into_data().convert::<f32>();
        // Converted to f32 on the line above, so the type is right.
        let values = values.into_vec::<f32>().unwrap_or_default();
        Logits { values, classes, height, width }
    }

    fn tables(&self, height: usize, width: usize) -> Tables<B> {
        let Shared { device, model, tables, .. } = &*self.shared;
        // The tables are replaced whole, so a panic elsewhere can't have left them half made.
        let mut last = tables.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((size, tables)) if *size == [height, width] => tables.clone(),
            _ => {
                let tables = model.tables(height, width, device);
                *last = Some(([height, width], tables.clone()));
                tables
            }
        }
    }
}
