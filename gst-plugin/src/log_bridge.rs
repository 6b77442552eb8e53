//! What the library of networks logs, in GStreamer's log: under the element's own category, without an object.

use gst::prelude::*;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::element::CAT;

struct Bridge;

/// Messages of others than our own crates have loggers of their own, or none.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("sapiens")
}

fn level(level: Level) -> gst::DebugLevel {
    match level {
        Level::Error => gst::DebugLevel::Error,
        Level::Warn => gst::DebugLevel::Warning,
        Level::Info => gst::DebugLevel::Info,
        Level::Debug => gst::DebugLevel::Debug,
        Level::Trace => gst::DebugLevel::Trace,
    }
}

impl Log for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_ours(metadata) && CAT.above_threshold(level(metadata.level()))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = level(record.level());
            let file = glib::GString::from(record.file().unwrap_or_default());
            CAT.log(
                None::<&gst::Object>,
                level,
                file.as_gstr(),
                record.module_path().unwrap_or_default(),
                record.line().unwrap_or_default(),
                *record.args(),
            );
        }
    }

    fn flush(&self) {}
}

/// Installs it, unless there is a logger.
pub(crate) fn install() {
    static BRIDGE: Bridge = Bridge;
    if log::set_logger(&BRIDGE).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}
