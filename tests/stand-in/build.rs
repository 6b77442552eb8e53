//! Gives the library the driver's name, and compiles the emulator and the kernels into it.

use std::path::{Path, PathBuf};

const EMULATOR: &str = "emulator";
const KERNELS: &str = "../../kernels/cuda";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={EMULATOR}");
    println!("cargo::rerun-if-changed={KERNELS}");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    // Who opens "libcuda.so" after this library was opened by its path gets this one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    // The threads of its streams outlive a caller who closes it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    compiler().files(sources(EMULATOR, "cpp")).compile("sapiens_emulator");
    // A kernel is for the architectures that its PTX is for.
    for arch in ["75", "80"] {
        let mut compiler = compiler();
        compiler.flag("-xc++").define("SAPIENS_EMULATED", None).define("SAPIENS_ARCH", arch);
        // Nothing refers to a kernel: it registers itself when the library is loaded.
        compiler.link_lib_modifier("+whole-archive");
        compiler.files(sources(KERNELS, "cu")).compile(&format!("sapiens_kernels_{arch}"));
    }
}

/// A compiler that optimises whatever cargo says: tests run whole networks.
fn compiler() -> cc::Build {
    let mut compiler = cc::Build::new();
    compiler.cpp(true).std("c++17").opt_level(2).include(EMULATOR).include(KERNELS);
    compiler
}

/// The files of a folder with an ending, in an order that doesn't change.
fn sources(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(folder)).into_iter().flatten().flatten();
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == ending);
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_source).collect();
    sources.sort();
    sources
}
