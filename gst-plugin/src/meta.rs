//! `SapiensSegMeta`: the labels of a frame, on the frame.
//!
//! A custom meta, so that C, Rust and Python read it without a header of ours: a structure with the fields
//!
//! | field | type | what |
//! |---|---|---|
//! | `mask` | `GstBuffer` | GRAY8, a class number per pixel, stride = `width`, with a `GstVideoMeta` |
//! | `width`, `height` | `guint` | of the mask |
//! | `classes` | `GstArray` of strings | names by class number |
//! | `colors` | `GstArray` of `guint` | the legend: 0xRRGGBB by class number |
//! | `variant` | string | which model |
//! | `backend` | string | what ran |
//! | `reused` | boolean | whether the labels are those of an earlier frame |
//! | `labels-pts` | `guint64` | timestamp of the frame the labels were made from, or `GST_CLOCK_TIME_NONE` |
//! | `inference-ns` | `guint64` | how long the labels took |
//!
//! Downstream, in GStreamer 1.22, the mask always fits the frame it is on, or there is none:
//!
//! | what happens to the frame | what happens to the meta |
//! |---|---|
//! | queue, tee, copies shallow and deep, changes in place (`videobalance`, `textoverlay`) | stays |
//! | `videoconvert` | stays |
//! | `videoscale`, `videoconvertscale`, same display aspect ratio | its mask is scaled to the nearest label |
//! | the same, another display aspect ratio: borders are added, or the picture is stretched | goes |
//! | `videocrop`, `videobox`, a part of the buffer is copied | goes |
//! | `videoflip` when it turns frames | goes |
//! | `vp8enc` and what else makes a buffer that isn't a frame | may stay, and is of the frame before |
//! | `compositor` and what else makes one frame of several | goes |

mod transform;

use std::sync::Once;
use std::time::Duration;

use glib::translate::IntoGlib;
use sapiens_model::ModelCard;

use crate::labels::Labels;

/// The meta's name, for `gst_buffer_get_custom_meta`.
pub const NAME: &str = "SapiensSegMeta";

/// Registers the meta, once in a process.
pub(crate) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(transform::register);
}

/// A GRAY8 buffer without padding between rows.
pub(crate) fn gray_buffer(bytes: impl AsRef<[u8]> + Send + 'static, width: u32, height: u32) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_slice(bytes);
    let writable = buffer.make_mut();
    // The bindings give a meta only to a buffer of the size that rows of a multiple of four bytes need. What is
    // missing is taken away again: the meta says that rows have no padding.
    let missing = ((width.next_multiple_of(4) - width) * height) as usize;
    if missing > 0 {
        writable.append_memory(gst::Memory::from_slice(vec![0; missing]));
    }
    // The format, size and stride are consistent by construction, so that this doesn't fail.
    let _ = gst_video::VideoMeta::add_full(
        writable,
        gst_video::VideoFrameFlags::empty(),
        gst_video::VideoFormat::Gray8,
        width,
        height,
        &[0],
        &[width as i32],
    );
    if missing > 0 {
        writable.remove_memory(1);
    }
    buffer
}

/// What is the same in every meta of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    classes: gst::Array,
    colors: gst::Array,
    variant: String,
}

impl Model {
    pub(crate) fn new(card: &ModelCard) -> Self {
        let colors = card.classes.iter().map(|class| {
            let [red, green, blue] = class.color;
            u32::from_be_bytes([0, red, green, blue])
        });
        Self {
            classes: gst::Array::new(card.classes.iter().map(|class| class.name.as_str())),
            colors: gst::Array::new(colors),
            variant: card.name().to_owned(),
        }
    }
}

/// A timestamp as GStreamer writes it.
pub(crate) fn clock_time(time: Option<Duration>) -> u64 {
    time.and_then(|time| gst::ClockTime::try_from(time).ok()).into_glib()
}

/// Puts `labels` on `buffer`, in place of any that are there.
pub(crate) fn attach(
    buffer: &mut gst::BufferRef,
    model: &Model,
    labels: &std::sync::Arc<Labels>,
    reused: bool,
    labels_pts: Option<Duration>,
) -> Result<(), glib::BoolError> {
    if let Ok(old) = gst::meta::CustomMeta::from_mut_buffer(buffer, NAME) {
        // One meta of a kind: a second sapiensseg in a pipeline says the last word.
        let _ = old.remove();
    }
    let mut meta = gst::meta::CustomMeta::add(buffer, NAME)?;
    let structure = meta.mut_structure();
    structure.set("mask", labels.to_buffer());
    structure.set("width", labels.map().width() as u32);
    structure.set("height", labels.map().height() as u32);
    structure.set("classes", model.classes.clone());
    structure.set("colors", model.colors.clone());
    structure.set("variant", model.variant.as_str());
    structure.set("backend", labels.backend.to_string());
    structure.set("reused", reused);
    structure.set("labels-pts", clock_time(labels_pts));
    structure.set("inference-ns", u64::try_from(labels.timing.total().as_nanos()).unwrap_or(u64::MAX));
    Ok(())
}

/// What [`SapiensSegMeta`](self) says, read back.
#[derive(Debug, Clone)]
pub struct SapiensSegMeta {
    /// GRAY8 without padding, a class number per pixel.
    pub mask: gst::Buffer,
    /// Of the mask.
    pub width: u32,
    /// Of the mask.
    pub height: u32,
    /// Names by class number.
    pub classes: Vec<String>,
    /// The legend: R, G, B by class number.
    pub colors: Vec<[u8; 3]>,
    /// Which model.
    pub variant: String,
    /// What ran.
    pub backend: String,
    /// Whether the labels are those of an earlier frame.
    pub reused: bool,
    /// Timestamp of the frame that the labels were made from.
    pub labels_pts: Option<gst::ClockTime>,
    /// How long the labels took.
    pub inference: gst::ClockTime,
}

impl SapiensSegMeta {
    /// The meta of a buffer, if it has one.
    pub fn from_buffer(buffer: &gst::BufferRef) -> Option<Self> {
        let meta = gst::meta::CustomMeta::from_buffer(buffer, NAME).ok()?;
        let structure = meta.structure();
        let classes = structure.get::<gst::ArrayRef<'_>>("classes").ok()?;
        let colors = structure.get::<gst::ArrayRef<'_>>("colors").ok()?;
        let rgb = |color: u32| {
            let [_, red, green, blue] = color.to_be_bytes();
            [red, green, blue]
        };
        let labels_pts = structure.get::<u64>("labels-pts").ok()?;
        Some(Self {
            mask: structure.get("mask").ok()?,
            width: structure.get("width").ok()?,
            height: structure.get("height").ok()?,
            classes: classes.iter().filter_map(|name| name.get::<String>().ok()).collect(),
            colors: colors.iter().filter_map(|color| color.get().ok()).map(rgb).collect(),
            variant: structure.get("variant").ok()?,
            backend: structure.get("backend").ok()?,
            reused: structure.get("reused").ok()?,
            labels_pts: (labels_pts != u64::MAX).then(|| gst::ClockTime::from_nseconds(labels_pts)),
            inference: gst::ClockTime::from_nseconds(structure.get("inference-ns").ok()?),
        })
    }
}
