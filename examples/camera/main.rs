//! `camera`: body parts live, from a camera, a test picture or a file, in a window or to a WebM file.
//!
//! `source` is where frames come from, `controls` what keys do, `measure` what is said of the last second.

mod controls;
mod measure;
mod source;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use clap::Parser;
use gst::prelude::*;
use sapiens_cli::{ModelArguments, complain, warn};
use sapiens_examples::{Model, element, labeller};

use controls::{Action, Controls};
use measure::Meter;
use source::{Source, Wanted};

const EXAMPLES: &str = "\
Examples:
  camera --variant sapiens2-0.4b --accept-license    the first camera in a window
  camera --source test -o test.webm --seconds 10     a test picture to a file
  camera --source clip.mp4 --input-size width=384,height=512
                                                     a file as a camera; faster, coarser

Keys, in the window, or in the terminal followed by Enter:
  o    overlay on and off        c    the next group of classes
  + -  opacity                   1-9  a group of classes, as listed at the start
  q    quit

Once a second a line says how many frames passed and how many were labelled, how long a frame
takes through the element (latency), and how much older than the frame the picture is that its
labels were made from (age). However slow the model is, the picture stays live: its labels are
older then.";

/// Shows body parts live: a camera in a window, or in a WebM file where there is no screen.
#[derive(Parser, Debug)]
#[command(name = "camera", version, after_help = EXAMPLES)]
struct Arguments {
    /// The camera, such as /dev/video2 [default: the first there is].
    #[arg(long, value_name = "DEVICE", conflicts_with = "source")]
    camera: Option<PathBuf>,

    /// What to show instead of a camera: test for a test picture, or a video file, which is played again and again.
    #[arg(long, value_name = "WHAT")]
    source: Option<PathBuf>,

    /// Write to this WebM file instead of a window. Without a screen (neither DISPLAY nor WAYLAND_DISPLAY is set) that is
    /// done anyway, to camera.webm.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// End by itself after so many seconds.
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<f64>,

    /// How opaque the overlay is at first: 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = opacity)]
    opacity: f64,

    /// Say what is found, chosen and run; twice for more. `RUST_LOG` overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(flatten)]
    model: ModelArguments,
}

fn opacity(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}

/// How long the end of the stream may take to come through.
const ENDING: Duration = Duration::from_secs(20);
/// How often keys and the clock are looked at.
const TURN: gst::ClockTime = gst::ClockTime::from_mseconds(50);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    sapiens_cli::start_log(arguments.verbose);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    sapiens_examples::start_gstreamer()?;
    let wanted = match (&arguments.source, &arguments.camera) {
        (Some(source), _) if source.as_os_str() == "test" => Wanted::Test,
        (Some(file), _) => Wanted::File(file.clone()),
        (None, camera) => Wanted::Camera(camera.clone()),
    };
    let source = Source::open(&wanted)?;
    // Held until the end, so that what is missing is said before a window opens.
    let model = Model::load(&arguments.model).map_err(|error| error.to_string())?;
    let mut controls = Controls::new(model.segmenter.card(), arguments.opacity);
    let show = Show::build(arguments, &source)?;
    show.apply(&controls);

    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .map_err(|error| format!("signals can't be handled: {error}"))?;
    let (sender, keys) = mpsc::channel();
    show.keys_of_window(sender.clone());
    keys_of_terminal(sender);
    let meter = Meter::default();
    meter.watch(&show.labeller);

    anstream::println!("{}", show.place);
    anstream::println!("{}", controls.help());
    let shown = show
        .start()
        .and_then(|()| show.until_end(arguments, &source, &keys, &meter, &mut controls, &interrupted));
    let ended = shown.and_then(|()| show.finish());
    let _ = show.pipeline.set_state(gst::State::Null);
    ended
}

/// Letters typed in the terminal, a line at a time: the terminal stays as it is, whatever happens.
fn keys_of_terminal(keys: Sender<char>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if line.trim().chars().any(|key| keys.send(key).is_err()) {
                return;
            }
        }
    });
}

