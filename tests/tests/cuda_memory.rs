//! The built plugin between GStreamer's own elements for CUDA, on the stand-in for NVIDIA's driver: frames in a GPU's memory
//! are read and painted where they lie, and what comes out is what comes out of the machine's memory.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "cuda_memory/applications.rs"]
mod applications;

use std::path::Path;
use std::process::Command;

use sapiens_tests::gstreamer::{Tools, said};
use tempfile::TempDir;

/// A tiny model on the stand-in, which emulates a GPU: the fewer pixels the better.
const TINY: &str = "card=tests/data/tiny-sapiens.toml weights=tests/data/tiny-sapiens.torchscript.pt2 \
                    input-size=width=32,height=32 device=cuda";

const CUDA: &str = "video/x-raw(memory:CUDAMemory)";

const FORMATS: [&str; 8] = ["NV12", "I420", "RGB", "BGR", "RGBA", "BGRA", "RGBx", "BGRx"];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// A pipeline in `gst-launch-1.0`, with the stand-in's log in `log`.
fn launch(tools: &Tools, log: &Path, pipeline: &str) -> String {
    let mut command = tools.command("gst-launch-1.0");
    let text = run(command.args(pipeline.split_whitespace()).env("SAPIENS_STAND_IN_LOG", log));
    assert!(!text.contains("ERROR"), "{text}");
    text
}

/// Lines of the stand-in's log that are calls of these functions.
fn calls(log: &str, names: &[&str]) -> usize {
    let is_one = |line: &&str| line.split(' ').nth(5).is_some_and(|name| names.contains(&name));
    log.lines().filter(|line| line.starts_with("call ")).filter(is_one).count()
}

/// Nothing of what was made is left.
fn assert_nothing_left(log: &str) {
    for (made, gone) in [
        (&["cuMemAlloc_v2", "cuMemAllocPitch_v2"][..], &["cuMemFree_v2"][..]),
        (&["cuMemAllocHost_v2", "cuMemHostAlloc"], &["cuMemFreeHost"]),
        (&["cuStreamCreate", "cuStreamCreateWithPriority"], &["cuStreamDestroy_v2"]),
        (&["cuEventCreate"], &["cuEventDestroy_v2"]),
        (&["cuCtxCreate_v2"], &["cuCtxDestroy_v2"]),
        (&["cuDevicePrimaryCtxRetain"], &["cuDevicePrimaryCtxRelease_v2"]),
        (&["cuGraphInstantiateWithFlags"], &["cuGraphExecDestroy"]),
    ] {
        assert_eq!(calls(log, made), calls(log, gone), "{made:?} and {gone:?}");
    }
}

/// Each output of one format beside the same in the machine's memory: the second frame has the first one's labels.
fn outputs_of(format: &str) {
    let Some(tools) = Tools::with_cuda() else { return };
    let folder = TempDir::new().unwrap();
    let alpha = matches!(format, "RGBA" | "BGRA" | "RGBx" | "BGRx");
    let outputs: &[&str] =
        if alpha { &["meta", "overlay", "mask", "alpha"] } else { &["meta", "overlay", "mask"] };
    let at = |name: String| folder.path().join(name);
    let mut pipeline = format!(
        "videotestsrc num-buffers=2 ! video/x-raw,format={format},width=40,height=24,framerate=25/1 ! tee name=t"
    );
    for output in outputs {
        let element =
            |place: &str| format!("sapiensseg name={place}{output} {TINY} interval=2 output={output}");
        let sink = |place: &str, what: &str| {
            format!("filesink location={}", at(format!("{place}-{output}-{what}")).display())
        };
        let down =
            if *output == "mask" { String::new() } else { format!("{CUDA} ! cudadownload ! video/x-raw !") };
        pipeline += &format!(
            " t. ! queue ! cudaupload ! {CUDA} ! {} ! {down} {} cuda{output}.mask ! {}",
            element("cuda"),
            sink("cuda", "frames"),
            sink("cuda", "masks")
        );
        pipeline += &format!(
            " t. ! queue ! {} ! {} host{output}.mask ! {}",
            element("host"),
            sink("host", "frames"),
            sink("host", "masks")
        );
    }
    launch(&tools, &at("log".to_owned()), &pipeline);
    for output in outputs {
        for what in ["frames", "masks"] {
            let [cuda, host] =
                ["cuda", "host"].map(|place| std::fs::read(at(format!("{place}-{output}-{what}"))).unwrap());
            assert!(!host.is_empty() && cuda == host, "{format} {output}: {what} differ");
        }
    }
    assert_nothing_left(&std::fs::read_to_string(at("log".to_owned())).unwrap());
}

/// One test per format, so that they run side by side.
macro_rules! formats {
    ($($name:ident: $format:literal)*) => {$(
        #[test]
        fn $name() {
            assert!(FORMATS.contains(&$format));
            outputs_of($format);
        }
    )*};
}

formats! {
    nv12_is_as_in_the_machines_memory: "NV12"
    i420_is_as_in_the_machines_memory: "I420"
    rgb_is_as_in_the_machines_memory: "RGB"
    bgr_is_as_in_the_machines_memory: "BGR"
    rgba_is_as_in_the_machines_memory: "RGBA"
    bgra_is_as_in_the_machines_memory: "BGRA"
    rgbx_is_as_in_the_machines_memory: "RGBx"
    bgrx_is_as_in_the_machines_memory: "BGRx"
}

