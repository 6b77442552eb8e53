//! An engine out of a network that runs on the calling thread: it is given a thread of its own and slots.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::{Engine, Output};
use crate::backend::Backend;
use crate::error::{ErrorKind, Result, SegmentError};
use crate::frame::Frame;

/// A network that makes an output of a frame before it returns.
pub(crate) trait Network: Send + 'static {
    /// Labels `frame` into `output`, whose memory it reuses. Drops the frame as soon as it has read the pixels, so
    /// that their owner has them back while the network runs.
    fn infer(&mut self, frame: Box<dyn Frame>, output: &mut Output) -> Result<()>;
}

/// Room for the network's own recursion and burn's; a streaming thread's stack is too small for both.
const STACK_BYTES: usize = 8 << 20;

/// Runs a [`Network`] on a thread of its own, first in, first out.
pub(crate) struct Worker {
    backend: Backend,
    slots: Vec<Slot>,
    /// None once the worker is being dropped: closing the channel ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Slot {
    results: Receiver<Done>,
    cancelled: Arc<AtomicBool>,
    /// The output that the next frame of this slot is written into; its memory goes round.
    spare: Mutex<Output>,
}

struct Job {
    slot: usize,
    frame: Box<dyn Frame>,
    output: Output,
}

struct Done {
    output: Output,
    result: Result<()>,
}

impl Worker {
    pub(crate) fn start(backend: Backend, depth: usize, network: impl Network) -> Result<Self> {
        let (jobs, queue) = bounded::<Job>(depth);
        let (senders, slots): (Vec<_>, Vec<_>) = (0..depth)
            .map(|_| {
                let (sender, results) = bounded(1);
                let cancelled = Arc::new(AtomicBool::new(false));
                let slot = Slot { results, cancelled: cancelled.clone(), spare: Mutex::default() };
                ((sender, cancelled), slot)
            })
            .unzip();
        let thread = std::thread::Builder::new()
            .name("sapiens-engine".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(network, &queue, &senders))
            .map_err(|error| {
                SegmentError::new(ErrorKind::Engine, format!("can't start the engine's thread: {error}"))
                    .with_source(error)
            })?;
        Ok(Self { backend, slots, jobs: Some(jobs), thread: Some(thread) })
    }
}

fn serve(mut network: impl Network, queue: &Receiver<Job>, slots: &[(Sender<Done>, Arc<AtomicBool>)]) {
    for Job { slot, frame, mut output } in queue {
        let (results, cancelled) = &slots[slot];
        let result = if cancelled.load(Ordering::Acquire) {
            drop(frame);
            Err(SegmentError::new(ErrorKind::Engine, "the frame was discarded before inference began"))
        } else {
            // The network's buffers hold no invariants from frame to frame, and its output is written anew.
            catch_unwind(AssertUnwindSafe(|| network.infer(frame, &mut output)))
                .unwrap_or_else(|panic| Err(panicked(&*panic)))
        };
        if results.send(Done { output, result }).is_err() {
            return;
        }
    }
}

/// A panic's message as an error.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> SegmentError {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    SegmentError::new(ErrorKind::Engine, format!("inference panicked: {message}"))
}

fn thread_gone() -> SegmentError {
    SegmentError::new(ErrorKind::Engine, "the engine's thread has ended")
}

impl Engine for Worker {
    fn backend(&self) -> Backend {
        self.backend
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    fn submit(&self, slot: usize, frame: Box<dyn Frame>) -> Result<()> {
        let Slot { cancelled, spare, .. } = &self.slots[slot];
        cancelled.store(false, Ordering::Release);
        let output = std::mem::take(&mut *spare.lock().unwrap_or_else(PoisonError::into_inner));
        let jobs = self.jobs.as_ref().ok_or_else(thread_gone)?;
        jobs.send(Job { slot, frame, output }).map_err(|_| thread_gone())
    }

    fn cancel(&self, slot: usize) {
        self.slots[slot].cancelled.store(true, Ordering::Release);
    }

    fn finish(&self, slot: usize, output: &mut Output) -> Result<()> {
        let Slot { results, spare, .. } = &self.slots[slot];
        let mut done = results.recv().map_err(|_| thread_gone())?;
        if done.result.is_ok() {
            std::mem::swap(output, &mut done.output);
        }
        *spare.lock().unwrap_or_else(PoisonError::into_inner) = done.output;
        done.result
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for slot in 0..self.slots.len() {
            self.cancel(slot);
        }
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic outside inference was reported by the panic hook already.
            let _ = thread.join();
        }
    }
}