/// The pipeline.
struct Show {
    pipeline: gst::Pipeline,
    labeller: gst::Element,
    /// Paints text, where there is an element for it.
    text: Option<gst::Element>,
    /// Where it is shown, in words.
    place: String,
}

impl Show {
    fn build(arguments: &Arguments, source: &Source) -> Result<Self, String> {
        let has_screen = ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        let file = arguments.output.clone().or_else(|| (!has_screen).then(|| PathBuf::from("camera.webm")));

        let labeller = labeller(&arguments.model)?;
        labeller.set_property_from_str("output", "overlay");
        let text = match gst::ElementFactory::make("textoverlay").build() {
            Ok(text) => {
                text.set_property_from_str("valignment", "top");
                text.set_property_from_str("halignment", "left");
                text.set_property_from_str("line-alignment", "left");
                text.set_property("shaded-background", true);
                text.set_property("font-desc", "Sans 10");
                Some(text)
            }
            Err(_) => {
                warn(
                    &"GStreamer has no element textoverlay (gstreamer1.0-x): figures are in the terminal only",
                );
                None
            }
        };
        let mut chain = vec![source.element.clone(), element("videoconvert")?, labeller.clone()];
        chain.push(element("videoconvert")?);
        chain.extend(text.clone());
        chain.push(element("videoconvert")?);
        let place = match &file {
            None => {
                chain.push(element("autovideosink")?);
                "in a window".to_owned()
            }
            Some(path) => {
                chain.extend(recorder(path)?);
                format!("to {}", path.display())
            }
        };
        let pipeline = gst::Pipeline::new();
        pipeline
            .add_many(&chain)
            .and_then(|()| gst::Element::link_many(&chain))
            .map_err(|error| format!("the elements can't be linked: {error}"))?;
        Ok(Self { pipeline, labeller, text, place })
    }

    fn apply(&self, controls: &Controls) {
        self.labeller.set_property("opacity", controls.opacity());
        self.labeller.set_property("classes", controls.classes());
    }

    /// Keys pressed in the window come up the pipeline as events.
    fn keys_of_window(&self, keys: Sender<char>) {
        let Some(pad) = self.labeller.static_pad("src") else { return };
        pad.add_probe(gst::PadProbeType::EVENT_UPSTREAM, move |_, probe| {
            if let Some(gst::PadProbeData::Event(event)) = &probe.data
                && let Ok(gst_video::NavigationEvent::KeyPress { key, .. }) =
                    gst_video::NavigationEvent::parse(event)
                && let Some(key) = letter(&key)
            {
                let _ = keys.send(key);
            }
            gst::PadProbeReturn::Ok
        });
    }

    fn start(&self) -> Result<(), String> {
        if self.pipeline.set_state(gst::State::Playing).is_ok() {
            return Ok(());
        }
        Err(self.error().unwrap_or_else(|| "the pipeline doesn't start".to_owned()))
    }

    fn error(&self) -> Option<String> {
        let message = self.pipeline.bus()?.pop_filtered(&[gst::MessageType::Error])?;
        match message.view() {
            gst::MessageView::Error(error) => Some(sapiens_examples::bus_error(error)),
            _ => None,
        }
    }

