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

/// A folder with the stand-in by the driver's names.
fn driver() -> TempDir {
    let driver = TempDir::new().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        symlink(sapiens_stand_in_loader::library(), driver.path().join(name)).unwrap();
    }
    driver
}

#[test]
fn what_is_missing_is_named() {
    let (tools, driver) = (Tools::default(), driver());
    for (variable, value, expected) in [
        (
            "DEVICES",
            "0",
            "device cuda is not available: the NVIDIA driver finds no GPU; expected device auto or cpu",
        ),
        ("DRIVER", "11080", "the NVIDIA driver is one for CUDA 11.8: one for CUDA 12.0 or newer is needed"),
        ("CAPABILITY", "7.0", "has compute capability 7.0: 7.5 (GeForce RTX 20, T4) or newer is needed"),
        (
            "MEMORY",
            "3000000",
            "demo doesn't fit on Stand-in 8.0: its weights alone are 6 MiB there; the GPU has no",
        ),
    ] {
        let run = |device: &str| {
            let pipeline = format!(
                "videotestsrc num-buffers=1 ! video/x-raw,format=RGB,width=61,height=45 ! \
                 sapiensseg variant=demo device={device} ! fakesink"
            );
            let mut command = tools.command("gst-launch-1.0");
            command.args(pipeline.split_whitespace()).env("LD_LIBRARY_PATH", driver.path());
            command.env(format!("SAPIENS_STAND_IN_{variable}"), value).env("GST_DEBUG", "sapiensseg:INFO");
            command.output().unwrap()
        };
        let asked = run("cuda");
        assert!(!asked.status.success() && said(&asked).contains(expected), "{}", said(&asked));
        let open = run("auto");
        let text = said(&open);
        assert!(open.status.success() && text.contains("device auto is the processor: "), "{text}");
    }
}

#[test]
fn masks_are_those_of_the_processor() {
    let (tools, folder, driver) = (Tools::default(), TempDir::new().unwrap(), driver());
    let (expected, _) = masks(&tools, driver.path(), folder.path(), "device=cpu precision=f32");
    let (found, log) = masks(&tools, driver.path(), folder.path(), "device=cuda");
    assert!(log.contains("runs on kernels cuda:0 f16"), "{log}");
    assert_eq!(expected.len(), found.len());
    // Random weights make near-ties everywhere.
    let equal = expected.iter().zip(&found).filter(|(a, b)| a == b).count();
    assert!(equal * 100 >= 97 * expected.len(), "{equal} of {} labels are equal", expected.len());
}
