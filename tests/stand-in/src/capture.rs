//! The order between streams: what an operation that is queued must wait for, or, while a stream is captured, which
//! operations of the graph it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::ThreadId;

use crate::driver::{Recorded, State};
use crate::error::{CUresult, Result};
use crate::ffi::Handle;
use crate::stream::{Point, Stream};
use crate::work::{Node, Work};

/// A graph that was captured.
pub struct Graph {
    pub context: Handle,
    pub nodes: Arc<[Node]>,
}

/// A graph that can be run.
pub struct Exec {
    pub context: Handle,
    pub nodes: Arc<[Node]>,
    /// The end of its last run: a graph doesn't run twice at once.
    pub last: Arc<Point>,
}

/// What other calls may do while a stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No thread may make calls that would have to wait.
    Global,
    /// This thread may not.
    ThreadLocal,
    /// All may.
    Relaxed,
}

/// A graph in the making.
pub struct Capture {
    pub context: Handle,
    origin: Handle,
    mode: Mode,
    thread: ThreadId,
    nodes: Vec<Node>,
    /// For each stream that takes part, the operations that its next one needs.
    ends: BTreeMap<Handle, Vec<usize>>,
    is_valid: bool,
}

/// Streams that have no handle of their own.
const LEGACY: Handle = Handle(1);
const PER_THREAD: Handle = Handle(2);

