//! Which copies are allowed, when they read and write, and which calls wait for them.
//!
//! | from | to | the source is read | the call waits |
//! |---|---|---|---|
//! | pinned or a device | pinned or a device | when the copy runs | if it is a synchronous one, and the host takes part |
//! | pageable | a device | at the call, as by the driver's staging | no, not even a synchronous one |
//! | a device | pageable | when the copy runs | yes |
//!
//! A copy that is captured reads and writes when its graph runs.

use crate::driver::{Driver, State, wait_for};
use crate::error::{CUresult, Result};
use crate::ffi::Handle;
use crate::memory::Place;
use crate::work::{Copy, Source, Work, extent, gather};

/// What the caller says of one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Memory of the host.
    Host,
    /// Memory of a device.
    Device,
    /// The driver is to find out.
    Unified,
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub struct Side {
    pub claim: Claim,
    pub address: usize,
    pub pitch: usize,
}

/// A copy as it is called for.
#[derive(Clone, Copy)]
pub struct Request {
    pub source: Side,
    pub target: Side,
    pub width: usize,
    pub height: usize,
}

impl Request {
    /// A copy of bytes in a row.
    pub fn of_bytes(source: (Claim, usize), target: (Claim, usize), bytes: usize) -> Self {
        let side = |(claim, address)| Side { claim, address, pitch: bytes };
        Self { source: side(source), target: side(target), width: bytes, height: 1 }
    }

    /// Copies in a stream, or synchronously where there is none.
    pub fn run(self, driver: &Driver, stream: Option<Handle>) -> Result {
        let mut state = driver.state();
        let queue = state.stream(stream.unwrap_or(Handle::NONE))?;
        if stream.is_none() {
            state.forbid_in_capture()?;
        }
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let source = self.place(&state, self.source)?;
        let target = self.place(&state, self.target)?;
        let is_captured = state.capture_of(queue).is_some();
        let is_staged = source == Place::Pageable && target == Place::Device && !is_captured;
        let is_of_host = source != Place::Device || target != Place::Device;
        let waits = match target {
            Place::Pageable => true,
            _ if is_staged => false,
            _ => source == Place::Pageable || stream.is_none() && is_of_host,
        };
        let devices = (source == Place::Device, target == Place::Device);
        let (address, pitch) = (self.source.address, self.source.pitch);
        let (source, source_pitch) = if is_staged {
            // SAFETY: the host calls for a copy of its memory.
            (Source::Staged(unsafe { gather(address, pitch, self.width, self.height) }), self.width)
        } else {
            (Source::At(address), pitch)
        };
        let copy = Copy {
            source,
            source_pitch,
            target: self.target.address,
            target_pitch: self.target.pitch,
            width: self.width,
            height: self.height,
            devices,
        };
        let context = state.current()?;
        let done = state.enqueue(queue, Work::Copy(copy))?;
        drop(state);
        if let Some(done) = done.filter(|_| waits) {
            wait_for(&[done]);
            driver.state().check(context)?;
        }
        Ok(())
    }

    /// Where one side is, if it is where the caller says.
    fn place(&self, state: &State, side: Side) -> Result<Place> {
        let is_pitch_enough = side.pitch >= self.width || self.height == 1;
        let len = extent(side.pitch, self.width, self.height).filter(|_| is_pitch_enough);
        let place = len.and_then(|len| state.memory.place(side.address, len));
        let place = place.filter(|place| match side.claim {
            Claim::Unified => true,
            Claim::Device => *place == Place::Device,
            Claim::Host => *place != Place::Device,
        });
        place.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}
