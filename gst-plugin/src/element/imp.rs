//! The GObject subclass: pads, properties, states. What the pads do is in `sink`, `source` and `mask`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;

use glib::subclass::prelude::*;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::UniqueFlowCombiner;
use sapiens_model::{ErrorKind, SegmentError, Segmenter, Weights};

use super::mask::{MaskPad, takes_any_stride};
use super::running::{Running, RunningTime, lock};
use super::settings::{self, Settings};
use super::{caps, stats};

pub(crate) static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("sapiensseg", gst::DebugColorFlags::empty(), Some("Body-part segmentation"))
});

/// Which pads are active. Under its lock the source task is started and the queue opened, so that there is no task on
/// a pad that no longer is, and nothing is queued that no task would ever take.
#[derive(Default)]
pub(super) struct Active {
    sink: bool,
    pub(super) source: bool,
}

type MakeSegmenter = Box<dyn Fn() -> sapiens_model::Result<Segmenter> + Send + Sync>;

/// See [`super::SapiensSeg`].
pub struct SapiensSeg {
    pub(super) sinkpad: gst::Pad,
    pub(super) srcpad: gst::Pad,
    pub(super) mask: Mutex<Option<Arc<MaskPad>>>,
    settings: Mutex<Settings>,
    running: Mutex<Option<Arc<Running>>>,
    labels_thread: Mutex<Option<JoinHandle<()>>>,
    flows: Mutex<UniqueFlowCombiner>,
    /// Sticky events for which there was no place in the queue as downstream took no more. They are the source
    /// task's to push, before all else. Locked before the queue is, so that their order is the one they came in.
    pub(super) stranded: Mutex<Vec<gst::Event>>,
    pub(super) active: Mutex<Active>,
    /// Counts how often something new was linked.
    pub(super) links: AtomicU64,
    /// For `output=mask`: whether downstream takes rows without padding.
    any_stride: AtomicBool,
    make_segmenter: Mutex<Option<MakeSegmenter>>,
}

/// Loading and checking gigabytes recurses more than a streaming thread's stack may hold.
const LOADING_STACK_BYTES: usize = 16 << 20;

impl SapiensSeg {
    pub(super) fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    pub(super) fn running(&self) -> Option<Arc<Running>> {
        lock(&self.running).clone()
    }

    pub(super) fn flows(&self) -> MutexGuard<'_, UniqueFlowCombiner> {
        lock(&self.flows)
    }

    /// Forgets what pushes came to.
    pub(super) fn reset_flows(&self) {
        self.flows().reset();
    }

    #[cfg(feature = "fake-engine")]
    pub(super) fn set_segmenter(&self, make: MakeSegmenter) {
        *lock(&self.make_segmenter) = Some(make);
    }

    pub(super) fn source_takes_any_stride(&self) -> bool {
        self.any_stride.load(Ordering::Relaxed)
    }

    pub(super) fn ask_source_allocation(&self) {
        let any = self.srcpad.current_caps().is_some_and(|caps| takes_any_stride(&self.srcpad, &caps));
        self.any_stride.store(any, Ordering::Relaxed);
    }

    /// Pushes an event on every source pad, past all that is queued.
    pub(super) fn push_everywhere(&self, event: &gst::Event) -> bool {
        if let Some(mask) = self.mask_pad() {
            mask.pad.push_event(event.clone());
        }
        self.srcpad.push_event(event.clone())
    }

    /// Ends a flush: the queue is opened, and tasks start.
    pub(super) fn start_tasks(&self, running: &Running) -> Result<(), glib::BoolError> {
        self.start_mask_task()?;
        self.open(running)
    }

    pub(super) fn pause_tasks(&self) {
        if let Some(mask) = self.mask_pad() {
            let _ = mask.pad.pause_task();
        }
        let _ = self.srcpad.pause_task();
    }

    /// NULL/READY to PAUSED: the model is loaded, and an error says what is missing.
    fn start(&self) -> Result<(), SegmentError> {
        let settings = self.settings();
        let made = lock(&self.make_segmenter).as_ref().map(|make| make());
        let (segmenter, on_cuda) = match made {
            Some(made) => (made?, None),
            None => self.load(&settings)?,
        };
        gst::info!(CAT, imp = self, "{} runs on {}", segmenter.card().name(), segmenter.backend());
        let clock = Arc::new(RunningTime(self.obj().downgrade()));
        let running = Arc::new(Running::new(segmenter, on_cuda, &settings, clock)?);
        *lock(&self.labels_thread) = Some(running.start_labels_thread()?);
        lock(&self.stranded).clear();
        self.reset_flows();
        *lock(&self.running) = Some(running.clone());
        // Properties may have been set while the model was loaded.
        running.configure(&self.settings())
    }

    /// Back to READY: frames in flight are waited for, so that their memory has been given back.
    fn stop(&self) {
        let Some(running) = lock(&self.running).take() else { return };
        drop(running.queue.shut_down());
        running.segmenter().cancel_pending();
        let thread = lock(&self.labels_thread).take();
        if let Some(thread) = thread {
            // Had it panicked, the panic hook has said so.
            let _ = thread.join();
        }
    }

    /// Takes over the value of a property. What may change while frames flow and can't be had leaves the old value.
    fn take_over(&self, value: &glib::Value, spec: &glib::ParamSpec) {
        let mutable = spec.flags().contains(gst::PARAM_FLAG_MUTABLE_PLAYING);
        let (running, refused) = {
            let mut settings = lock(&self.settings);
            let before = settings.clone();
            if settings.set(spec.name(), value).is_err() {
                gst::error!(CAT, imp = self, "property {} can't be set", spec.name());
                return;
            }
            let running = self.running();
            let refused = match &running {
                Some(running) if mutable => running.configure(&settings).err(),
                _ => None,
            };
            if refused.is_some() {
                *settings = before;
            }
            (running, refused)
        };
        // Not under the lock: whoever hears of it may read or set properties.
        match refused {
            Some(error) => gst::element_imp_warning!(self, gst::LibraryError::Settings, ("{error}")),
            None if running.is_some() && !mutable => {
                gst::warning!(CAT, imp = self, "{} takes effect at the next start", spec.name());
            }
            None => gst::debug!(CAT, imp = self, "{:?}", self.settings()),
        }
    }

    /// Opens the queue after a flush, unless a pad isn't active: what was queued would wait for nothing.
    pub(super) fn open(&self, running: &Running) -> Result<(), glib::BoolError> {
        {
            let active = lock(&self.active);
            if active.sink && active.source {
                running.queue.stop_flush();
            }
        }
        self.start_source_task()
    }

    fn activate_sink(&self, mode: gst::PadMode, active: bool) -> Result<(), gst::LoggableError> {
        if mode != gst::PadMode::Push {
            return Err(gst::loggable_error!(CAT, "frames are pushed: mode {mode:?} asked for"));
        }
        lock(&self.active).sink = active;
        let Some(running) = self.running() else { return Ok(()) };
        if active {
            return self.open(&running).map_err(Into::into);
        }
        drop(running.queue.start_flush());
        Ok(())
    }

    fn activate_source(
        &self,
        pad: &gst::Pad,
        mode: gst::PadMode,
        active: bool,
    ) -> Result<(), gst::LoggableError> {
        if mode != gst::PadMode::Push {
            return Err(gst::loggable_error!(CAT, "frames are pushed: mode {mode:?} asked for"));
        }
        lock(&self.active).source = active;
        let running = self.running();
        if active {
            return running.map_or(Ok(()), |running| self.open(&running)).map_err(Into::into);
        }
        if let Some(running) = running {
            drop(running.queue.start_flush());
        }
        self.close_mask();
        pad.stop_task().map_err(Into::into)
    }
}

