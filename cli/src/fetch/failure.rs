//! What can go wrong while fetching, and how often it is tried again. Knows no network.

use std::time::Duration;

use sapiens_model::SegmentError;

/// Why something didn't work, in words for the person at the terminal.
#[derive(Debug)]
pub(super) enum Failure {
    /// May well work in a moment.
    Passing {
        why: String,
        /// The pause that the other side asked for.
        after: Option<Duration>,
    },
    /// Trying again is no use.
    Final(String),
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn passing(why: impl Into<String>) -> Self {
        Failure::Passing { why: why.into(), after: None }
    }

    /// An operating-system error on `path`; `doing` is a verb.
    pub fn io(doing: &str, path: &std::path::Path, error: std::io::Error) -> Self {
        SegmentError::io(doing, path, error).into()
    }
}

impl From<SegmentError> for Failure {
    fn from(error: SegmentError) -> Self {
        Failure::Final(error.to_string())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Passing { why, .. } | Failure::Final(why) => f.write_str(why),
        }
    }
}

/// Pauses before each new try. Together they outlast a router that takes ten seconds to come back.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_millis(1200),
    Duration::from_millis(3000),
    Duration::from_millis(8000),
];

/// The longest pause that the other side may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often in a row something has failed.
#[derive(Default)]
pub(super) struct Patience {
    failures: usize,
}

impl Patience {
    /// Something was got: the next failure is a first one.
    pub fn renew(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next try, having said why; the failure itself once there have been too many, or if
    /// no other try is worth it.
    pub fn wait(&mut self, failure: Failure, say: impl FnOnce(&str)) -> Result<()> {
        let Failure::Passing { why, after } = failure else { return Err(failure) };
        let Some(&pause) = PAUSES.get(self.failures) else {
            return Err(Failure::Final(format!("{why} (tried {} times)", PAUSES.len() + 1)));
        };
        self.failures += 1;
        let pause = after.map_or(pause, |after| after.clamp(pause, LONGEST_PAUSE));
        say(&format!("{why}: trying again in {:.1} s", pause.as_secs_f64()));
        std::thread::sleep(pause);
        Ok(())
    }
}
