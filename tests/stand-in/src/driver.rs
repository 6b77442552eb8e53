//! All there is: one driver in the process, its contexts, and tables of everything that C has handles for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::call::Calls;
use crate::capture::{Capture, Exec, Graph};
use crate::emulator;
use crate::error::{CUresult, Result};
use crate::fault;
use crate::ffi::Handle;
use crate::log::Log;
use crate::memory::Memory;
use crate::module::{Function, Module};
use crate::settings::Settings;
use crate::stream::{Health, Point, Stream};

thread_local! {
    /// The contexts of this thread; the last one is current.
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// The driver.
pub struct Driver {
    pub settings: Settings,
    pub calls: Calls,
    pub log: Log,
    /// Why the settings can't be followed.
    refusal: Option<String>,
    is_initialised: AtomicBool,
    state: Mutex<State>,
}

/// What changes.
#[derive(Default)]
pub struct State {
    pub contexts: BTreeMap<Handle, Context>,
    /// The primary context of each device that has one, and how often it was retained.
    pub primary: BTreeMap<i32, (Handle, usize)>,
    pub streams: BTreeMap<Handle, Stream>,
    pub events: BTreeMap<Handle, Event>,
    pub captures: BTreeMap<Handle, Capture>,
    pub graphs: BTreeMap<Handle, Graph>,
    pub execs: BTreeMap<Handle, Exec>,
    pub modules: BTreeMap<Handle, Module>,
    pub functions: BTreeMap<Handle, Function>,
    pub memory: Memory,
    /// What was still there when its context was destroyed.
    pub leaked: usize,
    handles: usize,
    streams_made: u64,
}

/// A context.
pub struct Context {
    pub device: i32,
    pub flags: u32,
    pub health: Arc<Health>,
    /// Its default stream.
    pub legacy: Handle,
    /// The ends of streams that were destroyed while they worked, and whether these were blocking.
    pub orphans: Vec<(Arc<Point>, bool)>,
}

/// An event.
pub struct Event {
    pub context: Handle,
    pub has_time: bool,
    /// Where it was recorded last.
    pub recorded: Recorded,
}

/// Where an event was recorded.
#[derive(Clone)]
pub enum Recorded {
    /// Nowhere.
    Never,
    /// In a stream.
    At(Arc<Point>),
    /// In a capture, behind these operations.
    Captured(Handle, Vec<usize>),
}

impl Driver {
    /// The one driver.
    pub fn get() -> &'static Self {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        DRIVER.get_or_init(|| {
            let (settings, mut refusal) = match Settings::read() {
                Ok(settings) => (settings, None),
                Err(refusal) => (Settings::default(), Some(refusal)),
            };
            let log = Log::open(settings.log.as_deref()).or_else(|error| {
                refusal = Some(format!("the log can't be opened: {error}"));
                Log::open(None)
            });
            if let Some(Err(why)) = settings.kernels.as_deref().map(emulator::ask_first) {
                refusal = Some(format!("no kernels can be had of a library: {why}"));
            }
            let Ok(log) = log else { unreachable!("no file is opened") };
            let (is_initialised, state) = (AtomicBool::new(false), Mutex::default());
            Self { settings, calls: Calls::new(), log, refusal, is_initialised, state }
        })
    }

    /// `cuInit`
    pub fn initialise(&self) -> Result {
        if let Some(refusal) = &self.refusal {
            eprintln!("stand-in: {refusal}");
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.settings.device_count() <= 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        fault::explain();
        self.is_initialised.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Whether `cuInit` was called.
    pub fn initialised(&self) -> Result {
        let is_initialised = self.is_initialised.load(Ordering::SeqCst);
        if is_initialised { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_INITIALIZED) }
    }

    /// All that changes. Streams run without it but for short checks.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same if nobody else is at it.
    pub fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// What went wrong in the context of this thread, if it has one.
    pub fn failure_of_thread(&self) -> Option<CUresult> {
        let current = current()?;
        self.state().contexts.get(&current)?.health.failure()
    }
}

