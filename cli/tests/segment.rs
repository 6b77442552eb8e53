//! `sapiens segment` as a process: files in, files out, messages, exit codes.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use image::{DynamicImage, GenericImageView};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

fn sapiens() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapiens"));
    for variable in
        ["SAPIENS_NONCOMMERCIAL", "SAPIENS2_LICENSE_ACCEPTED", "SAPIENS_CHECKPOINT_ROOT", "RUST_LOG"]
    {
        command.env_remove(variable);
    }
    command
}

/// `sapiens segment` with a tiny model of the second family.
fn segment(images: &[&Path], output: &Path, more: &[&str]) -> Output {
    let mut command = sapiens();
    command.arg("segment").args(images).arg("-o").arg(output).args(more);
    if !more.contains(&"--card") && !more.contains(&"--variant") {
        command.arg("--card").arg(data("tiny-sapiens2.toml"));
        command.arg("--weights").arg(data("tiny-sapiens2.safetensors"));
    }
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names of the files in a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The class numbers in a label PNG.
fn label_png(path: &Path) -> (u32, u32, Vec<u8>, Vec<u8>) {
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Indexed, png::BitDepth::Eight));
    (info.width, info.height, pixels, reader.info().palette.as_ref().unwrap().to_vec())
}

#[test]
fn writes_labels_overlay_and_arrays_of_several_sizes() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("new/folder");
    let photos = [data("photo-377x333.png"), data("photo-61x45.png")];
    let output = segment(&[&photos[0], &photos[1]], &out, &["--npy", "--logits"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        files(&out),
        ["377x333", "61x45"]
            .map(|size| {
                ["labels.npy", "labels.png", "logits.npy", "overlay.png"]
                    .map(|end| format!("photo-{size}.{end}"))
            })
            .concat()
    );
    for (name, width, height) in [("photo-377x333", 377, 333), ("photo-61x45", 61, 45)] {
        let (w, h, labels, palette) = label_png(&out.join(format!("{name}.labels.png")));
        assert_eq!((w, h, palette.len()), (width, height, 29 * 3));
        let npy = std::fs::read(out.join(format!("{name}.labels.npy"))).unwrap();
        assert_eq!(npy[npy.len() - labels.len()..], labels);
        let array = npyz::NpyFile::new(&npy[..]).unwrap();
        assert_eq!(array.shape(), [u64::from(height), u64::from(width)]);
        let logits = std::fs::read(out.join(format!("{name}.logits.npy"))).unwrap();
        let logits = npyz::NpyFile::new(&logits[..]).unwrap();
        assert_eq!(logits.shape(), [29, 128, 96]);
        assert!(logits.into_vec::<f32>().unwrap().iter().all(|value| value.is_finite()));
        // The overlay is the photo, half blended with the palette's colours.
        let photo = image::open(data(&format!("{name}.png"))).unwrap().into_rgb8();
        let overlay = image::open(out.join(format!("{name}.overlay.png"))).unwrap().into_rgb8();
        for ((overlay, photo), &label) in overlay.pixels().zip(photo.pixels()).zip(&labels) {
            for c in 0..3 {
                let color = palette[usize::from(label) * 3 + c];
                let mixed = (u16::from(photo[c]) + u16::from(color)).div_ceil(2) as u8;
                assert_eq!(overlay[c], if label == 0 { photo[c] } else { mixed });
            }
        }
        assert!(stdout(&output).contains(&format!("{width} x {height}")), "{}", stdout(&output));
    }
}

/// The photo saved by `save`, labelled; gives its label file's size and labels.
fn labels_of(image: &DynamicImage, name: &str, save: impl Fn(&DynamicImage, &Path)) -> (u32, u32, Vec<u8>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    save(image, &path);
    let output = segment(&[&path], folder.path(), &[]);
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    let (width, height, labels, _) = label_png(&path.with_extension("labels.png"));
    (width, height, labels)
}

