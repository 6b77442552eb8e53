//! Streams: a thread and a queue each. An operation waits for those that it needs, dawdles, and runs.
//!
//! What an operation needs was always queued before it, so there is always one that can go on, and no order of calls
//! can make streams wait for each other in a circle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Instant;

use crate::driver::Driver;
use crate::error::{CUresult, Result};
use crate::ffi::Handle;
use crate::random::Random;
use crate::work::{Runner, Work};

/// A kernel's blocks run on the stream's thread, with arrays that a GPU would keep in registers.
const STACK: usize = 8 << 20;

/// A place in a stream: when everything up to it was done.
#[derive(Default)]
pub struct Point {
    done: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Point {
    /// One that was passed before anything.
    pub fn passed() -> Arc<Self> {
        Arc::new(Self { done: Mutex::new(Some(Instant::now())), changed: Condvar::new() })
    }

    /// When it was passed, if it was.
    pub fn time(&self) -> Option<Instant> {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is passed.
    pub fn wait(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.is_none() {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pass(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.changed.notify_all();
    }
}

/// What went wrong first in a context. Nothing works in it afterwards.
#[derive(Default)]
pub struct Health(OnceLock<CUresult>);

impl Health {
    /// What went wrong.
    pub fn failure(&self) -> Option<CUresult> {
        self.0.get().copied()
    }

    /// Whether all is well.
    pub fn check(&self) -> Result {
        self.failure().map_or(Ok(()), Err)
    }

    fn fail(&self, result: CUresult) {
        // Only the first failure counts.
        let _ = self.0.set(result);
    }
}

/// An operation that was queued.
struct Queued {
    work: Work,
    needs: Vec<Arc<Point>>,
    done: Arc<Point>,
}

/// A stream. Once it is dropped, its thread finishes what is queued and ends.
pub struct Stream {
    pub context: Handle,
    pub flags: u32,
    pub priority: i32,
    /// The end of what was queued.
    pub tail: Arc<Point>,
    /// The capture that it is part of.
    pub capture: Option<Handle>,
    queue: Sender<Queued>,
}

/// `CU_STREAM_NON_BLOCKING`
pub const NON_BLOCKING: u32 = 1;

impl Stream {
    /// Starts its thread.
    pub fn new(context: Handle, health: Arc<Health>, number: u64, flags: u32, priority: i32) -> Result<Self> {
        let (queue, operations) = mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("stream-{number}")).stack_size(STACK);
        let run = move || run(&operations, &health, number);
        thread.spawn(run).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Self { context, flags, priority, tail: Point::passed(), capture: None, queue })
    }

    /// Whether it and the legacy stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }

    /// Queues an operation behind all that was queued; the point at which it is done.
    pub fn push(&mut self, work: Work, needs: Vec<Arc<Point>>) -> Arc<Point> {
        let done = Arc::new(Point::default());
        // The thread takes from the queue for as long as this end of it exists.
        let sent = self.queue.send(Queued { work, needs, done: done.clone() });
        debug_assert!(sent.is_ok(), "the thread of a stream is gone");
        self.tail = done.clone();
        done
    }
}

/// What a stream's thread does.
fn run(operations: &Receiver<Queued>, health: &Health, stream: u64) {
    let driver = Driver::get();
    let mut runner = Runner { driver, random: Random::new(driver.settings.seed, stream), stream };
    for Queued { work, needs, done } in operations {
        needs.iter().for_each(|point| point.wait());
        if health.failure().is_none() {
            let result = catch_unwind(AssertUnwindSafe(|| runner.run(&work)));
            if let Err(failure) = result.unwrap_or(Err(CUresult::CUDA_ERROR_LAUNCH_FAILED)) {
                health.fail(failure);
            }
        }
        done.pass();
    }
}