/// The context of this thread, alive or not.
pub fn current() -> Option<Handle> {
    with_stack(|stack| stack.last().copied())
}

/// The contexts of this thread. None any more while it ends.
pub fn with_stack<T: Default>(run: impl FnOnce(&mut Vec<Handle>) -> T) -> T {
    STACK.try_with(|stack| run(&mut stack.borrow_mut())).unwrap_or_default()
}

impl State {
    /// A handle that nothing had before.
    pub fn new_handle(&mut self) -> Handle {
        self.handles += 1;
        // Of no canonical address, so that who takes it for a pointer finds out.
        Handle(0x5a5a_0000_0000_0000 | self.handles << 4)
    }

    /// The context of this thread.
    pub fn current(&self) -> Result<Handle> {
        let current = current().filter(|current| *current != Handle::NONE);
        let current = current.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        let is_alive = self.contexts.contains_key(&current);
        if is_alive { Ok(current) } else { Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED) }
    }

    /// What went wrong in a context, if it still is there.
    pub fn check(&self, context: Handle) -> Result {
        self.contexts.get(&context).map_or(Ok(()), |context| context.health.check())
    }

    /// A new context with its default stream.
    pub fn new_context(&mut self, device: i32, flags: u32) -> Result<Handle> {
        let (handle, legacy, health) = (self.new_handle(), self.new_handle(), Arc::new(Health::default()));
        self.streams.insert(legacy, Stream::new(handle, health.clone(), 0, 0, 0)?);
        self.contexts.insert(handle, Context { device, flags, health, legacy, orphans: Vec::new() });
        Ok(handle)
    }

    /// A new stream of a context.
    pub fn new_stream(&mut self, context: Handle, flags: u32, priority: i32) -> Result<Handle> {
        let health = self.contexts.get(&context).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.health.clone();
        self.streams_made += 1;
        let stream = Stream::new(context, health, self.streams_made, flags, priority)?;
        let handle = self.new_handle();
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    /// The ends of everything that works in a context.
    pub fn tails(&self, context: Handle) -> Vec<Arc<Point>> {
        let streams = self.streams.values().filter(|stream| stream.context == context);
        let orphans = self.contexts.get(&context).into_iter().flat_map(|context| &context.orphans);
        streams.map(|stream| stream.tail.clone()).chain(orphans.map(|(point, _)| point.clone())).collect()
    }

    /// Forgets a context, in which nothing works any more, and all it has.
    pub fn remove_context(&mut self, handle: Handle) {
        let Some(context) = self.contexts.remove(&handle) else { return };
        self.streams.remove(&context.legacy);
        let mut leaked = self.memory.free_context(handle);
        fn forget<T>(table: &mut BTreeMap<Handle, T>, is_of: impl Fn(&T) -> bool) -> usize {
            let before = table.len();
            table.retain(|_, thing| !is_of(thing));
            before - table.len()
        }
        leaked += forget(&mut self.streams, |stream| stream.context == handle);
        leaked += forget(&mut self.events, |event| event.context == handle);
        leaked += forget(&mut self.captures, |capture| capture.context == handle);
        leaked += forget(&mut self.graphs, |graph| graph.context == handle);
        leaked += forget(&mut self.execs, |exec| exec.context == handle);
        leaked += forget(&mut self.modules, |module| module.context == handle);
        let modules = &self.modules;
        self.functions.retain(|_, function| modules.contains_key(&function.module));
        if leaked > 0 {
            eprintln!("stand-in: a context was destroyed with {leaked} things that nobody had given back");
            self.leaked += leaked;
        }
    }
}

/// Waits for all of these; the lock on the state is not held meanwhile.
pub fn wait_for(points: &[Arc<Point>]) {
    points.iter().for_each(|point| point.wait());
}
