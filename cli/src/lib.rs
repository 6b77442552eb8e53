//! What the project's programs share: the model's arguments, messages, image files.
//!
//! The command `sapiens` is the binary beside this; `annotate` and `camera` are in `examples`.

pub mod messages;
pub mod model_args;
pub mod picture;

pub use messages::{complain, start_log, warn};
pub use model_args::ModelArguments;
