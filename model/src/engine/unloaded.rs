//! An engine whose network was let go, while another is loaded in its place.

use super::{Engine, Output};
use crate::backend::Backend;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;

/// Takes no frames.
pub(crate) struct Unloaded {
    /// What ran.
    pub backend: Backend,
    /// Slots there were.
    pub depth: usize,
}

fn no_network() -> SegmentError {
    SegmentError::new(
        ErrorKind::Engine,
        "no network is loaded: it was let go for another, which could not be loaded",
    )
}

impl Engine for Unloaded {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&self, _slot: usize, _frame: Box<dyn Frame>) -> Result<()> {
        Err(no_network())
    }

    fn cancel(&self, _slot: usize) {}

    fn finish(&self, _slot: usize, _output: &mut Output) -> Result<()> {
        Err(no_network())
    }
}
