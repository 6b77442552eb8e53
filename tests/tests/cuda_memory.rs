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

/// A pipeline in `gst-launch-1.0`, with the stand-in's log in `log`, that leaves no object of GStreamer's alive.
fn launch(tools: &Tools, log: &Path, pipeline: &str) {
    let mut command = tools.command("gst-launch-1.0");
    command.args(pipeline.split_whitespace()).env("SAPIENS_STAND_IN_LOG", log);
    let text = run(command.env("GST_TRACERS", "leaks").env("GST_DEBUG", "*:WARN,GST_TRACER:7"));
    assert!(!text.contains("ERROR"), "{text}");
    // The tracer also says how such lines will look.
    let alive = text.lines().filter(|line| line.contains("object-alive") && !line.contains("build_format"));
    assert_eq!(alive.collect::<Vec<_>>(), Vec::<&str>::new());
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
    let at = |name: &str| folder.path().join(name);
    let sink = |name: &str| format!("filesink location={}", at(name).display());
    let element =
        |name: &str, output: &str| format!("sapiensseg name={name} {TINY} interval=2 output={output}");
    let up = format!("t. ! queue ! cudaupload ! {CUDA} !");
    let down = format!("! {CUDA} ! cudadownload ! video/x-raw !");
    let mut pipeline = format!(
        "videotestsrc num-buffers=2 ! video/x-raw,format={format},width=40,height=24,framerate=25/1 ! tee name=t \
         t. ! queue ! {} \
         t. ! queue ! {} ! {} o.mask ! {} \
         {up} {} {down} {} co.mask ! {} \
         {up} {} {down} {} \
         {up} {} ! {}",
        sink("meta"),
        element("o", "overlay"),
        sink("overlay"),
        sink("mask"),
        element("co", "overlay"),
        sink("cuda-overlay"),
        sink("cuda-overlay-mask"),
        element("cm", "meta"),
        sink("cuda-meta"),
        element("ck", "mask"),
        sink("cuda-mask"),
    );
    let mut pairs = vec![
        ("overlay", "cuda-overlay"),
        ("mask", "cuda-overlay-mask"),
        ("meta", "cuda-meta"),
        ("mask", "cuda-mask"),
    ];
    if matches!(format, "RGBA" | "BGRA" | "RGBx" | "BGRx") {
        let (host, cuda) = (element("a", "alpha"), element("ca", "alpha"));
        pipeline +=
            &format!(" t. ! queue ! {host} ! {} {up} {cuda} {down} {}", sink("alpha"), sink("cuda-alpha"));
        pairs.push(("alpha", "cuda-alpha"));
    }
    launch(&tools, &at("log"), &pipeline);
    for (host, cuda) in pairs {
        let [expected, found] = [host, cuda].map(|name| std::fs::read(at(name)).unwrap());
        assert!(!expected.is_empty() && expected == found, "{format}: {host} and {cuda} differ");
    }
    assert_nothing_left(&std::fs::read_to_string(at("log")).unwrap());
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
    let auto = TINY.replace("device=cuda", "device=auto");
    // I420's planes can't be had of an odd height from GStreamer 1.22, which lays them over each other.
    for (format, height) in [("NV12", 23), ("I420", 22), ("RGB", 23)] {
        let sink = |place: &str| format!("filesink location={}", at(format!("{place}-{format}")).display());
        pipeline += &format!(
            " videotestsrc num-buffers=1 ! video/x-raw,format={format},width=37,height={height} ! tee name=t{format} \
             t{format}. ! queue ! cudaupload ! {CUDA} ! sapiensseg {auto} output=mask ! {} \
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

#[test]
fn frames_are_not_copied() {
    const FRAMES: usize = 20;
    let Some(tools) = Tools::with_cuda() else { return };
    // With a tee somebody else has each frame, too.
    let tee = "tee name=t t. ! queue ! fakesink sync=false async=false t. ! queue !";
    for (output, between, down, across) in [
        ("meta", "", FRAMES, 0),
        ("meta", tee, FRAMES, 0),
        ("mask", "", 0, 0),
        ("overlay", tee, FRAMES, FRAMES),
    ] {
        let folder = TempDir::new().unwrap();
        let log = folder.path().join("log");
        let download = if output == "mask" { "" } else { "! cudadownload ! video/x-raw" };
        launch(
            &tools,
            &log,
            &format!(
                "videotestsrc num-buffers={FRAMES} ! video/x-raw,format=RGBA,width=40,height=24 ! cudaupload ! {CUDA} ! \
                 {between} sapiensseg {TINY} interval=10 output={output} {download} ! fakesink sync=false"
            ),
        );
        let log = std::fs::read_to_string(log).unwrap();
        let copies = |direction: &str| {
            let end = format!("copy {direction} {}", 40 * 24 * 4);
            log.lines().filter(|line| line.ends_with(&end)).count()
        };
        // The elements around bring them up and down, and what is painted is another frame.
        assert_eq!(["HtoD", "DtoH", "DtoD"].map(copies), [FRAMES, down, across], "{output}");
        // Pools give frames out again, if nobody has them.
        let allocated = calls(&log, &["cuMemAllocPitch_v2"]);
        assert!(
            allocated < FRAMES || !between.is_empty(),
            "{output}: {allocated} of {FRAMES} frames were allocated"
        );
        assert_nothing_left(&log);
    }
}

#[test]
fn a_pipeline_that_can_not_be_is_refused_when_it_is_built() {
    let Some(tools) = Tools::with_cuda() else { return };
    let cpu = TINY.replace("device=cuda", "device=cpu");
    let output = tools.launch(&format!("videotestsrc ! cudaupload ! {CUDA} ! sapiensseg {cpu} ! fakesink"));
    assert!(!output.status.success());
    let expected = "can't handle caps video/x-raw(memory:CUDAMemory)";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

#[test]
fn frames_of_another_gpu_are_refused() {
    let Some(tools) = Tools::with_cuda() else { return };
    let device = |number: usize| {
        let pipeline = format!(
            "videotestsrc num-buffers=1 ! video/x-raw,format=NV12,width=40,height=24 ! cudaupload cuda-device-id=1 ! \
             {CUDA} ! sapiensseg {TINY}:{number} ! fakesink"
        );
        let mut command = tools.command("gst-launch-1.0");
        command.args(pipeline.split_whitespace()).env("SAPIENS_STAND_IN_CAPABILITY", "8.0,8.0");
        command.output().unwrap()
    };
    assert!(device(1).status.success(), "{}", said(&device(1)));
    let refused = said(&device(0));
    assert!(refused.contains("ERROR") && refused.contains("set device=cuda:1"), "{refused}");
}

#[test]
fn a_network_on_the_processor_opens_no_library_for_cuda() {
    let Some(tools) = Tools::with_cuda() else { return };
    let mut command = tools.command("gst-launch-1.0");
    let cpu = TINY.replace("device=cuda", "device=cpu");
    let pipeline =
        format!("videotestsrc num-buffers=1 ! video/x-raw,width=40,height=24 ! sapiensseg {cpu} ! fakesink");
    let text = run(command.args(pipeline.split_whitespace()).env("LD_DEBUG", "files"));
    assert!(text.contains("libgstsapiensseg.so"), "{text}");
    let opened = text.lines().filter(|line| line.contains("calling init") && line.contains("libgstcuda"));
    assert_eq!(opened.collect::<Vec<_>>(), Vec::<&str>::new());
}
