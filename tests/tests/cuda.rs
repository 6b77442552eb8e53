//! The built plugin on the stand-in for NVIDIA's driver: `device=cuda` from a pipeline's frames to its labels.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::os::unix::fs::symlink;
use std::path::Path;

use sapiens_tests::gstreamer::{Tools, said};
use tempfile::TempDir;

/// Masks of two frames, and the log.
fn masks(tools: &Tools, driver: &Path, folder: &Path, element: &str) -> (Vec<u8>, String) {
    let file = folder.join("mask.gray");
    let pipeline = format!(
        "videotestsrc num-buffers=2 pattern=ball ! video/x-raw,format=NV12,width=61,height=45 ! sapiensseg \
         card=tests/data/tiny-sapiens.toml weights=tests/data/tiny-sapiens.torchscript.pt2 output=mask {element} ! \
         filesink location={}",
        file.display()
    );
    let mut command = tools.command("gst-launch-1.0");
    command.args(pipeline.split_whitespace()).env("LD_LIBRARY_PATH", driver);
    let output = command.env("GST_DEBUG", "sapiensseg:INFO").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    (std::fs::read(file).unwrap(), said(&output))
}

/// What the library of networks logs is in GStreamer's log.
#[test]
fn the_log_says_what_an_open_device_became() {
    let (tools, folder) = (Tools::default(), TempDir::new().unwrap());
    let (_, log) = masks(&tools, folder.path(), folder.path(), "device=auto");
    let said =
        ["device auto is the processor: ", "device auto is cuda:0"].iter().any(|said| log.contains(said));
    assert!(said, "{log}");
}

#[test]
fn masks_are_those_of_the_processor() {
    let (tools, folder) = (Tools::default(), TempDir::new().unwrap());
    let driver = TempDir::new().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        symlink(sapiens_stand_in_loader::library(), driver.path().join(name)).unwrap();
    }
    let (expected, _) = masks(&tools, driver.path(), folder.path(), "device=cpu precision=f32");
    let (found, log) = masks(&tools, driver.path(), folder.path(), "device=cuda");
    assert!(log.contains("runs on kernels cuda:0 f16"), "{log}");
    assert_eq!(expected.len(), found.len());
    // Random weights make near-ties everywhere.
    let equal = expected.iter().zip(&found).filter(|(a, b)| a == b).count();
    assert!(equal * 100 >= 97 * expected.len(), "{equal} of {} labels are equal", expected.len());
}
