//! The readers of the meta in `examples/read_meta`, in Rust, C and Python: built as their first lines say, and run as
//! processes on a real pipeline.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::{Path, PathBuf};
use std::process::Command;

use sapiens_tests::gstreamer::{Tools, said};
use tempfile::TempDir;

const PIPELINE: &str = "videotestsrc num-buffers=4 ! video/x-raw,format=RGB,width=61,height=45,framerate=25/1 ! \
    sapiensseg interval=2 card=tests/data/tiny-sapiens2.toml weights=tests/data/tiny-sapiens2.safetensors";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/read_meta").join(name)
}

/// The lines that a reader prints, checked on their own.
fn read(tools: &Tools, reader: &str, arguments: &[&Path]) -> Vec<String> {
    let output = tools.command(reader).args(arguments).arg(PIPELINE).output().unwrap();
    assert!(output.status.success(), "{reader}: {}", said(&output));
    let lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{reader}: {lines:?}");
    for (n, line) in lines.iter().enumerate() {
        let (time, rest) = line.split_once(": ").unwrap();
        assert_eq!(time, format!("{:.3} s", n as f64 * 0.04));
        let (classes, of) = rest.split_once(" (").unwrap_or((rest, ""));
        let labels_of = format!("labels of {:.3} s)", (n - n % 2) as f64 * 0.04);
        assert_eq!(of, if n % 2 == 0 { "" } else { &labels_of }, "{line}");
        let pixels =
            classes.split(", ").map(|class| class.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap());
        assert_eq!(pixels.sum::<u32>(), 61 * 45, "{line}");
    }
    lines
}

/// What every reader prints is the same, and a pipeline that fails is a failure that says why.
#[test]
fn readers_in_rust_c_and_python_say_the_same() {
    let tools = Tools::default();
    let folder = TempDir::new().unwrap();
    let c = folder.path().join("read_meta");
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "gstreamer-app-1.0", "gstreamer-video-1.0"])
        .output()
        .unwrap();
    assert!(flags.status.success(), "{}", said(&flags));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&c)
        .arg(example("read_meta.c"))
        .args(flags.split_whitespace())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", said(&compiled));

    let test = std::env::current_exe().unwrap();
    let rust = test.parent().and_then(Path::parent).unwrap().join("examples/read_meta");
    assert!(rust.exists(), "{} is not there: `cargo build --workspace --examples` builds it", rust.display());
    let python = example("read_meta.py");

    let readers: [(&str, &[&Path]); 3] = [
        (rust.to_str().unwrap(), &[]),
        (c.to_str().unwrap(), &[]),
        ("/usr/bin/python3", &[python.as_path()]),
    ];
    let lines = readers.map(|(reader, arguments)| read(&tools, reader, arguments));
    assert_eq!(lines[0], lines[1], "Rust and C differ");
    assert_eq!(lines[0], lines[2], "Rust and Python differ");

    for (reader, arguments) in readers {
        let failing = "videotestsrc ! sapiensseg weights=nowhere.safetensors";
        let output = tools.command(reader).args(arguments).arg(failing).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{reader}: {}", said(&output));
        assert!(said(&output).contains("nowhere.safetensors"), "{reader}: {}", said(&output));
    }
}

/// A structure's text has all bytes of a buffer in it, so one careless line would fill disks with masks.
#[test]
fn logs_at_full_detail_have_no_masks_in_them() {
    let tools = Tools::default();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("log");
    let mut command = tools.command("gst-launch-1.0");
    command.env("GST_DEBUG", "*:6").env("GST_DEBUG_FILE", &file);
    let line =
        format!("{PIPELINE} post-messages=true ! videoscale ! video/x-raw,width=122,height=90 ! fakesink");
    let output = command.args(["-q", "-m"]).args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let log = std::fs::read_to_string(file).unwrap();
    assert!(log.contains("sapiensseg"), "nothing of ours is in the log");
    for text in [&*log, &*said(&output)] {
        let dump = text.split(|c: char| !c.is_ascii_hexdigit()).find(|run| run.len() > 500);
        assert!(dump.is_none(), "{}", &dump.unwrap_or_default()[..500]);
    }
}