#[test]
fn reads_gray_16_bit_alpha_and_other_formats() {
    let photo = image::open(data("photo-61x45.png")).unwrap();
    let png = |image: &DynamicImage, path: &Path| image.save(path).unwrap();
    let expected = labels_of(&photo, "rgb.png", png);
    assert_eq!(labels_of(&photo.to_rgba8().into(), "alpha.png", png), expected);
    assert_eq!(labels_of(&photo.to_rgb16().into(), "deep.png", png), expected);
    assert_eq!(labels_of(&photo, "photo.bmp", png), expected);
    assert_eq!(labels_of(&photo, "photo.webp", png), expected);
    // The name's ending says nothing: contents do.
    let misnamed = |image: &DynamicImage, path: &Path| {
        image.save_with_format(path, image::ImageFormat::Png).unwrap();
    };
    assert_eq!(labels_of(&photo, "really-a-png.jpg", misnamed), expected);
    let gray = photo.to_luma8();
    let as_rgb = labels_of(&DynamicImage::from(gray.clone()).to_rgb8().into(), "gray-rgb.png", png);
    assert_eq!(labels_of(&gray.into(), "gray.png", png), as_rgb);
}

/// A JPEG with an EXIF orientation, made by putting an APP1 segment behind the start-of-image marker.
fn oriented_jpeg(image: &DynamicImage, path: &Path, orientation: u8) {
    let mut jpeg = Vec::new();
    image.write_to(&mut std::io::Cursor::new(&mut jpeg), image::ImageFormat::Jpeg).unwrap();
    #[rustfmt::skip]
    let exif = [
        0xFF, 0xE1, 0, 34, b'E', b'x', b'i', b'f', 0, 0,
        b'M', b'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0,
    ];
    jpeg.splice(2..2, exif);
    std::fs::write(path, jpeg).unwrap();
}

#[test]
fn jpegs_are_turned_upright() {
    let photo = image::open(data("photo-61x45.png")).unwrap();
    let plain = labels_of(&photo, "plain.jpg", |image, path| oriented_jpeg(image, path, 1));
    assert_eq!((plain.0, plain.1), (61, 45));
    // 6: the camera was turned; the picture must be turned clockwise to stand.
    let turned = labels_of(&photo, "turned.jpg", |image, path| oriented_jpeg(image, path, 6));
    assert_eq!((turned.0, turned.1), (45, 61));
    let by_hand = labels_of(&photo, "by-hand.png", |image, path| {
        let mut jpeg = Vec::new();
        image.write_to(&mut std::io::Cursor::new(&mut jpeg), image::ImageFormat::Jpeg).unwrap();
        image::load_from_memory(&jpeg).unwrap().rotate90().save(path).unwrap();
    });
    assert_eq!(turned, by_hand);
}