/// Loads the model on a thread with room enough, whatever thread changes the state. A network on a GPU is in this context,
/// or in the device's own.
pub(super) fn load(
    settings: &Settings,
    #[cfg(feature = "cuda")] context: Option<sapiens_model::cuda::Context>,
) -> Result<Segmenter, SegmentError> {
    let settings = settings.clone();
    let load = move || {
        let card = settings.card()?;
        let options = settings.options()?;
        // Before gigabytes are read.
        settings.palette(&card)?;
        options.backend.resolve()?;
        let weights = settings.weights.as_deref().map(std::path::Path::new);
        let weights = Weights::locate_and_open(&card, weights, settings.license_accepted)?;
        #[cfg(feature = "cuda")]
        if let Some(context) = context {
            return Segmenter::in_context(card, &weights, options, context);
        }
        Segmenter::new(card, &weights, options)
    };
    std::thread::Builder::new()
        .name("sapiens-load".into())
        .stack_size(LOADING_STACK_BYTES)
        .spawn(load)
        .map_err(|error| {
            SegmentError::new(ErrorKind::Engine, format!("can't start a thread to load the model: {error}"))
                .with_source(error)
        })?
        .join()
        .unwrap_or_else(|_| Err(SegmentError::new(ErrorKind::Engine, "loading the model panicked")))
}

#[glib::object_subclass]
impl ObjectSubclass for SapiensSeg {
    const NAME: &'static str = "GstSapiensSeg";
    type Type = super::SapiensSeg;
    type ParentType = gst::Element;

