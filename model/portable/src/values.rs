//! From the checkpoint's names to parameters on the device. Knows no file: the values come from the caller.

use burn::module::Param;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

type Source<'a, E> = &'a mut dyn FnMut(&str, &[usize]) -> Result<Vec<f32>, E>;

/// Asks the caller for one tensor after the other.
pub(crate) struct Values<'a, B: Backend, E> {
    device: &'a B::Device,
    source: Source<'a, E>,
}

impl<'a, B: Backend, E> Values<'a, B, E> {
    pub(crate) fn new(device: &'a B::Device, source: Source<'a, E>) -> Self {
        Self { device, source }
    }

    /// The tensor called `name`.
    pub(crate) fn param<const D: usize>(
        &mut self,
        name: &str,
        shape: [usize; D],
    ) -> Result<Param<Tensor<B, D>>, E> {
        let values = (self.source)(name, &shape)?;
        let count: usize = shape.iter().product();
        assert_eq!(values.len(), count, "values of {name}: the shape {shape:?} has {count}");
        Ok(Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), self.device)))
    }
}
