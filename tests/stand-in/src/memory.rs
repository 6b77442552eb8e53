//! Which memory there is: of the devices, pinned by the host, and freed a short while ago.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{CUresult, Result};
use crate::ffi::Handle;
use crate::mapping::{Closed, Mapping};

/// A piece of memory that the driver knows.
pub struct Piece {
    /// How many bytes were asked for.
    pub len: usize,
    /// Whose it is.
    pub context: Handle,
    /// None where the host brought the memory itself.
    mapping: Option<Mapping>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory of a device.
    Device,
    /// In memory of the host that a device reads and writes itself.
    Pinned,
    /// In any other memory of the host.
    Pageable,
}

/// What an address has to do with a piece of memory.
pub struct Explanation {
    /// The length of the piece; none once it was freed.
    piece: Option<usize>,
    /// How far the address is behind the begin of the piece.
    offset: isize,
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match self.piece {
            Some(len) => write!(out, "byte {offset} of {len} that were allocated"),
            None => write!(out, "byte {offset} of memory that was freed"),
        }
    }
}

/// All of it.
#[derive(Default)]
pub struct Memory {
    device: BTreeMap<usize, Piece>,
    pinned: BTreeMap<usize, Piece>,
    closed: Closed,
    /// The most there was at once on the devices.
    pub peak: usize,
}

/// The piece that holds all of a range.
fn holding(pieces: &BTreeMap<usize, Piece>, start: usize, len: usize) -> Option<(usize, &Piece)> {
    let (at, piece) = pieces.range(..=start).next_back()?;
    let end = start.checked_add(len)?;
    (end <= at + piece.len && (start < at + piece.len || len == 0)).then_some((*at, piece))
}

/// Whether a piece holds any of a range.
fn touching(pieces: &BTreeMap<usize, Piece>, start: usize, end: usize) -> bool {
    pieces.range(..end).next_back().is_some_and(|(at, piece)| start < at + piece.len)
}

impl Memory {
    /// Bytes that are in use on the devices of these contexts.
    pub fn used(&self, is_of: impl Fn(Handle) -> bool) -> usize {
        self.device.values().filter(|piece| is_of(piece.context)).map(|piece| piece.len).sum()
    }

    /// Memory of a device; the caller has seen to it that the device has it.
    pub fn allocate(&mut self, len: usize, context: Handle) -> Result<usize> {
        let start = Self::add(&mut self.device, len, context)?;
        self.peak = self.peak.max(self.used(|_| true));
        Ok(start)
    }

    /// Pinned memory of the host.
    pub fn allocate_pinned(&mut self, len: usize, context: Handle) -> Result<usize> {
        Self::add(&mut self.pinned, len, context)
    }

    fn add(pieces: &mut BTreeMap<usize, Piece>, len: usize, context: Handle) -> Result<usize> {
        let mapping = Mapping::new(len).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let start = mapping.start;
        pieces.insert(start, Piece { len, context, mapping: Some(mapping) });
        Ok(start)
    }

    /// Takes the host's own memory for pinned.
    pub fn register(&mut self, start: usize, len: usize, context: Handle) -> Result {
        let end = start.checked_add(len).filter(|_| start != 0 && len != 0);
        let end = end.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if touching(&self.pinned, start, end) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        if touching(&self.device, start, end) || self.closed.overlaps(start, end) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.pinned.insert(start, Piece { len, context, mapping: None });
        Ok(())
    }

    /// Takes it for pageable again.
    pub fn unregister(&mut self, start: usize) -> Result {
        let is_registered = self.pinned.get(&start).is_some_and(|piece| piece.mapping.is_none());
        if !is_registered {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        }
        self.pinned.remove(&start);
        Ok(())
    }

    /// Whose memory [`free`](Self::free) or [`free_pinned`](Self::free_pinned) would free, or
    /// [`unregister`](Self::unregister) would unregister.
    pub fn owner(&self, start: usize) -> Option<Handle> {
        self.device.get(&start).or_else(|| self.pinned.get(&start)).map(|piece| piece.context)
    }

    /// Frees memory of a device.
    pub fn free(&mut self, start: usize) -> Result {
        let piece = self.device.remove(&start).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        piece.mapping.into_iter().for_each(|mapping| self.closed.add(mapping));
        Ok(())
    }

    /// Frees pinned memory that was allocated.
    pub fn free_pinned(&mut self, start: usize) -> Result {
        let is_allocated = self.pinned.get(&start).is_some_and(|piece| piece.mapping.is_some());
        let piece = if is_allocated { self.pinned.remove(&start) } else { None };
        let mapping = piece.and_then(|piece| piece.mapping).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.closed.add(mapping);
        Ok(())
    }

    /// Frees all of a context; how many pieces that were.
    pub fn free_context(&mut self, context: Handle) -> usize {
        let mut freed = 0;
        for pieces in [&mut self.device, &mut self.pinned] {
            let of_context: Vec<usize> = pieces
                .iter()
                .filter(|(_, piece)| piece.context == context)
                .map(|(start, _)| *start)
                .collect();
            for piece in of_context.iter().filter_map(|start| pieces.remove(start)) {
                piece.mapping.into_iter().for_each(|mapping| self.closed.add(mapping));
                freed += 1;
            }
        }
        freed
    }

    /// How many pieces there are on devices and pinned.
    pub fn count(&self) -> (usize, usize) {
        (self.device.len(), self.pinned.len())
    }

    /// Where a range is. None if it is in no one place, or was freed.
    pub fn place(&self, start: usize, len: usize) -> Option<Place> {
        let end = start.checked_add(len)?;
        if holding(&self.device, start, len).is_some() {
            return Some(Place::Device);
        }
        if touching(&self.device, start, end) || self.closed.overlaps(start, end) || start == 0 {
            return None;
        }
        Some(if holding(&self.pinned, start, len).is_some() { Place::Pinned } else { Place::Pageable })
    }

    /// What is at an address that may not be touched.
    pub fn explain(&self, address: usize) -> Option<Explanation> {
        let pieces = self.device.iter().chain(&self.pinned);
        let is_around = |piece: &Piece| piece.mapping.as_ref().is_some_and(|mapping| mapping.has(address));
        let live =
            pieces.filter(|(_, piece)| is_around(piece)).map(|(start, piece)| (*start, piece.len)).next();
        let (piece, offset) = match live {
            Some((start, len)) => (Some(len), address as isize - start as isize),
            None => (None, address as isize - self.closed.around(address)?.start as isize),
        };
        Some(Explanation { piece, offset })
    }

    /// Begin, length and context of the piece around an address of a device.
    pub fn around(&self, address: usize) -> Option<(usize, usize, Handle)> {
        holding(&self.device, address, 1).map(|(start, piece)| (start, piece.len, piece.context))
    }

    /// The same for pinned memory.
    pub fn around_pinned(&self, address: usize) -> Option<(usize, usize, Handle)> {
        holding(&self.pinned, address, 1).map(|(start, piece)| (start, piece.len, piece.context))
    }
}
