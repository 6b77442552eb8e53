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
        compiler.define("SAPIENS_EMULATED", None).define("SAPIENS_ARCH", arch);
        // Nothing refers to a kernel: it registers itself when the library is loaded.
        compiler.link_lib_modifier("+whole-archive");
        for kernel in sources(KERNELS, "cu") {
            compiler.file(unit(&kernel, arch));
        }
        compiler.compile(&format!("sapiens_kernels_{arch}"));
    }
}

/// A kernel's file in a namespace of its own: on a GPU each is a program of its own, and they use each other's names.
fn unit(kernel: &Path, arch: &str) -> PathBuf {
    let name = kernel.file_stem().unwrap_or_default().to_string_lossy();
    let unit = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default()).join(format!("{name}_{arch}.cpp"));
    let text = format!("#include \"device.cuh\"\nnamespace {name}_{arch} {{\n#include \"{name}.cu\"\n}}\n");
    if let Err(error) = std::fs::write(&unit, text) {
        println!("cargo::error={}: {error}", unit.display());
    }
    unit
}

/// A compiler that optimises whatever cargo says: tests run whole networks.
fn compiler() -> cc::Build {
    let mut compiler = cc::Build::new();
    compiler.cpp(true).std("c++17").opt_level(2).include(EMULATOR).include(KERNELS);
    // Nothing is fused that the kernels don't fuse themselves.
    compiler.flag("-ffp-contract=off");
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
