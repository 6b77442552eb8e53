//! An engine that runs no network: scripted labels, delays and failures, for tests of what is around engines.

use std::sync::Arc;
use std::time::Duration;

use super::{Network, Output, Worker};
use crate::backend::Backend;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;
use crate::label_map::LabelMap;

/// What happens to one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// How long inference takes.
    pub delay: Duration,
    /// What it comes to.
    pub outcome: Outcome,
}

/// What inference on one frame comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This class everywhere.
    Fill(u8),
    /// Brightness: each pixel's green value over 16, so that labels tell where pixels came from.
    GreenOver16,
    /// These labels, whatever the frame shows: its pixels aren't looked at.
    Labels(Arc<LabelMap>),
    /// An error that says this.
    Fail(String),
    /// A panic that says this.
    Panic(String),
}

/// The script: each frame takes the next turn, and what comes after the last is up to it.
pub type Script = Box<dyn FnMut(usize) -> Turn + Send>;

struct FakeNetwork {
    script: Script,
    frames: usize,
    rgb: Vec<u8>,
}

impl Network for FakeNetwork {
    fn infer(&mut self, frame: Box<dyn Frame>, output: &mut Output) -> Result<()> {
        let view = frame.pixels().on_host()?;
        let (width, height) = (view.width(), view.height());
        let turn = (self.script)(self.frames);
        self.frames += 1;
        if turn.outcome == Outcome::GreenOver16 {
            self.rgb.resize(width * height * 3, 0);
            view.write_rgb(&mut self.rgb);
        }
        drop(frame);
        std::thread::sleep(turn.delay);
        output.labels.resize(width, height);
        output.timing = super::Timing { network: turn.delay, ..Default::default() };
        match turn.outcome {
            Outcome::Fill(class) => output.labels.labels_mut().fill(class),
            Outcome::GreenOver16 => {
                for (label, pixel) in output.labels.labels_mut().iter_mut().zip(self.rgb.as_chunks::<3>().0) {
                    *label = pixel[1] / 16;
                }
            }
            Outcome::Labels(map) if (map.width(), map.height()) == (width, height) => {
                output.labels.labels_mut().copy_from_slice(map.labels());
            }
            Outcome::Labels(map) => {
                return Err(SegmentError::new(
                    ErrorKind::Engine,
                    format!(
                        "scripted labels of {} x {} for a frame of {width} x {height}",
                        map.width(),
                        map.height()
                    ),
                ));
            }
            Outcome::Fail(message) => return Err(SegmentError::new(ErrorKind::Engine, message)),
            Outcome::Panic(message) => std::panic::panic_any(message),
        }
        Ok(())
    }
}

/// An engine of `depth` slots that follows `script`, which is called with each frame's number from 0.
///
/// # Errors
/// `Engine` if no thread can be started.
pub fn engine(depth: usize, script: Script) -> Result<Box<dyn super::Engine>> {
    let backend = Backend::PORTABLE;
    let network = FakeNetwork { script, frames: 0, rgb: Vec::new() };
    Ok(Box::new(Worker::start(backend, depth, network)?))
}
