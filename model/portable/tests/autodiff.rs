//! The networks under burn's Autodiff: every parameter gets a gradient.

// Helpers outside #[test] functions, which clippy.toml doesn't know as tests.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use sapiens_portable::Model;

mod common;

type Differentiable = Autodiff<Flex>;
type Gradients = <Differentiable as AutodiffBackend>::Gradients;

/// Counts the parameters with and without a finite gradient.
struct Counter<'a> {
    gradients: &'a Gradients,
    with: usize,
    without: usize,
}

impl ModuleVisitor<Differentiable> for Counter<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Differentiable, D>>) {
        let gradient = param.val().grad(self.gradients).map(|g| g.abs().sum().into_scalar());
        if gradient.is_some_and(f32::is_finite) { self.with += 1 } else { self.without += 1 }
    }
}

#[test]
fn every_parameter_has_a_gradient() {
    let device = Default::default();
    for (mut dims, seed) in [(common::tiny_sapiens(), 1), (common::tiny_sapiens2(), 2)] {
        dims.layers = dims.layers.min(4);
        if let sapiens_portable::Family::Sapiens2 { full_kv_layers } = &mut dims.family {
            *full_kv_layers = 1;
        }
        let values = |name: &str, shape: &[usize]| Ok::<_, Infallible>(common::generated(name, shape, seed));
        let model = Model::<Differentiable>::load(&dims, &device, values).unwrap();
        let input = TensorData::new(common::generated_input(128, 96, 7), [1, 3, 128, 96]);
        let logits = model.forward(Tensor::from_data(input, &device), &model.tables(128, 96, &device));
        let gradients = logits.square().mean().backward();
        let mut counter = Counter { gradients: &gradients, with: 0, without: 0 };
        model.visit(&mut counter);
        println!("{} with a gradient", counter.with);
        assert!(counter.with > 0);
        assert_eq!(counter.without, 0);
    }
}
