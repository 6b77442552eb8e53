//! What people hand over by mistake, each with an error that says what it is.

use std::fs;

use sapiens_model::{ErrorKind, Weights};

use crate::support::*;

#[test]
fn missing_files_and_empty_folders() {
    let card = micro();
    let folder = folder();
    let error = Weights::open(&folder.path().join("none.pth"), &card).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WeightsNotFound);
    assert!(error.to_string().contains("none.pth: no such file or folder"), "{error}");

    write(&folder, "config.json", b"{}");
    let error = Weights::open(folder.path(), &card).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WeightsNotFound);
    assert!(error.to_string().contains("a folder without weights: looked for model.safetensors"), "{error}");

    write(&folder, "a.pth", b"");
    write(&folder, "b.pth", b"");
    let error = Weights::open(folder.path(), &card).unwrap_err();
    assert!(
        error.to_string().contains("2 files that end in .pth: name the one to use (a.pth, b.pth)"),
        "{error}"
    );
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let card = micro();
    for (bytes, expected) in [
        (&b""[..], "empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1357\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>Access denied</body></html>", "a web page"),
        (b"{\"error\": \"Repository not found\"}", "no index of shards"),
        (b"\x08\x07\x12\x07pytorch\x1a\x052.1.0", "an ONNX model"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "before 1.6"),
        (b"\x80\x04\x95", "a bare pickle"),
    ] {
        let message = refused(bytes, &card, ErrorKind::InvalidWeights);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn exported_programs_are_told_from_torchscript() {
    let card = micro();
    for entry in ["serialized_exported_program.json", "archive_format", "models/model.json"] {
        let mut archive = Archive::new(Vec::new()).with(entry, "pt2").with("data/weights/weight_0", [0; 4]);
        archive.entries.remove(0);
        let message = refused(&archive.bytes(), &card, ErrorKind::InvalidWeights);
        assert!(message.contains("an exported program (made by torch.export)"), "{message}");
    }
    let mut archive = Archive::new(Vec::new()).with("word/document.xml", "x");
    archive.entries.remove(0);
    let message = refused(&archive.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("found 1 entries [top/word/document.xml]"), "{message}");
}

#[test]
fn downloads_that_stopped_early_are_called_that() {
    let card = micro();
    let written = tensors(&card);
    let bytes = safetensors(&written);
    let message = refused(&bytes[..bytes.len() - 1000], &card, ErrorKind::InvalidWeights);
    let lengths = format!("expected {} bytes, found {}", bytes.len(), bytes.len() - 1000);
    assert!(message.contains(&lengths), "{message}");
    let message = refused(&bytes[..100], &card, ErrorKind::InvalidWeights);
    assert!(message.contains("truncated safetensors") && message.contains("found 100"), "{message}");

    let bytes = StateDict::of(&written).bytes();
    let message = refused(&bytes[..bytes.len() / 2], &card, ErrorKind::InvalidWeights);
    assert!(message.contains("a download that stopped early"), "{message}");
}

#[test]
fn trailing_bytes_are_refused() {
    let card = micro();
    let mut bytes = safetensors(&tensors(&card));
    bytes.extend([0; 7]);
    let message = refused(&bytes, &card, ErrorKind::InvalidWeights);
    assert!(message.contains("7 bytes after its last tensor"), "{message}");
}

#[test]
fn dicts_of_other_things_are_named() {
    let card = micro();
    for (pickle, expected) in [
        (Pickle::new().op(b"}").text("optimizer").op(b"}s").stop(), "found the keys [optimizer]"),
        (Pickle::new().op(b"]").stop(), "neither a TorchScript model nor a dict"),
        (Pickle::new().op(b"N").stop(), "neither a TorchScript model nor a dict"),
        (Pickle::new().tensor(&View::plain("0", &[1])).stop(), "one tensor"),
    ] {
        let message = refused(&Archive::new(pickle).bytes(), &card, ErrorKind::InvalidWeights);
        assert!(message.contains(expected), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_waited_for() {
    let error = Weights::open("/dev/null".as_ref(), &micro()).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn a_file_cut_short_while_in_use_is_an_error() {
    let card = micro();
    let folder = folder();
    let path = write(&folder, "a.safetensors", &safetensors(&tensors(&card)));
    let weights = Weights::open(&path, &card).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
    let error = weights.tensor_f32("backbone.pos_embed").unwrap_err();
    assert!(error.to_string().contains("was cut short while in use"), "{error}");
}
