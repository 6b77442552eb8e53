//! Labels shown on frames that lie on the device, on a stream beside those that make labels.

use std::sync::Arc;

use sapiens_kernels::cuda::cut_out::{CutOut, Shown};
use sapiens_kernels::cuda::frame::PlaneMut;
use sapiens_kernels::cuda::overlay::{Canvas, Overlay, Tints};
use sapiens_kernels::cuda::{Buffer, Event, Gpu, Staging, Stream};

use super::describe;
use crate::alpha::alpha_byte;
use crate::cuda::{CudaFrame, Look, Painting};
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::{Colorimetry, FrameInfo, PixelFormat};
use crate::label_map::LabelMap;
use crate::overlay::{check_size, tints};
use crate::palette::Palette;

pub(super) struct Painter {
    // Goes first: who drops it waits until nothing uses the rest.
    stream: Stream,
    /// Marks streams of others, which this one waits for.
    foreign: Event,
    /// Behind all of a painting.
    done: Event,
    overlay: Overlay,
    cut_out: CutOut,
    /// The last labels' way to the device.
    staging: Staging<u8>,
    labels: Buffer<u8>,
    tints: Option<KnownTints>,
    shown: Option<(Palette, Shown)>,
}

/// Tints, and what they were made from.
struct KnownTints {
    format: PixelFormat,
    colorimetry: Colorimetry,
    palette: Palette,
    opacity: f64,
    tints: Tints,
}

impl Painter {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(gpu)?,
            foreign: Event::new(gpu, false)?,
            done: Event::new(gpu, false)?,
            overlay: Overlay::new(gpu)?,
            cut_out: CutOut::new(gpu)?,
            staging: Staging::new(gpu, 0)?,
            labels: Buffer::new(gpu, 0)?,
            tints: None,
            shown: None,
        })
    }

    /// As [`Engine::paint`](super::Engine::paint).
    pub fn paint(&mut self, painting: Painting<'_>) -> Result<()> {
        let Painting { frame, canvas, labels, palette, look } = painting;
        if let Some(labels) = labels {
            check_size(frame.info(), labels)?;
        }
        let shown = self.copy(frame, canvas).and_then(|()| match (look, labels) {
            (Look::Overlay { opacity }, Some(labels)) if opacity > 0.0 => {
                self.paint_over(frame.info(), canvas, labels, palette, opacity)
            }
            (Look::Overlay { .. }, _) => Ok(()),
            (Look::CutOut, labels) => self.cut_out(frame.info(), canvas, labels, palette),
        });
        // Whatever went wrong, the frame and the canvas are the caller's again. Who waits for an event sleeps.
        let done = self.done.record(&self.stream).and_then(|()| self.done.synchronize());
        if done.is_err() {
            self.stream.synchronize()?;
        }
        shown?;
        Ok(done?)
    }

    /// The canvas becomes the frame.
    fn copy(&mut self, frame: &CudaFrame, canvas: &mut CudaFrame) -> Result<()> {
        let (from, to) = (frame.info(), canvas.info());
        let shape = |info: FrameInfo| (info.width, info.height, info.format.layout());
        if shape(from) != shape(to) {
            return Err(SegmentError::new(
                ErrorKind::InvalidFrame,
                format!("a canvas of {} for a frame of {}", describe(to), describe(from)),
            ));
        }
        for frame in [frame, canvas] {
            frame.check_context(self.stream.gpu().context_id())?;
            self.stream.wait_for_foreign(frame.written_in(), &self.foreign)?;
        }
        let sizes = (0..from.format.planes()).map(|index| from.plane_size(index));
        for ((plane, size), canvas) in frame.planes().iter().zip(sizes).zip(canvas.planes_mut()) {
            self.stream.copy_rows(plane.plane(), canvas.plane_mut(), size)?;
        }
        Ok(())
    }

    fn paint_over(
        &mut self,
        info: FrameInfo,
        canvas: &mut CudaFrame,
        labels: &LabelMap,
        palette: &Palette,
        opacity: f64,
    ) -> Result<()> {
        self.bring(labels)?;
        let known = self.tints.take().filter(|known| {
            (known.format, known.colorimetry, known.opacity) == (info.format, info.colorimetry, opacity)
                && known.palette == *palette
        });
        let known = self.tints.insert(match known {
            Some(known) => known,
            None => KnownTints {
                format: info.format,
                colorimetry: info.colorimetry,
                palette: palette.clone(),
                opacity,
                tints: Tints::new(&self.stream, &tints(info, palette, opacity))?,
            },
        });
        let mut planes: Vec<PlaneMut<'_>> =
            canvas.planes_mut().iter_mut().map(|plane| plane.plane_mut()).collect();
        let canvas = Canvas {
            layout: info.format.layout(),
            width: info.width,
            height: info.height,
            planes: &mut planes,
        };
        Ok(self.overlay.run(&self.stream, canvas, self.labels.slice(..), &known.tints)?)
    }

    /// What alpha is is the frame's format to say: the canvas's has a meaning for it anyway.
    fn cut_out(
        &mut self,
        frame: FrameInfo,
        canvas: &mut CudaFrame,
        labels: Option<&LabelMap>,
        palette: &Palette,
    ) -> Result<()> {
        let (_, has_alpha) = alpha_byte(frame.format)?;
        if let Some(labels) = labels {
            self.bring(labels)?;
        }
        let known = self.shown.take().filter(|(known, _)| known == palette);
        let (_, shown) = self.shown.insert(match known {
            Some(known) => known,
            None => {
                let shown = std::array::from_fn(|label| palette.is_shown(label as u8));
                (palette.clone(), Shown::new(&self.stream, &shown)?)
            }
        });
        let mut planes: Vec<PlaneMut<'_>> =
            canvas.planes_mut().iter_mut().map(|plane| plane.plane_mut()).collect();
        let canvas = Canvas {
            layout: frame.format.layout(),
            width: frame.width,
            height: frame.height,
            planes: &mut planes,
        };
        let labels = labels.map(|_| self.labels.slice(..));
        Ok(self.cut_out.run(&self.stream, canvas, has_alpha, labels, shown)?)
    }

    /// Queues labels' way to the device.
    fn bring(&mut self, labels: &LabelMap) -> Result<()> {
        let bytes = labels.labels();
        if bytes.len() != self.labels.len() {
            let gpu = self.stream.gpu();
            (self.staging, self.labels) = (Staging::new(gpu, bytes.len())?, Buffer::new(gpu, bytes.len())?);
        }
        self.staging.write()?.copy_from_slice(bytes);
        Ok(self.staging.upload(&self.stream, self.labels.slice_mut(..))?)
    }
}