#[test]
fn odd_sizes_are_as_in_the_machines_memory() {
    let Some(tools) = Tools::with_cuda() else { return };
    let folder = TempDir::new().unwrap();
    let at = |name: String| folder.path().join(name);
    let mut pipeline = String::new();
    // I420's planes can't be had of an odd height from GStreamer 1.22, which lays them over each other.
    for (format, height) in [("NV12", 23), ("I420", 22), ("RGB", 23)] {
        let sink = |place: &str| format!("filesink location={}", at(format!("{place}-{format}")).display());
        pipeline += &format!(
            " videotestsrc num-buffers=1 ! video/x-raw,format={format},width=37,height={height} ! tee name=t{format} \
             t{format}. ! queue ! cudaupload ! {CUDA} ! sapiensseg {TINY} output=mask ! {} \
             t{format}. ! queue ! sapiensseg {TINY} output=mask ! {}",
            sink("cuda"),
            sink("host")
        );
    }
    launch(&tools, &at("log".to_owned()), &pipeline);
    for format in ["NV12", "I420", "RGB"] {
        let [cuda, host] =
            ["cuda", "host"].map(|place| std::fs::read(at(format!("{place}-{format}"))).unwrap());
        assert!(!host.is_empty() && cuda == host, "{format}: labels differ");
    }
}

/// What a pipeline of so many frames copies and allocates of frames' size.
#[derive(Debug, PartialEq)]
struct Traffic {
    up: usize,
    down: usize,
    across: usize,
    allocated: usize,
}

fn traffic(tools: &Tools, frames: usize, output: &str) -> Traffic {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let down = if output == "mask" { "" } else { "! cudadownload ! video/x-raw" };
    launch(
        tools,
        &log,
        &format!(
            "videotestsrc num-buffers={frames} ! video/x-raw,format=RGBA,width=40,height=24 ! cudaupload ! {CUDA} ! \
             sapiensseg {TINY} output={output} {down} ! fakesink sync=false"
        ),
    );
    let log = std::fs::read_to_string(log).unwrap();
    let copies = |direction: &str| {
        let end = format!("copy {direction} {}", 40 * 24 * 4);
        log.lines().filter(|line| line.ends_with(&end)).count()
    };
    assert_nothing_left(&log);
    Traffic {
        up: copies("HtoD"),
        down: copies("DtoH"),
        across: copies("DtoD"),
        allocated: calls(&log, &["cuMemAllocPitch_v2"]),
    }
}

#[test]
fn frames_are_not_copied() {
    let Some(tools) = Tools::with_cuda() else { return };
    for (output, down, across) in [("meta", 6, 0), ("mask", 0, 0), ("overlay", 6, 6), ("alpha", 6, 6)] {
        let few = traffic(&tools, 2, output);
        let many = traffic(&tools, 6, output);
        // The uploads and downloads of the elements around, and what paints makes of a frame another.
        assert_eq!((many.up, many.down, many.across), (6, down, across), "{output}");
        // Pools give frames out again.
        assert!(many.allocated <= few.allocated + 2, "{output}: {few:?} {many:?}");
    }
}

#[test]
fn what_can_not_be_is_said_with_what_to_do() {
    let Some(tools) = Tools::with_cuda() else { return };
    let cpu = TINY.replace("device=cuda", "device=cpu");
    let source = "videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=40,height=24";
    for (pipeline, expected) in [
        (format!("{source} ! cudaupload ! sapiensseg {cpu} ! fakesink"), "taken with device=cuda"),
        (
            format!("{source} ! cudaupload ! {CUDA} ! sapiensseg {TINY} ! identity ! video/x-raw ! fakesink"),
            "put cudadownload there",
        ),
        (format!("{source} ! sapiensseg {TINY} ! identity ! {CUDA} ! fakesink"), "put cudaupload there"),
    ] {
        let output = tools.launch(&pipeline);
        assert!(!output.status.success(), "{pipeline}");
        assert!(said(&output).contains(expected), "{pipeline}: {expected:?} is not in\n{}", said(&output));
    }
}

#[test]
fn a_network_on_the_processor_opens_no_library_for_cuda() {
    let Some(tools) = Tools::with_cuda() else { return };
    let mut command = tools.command("gst-launch-1.0");
    let cpu = TINY.replace("device=cuda", "");
    let pipeline =
        format!("videotestsrc num-buffers=1 ! video/x-raw,width=40,height=24 ! sapiensseg {cpu} ! fakesink");
    // Without the plugin that links to it.
    let text = run(command
        .args(["--gst-disable-registry-fork"])
        .args(pipeline.split_whitespace())
        .env("LD_DEBUG", "files"));
    assert!(text.contains("libgstsapiensseg.so"), "{text}");
    let opened = text.lines().filter(|line| line.contains("calling init") && line.contains("libgstcuda"));
    assert_eq!(opened.collect::<Vec<_>>(), Vec::<&str>::new());
}