impl State {
    /// The stream that a handle means in the current context.
    pub fn stream(&self, handle: Handle) -> Result<Handle> {
        let current = self.current()?;
        match handle {
            Handle::NONE | LEGACY => Ok(self.contexts[&current].legacy),
            PER_THREAD => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            handle if self.streams.contains_key(&handle) => Ok(handle),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// Whether this is the default stream of its context.
    pub fn is_legacy(&self, stream: Handle) -> bool {
        self.contexts.values().any(|context| context.legacy == stream)
    }

    /// Queues an operation; the point at which it is done. While the stream is captured it is put into the graph, and
    /// there is no point.
    pub fn enqueue(&mut self, stream: Handle, work: Work) -> Result<Option<Arc<Point>>> {
        self.enqueue_behind(stream, work, None)
    }

    /// The same, behind a point of another stream.
    pub fn enqueue_behind(
        &mut self,
        stream: Handle,
        work: Work,
        behind: Option<Arc<Point>>,
    ) -> Result<Option<Arc<Point>>> {
        let captured = self.streams.get(&stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.capture;
        if let Some(capture) = captured.and_then(|capture| self.captures.get_mut(&capture)) {
            capture.add(stream, work)?;
            return Ok(None);
        }
        let mut needs = self.implicit_needs(stream)?;
        needs.extend(behind);
        needs.retain(|point| point.time().is_none());
        Ok(self.streams.get_mut(&stream).map(|stream| stream.push(work, needs)))
    }

    /// The default stream waits for all blocking ones, and they for it.
    fn implicit_needs(&mut self, stream: Handle) -> Result<Vec<Arc<Point>>> {
        let this = &self.streams[&stream];
        let Some(context) = self.contexts.get(&this.context) else { return Ok(Vec::new()) };
        let handle = this.context;
        if context.legacy != stream {
            let legacy = self.streams.get(&context.legacy).filter(|_| this.is_blocking());
            return Ok(legacy.map(|legacy| legacy.tail.clone()).into_iter().collect());
        }
        self.forbid_implicit(handle)?;
        let blocking = self.streams.values().filter(|other| other.context == handle && other.is_blocking());
        let mut needs: Vec<_> = blocking.map(|other| other.tail.clone()).collect();
        if let Some(context) = self.contexts.get_mut(&handle) {
            context.orphans.retain(|(point, _)| point.time().is_none());
            let orphans = context.orphans.iter().filter(|(_, is_blocking)| *is_blocking);
            needs.extend(orphans.map(|(point, _)| point.clone()));
        }
        Ok(needs)
    }

    /// The default stream can't be used while a blocking stream is captured.
    fn forbid_implicit(&mut self, context: Handle) -> Result {
        let is_of = |stream: &&Stream| stream.context == context && stream.is_blocking();
        let captured: Vec<_> =
            self.streams.values().filter(is_of).filter_map(|stream| stream.capture).collect();
        self.invalidate(&captured, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// A call that might have to wait for the device. While a stream is captured it is refused, and spoils the capture.
    pub fn forbid_in_capture(&mut self) -> Result {
        let this = std::thread::current().id();
        let forbids = |capture: &Capture| match capture.mode {
            Mode::Global => true,
            Mode::ThreadLocal => capture.thread == this,
            Mode::Relaxed => false,
        };
        let captures: Vec<_> =
            self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(handle, _)| *handle).collect();
        self.invalidate(&captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Waiting for a stream, or for all of a context, is no operation that could be captured.
    pub fn forbid_waiting(&mut self, is_concerned: impl Fn(Handle) -> bool) -> Result {
        let of = |(handle, stream): (&Handle, &Stream)| stream.capture.filter(|_| is_concerned(*handle));
        let captures: Vec<_> = self.streams.iter().filter_map(of).collect();
        self.invalidate(&captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    fn invalidate(&mut self, captures: &[Handle], result: CUresult) -> Result {
        for handle in captures {
            self.captures.get_mut(handle).into_iter().for_each(|capture| capture.is_valid = false);
        }
        if captures.is_empty() { Ok(()) } else { Err(result) }
    }

    /// Begins to capture a stream.
    pub fn begin_capture(&mut self, stream: Handle, mode: Mode) -> Result {
        let is_legacy = self.is_legacy(stream);
        let context = self.current()?;
        let handle = self.new_handle();
        let this = self.streams.get_mut(&stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if is_legacy {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if this.capture.is_some() {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        this.capture = Some(handle);
        let (thread, ends) = (std::thread::current().id(), BTreeMap::from([(stream, Vec::new())]));
        let capture =
            Capture { context, origin: stream, mode, thread, nodes: Vec::new(), ends, is_valid: true };
        self.captures.insert(handle, capture);
        Ok(())
    }

    /// Ends the capture of a stream; the graph's handle.
    pub fn end_capture(&mut self, stream: Handle) -> Result<Handle> {
        let handle = self.streams.get(&stream).and_then(|stream| stream.capture);
        let handle = handle.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = self.captures.get(&handle).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.drop_capture(handle).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if !capture.is_valid {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        if !capture.is_joined() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        let graph = self.new_handle();
        self.graphs.insert(graph, Graph { context: capture.context, nodes: capture.nodes.into() });
        Ok(graph)
    }

    /// Forgets a capture; its streams run again.
    pub fn drop_capture(&mut self, handle: Handle) -> Option<Capture> {
        let of_it = self.streams.values_mut().filter(|stream| stream.capture == Some(handle));
        of_it.for_each(|stream| stream.capture = None);
        self.captures.remove(&handle)
    }

    /// Whether a stream is captured, and whether the capture is still good.
    pub fn capture_of(&self, stream: Handle) -> Option<bool> {
        let capture = self.streams.get(&stream)?.capture?;
        self.captures.get(&capture).map(|capture| capture.is_valid)
    }

    /// Records an event at the end of a stream.
    pub fn record(&mut self, event: Handle, stream: Handle) -> Result {
        let of_event = self.events.get(&event).map(|event| event.context);
        // Others may be waited for, but not recorded.
        if of_event.is_none() || of_event != self.streams.get(&stream).map(|stream| stream.context) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let captured = self.streams.get(&stream).and_then(|stream| stream.capture);
        let recorded = match captured.and_then(|handle| Some((handle, self.captures.get(&handle)?))) {
            Some((handle, capture)) => {
                capture.check()?;
                Recorded::Captured(handle, capture.ends.get(&stream).cloned().unwrap_or_default())
            }
            None => match self.enqueue(stream, Work::Marker("record"))? {
                Some(point) => Recorded::At(point),
                None => Recorded::Never,
            },
        };
        self.events.get_mut(&event).into_iter().for_each(|event| event.recorded = recorded.clone());
        Ok(())
    }

    /// Makes what follows in a stream wait for an event as it was recorded last.
    pub fn wait_event(&mut self, stream: Handle, event: Handle) -> Result {
        let recorded = self.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.recorded.clone();
        let captured = self.streams.get(&stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.capture;
        match (recorded, captured) {
            (Recorded::Never, _) => Ok(()),
            (Recorded::At(point), None) => {
                self.enqueue_behind(stream, Work::Marker("wait"), Some(point)).map(|_| ())
            }
            (Recorded::At(_), Some(capture)) => {
                self.invalidate(&[capture], CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (Recorded::Captured(of, _), Some(capture)) if of != capture => {
                self.invalidate(&[capture], CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE)
            }
            (Recorded::Captured(of, ends), _) => {
                if self.is_legacy(stream) {
                    return self.invalidate(&[of], CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
                }
                let capture = self.captures.get_mut(&of).ok_or(CUresult::CUDA_ERROR_CAPTURED_EVENT)?;
                capture.check()?;
                let needs = capture.ends.entry(stream).or_default();
                needs.extend(ends);
                needs.sort_unstable();
                needs.dedup();
                self.streams.get_mut(&stream).into_iter().for_each(|stream| stream.capture = Some(of));
                Ok(())
            }
        }
    }
}

impl Capture {
    fn check(&self) -> Result {
        if self.is_valid { Ok(()) } else { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) }
    }

    fn add(&mut self, stream: Handle, work: Work) -> Result {
        self.check()?;
        let needs = self.ends.insert(stream, vec![self.nodes.len()]).unwrap_or_default();
        self.nodes.push(Node { work, needs });
        Ok(())
    }

    /// Whether the stream that the capture began with has waited for all others.
    fn is_joined(&self) -> bool {
        let mut reached = BTreeSet::new();
        let mut next: Vec<usize> = self.ends.get(&self.origin).cloned().unwrap_or_default();
        while let Some(node) = next.pop() {
            if reached.insert(node) {
                next.extend(&self.nodes[node].needs);
            }
        }
        self.ends.values().flatten().all(|end| reached.contains(end))
    }
}
