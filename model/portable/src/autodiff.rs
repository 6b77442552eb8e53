//! The networks under burn's Autodiff: operations whose gradient the inner backend computes at once, instead of one
//! burn operation after the other. Knows neither losses nor optimisers.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use crate::backend::PortableBackend;

/// An operation of `N` inputs and the gradients of its inputs from the gradient of its result.
trait Operation<B: Backend, const N: usize>: Clone + Debug + Send + 'static {
    fn forward(self, inputs: [FloatTensor<B>; N]) -> FloatTensor<B>;
    fn backward(self, inputs: [FloatTensor<B>; N], gradient: FloatTensor<B>) -> [FloatTensor<B>; N];
}

/// An [`Operation`] as burn registers it.
#[derive(Debug)]
struct Registered<O>(PhantomData<O>);

impl<B: Backend, O: Operation<B, N>, const N: usize> Backward<B, N> for Registered<O> {
    type State = (O, [FloatTensor<B>; N]);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (operation, inputs) = ops.state;
        for (parent, gradient) in ops.parents.into_iter().zip(operation.backward(inputs, gradient)) {
            if let Some(parent) = parent {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

fn apply<B: Backend, C: CheckpointStrategy, O: Operation<B, N>, const N: usize>(
    operation: O,
    inputs: [FloatTensor<Autodiff<B, C>>; N],
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|t| t.node.clone());
    let values = inputs.each_ref().map(|t| t.primitive.clone());
    match Registered::<O>(PhantomData).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let state = (operation.clone(), values.clone());
            prep.finish(state, operation.forward(values))
        }
        OpsKind::UnTracked(prep) => prep.finish(operation.forward(values)),
    }
}

fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

#[derive(Debug, Clone)]
struct Linear;

impl<B: PortableBackend> Operation<B, 3> for Linear {
    fn forward(self, [x, weight, bias]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(B::affine(tensor(x), tensor(weight), tensor(bias)))
    }

    fn backward(
        self,
        [x, weight, bias]: [FloatTensor<B>; 3],
        gradient: FloatTensor<B>,
    ) -> [FloatTensor<B>; 3] {
        let (x, weight, bias) = B::affine_backward(tensor(x), tensor(weight), tensor(bias), tensor(gradient));
        [primitive(x), primitive(weight), primitive(bias)]
    }
}

#[derive(Debug, Clone)]
struct SwiGlu;

impl<B: PortableBackend> Operation<B, 1> for SwiGlu {
    fn forward(self, [x]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        primitive(B::swiglu(tensor(x)))
    }

    fn backward(self, [x]: [FloatTensor<B>; 1], gradient: FloatTensor<B>) -> [FloatTensor<B>; 1] {
        [primitive(B::swiglu_backward(tensor(x), tensor(gradient)))]
    }
}

/// Of `[rows, channels]`.
#[derive(Debug, Clone)]
struct RmsNorm(f64);

impl<B: PortableBackend> Operation<B, 2> for RmsNorm {
    fn forward(self, [x, weight]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive::<B, 2>(B::rms_norm(tensor(x), tensor(weight), self.0))
    }

    fn backward(self, [x, weight]: [FloatTensor<B>; 2], gradient: FloatTensor<B>) -> [FloatTensor<B>; 2] {
        let (x, weight) = B::rms_norm_backward(tensor(x), tensor(weight), self.0, tensor(gradient));
        [primitive(x), primitive(weight)]
    }
}

#[derive(Debug, Clone)]
struct InstanceNormSilu(f64);

impl<B: PortableBackend> Operation<B, 1> for InstanceNormSilu {
    fn forward(self, [x]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        primitive(B::instance_norm_silu(tensor(x), self.0))
    }

    fn backward(self, [x]: [FloatTensor<B>; 1], gradient: FloatTensor<B>) -> [FloatTensor<B>; 1] {
        [primitive(B::instance_norm_silu_backward(tensor(x), self.0, tensor(gradient)))]
    }
}

#[derive(Debug, Clone)]
struct ScaledDotProduct;

