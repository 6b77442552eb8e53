//! Every operation written naively: the specification that the fast ones are held against, never called by them.
//!
//! Float32 in and out, dense and row-major. Sums are kept in float64, so that what differs from here is the fast
//! implementation's rounding; where the rounding is part of the definition (the rotary embedding, the
//! interpolations) each operation says so.

mod activation;
mod attention;
mod conv;
mod frame;
mod gather;
mod generate;
mod linear;
mod norm;
mod position;
mod resize;
mod resize_argmax;
mod rope;

pub use activation::{gelu, silu, swiglu};
pub use attention::{AttentionShape, attention, softmax};
pub use conv::{conv_transpose_k4s2p1, conv1x1, patch_embed};
pub use frame::{cut_out, frame_rgb, paint_labels};
pub use gather::gather;
pub use generate::generate;
pub use linear::{linear, scale_residual};
pub use norm::{instance_norm, layer_norm, rms_norm};
pub use position::position_embedding;
pub use resize::{resize_area, resize_cubic, resize_linear};
pub use resize_argmax::resize_argmax;
pub use rope::{RopeTables, rope, rope_periods};

/// The number of rows in `len` values of `columns` each.
fn rows(len: usize, columns: usize, what: &str) -> usize {
    assert!(columns > 0 && len.is_multiple_of(columns), "{what}: {len} values are no rows of {columns}");
    len / columns
}