    fn with_class(class: &Self::Class) -> Self {
        let pad = |name| {
            gst::Pad::builder_from_template(
                &class.pad_template(name).unwrap_or_else(|| unreachable!("templates are declared below")),
            )
        };
        let sinkpad = pad("sink")
            .activatemode_function(|_, parent, mode, active| {
                let failed = || Err(gst::loggable_error!(CAT, "panic while the sink pad was activated"));
                SapiensSeg::catch_panic_pad_function(parent, failed, |imp| imp.activate_sink(mode, active))
            })
            .chain_function(|_, parent, buffer| {
                SapiensSeg::catch_panic_pad_function(
                    parent,
                    || Err(gst::FlowError::Error),
                    |imp| imp.sink_chain(buffer),
                )
            })
            .event_full_function(|pad, parent, event| {
                SapiensSeg::catch_panic_pad_function(
                    parent,
                    || Err(gst::FlowError::Error),
                    |imp| imp.sink_event(pad, event),
                )
            })
            .query_function(|pad, parent, query| {
                SapiensSeg::catch_panic_pad_function(parent, || false, |imp| imp.sink_query(pad, query))
            })
            .build();
        let srcpad = pad("src")
            .activatemode_function(|pad, parent, mode, active| {
                let failed = || Err(gst::loggable_error!(CAT, "panic while the src pad was activated"));
                SapiensSeg::catch_panic_pad_function(parent, failed, |imp| {
                    imp.activate_source(pad, mode, active)
                })
            })
            .event_function(|pad, parent, event| {
                SapiensSeg::catch_panic_pad_function(parent, || false, |imp| imp.source_event(pad, event))
            })
            .query_function(|pad, parent, query| {
                SapiensSeg::catch_panic_pad_function(parent, || false, |imp| imp.source_query(pad, query))
            })
            .build();
        let mut flows = UniqueFlowCombiner::new();
        flows.add_pad(&srcpad);
        Self {
            sinkpad,
            srcpad,
            mask: Mutex::default(),
            settings: Mutex::default(),
            running: Mutex::default(),
            labels_thread: Mutex::default(),
            flows: Mutex::new(flows),
            stranded: Mutex::default(),
            active: Mutex::default(),
            links: AtomicU64::new(0),
            any_stride: AtomicBool::new(false),
            make_segmenter: Mutex::default(),
        }
    }
}

impl ObjectImpl for SapiensSeg {
    fn properties() -> &'static [glib::ParamSpec] {
        settings::properties()
    }

    fn set_property(&self, _id: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        self.catch_panic(|| (), |imp| imp.take_over(value, spec));
    }

    fn property(&self, _id: usize, spec: &glib::ParamSpec) -> glib::Value {
        if let Some(value) = lock(&self.settings).get(spec.name()) {
            return value;
        }
        // All that is left is `stats`.
        let structure = match self.running() {
            Some(running) => stats::structure(
                running.queue.stats(),
                &running.timings(),
                Some(running.segmenter().backend()),
            ),
            None => stats::structure(Default::default(), &Default::default(), None),
        };
        structure.to_value()
    }

    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        for pad in [&self.sinkpad, &self.srcpad] {
            if let Err(error) = element.add_pad(pad) {
                gst::error!(CAT, imp = self, "{error}");
            }
        }
    }
}

impl GstObjectImpl for SapiensSeg {}

impl ElementImpl for SapiensSeg {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Body-part segmentation",
                "Filter/Analyzer/Effect/Video",
                "Labels every pixel of people with body parts, using Meta's Sapiens and Sapiens2 models",
                "The sapiensseg authors",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let template = |name, direction, presence, caps: &gst::Caps| {
                gst::PadTemplate::new(name, direction, presence, caps)
                    .unwrap_or_else(|error| unreachable!("the caps are constant: {error}"))
            };
            vec![
                template("sink", gst::PadDirection::Sink, gst::PadPresence::Always, &caps::sink(caps::CUDA)),
                template("src", gst::PadDirection::Src, gst::PadPresence::Always, &caps::source(caps::CUDA)),
                template("mask", gst::PadDirection::Src, gst::PadPresence::Request, &caps::mask_template()),
            ]
        });
        &TEMPLATES
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        gst::debug!(CAT, imp = self, "{transition:?}");
        if transition == gst::StateChange::ReadyToPaused {
            self.start().map_err(|error| {
                gst::element_imp_error!(self, error_code(error.kind()), ("{error}"));
                gst::StateChangeError
            })?;
        }
        let changed = self.parent_change_state(transition);
        match transition {
            gst::StateChange::PausedToReady => self.stop(),
            gst::StateChange::ReadyToPaused if changed.is_err() => self.stop(),
            gst::StateChange::PausedToPlaying | gst::StateChange::PlayingToPaused => {
                // Running time starts or stops: deadlines are to be looked at anew.
                if let Some(running) = self.running() {
                    running.queue.clock_changed();
                }
            }
            _ => {}
        }
        changed
    }

    fn set_clock(&self, clock: Option<&gst::Clock>) -> bool {
        let set = self.parent_set_clock(clock);
        if let Some(running) = self.running() {
            running.queue.clock_changed();
        }
        set
    }

    fn request_new_pad(
        &self,
        template: &gst::PadTemplate,
        _name: Option<&str>,
        _caps: Option<&gst::Caps>,
    ) -> Option<gst::Pad> {
        self.make_mask_pad(template)
    }

    fn release_pad(&self, pad: &gst::Pad) {
        self.release_mask_pad(pad);
    }
}

/// GStreamer's word for what went wrong.
fn error_code(kind: ErrorKind) -> gst::ResourceError {
    match kind {
        ErrorKind::WeightsNotFound => gst::ResourceError::NotFound,
        ErrorKind::LicenseNotAccepted => gst::ResourceError::NotAuthorized,
        ErrorKind::Io | ErrorKind::InvalidWeights | ErrorKind::HashMismatch => gst::ResourceError::Read,
        ErrorKind::BackendUnavailable => gst::ResourceError::OpenReadWrite,
        _ => gst::ResourceError::Settings,
    }
}
