//! The ends of a forward pass's operations, marked in its stream one by one.

use std::time::Duration;

use sapiens_kernels::cuda::{Event, Stream};

use super::between;
use crate::engine::{Stage, StageTimes};
use crate::error::Result;

/// Of one frame; events are made once and used again.
#[derive(Debug, Default)]
pub(super) struct StageMarks {
    marks: Vec<(Stage, Event)>,
    used: usize,
}

impl StageMarks {
    /// Forgets the last frame.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// What was queued since the last mark was `stage`.
    pub fn end(&mut self, stage: Stage, stream: &Stream) -> Result<()> {
        if self.used == self.marks.len() {
            self.marks.push((stage, Event::new(stream.gpu(), true)?));
        }
        let (of, mark) = &mut self.marks[self.used];
        *of = stage;
        mark.record(stream)?;
        self.used += 1;
        Ok(())
    }

    /// What each stage took, counted from `begin`; all zero where nothing was marked. All marks must have been passed.
    pub fn times(&self, begin: &Event) -> Result<StageTimes> {
        let mut times = StageTimes::default();
        let mut last = begin;
        for (stage, mark) in &self.marks[..self.used] {
            let took: Duration = between(last, mark)?;
            times.add(*stage, took);
            last = mark;
        }
        Ok(times)
    }
}
