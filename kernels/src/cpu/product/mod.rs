//! Products of activations and weights, `x [m, k]` times `weights [n, k]` transposed: linears, 1x1 convolutions, the patch
//! embedding, and [`ConvTranspose`] as four of them. Whatever follows a product elementwise is fused into it ([`Epilogue`]).
//!
//! From the outside in: `drive` cuts a product into tasks and blocks, `pack` lays rows out, [`Weights`] has the weights
//! laid out before, `tile` multiplies, `epilogue` stores.
#![allow(unsafe_code)]

mod deconv;
mod drive;
mod epilogue;
mod moments;
mod norm_silu;
mod pack;
mod patch;
mod tile;
mod weights;

pub use deconv::{ConvTranspose, conv_transpose};
pub use drive::Workspace;
pub use epilogue::{Epilogue, Then};
pub use moments::Moments;
pub use norm_silu::norm_silu;
pub use patch::{PATCH, patch_rows, pixel_patches};
pub(super) use tile::from_registers;
pub use weights::Weights;

use super::Element;
use super::threads::Threads;
use drive::Rows;
use pack::OnLoad;

/// `out [m, outputs] = epilogue(x [m, k] * weights [n, k]^T)`, summed in float32. Values of `x` are rounded to bfloat16 where the
/// weights are.
///
/// # Panics
/// If lengths don't fit together.
pub fn product<A: Element, W: Element, O: Element>(
    threads: &mut Threads,
    workspace: &mut Workspace,
    x: &[A],
    weights: &Weights<W>,
    epilogue: Epilogue<'_>,
    out: &mut [O],
) {
    product_on_load(threads, workspace, x, weights, OnLoad::Nothing, epilogue, out);
}

/// As [`product`], of `silu((x - mean) * inverse)`: the InstanceNorm and SiLU between two convolutions, done where the
/// second loads what the first stored.
///
/// # Panics
/// If lengths don't fit together, the moments' among them.
pub fn product_norm_silu<A: Element, W: Element, O: Element>(
    threads: &mut Threads,
    workspace: &mut Workspace,
    x: &[A],
    moments: &Moments,
    weights: &Weights<W>,
    epilogue: Epilogue<'_>,
    out: &mut [O],
) {
    assert_eq!(moments.mean().len(), weights.inputs(), "moments of the left operand's channels");
    let on_load = OnLoad::NormSilu { mean: moments.mean(), inverse: moments.inverse() };
    product_on_load(threads, workspace, x, weights, on_load, epilogue, out);
}

fn product_on_load<A: Element, W: Element, O: Element>(
    threads: &mut Threads,
    workspace: &mut Workspace,
    x: &[A],
    weights: &Weights<W>,
    on_load: OnLoad<'_>,
    epilogue: Epilogue<'_>,
    out: &mut [O],
) {
    let (k, n) = (weights.inputs(), weights.outputs());
    assert!(x.len().is_multiple_of(k), "{} values are no rows of {k}", x.len());
    let m = x.len() / k;
    assert_eq!(out.len(), m * n, "an output of {m} x {n}");
    let rows = Dense { x, k };
    // SAFETY: rows below `m` are within `x`, output rows are the same ones within `out`.
    unsafe {
        drive::drive(threads, workspace, &rows, m, std::slice::from_ref(weights), on_load, epilogue, out)
    };
}

/// Rows one after the other.
struct Dense<'a, A> {
    x: &'a [A],
    k: usize,
}

impl<A: Element> Rows<A> for Dense<'_, A> {
    fn segments(&self, _: usize, first: usize, _: usize, to: &mut [*const A]) {
        let rows = self.x[first * self.k..].chunks_exact(self.k);
        to.iter_mut().zip(rows).for_each(|(to, row)| *to = row.as_ptr());
    }

    fn outputs(&self, _: usize, first: usize, to: &mut [usize]) {
        to.iter_mut().zip(first..).for_each(|(to, row)| *to = row);
    }
}
