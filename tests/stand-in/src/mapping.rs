//! Memory of its own between two pages that nobody may touch.

use std::collections::VecDeque;

/// Freed memory of at most so many bytes stays closed.
const CLOSED_BYTES: usize = 256 << 20;
/// And so many pieces: a process may have some ten thousand mappings.
const CLOSED_PIECES: usize = 4096;

const PAGE: usize = 4096;

/// An open piece of memory.
#[derive(Debug)]
pub struct Mapping {
    /// Of the page in front.
    base: usize,
    /// With both pages.
    bytes: usize,
    /// Where the memory begins; it ends where the last page begins, but for the bytes up to a multiple of 16.
    pub start: usize,
}

impl Mapping {
    /// Memory of `len` bytes, each of them 0xFF: not a number for any type of number, no address, no index.
    pub fn new(len: usize) -> Option<Self> {
        let rounded = len.max(1).checked_next_multiple_of(16)?;
        let inner = rounded.checked_next_multiple_of(PAGE)?;
        let bytes = inner.checked_add(2 * PAGE)?;
        let (protection, flags) =
            (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: new memory, where the system likes.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = base as usize;
        let mapping = Self { base, bytes, start: base + PAGE + inner - rounded };
        let open = (base + PAGE) as *mut libc::c_void;
        // SAFETY: the pages between the first and the last of the mapping above.
        if unsafe { libc::mprotect(open, inner, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            mapping.unmap();
            return None;
        }
        // SAFETY: just opened, and nobody else knows of them.
        unsafe { open.cast::<u8>().write_bytes(0xff, inner) };
        Some(mapping)
    }

    fn unmap(self) {
        // SAFETY: a whole mapping of ours, which nobody uses any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.bytes) };
    }

    /// Makes the memory fault on every touch, and gives its pages back.
    fn close(&self) {
        let (protection, flags) =
            (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        let base = self.base as *mut libc::c_void;
        // SAFETY: replaces a whole mapping of ours, which nobody uses any more. If it can't be, the memory stays open.
        unsafe { libc::mmap(base, self.bytes, protection, flags | libc::MAP_FIXED, -1, 0) };
    }

    /// Whether an address is in the mapping.
    pub fn has(&self, address: usize) -> bool {
        (self.base..self.base + self.bytes).contains(&address)
    }

    /// Whether any of these addresses is in the mapping.
    fn overlaps(&self, start: usize, end: usize) -> bool {
        start < self.base + self.bytes && self.base < end
    }
}

/// The memory that was freed last: closed, so that who still uses it is found out.
#[derive(Default)]
pub struct Closed {
    pieces: VecDeque<Mapping>,
    bytes: usize,
}

impl Closed {
    /// Closes a piece, and forgets the oldest ones.
    pub fn add(&mut self, mapping: Mapping) {
        mapping.close();
        self.bytes += mapping.bytes;
        self.pieces.push_back(mapping);
        while self.pieces.len() > CLOSED_PIECES || self.bytes > CLOSED_BYTES && self.pieces.len() > 1 {
            let Some(oldest) = self.pieces.pop_front() else { break };
            self.bytes -= oldest.bytes;
            oldest.unmap();
        }
    }

    /// The piece around an address.
    pub fn around(&self, address: usize) -> Option<&Mapping> {
        self.pieces.iter().find(|piece| piece.has(address))
    }

    /// Whether any of these addresses was freed a short while ago.
    pub fn overlaps(&self, start: usize, end: usize) -> bool {
        self.pieces.iter().any(|piece| piece.overlaps(start, end))
    }
}
