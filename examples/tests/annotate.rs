//! `annotate` as a process: files in, files out, kills, messages, exit codes.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

mod support;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{data, decode, launch, program, stderr, stdout, tree};
use tempfile::TempDir;

fn annotate() -> Command {
    program(env!("CARGO_BIN_EXE_annotate"))
}

fn run(inputs: &[&Path], output: &Path, more: &[&str]) -> Output {
    annotate().args(inputs).arg("-o").arg(output).args(more).output().unwrap()
}

fn succeed(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
}

/// A clip of a moving ball; the file's name chooses the codec.
fn clip(path: &Path, frames: u32, width: u32, height: u32) {
    let codec = match path.extension().unwrap().to_str().unwrap() {
        "webm" => "vp8enc deadline=1 ! webmmux",
        "mkv" => "avenc_ffv1 ! matroskamux",
        "avi" => "jpegenc ! avimux",
        other => panic!("{other}"),
    };
    launch(&format!(
        "videotestsrc num-buffers={frames} pattern=ball ! video/x-raw,format=I420,width={width},height={height},framerate=25/1 ! {codec} ! filesink location={}",
        path.display()
    ));
}

/// Width, height and class numbers of a label PNG.
fn label_png(path: &Path) -> (u32, u32, Vec<u8>) {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut reader = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Indexed, png::BitDepth::Eight));
    assert_eq!(reader.info().palette.as_ref().unwrap().len(), 29 * 3);
    (info.width, info.height, pixels)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn run_json(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("run.json")).unwrap()).unwrap()
}

/// What a line says of a class, counted pixel by pixel.
fn check_line(line: &Value, (width, height, labels): &(u32, u32, Vec<u8>)) {
    assert_eq!(
        (line["width"].as_u64(), line["height"].as_u64()),
        (Some((*width).into()), Some((*height).into()))
    );
    let mut seen: BTreeMap<u8, (u64, [u32; 4])> = BTreeMap::new();
    for (at, label) in labels.iter().enumerate() {
        let (x, y) = (at as u32 % width, at as u32 / width);
        let (pixels, [left, top, right, bottom]) = seen.entry(*label).or_insert((0, [x, y, x, y]));
        *pixels += 1;
        (*left, *top, *right, *bottom) = ((*left).min(x), (*top).min(y), (*right).max(x), (*bottom).max(y));
    }
    let classes = line["classes"].as_array().unwrap();
    assert_eq!(classes.len(), seen.len());
    for (class, (number, (pixels, [left, top, right, bottom]))) in classes.iter().zip(seen) {
        let expected = serde_json::json!({
            "name": class["name"], "number": number, "pixels": pixels,
            "box": { "x": left, "y": top, "width": right - left + 1, "height": bottom - top + 1 },
        });
        assert_eq!(*class, expected);
    }
}

/// The same bytes after ten kills at random as without any.
fn killed_ten_times(mode: &str) {
    let folder = TempDir::new().unwrap();
    let inputs = folder.path().join("in");
    std::fs::create_dir(&inputs).unwrap();
    clip(&inputs.join("one.webm"), 100, 161, 121);
    clip(&inputs.join("two.avi"), 80, 96, 128);
    std::fs::copy(data("photo-61x45.png"), inputs.join("photo.png")).unwrap();
    let options = ["--overlay", "--jobs", "2", "--labels", mode];

    let clean = folder.path().join("clean");
    let started = Instant::now();
    succeed(&run(&[&inputs], &clean, &options));
    let whole = started.elapsed();

    let resumed = folder.path().join("resumed");
    // Ten kills, all of a process at work: while it starts, labels, or writes videos. Where one has nothing left to do
    // before it's killed it's begun again, with less time before each.
    let mut part = 0.3;
    while !ten_kills(&inputs, &resumed, &options, whole.mul_f64(part)) {
        std::fs::remove_dir_all(&resumed).unwrap();
        part *= 0.7;
        assert!(part > 0.01, "it is never at work when it is killed");
    }
    succeed(&run(&[&inputs], &resumed, &options));
    same_trees(&clean, &resumed);
}

