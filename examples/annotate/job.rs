//! One input from beginning to end, and what all inputs share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::arguments::Arguments;
use crate::folder::Place;
use crate::inputs::{Input, Kind};
use crate::labels::Look;
use crate::picture::{self, Lane};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::trouble::{Result, Trouble};
use crate::video;

/// What all inputs share.
#[derive(Debug)]
pub(crate) struct Context {
    pub arguments: Arguments,
    pub look: Arc<Look>,
    pub plan: Plan,
    pub progress: Progress,
    /// No more is to be begun, and what is at work is to be left where it is.
    pub stop: Arc<AtomicBool>,
}

impl Context {
    /// An error if somebody asked to stop.
    pub(crate) fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(Trouble::Stopped) } else { Ok(()) }
    }
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// In the result.
    pub frames: u64,
    /// Of those, labelled now and not before a kill.
    pub labelled: u64,
}

/// What became of an input, in a line.
pub(crate) fn run(
    context: &Context,
    number: usize,
    input: &Input,
    lane: &mut Option<Lane>,
) -> Result<String> {
    context.check_stop()?;
    let name = input.name.display();
    let started = Instant::now();
    let plan = context.plan.of(input)?;
    let place = Place::of(&context.arguments.output, input);
    let Some(work) = place.open(&plan, context.arguments.overwrite)? else {
        return Ok(format!("{name}: done already"));
    };
    let done = match input.kind {
        Kind::Video => video::annotate(context, number, input, &work),
        Kind::Image => picture::annotate(context, input, &work, lane),
    };
    let (result, tally) = match done {
        Ok(done) => done,
        Err(trouble) => {
            work.leave();
            return Err(trouble);
        }
    };
    work.finish(plan, result)?;
    let Tally { frames, labelled } = tally;
    let seconds = started.elapsed().as_secs_f64();
    let kept = match frames - labelled {
        0 => String::new(),
        kept => format!(" ({labelled} labelled now, {kept} were there)"),
    };
    let frames = if frames == 1 { "1 frame".to_owned() } else { format!("{frames} frames") };
    let rate = labelled as f64 / seconds.max(1e-3);
    Ok(format!("{name}: {frames}{kept}, {seconds:.1} s, {rate:.1} frames/s"))
}

/// What would become of an input, in a line.
pub(crate) fn preview(output: &Path, input: &Input) -> String {
    use crate::folder::State;
    let state = match Place::of(output, input).state() {
        Ok(State::New) => "to do".to_owned(),
        Ok(State::Begun(_)) => "begun".to_owned(),
        Ok(State::Done(_)) => "there already".to_owned(),
        Err(trouble) => trouble.to_string(),
    };
    let kind = match input.kind {
        Kind::Image => "image",
        Kind::Video => "video",
    };
    format!("{} -> {} ({kind}, {state})", input.path.display(), output.join(&input.name).display())
}
