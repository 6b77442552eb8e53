//! GStreamer's own elements for CUDA on the stand-in: what was uploaded and downloaded is what it was.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.
#![allow(unsafe_code, reason = "the driver's functions are C's")]

#[allow(unused_macros, reason = "this one calls no function of the driver")]
mod support;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{library, said};
use tempfile::TempDir;

/// The folder with GStreamer's plugin for NVIDIA and what it needs; none, and a note, where it was not fetched.
fn plugins() -> Option<PathBuf> {
    let folder = std::env::var_os("SAPIENSSEG_CUDA").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("sapiensseg/cuda"))
    })?;
    let folder = folder.join("gstreamer");
    if !folder.join("libgstnvcodec.so").exists() {
        println!("skipped: {} has no libgstnvcodec.so", folder.display());
        return None;
    }
    Some(folder)
}

/// Runs GStreamer's tools with the stand-in for a driver.
struct Tools {
    folder: TempDir,
    libraries: PathBuf,
}

impl Tools {
    fn new(plugins: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("driver")).unwrap();
        std::fs::create_dir(at("plugins")).unwrap();
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(library("libsapiens_stand_in.so"), at("driver").join(name)).unwrap();
        }
        symlink(library("libsapiens_stand_in_nvcuvid.so"), at("driver/libnvcuvid.so.1")).unwrap();
        // Beside it lie libraries that are no plugins.
        symlink(plugins.join("libgstnvcodec.so"), at("plugins/libgstnvcodec.so")).unwrap();
        Self { folder, libraries: plugins.to_owned() }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let driver = self.folder.path().join("driver");
        command
            .env("LD_LIBRARY_PATH", std::env::join_paths([&driver, &self.libraries]).unwrap())
            .env("GST_PLUGIN_PATH", self.folder.path().join("plugins"))
            .env("GST_REGISTRY", self.folder.path().join("registry.bin"))
            .env("GST_DEBUG_NO_COLOR", "1")
            .env("G_DEBUG", "fatal-criticals")
            .env("SAPIENS_STAND_IN_LOG", self.folder.path().join("log"));
        command
    }

    /// The bytes of all frames behind some elements.
    fn frames(&self, elements: &str) -> Vec<u8> {
        let frames = self.folder.path().join("frames");
        let pipeline = format!(
            "videotestsrc num-buffers=30 pattern=ball ! video/x-raw,format=NV12,width=320,height=240 ! {elements} \
             filesink location={}",
            frames.display()
        );
        let output =
            self.command("gst-launch-1.0").arg("-q").args(pipeline.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        std::fs::read(frames).unwrap()
    }
}

#[test]
fn frames_go_up_and_come_down() {
    let Some(plugins) = plugins() else { return };
    let tools = Tools::new(&plugins);
    let expected = tools.frames("");
    assert_eq!(expected.len(), 30 * 320 * 240 * 3 / 2);
    let _ = std::fs::remove_file(tools.folder.path().join("log"));
    // Without caps behind it, the download would hand its frames on as they are: a filesink takes anything.
    let found = tools.frames("cudaupload ! video/x-raw(memory:CUDAMemory) ! cudadownload ! video/x-raw !");
    assert!(found == expected, "frames differ");
    let log = std::fs::read_to_string(tools.folder.path().join("log")).unwrap();
    for (what, count) in [("copy HtoD 76800", 30), ("copy DtoH 76800", 30)] {
        assert_eq!(log.lines().filter(|line| line.ends_with(what)).count(), count, "{what}: {log}");
    }
    let calls = |name: &str| log.lines().filter(|line| line.contains(&format!(" {name} "))).count();
    assert_eq!(calls("cuMemAllocPitch_v2"), calls("cuMemFree_v2"), "{log}");
    assert_eq!(calls("cuStreamCreate"), calls("cuStreamDestroy_v2"), "{log}");
}

#[test]
fn a_driver_without_devices_has_no_elements() {
    let Some(plugins) = plugins() else { return };
    let tools = Tools::new(&plugins);
    let mut command = tools.command("gst-inspect-1.0");
    let output = command.arg("cudaupload").env("SAPIENS_STAND_IN_DEVICES", "0").output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
}
