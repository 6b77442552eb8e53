//! What a file is, by its first bytes. Names the things that people download by mistake; reads none of them.

use super::safetensors::MAX_HEADER;

/// A file that can be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// A zip archive, by torch one hopes.
    Zip,
    Safetensors,
    /// JSON: an index of shards, or something else.
    Json,
}

/// What begins with these bytes is recognised, and is no checkpoint that can be read.
const REFUSED: [(&[u8], &str); 7] = [
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x93NUMPY", "a NumPy file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x7fELF", "a program or shared library"),
];
const EXPECTED: &str = "expected a TorchScript archive, a state dict (.pth) or safetensors";
/// The number that torch's first file format begins with, after the protocol.
const LEGACY_MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Tells what the file of these bytes is; the error says what it is instead of a checkpoint.
pub(super) fn sniff(bytes: &[u8]) -> Result<Format, String> {
    // First of all, for the length in front of a header can look like the beginning of anything else.
    if let Some((length, [b'{', ..])) = bytes.split_first_chunk::<8>()
        && u64::from_le_bytes(*length) <= MAX_HEADER
    {
        return Ok(Format::Safetensors);
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Ok(Format::Zip);
    }
    if bytes.starts_with(b"version https://git-lfs") {
        let size = bytes.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"size "));
        let size = size.map_or_else(String::new, |size| format!(" of {} bytes", size.escape_ascii()));
        return Err(format!(
            "a Git LFS pointer, not the file{size} that it stands for: fetch that with `git lfs pull`"
        ));
    }
    let text = bytes[..bytes.len().min(512)].trim_ascii_start().to_ascii_lowercase();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    if [b"<!doctype".as_slice(), b"<html", b"<?xml", b"<head", b"<error"]
        .iter()
        .any(|tag| text.starts_with(tag))
    {
        return Err(
            "a web page, not a checkpoint: the link leads to a page (or a refusal) rather than to the file"
                .into(),
        );
    }
    if text.starts_with(b"{") {
        return Ok(Format::Json);
    }
    if bytes.starts_with(b"\x80") && bytes.get(2..).is_some_and(|rest| rest.starts_with(LEGACY_MAGIC)) {
        return Err(format!(
            "a checkpoint in torch's format from before 1.6, which is no zip archive: {EXPECTED}; load and save it again with a current torch"
        ));
    }
    if let [0x80, 2..=5, ..] = bytes {
        return Err(format!("a bare pickle, not an archive: {EXPECTED}"));
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Err(format!("a tar archive, perhaps a checkpoint of torch's earliest format: {EXPECTED}"));
    }
    if let Some((_, what)) = REFUSED.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(format!("{what}: {EXPECTED}"));
    }
    if is_onnx(bytes) {
        return Err(format!("an ONNX model: {EXPECTED}"));
    }
    match bytes.split_first_chunk::<8>() {
        Some((_, [b'{', ..])) => Ok(Format::Safetensors),
        // The length of a header that was cut off before it began.
        Some((length, [])) if u64::from_le_bytes(*length) <= MAX_HEADER => Ok(Format::Safetensors),
        _ => Err(format!(
            "not a checkpoint: {EXPECTED}; found {} bytes that begin with \"{}\"",
            bytes.len(),
            bytes[..bytes.len().min(16)].escape_ascii()
        )),
    }
}

/// A protobuf that begins with field 1, a small version, and then the producer's name or an opset.
fn is_onnx(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64)];
    let producer = |name: &[u8]| head.windows(name.len()).any(|window| window == name);
    matches!(head, [0x08, 1..=20, 0x12 | 0x42 | 0x3a, ..])
        && (producer(b"pytorch") || producer(b"onnx") || matches!(head, [_, _, 0x12, ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_checkpoint_is_named() {
        let mut tar = vec![0u8; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let legacy = [b"\x80\x02".as_slice(), LEGACY_MAGIC, b"."].concat();
        let cases: [(&[u8], &str); 12] = [
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 1360000\n", "1360000 bytes"),
            (b"<!DOCTYPE html><html>", "web page"),
            (b"\n  <HTML>", "web page"),
            (b"<?xml version=\"1.0\"?><Error>", "web page"),
            (&legacy, "before 1.6"),
            (b"\x80\x02}q\x00.", "bare pickle"),
            (&tar, "tar archive"),
            (b"\x08\x08\x12\x07pytorch\x1a\x05", "ONNX"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"PK\x05\x06\0\0\0\0", "empty zip"),
            (b"hello", "begin with \"hello\""),
            (b"\x10\0\0\0\0\0\0\0[]", "not a checkpoint"),
        ];
        for (bytes, expected) in cases {
            let error = sniff(bytes).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(sniff(b"PK\x03\x04"), Ok(Format::Zip));
        assert_eq!(sniff(b"\x02\0\0\0\0\0\0\0{}"), Ok(Format::Safetensors));
        assert_eq!(sniff(b"\x02\0\0\0\0\0\0\0"), Ok(Format::Safetensors));
        // Headers of 31520 and 1179912 bytes, whose lengths look like JSON and like ONNX.
        assert_eq!(sniff(b" {\0\0\0\0\0\0{\"a\":"), Ok(Format::Safetensors));
        assert_eq!(sniff(b"\x08\x01\x12\0\0\0\0\0{\"a\":"), Ok(Format::Safetensors));
        assert_eq!(sniff(b"{\"weight_map\": {}}"), Ok(Format::Json));
    }
}
