//! The README's pipelines, run as they stand there.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::Path;

use sapiens_tests::gstreamer::{Tools, said};
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
    assert!(pipelines.len() >= 3, "{pipelines:?}");
    let tools = Tools::default();
    for pipeline in pipelines {
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink(Path::new(env!("CARGO_MANIFEST_DIR")), folder.path().join("tests"))
            .unwrap();
        let output =
            tools.command("sh").arg("-c").arg(&pipeline).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{pipeline}\n{}", said(&output));
        let text = said(&output);
        assert!(text.contains("Got EOS"), "{pipeline}\n{text}");
        for location in pipeline.split_whitespace().filter_map(|word| word.strip_prefix("location=")) {
            let file = folder.path().join(location.replace("%03d", "059"));
            let size = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
            assert!(size > 0, "{pipeline}: {} was not written", file.display());
        }
    }
}
