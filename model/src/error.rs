//! The one error type of the library. It knows nothing of the modules that raise it.
//!
//! Every message names the thing (file, tensor, option), what was expected and what was found, so that it
//! can be shown to a person as it stands.

use std::fmt;

/// What kind of thing went wrong, for programs that react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No variant, class or other listed thing has that name.
    UnknownName,
    /// A model card that can't be read or contradicts itself.
    InvalidCard,
    /// No weights where they were looked for.
    WeightsNotFound,
    /// A file that is no checkpoint, or a damaged, truncated or hostile one.
    InvalidWeights,
    /// A readable checkpoint whose tensors are not those of the card.
    WeightsMismatch,
    /// The file's SHA-256 is not the published one.
    HashMismatch,
    /// The weights' licence has not been accepted.
    LicenseNotAccepted,
    /// The backend, device or precision asked for can't run here.
    BackendUnavailable,
    /// A network input size that the model can't take.
    InvalidInputSize,
    /// A frame whose planes, strides or sizes don't fit each other.
    InvalidFrame,
    /// Every slot is in flight: receive a result before submitting more.
    Full,
    /// Nothing is in flight: there is no result to receive.
    Empty,
    /// Inference failed.
    Engine,
    /// The operating system refused to read or write a file.
    Io,
}

/// An error with its kind, a message fit for people, and what caused it, if something else did.
#[derive(Debug)]
pub struct SegmentError {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
}

/// `std::result::Result` with a [`SegmentError`].
pub type Result<T> = std::result::Result<T, SegmentError>;

impl SegmentError {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with what caused it. The message should stand without it: displays show the message alone.
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// An operating-system error on `path`; `doing` is a verb ("read", "write", "open").
    pub fn io(doing: &str, path: &std::path::Path, error: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("can't {doing} {}: {error}", path.display())).with_source(error)
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SegmentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
