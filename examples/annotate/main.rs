//! `annotate`: labels videos and images with body parts, many of them, on one machine or many, and can be stopped at
//! any time. On the GStreamer element, which is linked into it.
//!
//! `inputs` finds what there is to do, `plan` says what it is made from, `folder` where it grows; `job` does one input,
//! through `video` or `picture`. `pipeline` decodes, `labels` writes labels, `encode` and `mkv` video files.

mod arguments;
mod encode;
mod folder;
mod inputs;
mod job;
mod labels;
mod mkv;
mod picture;
mod pipeline;
mod plan;
mod progress;
mod trouble;
mod video;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Parser;
use sapiens_cli::complain;
use sapiens_examples::Model;

use arguments::{Arguments, LabelFiles};
use encode::Codec;
use folder::Place;
use inputs::{Input, Kind};
use job::Context;
use labels::Look;
use plan::Plan;
use progress::Progress;
use trouble::Trouble;

/// What shells call a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// How often the bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    sapiens_cli::start_log(arguments.verbose);
    run(arguments).unwrap_or_else(|failure| {
        complain(&failure.message);
        ExitCode::from(failure.code)
    })
}

/// What ends the run before anything is done.
struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// A mistake in what was asked for.
    fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 2 }
    }
}

impl<T: ToString> From<T> for Failure {
    fn from(message: T) -> Self {
        Self { message: message.to_string(), code: 1 }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let (Some(start), Some(end)) = (arguments.start, arguments.end)
        && start >= end
    {
        return Err(Failure::usage("--start must be before --end"));
    }
    let card = arguments.model.card().map_err(Failure::usage)?;
    let look = Look::new(&card, arguments.classes.as_deref(), arguments.opacity).map_err(Failure::usage)?;
    let found =
        inputs::find(&arguments.inputs, &arguments.list, &arguments.output).map_err(Failure::usage)?;
    // A bad input is in every shard's list: whoever runs it, somebody must hear of it.
    found.bad.iter().for_each(|what| complain(what));
    let all = found.inputs.len();
    let inputs: Vec<_> = found
        .inputs
        .into_iter()
        .filter(|input| arguments.shard.is_none_or(|shard| shard.has(input)))
        .collect();
    if all == 0 && found.bad.is_empty() {
        return Err(Failure::usage("there are no images or videos in what was given"));
    }
    if arguments.dry_run {
        inputs.iter().for_each(|input| anstream::println!("{}", job::preview(&arguments.output, input)));
        anstream::println!("{} of {all} inputs", inputs.len());
        return Ok(if found.bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }

    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(&stop)?;
    sapiens_examples::start_gstreamer()?;
    check_elements(&arguments, &inputs)?;
    let model = Model::load(&arguments.model)?;
    let plan = Plan::new(&arguments, &model, &look.kept())?;
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| format!("can't make folder {}: {error}", arguments.output.display()))?;
    check_conflicts(&arguments, &inputs, &plan)?;

    let context =
        Context { progress: Progress::new(inputs.len()), arguments, look: Arc::new(look), plan, stop };
    let failed = work(&context, &inputs) + found.bad.len();
    folder::tidy(&context.arguments.output);
    if context.stop.load(Ordering::Relaxed) && failed == 0 {
        anstream::eprintln!("stopped: what is done is kept, and the same command goes on from there");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    complain(&format!("{failed} of {} failed", plural(inputs.len() + found.bad.len(), "input")));
    Ok(ExitCode::FAILURE)
}

fn plural(number: usize, what: &str) -> String {
    if number == 1 { format!("{number} {what}") } else { format!("{number} {what}s") }
}

/// The first Ctrl-C asks the work to stop, the second doesn't ask.
fn stop_on_signals(stop: &Arc<AtomicBool>) -> Result<(), String> {
    let stop = stop.clone();
    ctrlc::set_handler(move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        // A frame in the network is waited for, which may take a minute.
        anstream::eprintln!("stopping; again to stop at once");
    })
    .map_err(|error| format!("signals can't be handled: {error}"))
}

/// What is missing is said before anything is done, not after hours of labelling.
fn check_elements(arguments: &Arguments, inputs: &[Input]) -> Result<(), String> {
    if !inputs.iter().any(|input| input.kind == Kind::Video) {
        return Ok(());
    }
    let mut codecs = Vec::new();
    codecs.extend((arguments.labels == LabelFiles::Video).then_some(Codec::Ffv1));
    codecs.extend(arguments.overlay.then_some(Codec::Vp8));
    let decoding = ["filesrc", "decodebin", "videoconvert", "deinterlace", "videoflip"];
    let mut needed = codecs.into_iter().map(Codec::factory).chain(decoding);
    needed.try_for_each(|factory| sapiens_examples::element(factory).map(drop))
}

/// Results of other options or weights: refused before anything is done, so that no folder gets a mixture.
fn check_conflicts(arguments: &Arguments, inputs: &[Input], plan: &Plan) -> Result<(), Failure> {
    if arguments.overwrite {
        return Ok(());
    }
    let conflicts: Vec<_> = inputs
        .iter()
        .filter_map(|input| {
            let place = Place::of(&arguments.output, input);
            // Whatever can't be read is this input's failure, later.
            let conflict = place.conflict(&place.state().ok()?, &plan.of(input).ok()?)?;
            (!conflict.of_input).then_some(conflict.message)
        })
        .collect();
    match conflicts.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::usage(one)),
        [first, more @ ..] => Err(Failure::usage(format!("{first} (and {} more)", more.len()))),
    }
}

/// Does all inputs, some at once, and returns how many failed.
fn work(context: &Context, inputs: &[Input]) -> usize {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let (done, all_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for _ in 0..context.arguments.jobs.min(inputs.len() as u32) {
            let done = done.clone();
            let (next, failed) = (&next, &failed);
            scope.spawn(move || {
                let _done = done;
                let mut lane = None;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = inputs.get(number) else { break };
                    match job::run(context, number, input, &mut lane) {
                        Ok(line) => context.progress.print(|| anstream::println!("{line}")),
                        Err(Trouble::Stopped) => break,
                        Err(trouble) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            let message = format!("{}: {trouble}", input.path.display());
                            context.progress.print(|| complain(&message));
                            if let Trouble::DiskFull(_) = trouble {
                                context.stop.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                    context.progress.finished(number);
                }
            });
        }
        drop(done);
        // Every worker holds a sender, and none sends: this waits until the last is gone.
        while let Err(mpsc::RecvTimeoutError::Timeout) = all_done.recv_timeout(DRAW_EVERY) {
            context.progress.show();
        }
    });
    context.progress.clear();
    failed.into_inner()
}
