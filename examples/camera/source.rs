//! Where frames come from: a camera, a test picture, or a file that plays again and again as if it were a camera.

use std::path::{Path, PathBuf};

use gst::prelude::*;
use gst_app::{AppSink, AppSinkCallbacks, AppSrc};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// The first camera, or this one.
    Camera(Option<PathBuf>),
    Test,
    File(PathBuf),
}

/// The source, with the player behind it if it's a file.
#[derive(Debug)]
pub(crate) struct Source {
    pub element: gst::Element,
    player: Option<Player>,
}

impl Source {
    pub(crate) fn open(wanted: &Wanted) -> Result<Self, String> {
        let element = match wanted {
            Wanted::Camera(device) => {
                let source = sapiens_examples::element("v4l2src")?;
                let device = match device {
                    Some(device) if !device.exists() => {
                        return Err(format!("there is no camera {}: {}", device.display(), cameras()));
                    }
                    Some(device) => device.clone(),
                    None => first_camera()?,
                };
                source.set_property("device", device.to_string_lossy().as_ref());
                source
            }
            Wanted::Test => {
                let source = sapiens_examples::element("videotestsrc")?;
                source.set_property("is-live", true);
                source.set_property_from_str("pattern", "ball");
                source
            }
            Wanted::File(path) => {
                let player = Player::start(path)?;
                return Ok(Self { element: player.live.clone().upcast(), player: Some(player) });
            }
        };
        Ok(Self { element, player: None })
    }

    /// Starts a file over when it has ended.
    ///
    /// # Errors
    /// If it can't be played.
    pub(crate) fn keep_on(&self) -> Result<(), String> {
        self.player.as_ref().map_or(Ok(()), Player::keep_on)
    }
}

/// Video devices, by their numbers.
fn devices() -> Vec<PathBuf> {
    let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix("video")?.parse::<u32>().ok();
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut devices: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| number(path).is_some()).collect();
    devices.sort_by_key(|path| number(path));
    devices
}

fn first_camera() -> Result<PathBuf, String> {
    devices().into_iter().next().ok_or_else(|| format!("there is no camera: {}", cameras()))
}

/// What there is instead.
fn cameras() -> String {
    let found: Vec<_> = devices().iter().map(|path| path.display().to_string()).collect();
    let found = if found.is_empty() {
        "no /dev/video* was found".to_owned()
    } else {
        format!("found {}", found.join(", "))
    };
    format!("{found}; --source test shows a test picture, --source FILE a video")
}

/// Plays a file into a live source.
#[derive(Debug)]
struct Player {
    pipeline: gst::Pipeline,
    live: AppSrc,
    path: PathBuf,
}

/// Frames that wait to be taken; older ones are dropped, as a camera does.
const WAITING: u64 = 2;

impl Player {
    fn start(path: &Path) -> Result<Self, String> {
        if !path.is_file() {
            return Err(format!("there is no file {}: expected a video, or --source test", path.display()));
        }
        let make = sapiens_examples::element;
        let live = AppSrc::builder()
            .format(gst::Format::Time)
            .is_live(true)
            .do_timestamp(true)
            .leaky_type(gst_app::AppLeakyType::Downstream)
            .max_buffers(WAITING)
            .build();
        let (source, decoder) = (make("filesrc")?, make("decodebin")?);
        source.set_property("location", path);
        decoder.set_property("caps", gst::Caps::builder("video/x-raw").any_features().build());
        decoder.set_property("expose-all-streams", false);
        let convert = make("videoconvert")?;
        let flip = make("videoflip")?;
        flip.set_property_from_str("video-direction", "auto");
        let into = live.clone();
        let pass = move |sink: &AppSink| {
            let sample = sink.pull_sample().map_err(|_| gst::FlowError::Eos)?;
            let mut buffer = sample.buffer_owned().ok_or(gst::FlowError::Error)?;
            if let Some(caps) = sample.caps_owned() {
                into.set_caps(Some(&caps));
            }
            drop(sample);
            // It gets the time at which it is pushed: a file that starts over goes back in time.
            let times = buffer.make_mut();
            times.set_pts(gst::ClockTime::NONE);
            times.set_dts(gst::ClockTime::NONE);
            // Refused while the camera pipeline starts or stops.
            let _ = into.push_buffer(buffer);
            Ok(gst::FlowSuccess::Ok)
        };
        let sink = AppSink::builder().callbacks(AppSinkCallbacks::builder().new_sample(pass).build()).build();
        let pipeline = gst::Pipeline::new();
        let rest = [convert.clone(), make("deinterlace")?, flip, sink.upcast()];
        let linked = (|| {
            pipeline.add_many([&source, &decoder])?;
            pipeline.add_many(&rest)?;
            source.link(&decoder)?;
            gst::Element::link_many(&rest)
        })();
        linked.map_err(|error| format!("the elements can't be linked: {error}"))?;
        decoder.connect_pad_added(move |_, pad| {
            if let Some(into) = convert.static_pad("sink").filter(|into| !into.is_linked()) {
                // Refused caps come back as an error of the stream.
                let _ = pad.link(&into);
            }
        });
        // An error is on the bus, where `keep_on` finds it.
        let _ = pipeline.set_state(gst::State::Playing);
        Ok(Self { pipeline, live, path: path.to_owned() })
    }

    fn keep_on(&self) -> Result<(), String> {
        let Some(bus) = self.pipeline.bus() else { return Ok(()) };
        let explain = |what: &dyn std::fmt::Display| format!("{}: {what}", self.path.display());
        while let Some(message) = bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::Eos]) {
            match message.view() {
                gst::MessageView::Error(error) => return Err(explain(&sapiens_examples::bus_error(error))),
                _ => self
                    .pipeline
                    .seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::ZERO)
                    .map_err(|_| explain(&"it can't be played from the beginning again"))?,
            }
        }
        Ok(())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}
