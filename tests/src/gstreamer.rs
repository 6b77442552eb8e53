//! GStreamer's tools as processes, with our plugin and a registry of their own.

use std::ffi::OsString;
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
    /// Where libraries are looked for before all other places.
    libraries: Option<OsString>,
}

impl Default for Tools {
    fn default() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        // Beside the built one lie other libraries, which GStreamer would look into.
        std::fs::copy(plugin(), folder.path().join("libgstsapiensseg.so")).expect("a copy of the plugin");
        Self { folder, libraries: None }.filled()
    }
}

impl Tools {
    /// With the stand-in for NVIDIA's driver, and GStreamer's own elements for CUDA; none, and a note, where
    /// `tools/fetch-cuda.sh` was not run.
    ///
    /// # Panics
    /// If what was built with these tests isn't there.
    #[cfg(target_os = "linux")]
    pub fn with_cuda() -> Option<Self> {
        use std::os::unix::fs::symlink;

        let nvcodec = cached("SAPIENSSEG_CUDA", "cuda")?.join("gstreamer");
        if !nvcodec.join("libgstnvcodec.so").exists() {
            println!(
                "skipped: {} has no libgstnvcodec.so; tools/fetch-cuda.sh fetches it",
                nvcodec.display()
            );
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::copy(plugin(), folder.path().join("libgstsapiensseg.so")).expect("a copy of the plugin");
        // Beside the fetched one lie libraries that are no plugins.
        symlink(nvcodec.join("libgstnvcodec.so"), folder.path().join("libgstnvcodec.so")).expect("a link");
        let driver = folder.path().join("driver");
        std::fs::create_dir(&driver).expect("a folder");
        let stand_in = sapiens_stand_in_loader::library();
        let decoder = stand_in.with_file_name("libsapiens_stand_in_nvcuvid.so");
        for (name, library) in
            [("libcuda.so", &stand_in), ("libcuda.so.1", &stand_in), ("libnvcuvid.so.1", &decoder)]
        {
            symlink(library, driver.join(name)).expect("a link");
        }
        let libraries = std::env::join_paths([&driver, &nvcodec]).expect("folders without colons");
        Some(Self { folder, libraries: Some(libraries) }.filled())
    }

    fn filled(self) -> Self {
        // The first tool fills the registry, and what it says of all the plugins there are is no test's concern.
        let filled = self.command("gst-inspect-1.0").arg("sapiensseg").output().expect("gst-inspect-1.0");
        assert!(filled.status.success(), "{}", said(&filled));
        self
    }

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
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
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
    let clip = cached("SAPIENSSEG_CLIPS", "clips")?.join(name);
    if !clip.exists() {
        println!("skipped: {} is not there; tools/fetch-clips.sh fetches it", clip.display());
        return None;
    }
    Some(clip)
}

/// A folder of what is fetched for tests: the one that the variable names, else that in the user's cache.
fn cached(variable: &str, name: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
        Some(cache?.join("sapiensseg").join(name))
    })
}
