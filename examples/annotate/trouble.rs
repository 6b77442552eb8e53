//! What can go wrong with an input, as far as the rest of the run must know.

use std::fmt;
use std::io;
use std::path::Path;

/// Why an input wasn't finished.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// This input can't be done; others can.
    Input(String),
    /// Nothing more can be written: no input can be done.
    DiskFull(String),
    /// Somebody asked to stop. What is done is kept.
    Stopped,
}

/// A result with a [`Trouble`].
pub(crate) type Result<T> = std::result::Result<T, Trouble>;

impl Trouble {
    /// An error on `path`; `doing` is a verb ("read", "write").
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let message = format!("can't {doing} {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Trouble::DiskFull(message),
            _ => Trouble::Input(message),
        }
    }
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Trouble::Input(message)
    }
}

impl From<sapiens_model::SegmentError> for Trouble {
    fn from(error: sapiens_model::SegmentError) -> Self {
        Trouble::Input(error.to_string())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Input(message) | Trouble::DiskFull(message) => f.write_str(message),
            Trouble::Stopped => f.write_str("stopped"),
        }
    }
}
