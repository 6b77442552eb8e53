//! `camera` as a process, without a screen: a file that plays, figures in the terminal, keys, plain words.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{decode, launch, program, stderr, stdout};
use tempfile::TempDir;

fn camera() -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_camera"));
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdin(Stdio::null());
    command
}

/// Frames of a file whose times go forward; their number.
fn playable(path: &Path) -> usize {
    let frames = decode(path, "RGB");
    assert!(frames.is_sorted_by_key(|(time, _)| *time));
    frames.len()
}

#[test]
fn without_a_screen_it_writes_a_file_and_says_how_it_goes() {
    let folder = TempDir::new().unwrap();
    let done =
        camera().current_dir(folder.path()).args(["--source", "test", "--seconds", "3"]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    let said = stdout(&done);
    assert!(said.starts_with("to camera.webm\n"), "{said}");
    let figures: Vec<_> = said.lines().filter(|line| line.contains("frames/s")).collect();
    assert!((2..=3).contains(&figures.len()), "{said}");
    // The first second may pass before the first labels.
    let last = figures.last().unwrap();
    for part in [" labelled/s, latency ", " ms (at most ", "age of labels ", "; all classes at 50 %"] {
        assert!(last.contains(part), "{part}: {said}");
    }
    assert!(!last.contains("none yet"), "{said}");
    // 30 a second, of which a busy machine may lose some.
    let frames = playable(&folder.path().join("camera.webm"));
    assert!((30..=100).contains(&frames), "{frames}");
}

#[test]
fn keys_from_the_terminal_and_an_interrupt_end_it_cleanly() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.webm");
    let start = |file: &Path| {
        let mut command = camera();
        command.args(["--source", "test", "--output"]).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = start(&file);
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"4+\n").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    keys.write_all(b"q\n").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(stdout(&done).contains("hair classes at 60 %"), "{}", stdout(&done));
    assert!(playable(&file) > 10);

    let file = folder.path().join("interrupted.webm");
    let child = start(&file);
    std::thread::sleep(Duration::from_millis(2000));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(playable(&file) > 5);
}

#[test]
fn a_file_plays_again_and_again() {
    let folder = TempDir::new().unwrap();
    let (clip, file) = (folder.path().join("clip.webm"), folder.path().join("out.webm"));
    launch(&format!(
        "videotestsrc num-buffers=20 ! video/x-raw,width=160,height=120,framerate=25/1 ! vp8enc deadline=1 ! webmmux ! filesink location={}",
        clip.display()
    ));
    let done = camera()
        .arg("--source")
        .arg(&clip)
        .arg("--output")
        .arg(&file)
        .args(["--seconds", "3"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    let frames = playable(&file);
    assert!(frames > 30, "{frames} frames of a clip that has 20");
}

#[test]
fn what_is_missing_is_said_in_plain_words() {
    let folder = TempDir::new().unwrap();
    let fail = |arguments: &[&str], expected: &str| {
        let done = camera().current_dir(folder.path()).args(arguments).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{}", stdout(&done));
        assert!(stderr(&done).contains(expected), "{expected}: {}", stderr(&done));
    };
    fail(&["--camera", "/dev/video99"], "there is no camera /dev/video99: ");
    fail(&["--source", "gone.mp4"], "there is no file gone.mp4: ");
    std::fs::write(folder.path().join("bad.mp4"), "no video").unwrap();
    fail(&["--source", "bad.mp4"], "bad.mp4: Could not determine type of stream.");
    let mut command = camera();
    let done = command.args(["--source", "test"]).env("DISPLAY", ":4242").output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).contains("no window can be opened"), "{}", stderr(&done));
    let mut command = Command::new(env!("CARGO_BIN_EXE_camera"));
    command
        .env_remove("SAPIENS_CHECKPOINT_ROOT")
        .env("HOME", folder.path())
        .env("XDG_CACHE_HOME", folder.path());
    let done = command.args(["--source", "test", "--accept-license"]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(stderr(&done).contains("sapiens_0.3b"), "{}", stderr(&done));
    let done = camera().args(["--seconds", "-1"]).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
}
