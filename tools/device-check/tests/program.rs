//! The program on the stand-in for the driver, and where there is none.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What the program prints and writes.
fn run(arguments: &[&str]) -> (String, Value) {
    let folder = TempDir::new().unwrap();
    symlink(sapiens_stand_in_loader::library(), folder.path().join("libcuda.so")).unwrap();
    let figures = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_device-check"))
        .args(["--small", "--json"])
        .arg(&figures)
        .args(arguments)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("SAPIENS_STAND_IN_MULTIPROCESSORS", "1")
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    (text, serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap())
}

#[test]
fn times_every_step() {
    let (text, figures) = run(&["--times-only"]);
    assert!(text.contains("compute capability 8.0") && text.contains("sapiens2-0.4b, bf16"), "{text}");
    let networks =
        figures["precisions"].as_array().unwrap().iter().flat_map(|p| p["networks"].as_array().unwrap());
    let mut steps = 0;
    for step in networks.flat_map(|network| network["steps"].as_array().unwrap()) {
        assert!(step["ms"].as_f64().unwrap() > 0.0, "{step}");
        steps += 1;
    }
    assert_eq!(steps, 3 * (15 + 21));
    let networks = figures["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2 * 2);
    for network in networks {
        let times = &network["times"];
        for figure in
            ["network_ms", "stream_frame_ms", "latency_ms", "load_ms", "launches", "peak_memory_mib"]
        {
            assert!(times[figure].as_f64().unwrap() > 0.0, "{figure} of {network}");
        }
        assert_eq!(times["stages"].as_array().unwrap().len(), 11, "{network}");
        assert_eq!(times["timeline"]["frames"].as_array().unwrap().len(), 6, "{network}");
        let hidden = times["timeline"]["hidden_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&hidden), "{network}");
    }
    assert!(text.contains("| 0.3b | f16 |") && text.contains("\nslot 1  "), "{text}");
}

#[test]
fn networks_are_held_against_the_authors() {
    let (text, figures) = run(&["--networks-only", "--checks-only"]);
    let checks = figures["network_checks"].as_array().unwrap();
    assert!(checks.len() == 2 && checks.iter().all(|check| check["right"] == true), "{text}");
    assert!(text.contains("right  tiny-sapiens2, 64 x 160, f16: logits differ by"), "{text}");
}

#[test]
fn what_no_time_is_left_for_is_said() {
    let (text, figures) = run(&["--networks-only", "--times-only", "--seconds", "0"]);
    assert!(text.contains("not run: no time is left"), "{text}");
    assert!(
        figures["networks"].as_array().unwrap().iter().all(|network| network["times"].is_null()),
        "{text}"
    );
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
