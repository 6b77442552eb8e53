//! Gives the library the driver's name, and compiles the emulator of kernels into it.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=emulator");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    // Who opens "libcuda.so" after this library was opened by its path gets this one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    // The threads of its streams outlive a caller who closes it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let sources = sources(Path::new("emulator"));
    if !sources.is_empty() {
        cc::Build::new().cpp(true).std("c++17").files(sources).compile("sapiens_emulator");
    }
}

/// The C++ files of a folder, in an order that doesn't change.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "cpp");
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_source).collect();
    sources.sort();
    sources
}