#[test]
fn an_unreadable_image_among_good_ones_is_reported_and_the_others_are_done() {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("notes.png");
    std::fs::write(&text, "not an image").unwrap();
    let cut = folder.path().join("cut.png");
    let whole = std::fs::read(data("photo-377x333.png")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let gone = folder.path().join("gone.png");
    let good = data("photo-61x45.png");
    let out = folder.path().join("out");
    let output = segment(&[&text, &good, &cut, &gone, folder.path()], &out, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(files(&out), ["photo-61x45.labels.png", "photo-61x45.overlay.png"]);
    let messages = stderr(&output);
    for expected in [
        "notes.png: expected an image",
        "cut.png: can't be decoded",
        "gone.png: No such file",
        "expected an image file, found a folder",
        "4 of 5 images failed",
    ] {
        assert!(messages.contains(expected), "{expected:?} is not in:\n{messages}");
    }
}

#[test]
fn mistakes_are_told_before_anything_is_done() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let good = data("photo-61x45.png");
    let other = folder.path().join("photo-61x45.jpg");
    for (images, more, expected) in [
        (vec![good.as_path()], vec!["--variant", "3b"], "possible values: 0.3b"),
        (vec![&good], vec!["--input-size", "width=100,height=96"], "width is 100, expected a multiple of 16"),
        (vec![&good], vec!["--device", "cuda:99"], "device cuda:99 is not available"),
        (vec![&good], vec!["--backend", "tensorrt"], "unknown backend \"tensorrt\""),
        (vec![&good], vec!["--precision", "f16"], "precision f16 is not available"),
        (vec![&good], vec!["--classes", "Hair,Tail"], "unknown class \"Tail\""),
        (vec![&good], vec!["--opacity", "1.5"], "expected a number from 0 to 1"),
        (vec![&good], vec!["--card", "/no/such.toml"], "/no/such.toml"),
        (vec![&good, &other], vec![], "would be written to the same files"),
    ] {
        let output = segment(&images, &out, &more);
        assert!(!output.status.success(), "{more:?}");
        assert!(stderr(&output).contains(expected), "{more:?}: {}", stderr(&output));
        assert!(!out.exists(), "{more:?} wrote something");
    }
}

#[test]
fn missing_weights_and_the_licence_are_explained() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let run = |more: &[&str]| {
        let mut command = sapiens();
        command.arg("segment").arg(data("photo-61x45.png")).arg("-o").arg(&out).args(more);
        command.env("HOME", folder.path()).env_remove("XDG_CACHE_HOME").env_remove("HF_HOME");
        command.env_remove("HF_HUB_CACHE").env("SAPIENS_CHECKPOINT_ROOT", folder.path().join("checkpoints"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(!out.exists());
        stderr(&output)
    };
    let message = run(&["--variant", "sapiens2-0.4b", "--accept-license"]);
    for expected in
        ["facebook/sapiens2-seg-0.4b", "sapiens2_0.4b_seg.safetensors", "checkpoints", "variant=demo"]
    {
        assert!(message.contains(expected), "{expected:?} is not in:\n{message}");
    }
    let message = run(&["--variant", "0.3b"]);
    for expected in ["CC-BY-NC-4.0", "SAPIENS_NONCOMMERCIAL=1"] {
        assert!(message.contains(expected), "{expected:?} is not in:\n{message}");
    }
}

#[test]
fn the_classes_shown_and_the_opacity_can_be_chosen() {
    let folder = TempDir::new().unwrap();
    let photo = data("photo-61x45.png");
    let more = ["--classes", "0,Hair", "--opacity", "1"];
    assert!(segment(&[&photo], folder.path(), &more).status.success());
    let (_, _, labels, palette) = label_png(&folder.path().join("photo-61x45.labels.png"));
    let overlay = image::open(folder.path().join("photo-61x45.overlay.png")).unwrap().into_rgb8();
    let photo = image::open(photo).unwrap();
    let mut shown = 0;
    for ((x, y, pixel), &label) in overlay.enumerate_pixels().zip(&labels) {
        let expected = match label {
            0 | 4 => &palette[usize::from(label) * 3..][..3],
            _ => &photo.get_pixel(x, y).0[..3],
        };
        shown += usize::from(label == 0 || label == 4);
        assert_eq!(pixel.0, expected);
    }
    assert!(
        shown > 0,
        "the tiny model must give one of the two classes somewhere for this test to say anything"
    );
}

#[test]
fn help_and_version() {
    let output = sapiens().arg("--help").output().unwrap();
    assert!(output.status.success() && stdout(&output).contains("segment"));
    let output = sapiens().args(["segment", "--help"]).output().unwrap();
    for option in
        ["--variant", "--card", "--weights", "--input-size", "--npy", "--logits", "--accept-license"]
    {
        assert!(stdout(&output).contains(option), "{option} is not in the help");
    }
    assert!(stdout(&sapiens().arg("--version").output().unwrap()).starts_with("sapiens 0."));
    assert_eq!(sapiens().arg("segment").output().unwrap().status.code(), Some(2));
}