    /// Shows until somebody or something ends it.
    fn until_end(
        &self,
        arguments: &Arguments,
        source: &Source,
        keys: &Receiver<char>,
        meter: &Meter,
        controls: &mut Controls,
        interrupted: &AtomicBool,
    ) -> Result<(), String> {
        let bus = self.pipeline.bus().ok_or("the pipeline has no bus")?;
        let started = Instant::now();
        let limit = arguments.seconds.map(Duration::from_secs_f64);
        let mut since = started;
        loop {
            match bus.timed_pop(TURN).as_ref().map(|message| message.view()) {
                Some(gst::MessageView::Error(error)) => return Err(sapiens_examples::bus_error(error)),
                Some(gst::MessageView::Eos(_)) => return Err("the source has ended".to_owned()),
                Some(gst::MessageView::Warning(warning)) => check_warning(warning)?,
                // It's the application that knows when all latencies have been asked for.
                Some(gst::MessageView::Latency(_)) => {
                    let _ = self.pipeline.recalculate_latency();
                }
                _ => {}
            }
            source.keep_on()?;
            for key in keys.try_iter() {
                match controls.press(key) {
                    Action::Quit => return Ok(()),
                    Action::Changed => self.apply(controls),
                    Action::Nothing => {}
                }
            }
            if since.elapsed() >= Duration::from_secs(1) {
                let line = format!("{}; {}", meter.report(&mut since), controls.describe());
                anstream::println!("{line}");
                if let Some(text) = &self.text {
                    text.set_property("text", line.replace(", ", "\n").replace("; ", "\n"));
                }
            }
            if interrupted.load(Ordering::Relaxed) || limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok(());
            }
        }
    }

    /// Lets the end of the stream through, which is what makes a file whole.
    fn finish(&self) -> Result<(), String> {
        let bus = self.pipeline.bus().ok_or("the pipeline has no bus")?;
        self.pipeline.send_event(gst::event::Eos::new());
        let patience = gst::ClockTime::try_from(ENDING).ok();
        let message = bus.timed_pop_filtered(patience, &[gst::MessageType::Eos, gst::MessageType::Error]);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => Ok(()),
            Some(gst::MessageView::Error(error)) => Err(sapiens_examples::bus_error(error)),
            _ => Err(format!("the stream didn't end within {} s", ENDING.as_secs())),
        }
    }
}

/// Where it can't open a window, GStreamer warns and shows nothing: that's no success here.
fn check_warning(warning: &gst::message::Warning) -> Result<(), String> {
    if warning.src().is_some_and(|source| source.name().starts_with("autovideosink")) {
        return Err(
            "no window can be opened: expected a screen and gstreamer1.0-x, or --output FILE.webm".to_owned()
        );
    }
    warn(&warning.error());
    Ok(())
}

/// What writes a WebM file as fast as frames come.
fn recorder(path: &std::path::Path) -> Result<[gst::Element; 4], String> {
    let (queue, encoder, muxer) = (element("queue")?, element("vp8enc")?, element("webmmux")?);
    encoder.set_property("deadline", 1i64);
    encoder.set_property("cpu-used", 8);
    encoder.set_property("target-bitrate", 2_000_000);
    encoder.set_property("keyframe-max-dist", 60);
    let sink = element("filesink")?;
    let location = path.to_str().ok_or_else(|| format!("{}: expected a path in UTF-8", path.display()))?;
    sink.set_property("location", location);
    Ok([queue, encoder, muxer, sink])
}

/// The character of a key by its X11 name.
fn letter(name: &str) -> Option<char> {
    match name {
        "plus" | "KP_Add" => Some('+'),
        "minus" | "KP_Subtract" => Some('-'),
        "equal" => Some('='),
        "Escape" => Some('q'),
        _ => {
            let mut letters = name.strip_prefix("KP_").unwrap_or(name).chars();
            letters.next().filter(|_| letters.next().is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_window_are_letters_by_their_names() {
        let names = [("plus", '+'), ("KP_Subtract", '-'), ("KP_4", '4'), ("o", 'o'), ("Escape", 'q')];
        assert!(names.iter().all(|(name, key)| letter(name) == Some(*key)));
        assert_eq!((letter("Shift_L"), letter("KP_Enter"), letter("")), (None, None, None));
    }

    #[test]
    fn keys_come_up_the_pipeline() {
        sapiens_examples::start_gstreamer().unwrap();
        let labeller = element("sapiensseg").unwrap();
        let show = Show {
            pipeline: gst::Pipeline::new(),
            labeller: labeller.clone(),
            text: None,
            place: String::new(),
        };
        let (sender, keys) = mpsc::channel();
        show.keys_of_window(sender);
        let pad = labeller.static_pad("src").unwrap();
        pad.set_active(true).unwrap();
        let event = gst_video::NavigationEvent::new_key_press("c").build();
        pad.send_event(event);
        assert_eq!(keys.try_recv(), Ok('c'));
    }
}
