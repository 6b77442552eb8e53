//! `sapiens models`, `verify`, `bench` and `completions` as processes.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// `sapiens` where no weights are anywhere.
fn sapiens(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapiens"));
    for variable in [
        "SAPIENS_NONCOMMERCIAL",
        "SAPIENS2_LICENSE_ACCEPTED",
        "SAPIENS_CHECKPOINT_ROOT",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "RUST_LOG",
    ] {
        command.env_remove(variable);
    }
    command.env("HOME", home).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn models_lists_every_variant_and_where_its_weights_are() {
    let home = TempDir::new().unwrap();
    let table = stdout(&sapiens(home.path(), &["models"]));
    for expected in ["0.3b", "sapiens2-5b", "76.7 %", "CC-BY-NC-4.0", "sapiens fetch 1b", "not published"] {
        assert!(table.contains(expected), "{expected} in\n{table}");
    }
    assert!(!table.contains('\x1b'), "colour without a terminal");
    let file = "sapiens2_0.4b_seg.safetensors";
    let cache = home.path().join(".cache/sapiensseg");
    std::fs::create_dir_all(&cache).unwrap();
    std::fs::write(cache.join(file), "weights").unwrap();
    let models: Value = serde_json::from_str(&stdout(&sapiens(home.path(), &["models", "--json"]))).unwrap();
    let models = models.as_array().unwrap();
    let of = |nick: &str| models.iter().find(|model| model["variant"] == nick).unwrap();
    assert_eq!(of("sapiens2-0.4b")["weights"], cache.join(file).to_str().unwrap());
    assert_eq!(of("1b")["weights"], Value::Null);
    assert_eq!(of("1b")["published_miou"], 79.94);
    assert_eq!(of("2b")["file"], Value::Null);
}

#[test]
fn verify_reads_every_value_and_prints_the_hash() {
    let home = TempDir::new().unwrap();
    let (card, weights) = (data("tiny-sapiens2.toml"), data("tiny-sapiens2.safetensors"));
    let arguments = ["verify", "--card", card.to_str().unwrap(), "--weights", weights.to_str().unwrap()];
    let text = stdout(&sapiens(home.path(), &arguments));
    let digest: String =
        Sha256::digest(std::fs::read(&weights).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.contains(&digest) && text.contains("no published hash is known"), "{text}");
    let report: Value =
        serde_json::from_str(&stdout(&sapiens(home.path(), &[&arguments[..], &["--json"]].concat())))
            .unwrap();
    assert_eq!(report["files"][0]["sha256"], digest);
    assert!(report["values"].as_u64().unwrap() > 500_000, "{report}");
}

#[test]
fn verify_names_what_is_wrong() {
    let home = TempDir::new().unwrap();
    let card = data("tiny-sapiens2.toml");
    let verify = |weights: &Path| {
        let output = sapiens(
            home.path(),
            &["verify", "--card", card.to_str().unwrap(), "--weights", weights.to_str().unwrap()],
        );
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    };
    // A NaN as the first value behind the header.
    let mut bytes = std::fs::read(data("tiny-sapiens2.safetensors")).unwrap();
    let length = bytes.len();
    let first = 8 + usize::from_le_bytes(bytes[..8].try_into().unwrap());
    bytes[first..first + 4].copy_from_slice(&[0xff; 4]);
    let poisoned = home.path().join("poisoned.safetensors");
    std::fs::write(&poisoned, &bytes).unwrap();
    let message = verify(&poisoned);
    assert!(message.contains("NaN") && message.contains("expected finite numbers"), "{message}");
    std::fs::write(&poisoned, &bytes[..length / 2]).unwrap();
    let message = verify(&poisoned);
    assert!(message.contains("poisoned.safetensors"), "{message}");
    // A wrong file under the published name.
    let published = home.path().join("sapiens_1b_goliath_best_goliath_mIoU_7994_epoch_151_torchscript.pt2");
    std::fs::write(&published, "not weights").unwrap();
    let output = sapiens(home.path(), &["verify", "1b", "--weights", published.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let output = sapiens(home.path(), &["verify", "1b"]);
    assert!(stderr(&output).contains("no weights for 1b"), "{}", stderr(&output));
}

#[test]
fn bench_measures_without_weights() {
    let home = TempDir::new().unwrap();
    let card = data("tiny-sapiens2.toml");
    let arguments = [
        "bench",
        "--card",
        card.to_str().unwrap(),
        "--frames",
        "3",
        "--frame-size",
        "160x120",
        "--threads",
        "1",
    ];
    let table = stdout(&sapiens(home.path(), &arguments));
    for expected in [
        "tiny-sapiens2",
        "generated weights",
        "160 x 120",
        "kernels cpu",
        "network",
        "median",
        "TFLOP/s",
        "attention",
        "of peak",
    ] {
        assert!(table.contains(expected), "{expected} in\n{table}");
    }
    let report: Value =
        serde_json::from_str(&stdout(&sapiens(home.path(), &[&arguments[..], &["--json"]].concat())))
            .unwrap();
    assert_eq!((&report["frames"], &report["threads"]), (&3.into(), &1.into()));
    assert_eq!(report["input"], serde_json::json!([96, 128]));
    let of = |key: &str| report["steps"]["total"][key].as_f64().unwrap();
    assert!(
        0.0 < of("fastest") && of("fastest") <= of("median") && of("median") <= of("slowest"),
        "{report}"
    );
    assert!(report["peak_memory_mib"].as_f64().unwrap() > 1.0);
    // The stages are the network's step but for what is between them.
    let number = |value: &Value| value.as_f64().unwrap();
    let stages = report["stages"].as_array().unwrap();
    let sum: f64 = stages.iter().map(|stage| number(&stage["median"])).sum();
    let network = number(&report["steps"]["network"]["slowest"]);
    assert!(sum > 0.0 && sum < 1.5 * network, "{report}");
    let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "patch_embed",
            "norm",
            "qkv",
            "attention",
            "proj",
            "ffn_expand",
            "ffn_contract",
            "deconv",
            "deconv_norm",
            "conv",
            "logits"
        ]
    );
    assert!(number(&report["peak_tflop_per_second"]) > 0.0);
    let portable = [&arguments[..], &["--json", "--backend", "portable"]].concat();
    let report: Value = serde_json::from_str(&stdout(&sapiens(home.path(), &portable))).unwrap();
    assert_eq!((&report["stages"], &report["peak_tflop_per_second"]), (&serde_json::json!([]), &Value::Null));
}

#[test]
fn mistakes_end_with_two_and_say_what_is_expected() {
    let home = TempDir::new().unwrap();
    for (arguments, expected) in [
        (&["bench", "--frame-size", "0x9"][..], "1280x720"),
        (&["verify"], "<VARIANT>"),
        (&["verify", "3b"], "possible values: 0.3b"),
        (&["completions", "tcsh"], "possible values: bash"),
        (&[], "Usage:"),
    ] {
        let output = sapiens(home.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn completions_know_commands_and_variants() {
    let home = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&sapiens(home.path(), &["completions", shell]));
        for expected in ["segment", "verify", "sapiens2-0.4b"] {
            assert!(script.contains(expected), "{expected} for {shell}");
        }
    }
}