impl<B: PortableBackend> Operation<B, 3> for ScaledDotProduct {
    fn forward(self, inputs: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let [q, k, v] = inputs.map(tensor);
        primitive(B::scaled_dot_product(q, k, v))
    }

    fn backward(self, inputs: [FloatTensor<B>; 3], gradient: FloatTensor<B>) -> [FloatTensor<B>; 3] {
        let [q, k, v] = inputs.map(tensor);
        B::scaled_dot_product_backward(q, k, v, tensor(gradient)).map(primitive)
    }
}

/// The tables are constants and have no gradient.
#[derive(Debug, Clone)]
struct Rotary<B: Backend> {
    cos: FloatTensor<B>,
    sin: FloatTensor<B>,
}

impl<B: PortableBackend> Operation<B, 1> for Rotary<B> {
    fn forward(self, [x]: [FloatTensor<B>; 1]) -> FloatTensor<B> {
        primitive(B::rotary_bf16(tensor(x), tensor(self.cos), tensor(self.sin)))
    }

    fn backward(self, _: [FloatTensor<B>; 1], gradient: FloatTensor<B>) -> [FloatTensor<B>; 1] {
        [primitive(B::rotary_bf16_backward(tensor(self.cos), tensor(self.sin), tensor(gradient)))]
    }
}

#[derive(Debug, Clone)]
struct ConvTranspose;

impl<B: PortableBackend> Operation<B, 2> for ConvTranspose {
    fn forward(self, [x, weight]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive(B::conv_transpose(tensor(x), tensor(weight)))
    }

    fn backward(self, [x, weight]: [FloatTensor<B>; 2], gradient: FloatTensor<B>) -> [FloatTensor<B>; 2] {
        let (x, weight) = B::conv_transpose_backward(tensor(x), tensor(weight), tensor(gradient));
        [primitive(x), primitive(weight)]
    }
}

impl<B: PortableBackend, C: CheckpointStrategy> PortableBackend for Autodiff<B, C> {
    fn affine(x: Tensor<Self, 3>, weight: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 3> {
        tensor(apply::<B, C, _, _>(Linear, [primitive(x), primitive(weight), primitive(bias)]))
    }

    fn swiglu(x: Tensor<Self, 3>) -> Tensor<Self, 3> {
        tensor(apply::<B, C, _, _>(SwiGlu, [primitive(x)]))
    }

    fn rms_norm<const D: usize>(
        x: Tensor<Self, D>,
        weight: Tensor<Self, 1>,
        epsilon: f64,
    ) -> Tensor<Self, D> {
        let shape = x.shape();
        let channels = shape[D - 1];
        let rows: Tensor<Self, 2> = x.reshape([shape.num_elements() / channels, channels]);
        tensor::<Self, 2>(apply::<B, C, _, _>(RmsNorm(epsilon), [primitive(rows), primitive(weight)]))
            .reshape(shape)
    }

    fn instance_norm_silu(x: Tensor<Self, 4>, epsilon: f64) -> Tensor<Self, 4> {
        tensor(apply::<B, C, _, _>(InstanceNormSilu(epsilon), [primitive(x)]))
    }

    fn scaled_dot_product(q: Tensor<Self, 4>, k: Tensor<Self, 4>, v: Tensor<Self, 4>) -> Tensor<Self, 3> {
        tensor(apply::<B, C, _, _>(ScaledDotProduct, [primitive(q), primitive(k), primitive(v)]))
    }

    fn rotary_bf16(x: Tensor<Self, 4>, cos: Tensor<Self, 2>, sin: Tensor<Self, 2>) -> Tensor<Self, 4> {
        let [cos, sin] = [cos, sin].map(|t| primitive(t).primitive);
        tensor(apply::<B, C, _, _>(Rotary::<B> { cos, sin }, [primitive(x)]))
    }

    fn conv_transpose(x: Tensor<Self, 4>, weight: Tensor<Self, 4>) -> Tensor<Self, 4> {
        tensor(apply::<B, C, _, _>(ConvTranspose, [primitive(x), primitive(weight)]))
    }
}
