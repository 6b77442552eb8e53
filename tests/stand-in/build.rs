//! Gives the library the driver's name, and compiles the kernels into it as the emulator runs them.

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

    let mut emulator = cc::Build::new();
    // Nothing is fused that the kernels don't fuse themselves. Whatever finds itself by its initialisers must stay.
    emulator.cpp(true).std("c++17").opt_level(2).flag("-ffp-contract=off").flag("-Wno-unknown-pragmas");
    emulator.include("emulator").include(KERNELS).define("SAPIENS_EMULATED", None);
    emulator.link_lib_modifier("+whole-archive").files(files(Path::new("emulator"), "cpp"));
    println!("cargo::rerun-if-changed={KERNELS}");
    let out = PathBuf::from(variable("OUT_DIR"));
    for kernel in files(Path::new(KERNELS), "cu") {
        for arch in [75, 80] {
            let name = kernel.file_name().unwrap_or_default().to_string_lossy();
            let unit = out.join(format!("{name}_{arch}.cpp"));
            let text = format!("#define SAPIENS_ARCH {arch}\n#include \"{name}\"\n");
            if let Err(error) = std::fs::write(&unit, text) {
                println!("cargo::error={}: {error}", unit.display());
            }
            emulator.file(unit);
        }
    }
    emulator.compile("sapiens_emulator");
}

/// The kernels' sources.
const KERNELS: &str = "../../kernels/cuda";

/// The files of a folder with an extension, in an order that doesn't change.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |path: &PathBuf| path.extension().is_some_and(|found| found == extension);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
    files.sort();
    files
}
