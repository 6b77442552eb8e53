//! Nothing is left over: GStreamer's leaks tracer after `gst_deinit`, for each way the element is used.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::process::Output;

use sapiens_tests::gstreamer::{Tools, said};

const TINY: &str = "card=tests/data/tiny-sapiens2.toml weights=tests/data/tiny-sapiens2.safetensors";

/// What the tracer says is still alive.
fn alive(output: &Output) -> Vec<String> {
    // The tracer also says how such lines will look.
    let lines = said(output);
    let alive = lines.lines().filter(|line| line.contains("object-alive") && !line.contains("build_format"));
    alive.map(str::to_owned).collect()
}

fn traced(tools: &Tools, program: &str) -> std::process::Command {
    let mut command = tools.command(program);
    command.env("GST_TRACERS", "leaks").env("GST_DEBUG", "GST_TRACER:7");
    command
}

#[test]
fn every_scenario_leaves_nothing_alive() {
    let tools = Tools::default();
    for (scenario, fails) in [
        (format!("videotestsrc num-buffers=20 ! sapiensseg {TINY} ! fakesink"), false),
        (
            format!(
                "videotestsrc num-buffers=20 ! sapiensseg {TINY} output=overlay post-messages=true ! fakesink"
            ),
            false,
        ),
        (
            format!(
                "videotestsrc num-buffers=20 ! video/x-raw,width=61 ! sapiensseg {TINY} output=mask ! fakesink"
            ),
            false,
        ),
        (format!("videotestsrc num-buffers=20 ! sapiensseg {TINY} output=alpha ! fakesink"), false),
        (
            format!("videotestsrc num-buffers=20 is-live=true ! sapiensseg {TINY} interval=3 ! fakesink"),
            false,
        ),
        (
            format!(
                "videotestsrc num-buffers=20 ! sapiensseg name=s {TINY} ! queue ! videoconvert ! videoscale ! video/x-raw,width=99 ! fakesink s.mask ! queue ! fakesink"
            ),
            false,
        ),
        (
            format!(
                "videotestsrc num-buffers=20 ! tee name=t ! queue ! sapiensseg {TINY} output=overlay ! fakesink t. ! queue ! fakesink"
            ),
            false,
        ),
        ("videotestsrc num-buffers=20 ! sapiensseg card=/no/such.toml ! fakesink".to_owned(), true),
        (
            format!("videotestsrc num-buffers=20 ! identity error-after=9 ! sapiensseg {TINY} ! fakesink"),
            true,
        ),
    ] {
        let output = traced(&tools, "gst-launch-1.0").args(scenario.split_whitespace()).output().unwrap();
        assert_eq!(output.status.success(), !fails, "{scenario}\n{}", said(&output));
        assert_eq!(alive(&output), Vec::<String>::new(), "{scenario}");
    }
}

#[test]
fn a_planted_leak_is_seen() {
    let script = "
import ctypes, gi
gi.require_version('Gst', '1.0')
from gi.repository import Gst
Gst.init(None)
element = Gst.ElementFactory.make('sapiensseg')
# A reference that nobody gives back.
ctypes.CDLL('libgobject-2.0.so.0').g_object_ref(ctypes.c_void_p(hash(element)))
del element
Gst.deinit()
";
    let output = traced(&Tools::default(), "/usr/bin/python3").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let alive = alive(&output);
    assert!(alive.iter().any(|line| line.contains("GstSapiensSeg")), "{}", said(&output));
}
