//! The built plugin in GStreamer's own tools: real clips to the end of the stream, what `gst-inspect-1.0` shows, and
//! what a newcomer's mistakes are answered with.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::Path;

use sapiens_tests::gstreamer::{Tools, clip, said};
use tempfile::TempDir;

const TINY: &str = "card=tests/data/tiny-sapiens2.toml weights=tests/data/tiny-sapiens2.safetensors";

/// Lines of GStreamer's log about our element or from it.
fn our_log(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains("sapiensseg") && (line.contains(" WARN ") || line.contains(" ERROR ")))
        .collect()
}

/// Warnings that don't depend on what stands in the pipeline: category and text.
fn warnings(log: &str) -> Vec<String> {
    let log = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
    let mut kinds: Vec<_> = log
        .map(|line| {
            line.split_whitespace().skip(4).take(1).chain(line.split(':').next_back()).collect::<String>()
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// Frames of a file, counted by decoding it.
fn frames(tools: &Tools, file: &Path) -> usize {
    let pipeline =
        format!("filesrc location={} ! decodebin ! identity silent=false ! fakesink", file.display());
    let mut command = tools.command("gst-launch-1.0");
    let output = command.arg("-v").args(pipeline.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output).matches("last-message = chain").count()
}

/// A clip through decoder, element and encoder to a file that has all its frames.
fn to_webm(name: &str) {
    let Some(clip) = clip(name) else { return };
    let tools = Tools::default();
    let folder = TempDir::new().unwrap();
    let run = |element: &str, file: &str| {
        let file = folder.path().join(file);
        let output = tools.launch(&format!(
            "filesrc location={} ! decodebin ! videoconvert ! {element} ! videoconvert ! vp8enc deadline=1 cpu-used=16 ! webmmux ! filesink location={}",
            clip.display(),
            file.display()
        ));
        assert!(output.status.success(), "{}", said(&output));
        (said(&output), file)
    };
    let (log, labelled) = run(&format!("sapiensseg {TINY} output=overlay"), "labelled.webm");
    let (plain_log, plain) = run("identity", "plain.webm");
    assert_eq!(our_log(&log), Vec::<&str>::new());
    let plain_warnings = warnings(&plain_log);
    let new: Vec<_> =
        warnings(&log).into_iter().filter(|warning| !plain_warnings.contains(warning)).collect();
    assert!(new.is_empty(), "warnings that are not there with identity in our place: {new:?}\n{log}");
    let (ours, theirs) = (frames(&tools, &labelled), frames(&tools, &plain));
    println!("{name}: {ours} frames");
    assert!(ours > 0 && ours == theirs, "{ours} frames labelled, {theirs} without us");
}

#[test]
fn a_phone_clip_with_oblong_pixels_to_the_end() {
    to_webm("carphone_pristine.mp4");
}

#[test]
fn a_clip_of_people_walking_to_the_end() {
    to_webm("vtest.avi");
}

#[test]
fn inspect_shows_every_property_pad_and_format() {
    let output = Tools::default().command("gst-inspect-1.0").arg("sapiensseg").output().unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for property in [
        "variant",
        "card",
        "weights",
        "backend",
        "device",
        "precision",
        "input-size",
        "output",
        "classes",
        "opacity",
        "interval",
        "late",
        "slots",
        "threads",
        "post-messages",
        "license-accepted",
        "stats",
    ] {
        assert!(text.contains(&format!("  {property} ")), "{property} is not in\n{text}");
    }
    for text_of_it in ["'sink'", "'src'", "'mask'", "On request", "NV12", "GRAY8", "sapiens2-0.4b", "MIT/X11"]
    {
        assert!(text.contains(text_of_it), "{text_of_it} is not in\n{text}");
    }
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let tools = Tools::default();
    let home = TempDir::new().unwrap();
    for (element, expected) in [
        ("sapiensseg variant=1b", ["sapiens_1b_goliath", "SAPIENS_NONCOMMERCIAL=1"]),
        (
            "sapiensseg card=tests/data/tiny-sapiens.toml weights=tests/data/tiny-sapiens2.safetensors",
            ["missing", "tiny-sapiens2.safetensors"],
        ),
        ("sapiensseg device=cuda:99", ["device cuda:99 is not available", "expected device auto or cpu"]),
        ("sapiensseg precision=f16", ["precision f16 is not available", "f32"]),
        ("sapiensseg input-size=width=100,height=96", ["width is 100", "multiple of 16"]),
        ("sapiensseg classes=Tail", ["\"Tail\"", "Left_Hand"]),
        ("sapiensseg card=/no/such.toml", ["/no/such.toml", "No such file"]),
    ] {
        let mut command = tools.command("gst-launch-1.0");
        command.args(format!("videotestsrc num-buffers=1 ! {element} ! fakesink").split_whitespace());
        let output = command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").output().unwrap();
        assert!(!output.status.success(), "{element}");
        let text = said(&output);
        let error = text.lines().skip_while(|line| !line.starts_with("ERROR: from element"));
        let error: String = error.take_while(|line| !line.starts_with("Setting pipeline")).collect();
        for part in expected {
            assert!(error.contains(part), "{element}: {part:?} is not in\n{text}");
        }
    }
}

#[test]
fn each_output_runs_from_the_command_line() {
    let tools = Tools::default();
    for (format, output) in [("NV12", "meta"), ("I420", "overlay"), ("NV12", "mask"), ("BGRx", "alpha")] {
        let text = tools.launch(&format!(
            "videotestsrc num-buffers=5 ! video/x-raw,format={format},width=98,height=62 ! sapiensseg name=s {TINY} output={output} ! fakesink s.mask ! fakesink"
        ));
        assert!(text.status.success(), "{}", said(&text));
        assert_eq!(our_log(&said(&text)), Vec::<&str>::new());
    }
}
