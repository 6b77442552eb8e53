//! The README's pipelines, run as they stand there.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::Path;

use sapiens_tests::gstreamer::{Tools, program, said};
use tempfile::TempDir;

/// The commands in the README's shell blocks that start with `program`.
fn commands(program: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line.starts_with(program)).collect()
}

#[test]
fn every_pipeline_runs_as_pasted() {
    let pipelines = commands("gst-launch-1.0");
    assert!(pipelines.len() >= 6, "{pipelines:?}");
    let tools = Tools::default();
    // What `make demo` leaves, a second of it.
    let demo = TempDir::new().unwrap();
    let output = tools
        .command(program("demo").to_str().unwrap())
        .args(["--seconds", "1", "--output"])
        .arg(demo.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for pipeline in pipelines {
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink(demo.path(), folder.path().join("demo")).unwrap();
        let output =
            tools.command("sh").arg("-c").arg(&pipeline).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{pipeline}\n{}", said(&output));
        let text = said(&output);
        assert!(text.contains("Got EOS"), "{pipeline}\n{text}");
        for location in pipeline.split_whitespace().filter_map(|word| word.strip_prefix("location=")) {
            let file = folder.path().join(location.replace("%03d", "000"));
            let size = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
            assert!(size > 0, "{pipeline}: {} was not written", file.display());
        }
    }
}

#[test]
fn the_demo_says_what_it_did_and_draws_a_sheet() {
    let tools = Tools::default();
    let folder = TempDir::new().unwrap();
    let demo = |arguments: &[&str]| {
        let mut command = tools.command(program("demo").to_str().unwrap());
        command.current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let output = demo(&["--seconds", "0.5"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for expected in
        ["gst-launch-1.0 filesrc", "12 frames", "frames per second", "demo on ", "the largest classes"]
    {
        assert!(text.contains(expected), "{expected} in\n{text}");
    }
    let sheet = image::open(folder.path().join("demo/sheet.png")).unwrap().into_rgb8();
    assert!(sheet.width() > 1600 && sheet.height() > 700, "{} x {}", sheet.width(), sheet.height());
    // A clip of one's own, with a name that a shell would trip over.
    std::fs::rename(folder.path().join("demo/clip.webm"), folder.path().join("my \"clip\".webm")).unwrap();
    let output = demo(&["--input", "my \"clip\".webm", "--output", "out"]);
    assert!(output.status.success(), "{}", said(&output));
    for (arguments, expected) in [
        (["--input", "none.mp4"], "none.mp4: expected a video file, found none"),
        (["--variant", "3b"], "unknown variant \"3b\""),
    ] {
        let output = demo(&arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}
