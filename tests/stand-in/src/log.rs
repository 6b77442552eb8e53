//! The log of calls and of what streams did, for timelines. Times are microseconds since the first call.
//!
//! ```text
//! call <number> <begin> <end> <thread> <function> <result>
//! run <stream> <begin> <end> <operation>
//! ```

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// An open file, if there is to be a log.
pub struct Log {
    file: Option<Mutex<File>>,
    start: Instant,
}

impl Log {
    /// Opens it.
    ///
    /// # Errors
    /// If it can't be.
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let open = |path| File::options().create(true).append(true).open(path).map(Mutex::new);
        Ok(Self { file: path.map(open).transpose()?, start: Instant::now() })
    }

    /// Whether anything is written.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Microseconds since the first call.
    pub fn time(&self, instant: Instant) -> u128 {
        instant.saturating_duration_since(self.start).as_micros()
    }

    /// Writes one line. A log that can't be written to is no reason to stop.
    pub fn line(&self, text: &str) {
        if let Some(file) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }
}
