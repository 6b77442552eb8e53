//! The program on the stand-in for the driver, and where there is none.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use tempfile::TempDir;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn times_every_step() {
    let folder = TempDir::new().unwrap();
    symlink(sapiens_stand_in_loader::library(), folder.path().join("libcuda.so")).unwrap();
    let figures = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_device-check"))
        .args(["--times-only", "--small", "--json"])
        .arg(&figures)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("SAPIENS_STAND_IN_MULTIPROCESSORS", "1")
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("compute capability 8.0") && text.contains("sapiens2-0.4b, bf16"), "{text}");
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap();
    let networks =
        figures["precisions"].as_array().unwrap().iter().flat_map(|p| p["networks"].as_array().unwrap());
    let mut steps = 0;
    for step in networks.flat_map(|network| network["steps"].as_array().unwrap()) {
        assert!(step["ms"].as_f64().unwrap() > 0.0, "{step}");
        steps += 1;
    }
    assert_eq!(steps, 3 * (15 + 21));
}

#[test]
fn without_a_card_it_says_so() {
    let folder = TempDir::new().unwrap();
    symlink(sapiens_stand_in_loader::library(), folder.path().join("libcuda.so")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_device-check"))
        .env("LD_LIBRARY_PATH", folder.path())
        .env("SAPIENS_STAND_IN_DEVICES", "0")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(text(&output), "device-check: the NVIDIA driver finds no GPU\n");
}
