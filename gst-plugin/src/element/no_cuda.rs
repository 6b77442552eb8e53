//! Frames in an NVIDIA GPU's memory, in a build without the feature `cuda`: there are none.

use std::sync::Arc;

use sapiens_model::{Frame, Result, Segmenter};

use super::imp::{SapiensSeg, load};
use super::running::{Framed, Running};
use super::settings::Settings;
use crate::labels::Labels;
use crate::render::{Appearance, Shape};

/// What frames in a GPU's memory need: nobody has it.
pub(super) enum OnCuda {}

impl SapiensSeg {
    pub(super) fn load(&self, settings: &Settings) -> Result<(Segmenter, Option<OnCuda>)> {
        Ok((load(settings)?, None))
    }

    pub(super) fn takes_cuda(&self) -> bool {
        false
    }

    pub(super) fn answer_context(&self, _query: &mut gst::query::Context) -> bool {
        false
    }

    pub(super) fn follow(
        &self,
        _running: &Running,
        _framed: &Framed,
    ) -> std::result::Result<(), gst::FlowError> {
        Ok(())
    }

    pub(super) fn map_cuda(&self, running: &Running, _framed: &Framed) -> Result<Box<dyn Frame>> {
        nobody_has(running)
    }

    pub(super) fn paint_on_cuda(
        &self,
        running: &Running,
        _buffer: &gst::Buffer,
        _shape: &Shape,
        _labels: Option<&Arc<Labels>>,
        _appearance: &Appearance,
    ) -> Result<Option<gst::Buffer>> {
        nobody_has(running)
    }

    pub(super) fn offer_pool(&self, _caps: &gst::CapsRef, _min: u32) -> Option<(gst::BufferPool, u32)> {
        None
    }
}

fn nobody_has(running: &Running) -> ! {
    match running.cuda {
        Some(ref never) => match *never {},
        None => unreachable!("caps of CUDA memory were refused"),
    }
}
