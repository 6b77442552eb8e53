//! What streams do, one operation after the other.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use crate::call;
use crate::driver::Driver;
use crate::emulator::Launch;
use crate::error::{CUresult, Result};
use crate::memory::Place;
use crate::random::Random;

/// An operation.
#[derive(Clone)]
pub enum Work {
    /// Nothing: a place in the order.
    Marker(&'static str),
    /// Moves bytes.
    Copy(Copy),
    /// Fills memory of a device.
    Fill(Fill),
    /// Runs a kernel.
    Kernel(Arc<Launch>),
    /// Calls a function of the host.
    Host(HostFunction),
    /// Runs a graph.
    Graph(Arc<[Node]>),
}

/// An operation of a graph, and which ones before it it needs.
#[derive(Clone)]
pub struct Node {
    pub work: Work,
    pub needs: Vec<usize>,
}

/// A copy of rows.
#[derive(Clone)]
pub struct Copy {
    pub source: Source,
    pub source_pitch: usize,
    pub target: usize,
    pub target_pitch: usize,
    pub width: usize,
    pub height: usize,
    /// Whether the source and the target are a device's.
    pub devices: (bool, bool),
}

/// What a copy reads.
#[derive(Clone)]
pub enum Source {
    /// Memory as it is when the copy runs.
    At(usize),
    /// Bytes that were read when the copy was called, without gaps between rows.
    Staged(Arc<[u8]>),
}

/// Values of 1, 2 or 4 bytes, `count` times.
#[derive(Clone)]
pub struct Fill {
    pub target: usize,
    pub value: u32,
    pub size: usize,
    pub count: usize,
}

/// A function of the host and what it is given.
#[derive(Clone)]
pub struct HostFunction {
    pub function: unsafe extern "C" fn(*mut c_void),
    /// An address: what is behind is the host's concern.
    pub data: usize,
}

/// How many bytes lie between the first and the last of some rows. None if there are too many.
pub fn extent(pitch: usize, width: usize, height: usize) -> Option<usize> {
    if width == 0 || height == 0 {
        return Some(0);
    }
    pitch.checked_mul(height - 1)?.checked_add(width)
}

/// Reads rows, the gaps between them left out.
///
/// # Safety
/// The rows can be read.
pub unsafe fn gather(address: usize, pitch: usize, width: usize, height: usize) -> Arc<[u8]> {
    let mut bytes = Vec::with_capacity(width * height);
    for row in 0..height {
        // SAFETY: the caller says that the rows can be read.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts((address + row * pitch) as *const u8, width)
        });
    }
    bytes.into()
}

impl Work {
    /// For the log.
    pub fn name(&self) -> String {
        match self {
            Self::Marker(name) => (*name).to_owned(),
            Self::Copy(copy) => {
                let direction = match copy.devices {
                    (true, true) => "DtoD",
                    (true, false) => "DtoH",
                    (false, true) => "HtoD",
                    (false, false) => "HtoH",
                };
                format!("copy {direction} {}", copy.width * copy.height)
            }
            Self::Fill(fill) => format!("fill {}", fill.size * fill.count),
            Self::Kernel(launch) => format!("kernel {}", launch.kernel.name),
            Self::Host(_) => "host-function".to_owned(),
            Self::Graph(nodes) => format!("graph {}", nodes.len()),
        }
    }

    /// Does it. A failure is said on stderr.
    fn run(&self, runner: &mut Runner) -> Result {
        match self {
            Self::Marker(_) => Ok(()),
            Self::Copy(copy) => copy.run(runner.driver),
            Self::Fill(fill) => fill.run(runner.driver),
            Self::Kernel(launch) => launch.run(runner.random.next()),
            Self::Host(host) => {
                // SAFETY: the host said to call it with this, and C functions don't unwind.
                call::as_host_function(|| unsafe { (host.function)(host.data as *mut c_void) });
                Ok(())
            }
            Self::Graph(nodes) => run_graph(nodes, runner),
        }
    }
}

/// Who does the work of a stream.
pub struct Runner {
    pub driver: &'static Driver,
    pub random: Random,
    /// The stream's number, for the log.
    pub stream: u64,
}

impl Runner {
    /// Dawdles, does an operation and logs it.
    pub fn run(&mut self, work: &Work) -> Result {
        self.random.dawdle(self.driver.settings.delay);
        let begin = Instant::now();
        let result = work.run(self);
        let log = &self.driver.log;
        if log.is_open() {
            let (begin, end) = (log.time(begin), log.time(Instant::now()));
            log.line(&format!("run {} {begin} {end} {}", self.stream, work.name()));
        }
        result
    }
}

/// Runs the operations of a graph in a random one of the orders that their needs allow, so that a need that was
/// forgotten shows.
fn run_graph(nodes: &[Node], runner: &mut Runner) -> Result {
    let mut waiting: Vec<usize> = nodes.iter().map(|node| node.needs.len()).collect();
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|node| waiting[*node] == 0).collect();
    while !ready.is_empty() {
        let done = ready.swap_remove(runner.random.below(ready.len() as u64) as usize);
        runner.run(&nodes[done].work)?;
        // What needs an operation was captured after it.
        for (at, node) in
            nodes.iter().enumerate().skip(done + 1).filter(|(_, node)| node.needs.contains(&done))
        {
            waiting[at] -= node.needs.iter().filter(|need| **need == done).count();
            if waiting[at] == 0 {
                ready.push(at);
            }
        }
    }
    Ok(())
}

/// Whether memory that was checked when the operation was called is still a device's.
fn check(driver: &Driver, what: &str, address: usize, len: usize) -> Result {
    if driver.state().memory.place(address, len) == Some(Place::Device) {
        return Ok(());
    }
    eprintln!("stand-in: a {what} of {len} bytes at {address:#x}, which is no memory of a device any more");
    Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
}

impl Copy {
    fn run(&self, driver: &Driver) -> Result {
        let spans =
            |pitch| extent(pitch, self.width, self.height).ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        if let (Source::At(address), true) = (&self.source, self.devices.0) {
            check(driver, "copy from", *address, spans(self.source_pitch)?)?;
        }
        if self.devices.1 {
            check(driver, "copy to", self.target, spans(self.target_pitch)?)?;
        }
        for row in 0..self.height {
            let source = match &self.source {
                Source::At(address) => (address + row * self.source_pitch) as *const u8,
                Source::Staged(bytes) => bytes[row * self.width..][..self.width].as_ptr(),
            };
            let target = (self.target + row * self.target_pitch) as *mut u8;
            // SAFETY: memory of a device was checked; memory of the host must stay until the copy is done, as the
            // driver's documentation asks of the caller. `copy` allows any overlap.
            unsafe { std::ptr::copy(source, target, self.width) };
        }
        Ok(())
    }
}

impl Fill {
    fn run(&self, driver: &Driver) -> Result {
        check(driver, "fill", self.target, self.size * self.count)?;
        let value = self.value.to_le_bytes();
        // SAFETY: just checked; the host keeps memory of a device for as long as work on it is under way.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.target as *mut u8, self.size * self.count) };
        match self.size {
            1 => bytes.fill(value[0]),
            size => bytes.chunks_exact_mut(size).for_each(|chunk| chunk.copy_from_slice(&value[..size])),
        }
        Ok(())
    }
}
