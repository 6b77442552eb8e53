//! GStreamer's tools as processes, with our plugin and a registry of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The plugin that was built with these tests.
///
/// # Panics
/// If it isn't there.
pub fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a test has an executable");
    let plugin = test.with_file_name("libgstsapiensseg.so");
    assert!(plugin.exists(), "{} is not there: build it with `cargo build --workspace`", plugin.display());
    plugin
}

/// A program of the workspace that was built with these tests.
///
/// # Panics
/// If it isn't there.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has an executable");
    let program = test.parent().and_then(Path::parent).map(|folder| folder.join(name)).unwrap_or_default();
    assert!(program.exists(), "{} is not there: build it with `cargo build --workspace`", program.display());
    program
}

/// Runs GStreamer's tools where nothing but what a test wants is set.
pub struct Tools {
    /// The plugin alone, and a registry.
    folder: TempDir,
}

impl Default for Tools {
    fn default() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        // Beside the built one lie other libraries, which GStreamer would look into.
        std::fs::copy(plugin(), folder.path().join("libgstsapiensseg.so")).expect("a copy of the plugin");
        let tools = Self { folder };
        // The first tool fills the registry, and what it says of all the plugins there are is no test's concern.
        let filled = tools.command("gst-inspect-1.0").arg("sapiensseg").output().expect("gst-inspect-1.0");
        assert!(filled.status.success(), "{}", said(&filled));
        tools
    }
}

impl Tools {
    /// A command that finds the plugin, with warnings and worse logged and criticals fatal.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .env("GST_PLUGIN_PATH", self.folder.path())
            .env("GST_REGISTRY", self.folder.path().join("registry.bin"))
            .env("GST_DEBUG", "*:WARN")
            .env("GST_DEBUG_NO_COLOR", "1")
            .env("G_DEBUG", "fatal-criticals");
        for variable in ["SAPIENS_NONCOMMERCIAL", "SAPIENS2_LICENSE_ACCEPTED", "SAPIENS_CHECKPOINT_ROOT"] {
            command.env_remove(variable);
        }
        command
    }

    /// `gst-launch-1.0` with a pipeline as one writes it in a shell.
    ///
    /// # Panics
    /// If it can't be run.
    pub fn launch(&self, pipeline: &str) -> Output {
        let mut command = self.command("gst-launch-1.0");
        command.arg("-e").args(pipeline.split_whitespace()).output().expect("gst-launch-1.0")
    }
}

/// All a process said.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A real clip that `tools/fetch-clips.sh` fetched; none, and a note, where it was not run.
pub fn clip(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("SAPIENSSEG_CLIPS").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("sapiensseg/clips"))
    })?;
    let clip = folder.join(name);
    if !clip.exists() {
        println!("skipped: {} is not there; tools/fetch-clips.sh fetches it", clip.display());
        return None;
    }
    Some(clip)
}
