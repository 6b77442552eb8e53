//! The network's operations for this CPU: one file per operation, every one at every [`Level`], held against
//! [`reference`](mod@crate::reference) in `tests/cpu_*.rs`.
//!
//! [`Level`] says what the CPU and the system allow, [`Threads`] is the pool that the operations run on, [`Element`]
//! the types that values are stored in. Sums are float32 or wider everywhere. An operation allocates nothing when it
//! runs: what it needs besides its operands is made beforehand.

#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod caches;
pub mod element;
pub mod level;
pub mod norm;
pub mod probe;
pub mod product;
pub mod resize_argmax;
mod simd;
pub mod threads;

pub use attention::{Attention, AttentionInput, AttentionShape, Heads, QkNorm, Rotary};
pub use element::{Aligned, Element};
pub use level::Level;
pub use norm::{layer_norm, rms_norm};
pub use resize_argmax::{PixelLogits, ResizeArgmax};
pub use threads::Threads;
