//! A forward pass of one input size: its memory, and its work as one launch.
#![allow(unsafe_code)] // Who launches a graph promises that the memory in it is there.

use std::sync::Arc;

use sapiens_kernels::cuda::resize_argmax::PixelLogits;
use sapiens_kernels::cuda::{Graph, SliceMut, Stream};

use super::network::{Network, logits_stride};
use super::stages::StageMarks;
use super::workspace::Workspace;
use crate::error::Result;

/// Used by one frame after the other.
pub(super) struct Pass {
    // Goes first: it names the memory of the others.
    queued: Queued,
    launches: usize,
    workspace: Workspace,
    network: Arc<Network>,
}

/// How the work is queued.
enum Queued {
    /// Operation by operation so far. The first time always: a driver may load a kernel when it is first launched, for which a capture is
    /// no place. After that work is captured; others who use the context may spoil that, so it is tried this often.
    Singly {
        /// Whether it was queued at all.
        before: bool,
        captures: u32,
    },
    /// As one launch.
    Whole(Graph),
}

const CAPTURES: u32 = 3;

impl Pass {
    /// For inputs of this height and width, multiples of a patch.
    ///
    /// # Errors
    /// If there isn't so much memory on the device, or what the driver says.
    pub fn new(network: &Arc<Network>, stream: &Stream, size: [usize; 2]) -> Result<Self> {
        let workspace = Workspace::new(network, stream, size)?;
        Ok(Self {
            queued: Queued::Singly { before: false, captures: CAPTURES },
            launches: 0,
            workspace,
            network: network.clone(),
        })
    }

    /// Height and width of the input.
    pub fn size(&self) -> [usize; 2] {
        self.workspace.size
    }

    /// Where the network's input goes: rows of patches.
    pub fn patches(&mut self) -> SliceMut<'_, u16> {
        self.workspace.patches()
    }

    /// Queues the forward pass, from the patches to the logits.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        let Self { queued, launches, workspace, network } = self;
        if let Queued::Singly { before: true, captures: captures @ 1.. } = queued {
            *captures -= 1;
            match Graph::capture(stream, || network.forward(stream, workspace, &mut |_, _| Ok(()))) {
                Ok(graph) => *queued = Queued::Whole(graph),
                Err(error) => log::warn!("a forward pass can't be captured, and is queued singly: {error}"),
            }
        }
        match queued {
            // SAFETY: the graph names the workspace's memory and the network's, both of which live here and are never exchanged.
            Queued::Whole(graph) => Ok(unsafe { graph.launch(stream) }?),
            Queued::Singly { before, .. } => {
                *launches = 0;
                network.forward(stream, workspace, &mut |_, more| {
                    *launches += more;
                    Ok(())
                })?;
                *before = true;
                Ok(())
            }
        }
    }

    /// As [`Pass::run`], operation by operation, each marked at its end.
    pub fn run_in_stages(&mut self, stream: &Stream, marks: &mut StageMarks) -> Result<()> {
        self.network.forward(stream, &mut self.workspace, &mut |stage, _| marks.end(stage, stream))
    }

    /// Kernels and copies that [`Pass::run`] queues, products by cuBLASLt with what follows them as one; 0 before the first time.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// What the last run gives.
    pub fn logits(&self) -> PixelLogits<'_> {
        let sizes = self.network.sizes();
        let [height, width] = sizes.logits(self.workspace.size);
        PixelLogits {
            values: self.workspace.logits.slice(..),
            classes: sizes.classes,
            stride: logits_stride(sizes),
            height,
            width,
        }
    }
}
