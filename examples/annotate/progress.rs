//! How far the run is: a bar on a terminal, a plain line now and then elsewhere. Both are on stderr; what was done is
//! on stdout.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often the plain line comes.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// The run as a whole.
#[derive(Debug)]
pub(crate) struct Progress {
    inputs: usize,
    bar: ProgressBar,
    /// Frames whose labels were made, not found.
    labelled: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    started: Instant,
    last_line: Instant,
    finished: usize,
    /// What part of each input at work is done.
    parts: HashMap<usize, f64>,
    /// What part of all was done before anything was labelled.
    before: Option<f64>,
}

impl Progress {
    pub(crate) fn new(inputs: usize) -> Self {
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{bar:16} {percent:>3} %  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        let inner = Inner { started: now, last_line: now, finished: 0, parts: HashMap::new(), before: None };
        Self { inputs, bar, labelled: AtomicU64::new(0), inner: Mutex::new(inner) }
    }

    /// A frame's labels were made.
    pub(crate) fn labelled(&self) {
        self.labelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Says what part of an input is done.
    pub(crate) fn set(&self, input: usize, part: f64) {
        self.inner().parts.insert(input, part.clamp(0.0, 1.0));
    }

    /// An input is done, or given up.
    pub(crate) fn finished(&self, input: usize) {
        let mut inner = self.inner();
        inner.parts.remove(&input);
        inner.finished += 1;
    }

    /// Prints something above the bar.
    pub(crate) fn print(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Shows how far it is.
    pub(crate) fn show(&self) {
        let mut inner = self.inner();
        let labelled = self.labelled.load(Ordering::Relaxed);
        let part = (inner.finished as f64 + inner.parts.values().sum::<f64>()) / self.inputs.max(1) as f64;
        let seconds = inner.started.elapsed().as_secs_f64();
        if labelled == 0 {
            // What was there already costs nothing, and says nothing of how long the rest will take.
            inner.before = Some(part);
            inner.started = Instant::now();
        }
        let new = part - inner.before.unwrap_or(0.0);
        let left = if labelled > 0 && new > 0.0 {
            format!(", {} left", clock(seconds * (1.0 - part) / new))
        } else {
            String::new()
        };
        let rate = if labelled > 0 { labelled as f64 / seconds.max(1e-3) } else { 0.0 };
        let (finished, inputs) = (inner.finished, self.inputs);
        let message = format!("{finished} of {inputs} inputs, {labelled} frames, {rate:.1} frames/s{left}");
        if !self.bar.is_hidden() {
            self.bar.set_position((part * STEPS as f64) as u64);
            self.bar.set_message(message);
        } else if inner.last_line.elapsed() >= LINE_EVERY {
            inner.last_line = Instant::now();
            anstream::eprintln!("{:.0} %: {message}", part * 100.0);
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds as people say them.
fn clock(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn times_are_as_long_as_they_need_to_be() {
        assert_eq!([clock(5.4), clock(65.0), clock(7260.0)], ["5 s", "1:05 min", "2:01 h"]);
    }
}