/// Whether all of ten kills, each at random within `longest`, found it at work.
fn ten_kills(inputs: &Path, output: &Path, options: &[&str], longest: Duration) -> bool {
    (0..10).all(|_| {
        let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
        let after = longest.mul_f64(random);
        println!("a kill after {after:?}");
        let mut command = annotate();
        command.arg(inputs).arg("-o").arg(output).args(options).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap().code().is_none()
    })
}

fn same_trees(one: &Path, other: &Path) {
    let (one, other) = (tree(one), tree(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    let different: Vec<_> =
        one.iter().filter(|(name, bytes)| other[*name] != **bytes).map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{different:?}");
}

#[test]
fn killed_ten_times_and_resumed_the_png_files_are_those_of_one_run() {
    killed_ten_times("png");
}

#[test]
fn killed_ten_times_and_resumed_the_videos_are_those_of_one_run() {
    killed_ten_times("video");
}

#[test]
fn every_line_says_what_its_png_shows_and_the_label_video_the_same() {
    let folder = TempDir::new().unwrap();
    let (input, png, video) =
        (folder.path().join("a.webm"), folder.path().join("png"), folder.path().join("video"));
    clip(&input, 20, 61, 45);
    succeed(&run(&[&input, &data("photo-61x45.png")], &png, &["--overlay"]));
    succeed(&run(&[&input], &video, &["--overlay", "--labels", "video"]));

    let records = lines(&png.join("a.webm/labels.jsonl"));
    assert_eq!(records.len(), 20);
    let decoded = decode(&video.join("a.webm/labels.mkv"), "GRAY8");
    assert_eq!(decoded.len(), 20);
    for (frame, (record, (time, gray))) in records.iter().zip(decoded).enumerate() {
        let labels = label_png(&png.join(format!("a.webm/labels/{frame:08}.png")));
        check_line(record, &labels);
        assert_eq!(labels.2, gray, "frame {frame}");
        assert_eq!(record["frame"].as_u64(), Some(frame as u64));
        // WebM's times are whole milliseconds.
        assert_eq!(record["pts"].as_u64(), Some(frame as u64 * 40_000_000));
        assert_eq!(time, frame as u64 * 40);
    }
    let bytes = |path: PathBuf| std::fs::read(path).unwrap();
    assert_eq!(bytes(png.join("a.webm/labels.jsonl")), bytes(video.join("a.webm/labels.jsonl")));
    assert_eq!(bytes(png.join("a.webm/overlay.webm")), bytes(video.join("a.webm/overlay.webm")));
    assert!(!video.join("a.webm/labels").exists() && !video.join("a.webm/frames").exists());
    let overlay = decode(&png.join("a.webm/overlay.webm"), "RGB");
    assert_eq!(
        overlay.iter().map(|(time, _)| *time).collect::<Vec<_>>(),
        (0..20).map(|n| n * 40).collect::<Vec<_>>()
    );

    let photo = png.join("photo-61x45.png");
    let line = &lines(&photo.join("labels.jsonl"))[0];
    check_line(line, &label_png(&photo.join("labels.png")));
    assert_eq!((line["pts"].is_null(), photo.join("overlay.png").exists()), (true, true));

    let run = run_json(&png.join("a.webm"));
    assert_eq!(run["result"]["frames"], 20);
    assert_eq!(run["weights"][0]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(
        (&run["model"]["name"], &run["backend"]["code"]),
        (&"tiny-sapiens2".into(), &"kernels".into())
    );
    // Both are this machine's best.
    assert!(["f32", "bf16"].map(Value::from).contains(&run["backend"]["precision"]), "{run}");
    assert!(run["backend"]["instructions"].is_string(), "{run}");
}

#[test]
fn the_labels_of_an_image_are_those_of_the_library() {
    let folder = TempDir::new().unwrap();
    succeed(&run(&[&data("photo-377x333.png")], folder.path(), &[]));
    let (width, height, labels) = label_png(&folder.path().join("photo-377x333.png/labels.png"));

    let card = sapiens_model::ModelCard::load(&data("tiny-sapiens2.toml")).unwrap();
    let weights = sapiens_model::Weights::open(&data("tiny-sapiens2.safetensors"), &card).unwrap();
    let segmenter = sapiens_model::Segmenter::new(card, &weights, sapiens_model::Options::default()).unwrap();
    let image = image::open(data("photo-377x333.png")).unwrap().into_rgb8();
    let frame = sapiens_model::OwnedFrame::rgb(width as usize, height as usize, image.into_raw()).unwrap();
    segmenter.submit(frame).unwrap();
    let mut output = sapiens_model::Output::default();
    segmenter.receive(&mut output).unwrap();
    assert!(output.labels.labels() == labels);
}

#[test]
fn frames_that_are_done_are_not_done_again() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("a.webm"), folder.path().join("out"));
    clip(&input, 100, 96, 128);
    let start = || {
        annotate()
            .arg(&input)
            .arg("-o")
            .arg(&output)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let pngs = || {
        let work = std::fs::read_dir(output.join(".annotate")).ok()?;
        let labels = work.map(|entry| entry.unwrap().path().join("labels")).find(|path| path.exists())?;
        Some(std::fs::read_dir(labels).unwrap().count())
    };
    let mut child = start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while pngs().unwrap_or(0) < 10 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let there = pngs().unwrap();
    assert!((10..100).contains(&there), "{there}");
    let done = run(&[&input], &output, &[]);
    succeed(&done);
    let expected = format!("a.webm: 100 frames ({} labelled now, {there} were there)", 100 - there);
    assert!(stdout(&done).starts_with(&expected), "{} {expected}", stdout(&done));
    let again = run(&[&input], &output, &[]);
    succeed(&again);
    assert_eq!(stdout(&again), "a.webm: done already\n");

    // Interrupted instead of killed, it says so.
    let output = folder.path().join("interrupted");
    let child = annotate().arg(&input).arg("-o").arg(&output).stderr(Stdio::piped()).spawn().unwrap();
    while !output.join(".annotate").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("stopped: what is done is kept"), "{}", stderr(&ended));
    assert!(!output.join("a.webm").exists());
}

#[test]
fn a_bad_input_is_reported_and_the_others_are_done() {
    let folder = TempDir::new().unwrap();
    let (inputs, output) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::create_dir_all(inputs.join("deep/er")).unwrap();
    clip(&inputs.join("deep/er/good.avi"), 5, 64, 48);
    std::fs::copy(data("photo-61x45.png"), inputs.join("photo.png")).unwrap();
    std::fs::write(inputs.join("bad.mp4"), "no video").unwrap();
    std::fs::write(inputs.join("notes.txt"), "not taken").unwrap();
    let photo = std::fs::read(data("photo-61x45.png")).unwrap();
    std::fs::write(inputs.join("cut.png"), &photo[..photo.len() / 2]).unwrap();
    launch(&format!(
        "audiotestsrc num-buffers=20 ! vorbisenc ! oggmux ! filesink location={}",
        inputs.join("sound.ogg").display()
    ));
    let gone = folder.path().join("gone.mp4");
    let done = run(&[&inputs, &gone, &inputs.join("sound.ogg")], &output, &["--jobs", "3"]);
    assert_eq!(done.status.code(), Some(1));
    let said = stderr(&done);
    for bad in [
        "bad.mp4: ",
        "cut.png: it can't be decoded",
        "gone.mp4: No such file",
        "sound.ogg: there is no video",
    ] {
        assert!(said.contains(bad), "{bad}: {said}");
    }
    assert!(said.contains("4 of 6 inputs failed"), "{said}");
    let files = tree(&output);
    let done: Vec<_> = files.keys().filter(|name| name.ends_with("run.json")).collect();
    assert_eq!(done, [Path::new("deep/er/good.avi/run.json"), Path::new("photo.png/run.json")]);
    assert!(!output.join(".annotate").exists());
}

#[test]
fn shards_are_disjoint_and_together_all() {
    let folder = TempDir::new().unwrap();
    let inputs = folder.path().join("in");
    std::fs::create_dir(&inputs).unwrap();
    for n in 0..12 {
        std::fs::copy(data("photo-61x45.png"), inputs.join(format!("{n}.png"))).unwrap();
    }
    let whole = folder.path().join("whole");
    succeed(&run(&[&inputs], &whole, &[]));
    let parts = folder.path().join("parts");
    let mut seen = Vec::new();
    for shard in ["1/3", "2/3", "3/3"] {
        let listed = run(&[&inputs], &parts, &["--shard", shard, "--dry-run"]);
        let done = run(&[&inputs], &parts, &["--shard", shard]);
        succeed(&done);
        let mut names: Vec<_> =
            stdout(&done).lines().map(|line| line.split(':').next().unwrap().to_owned()).collect();
        names.sort();
        let mut planned: Vec<_> =
            stdout(&listed).lines().filter_map(|line| Some(line.split_once(" -> ")?.0.to_owned())).collect();
        planned.sort();
        assert_eq!(
            planned,
            names.iter().map(|name| inputs.join(name).display().to_string()).collect::<Vec<_>>()
        );
        assert!((1..12).contains(&names.len()), "{names:?}");
        seen.extend(names);
    }
    assert_eq!(seen.len(), 12);
    same_trees(&whole, &parts);
    assert_eq!(run(&[&inputs], &parts, &["--shard", "4/3"]).status.code(), Some(2));
}

#[test]
fn every_nth_frame_of_a_range_with_some_classes() {
    let folder = TempDir::new().unwrap();
    let (input, all, some) =
        (folder.path().join("a.mkv"), folder.path().join("all"), folder.path().join("some"));
    clip(&input, 50, 61, 45);
    succeed(&run(&[&input], &all, &[]));
    let options =
        ["--every", "3", "--start", "0:00.4", "--end", "1.2", "--classes", "Apparel,6", "--overlay"];
    succeed(&run(&[&input], &some, &options));
    let records = lines(&some.join("a.mkv/labels.jsonl"));
    let frames: Vec<_> = records.iter().map(|record| record["frame"].as_u64().unwrap()).collect();
    assert_eq!(frames, [10, 13, 16, 19, 22, 25, 28]);
    assert_eq!(std::fs::read_dir(some.join("a.mkv/labels")).unwrap().count(), 7);
    assert_eq!(decode(&some.join("a.mkv/overlay.webm"), "RGB").len(), 7);
    for (frame, record) in frames.iter().zip(&records) {
        let file = format!("a.mkv/labels/{frame:08}.png");
        let (width, height, whole) = label_png(&all.join(&file));
        let expected: Vec<_> =
            whole.iter().map(|label| if matches!(label, 1 | 6) { *label } else { 0 }).collect();
        let labels = label_png(&some.join(&file));
        assert_eq!(labels, (width, height, expected));
        check_line(record, &labels);
    }
    assert_eq!(
        run_json(&some.join("a.mkv"))["options"]["classes"],
        serde_json::json!(["Apparel", "Left_Hand"])
    );
    let none = run(&[&input], &folder.path().join("none"), &["--start", "5"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("no frames in it between --start and --end"), "{}", stderr(&none));
}

#[test]
fn results_of_other_options_are_left_alone() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("a.avi"), folder.path().join("out"));
    clip(&input, 6, 64, 48);
    succeed(&run(&[&input], &output, &[]));
    let before = tree(&output);
    let refused = run(&[&input], &output, &["--every", "2"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("options.every was 1 and is 2 now; --overwrite"),
        "{}",
        stderr(&refused)
    );
    assert!(tree(&output) == before);
    let anew = run(&[&input], &output, &["--every", "2", "--overwrite"]);
    succeed(&anew);
    assert!(stdout(&anew).starts_with("a.avi: 3 frames, "), "{}", stdout(&anew));
    let fresh = folder.path().join("fresh");
    succeed(&run(&[&input], &fresh, &["--every", "2"]));
    same_trees(&fresh, &output);
    succeed(&run(&[&input], &output, &["--every", "2", "--overwrite"]));

    // Another video of the same name is one bad input.
    clip(&input, 7, 64, 48);
    let photo = data("photo-61x45.png");
    let refused = run(&[&input, &photo], &output, &["--every", "2"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("input.bytes was"), "{}", stderr(&refused));
    assert!(output.join("photo-61x45.png/labels.png").exists());

    // Nor does it take what isn't its own for a result.
    let taken = folder.path().join("taken");
    std::fs::create_dir_all(taken.join("a.avi")).unwrap();
    std::fs::write(taken.join("a.avi/mine.txt"), "precious").unwrap();
    let refused = run(&[&input], &taken, &["--overwrite"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("is no result of this program"), "{}", stderr(&refused));
    assert!(taken.join("a.avi/mine.txt").exists());
}

#[test]
fn lists_name_inputs_and_names_that_clash_are_refused() {
    let folder = TempDir::new().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::copy(data("photo-61x45.png"), folder.path().join(name).join("photo.png")).unwrap();
    }
    let (one, two) = (folder.path().join("one/photo.png"), folder.path().join("two/photo.png"));
    let output = folder.path().join("out");
    let clash = run(&[&one, &two], &output, &[]);
    assert_eq!(clash.status.code(), Some(2));
    assert!(stderr(&clash).contains("would both be written to photo.png"), "{}", stderr(&clash));
    let list = folder.path().join("list.txt");
    std::fs::write(&list, "one/photo.png\n\ntwo/photo.png\none/photo.png\n").unwrap();
    succeed(&run(&[], &output, &["--list", list.to_str().unwrap()]));
    assert!(
        output.join("one/photo.png/labels.png").exists() && output.join("two/photo.png/labels.png").exists()
    );
    for wrong in
        [&["--every", "0"][..], &["--classes", "Tail"], &["--start", "2", "--end", "1"], &["--nonsense"]]
    {
        assert_eq!(run(&[&one], &output, wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(run(&[], &output, &[]).status.code(), Some(2));
    let missing = annotate().arg(&one).arg("-o").arg(&output).args(["--device", "cuda:99"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1), "{}", stderr(&missing));
}

#[test]
fn two_processes_do_not_work_on_one_input() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("a.webm"), folder.path().join("out"));
    clip(&input, 150, 96, 128);
    let first = annotate().arg(&input).arg("-o").arg(&output).stdout(Stdio::piped()).spawn().unwrap();
    while !output.join(".annotate").exists_with_work() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let second = run(&[&input], &output, &[]);
    assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
    assert!(stderr(&second).contains("another annotate is at work on it"), "{}", stderr(&second));
    let first = first.wait_with_output().unwrap();
    succeed(&first);
    assert!(stdout(&first).starts_with("a.webm: 150 frames, "));
}

trait Work {
    fn exists_with_work(&self) -> bool;
}

impl Work for PathBuf {
    /// Whether there is a locked folder in it.
    fn exists_with_work(&self) -> bool {
        std::fs::read_dir(self).is_ok_and(|mut files| {
            files.any(|file| file.is_ok_and(|file| file.path().extension().is_some_and(|end| end == "lock")))
        })
    }
}

#[test]
fn turned_and_interlaced_videos_are_labelled_as_they_are_shown() {
    let folder = TempDir::new().unwrap();
    let turned = folder.path().join("turned.mov");
    launch(&format!(
        "videotestsrc num-buffers=4 pattern=ball ! video/x-raw,width=96,height=64 ! jpegenc ! qtmux ! filesink location={}",
        turned.display()
    ));
    // A telephone held upright writes such a matrix into the track's header.
    let mut bytes = std::fs::read(&turned).unwrap();
    let header = bytes.windows(4).position(|name| name == b"tkhd").unwrap();
    let quarter = [0u32, 0x1_0000, 0, 0xFFFF_0000, 0, 0, 64 << 16, 0, 0x4000_0000];
    bytes[header + 44..header + 80].copy_from_slice(&quarter.map(u32::to_be_bytes).concat());
    std::fs::write(&turned, bytes).unwrap();
    let interlaced = folder.path().join("interlaced.mkv");
    launch(&format!(
        "videotestsrc num-buffers=8 pattern=ball ! video/x-raw,format=I420,width=96,height=64 ! capssetter caps=video/x-raw,interlace-mode=interleaved,field-order=top-field-first ! avenc_ffv1 ! matroskamux ! filesink location={}",
        interlaced.display()
    ));
    let output = folder.path().join("out");
    succeed(&run(&[&turned, &interlaced], &output, &["--overlay"]));
    let (width, height, _) = label_png(&output.join("turned.mov/labels/00000000.png"));
    assert_eq!((width, height), (64, 96));
    let (width, height, _) = label_png(&output.join("interlaced.mkv/labels/00000000.png"));
    assert_eq!((width, height), (96, 64));
    assert_eq!(lines(&output.join("interlaced.mkv/labels.jsonl")).len(), 8);
}
