//! Gives the library cuBLASLt's name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcublasLt.so.12");
        // Its functions are kept by whoever looked them up.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
