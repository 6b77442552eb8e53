//! Files made to do harm: never a panic, never a large allocation, always an error that says what is wrong.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sapiens_model::{ErrorKind, ModelCard, Weights};
use zip::CompressionMethod;

use crate::support::*;

/// Most memory this process ever had, in MiB.
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

/// What is left to do with weights that opened: read every tensor.
fn read_all(weights: &Weights, card: &ModelCard) {
    for spec in sapiens_model::weights::expected_tensors(card) {
        weights.tensor_f32(&spec.name).unwrap();
    }
}

fn refused_pickle(pickle: Vec<u8>) -> String {
    let archive = Archive::new(pickle).with("data/0", vec![0; 64]);
    refused(&archive.bytes(), &micro(), ErrorKind::InvalidWeights)
}

/// Opens the file after each cut of 97 bytes, down to nothing.
fn refuse_truncations(file: &str, card: &ModelCard) {
    let folder = folder();
    let path = folder.path().join(file);
    fs::copy(data(file), &path).unwrap();
    let handle = fs::File::options().write(true).open(&path).unwrap();
    let mut len = handle.metadata().unwrap().len();
    while let Some(shorter) = len.checked_sub(97) {
        len = shorter;
        handle.set_len(len).unwrap();
        let error = Weights::open(&path, card).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidWeights, "{len}: {error}");
    }
}

#[test]
fn truncated_state_dicts_are_errors() {
    refuse_truncations("tiny-sapiens.pth", &tiny("tiny-sapiens"));
}

#[test]
fn truncated_torchscript_archives_are_errors() {
    refuse_truncations("tiny-sapiens.torchscript.pt2", &tiny("tiny-sapiens"));
}

#[test]
fn truncated_safetensors_are_errors() {
    refuse_truncations("tiny-sapiens2.bf16.safetensors", &tiny("tiny-sapiens2"));
}

/// A small generator of the same numbers on every run.
struct Mutations(u64);

impl Mutations {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }

    /// Flips, overwrites, moves, repeats or cuts out a few bytes.
    fn apply(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(9)).min(bytes.len());
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 0xff, 0x7f, 0x80, b'(', b't', b'R', b'9'][self.below(8)],
                2 => bytes[at..end].fill(0xff),
                3 => {
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                4 => drop(bytes.drain(at..end)),
                _ => {
                    let other = self.below(bytes.len());
                    bytes.swap(at, other);
                }
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
    }
}

#[test]
fn mutated_pickles_never_panic() {
    let card = micro();
    let dict = StateDict::of(&tensors(&card));
    let original = dict.pickle(Some("state_dict"));
    let mut mutations = Mutations(1);
    let mut opened = 0;
    for _ in 0..2000 {
        let mut pickle = original.clone();
        mutations.apply(&mut pickle);
        if let Ok(weights) = open(&dict.archive(pickle).bytes(), &card) {
            read_all(&weights, &card);
            opened += 1;
        }
    }
    assert!(opened < 1300, "{opened}");
    assert!(peak_memory() < 700, "{} MiB", peak_memory());
}

#[test]
fn mutated_zips_never_panic() {
    let card = micro();
    let dict = StateDict::of(&tensors(&card));
    let mut mutations = Mutations(2);
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let mut archive = dict.archive(dict.pickle(None));
        archive.method = method;
        let original = archive.bytes();
        for round in 0..1000 {
            let mut bytes = original.clone();
            if round % 2 == 0 {
                // The table of contents, where the sizes and offsets are.
                let mut tail = bytes.split_off(bytes.len() * 9 / 10);
                mutations.apply(&mut tail);
                bytes.extend(tail);
            } else {
                mutations.apply(&mut bytes);
            }
            if let Ok(weights) = open(&bytes, &card) {
                read_all(&weights, &card);
            }
        }
    }
    assert!(peak_memory() < 700, "{} MiB", peak_memory());
}

#[test]
fn mutated_safetensors_headers_never_panic() {
    let card = tiny("tiny-sapiens2");
    let folder = folder();
    let path = folder.path().join("weights.safetensors");
    fs::copy(data("tiny-sapiens2.bf16.safetensors"), &path).unwrap();
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut original = vec![0; 8];
    file.read_exact_at(&mut original, 0).unwrap();
    original.resize(8 + u64::from_le_bytes(original[..8].try_into().unwrap()) as usize, 0);
    file.read_exact_at(&mut original, 0).unwrap();
    let mut mutations = Mutations(3);
    for _ in 0..3000 {
        let mut header = original.clone();
        mutations.apply(&mut header);
        header.resize(original.len(), b' ');
        file.write_all_at(&header, 0).unwrap();
        if let Ok(weights) = Weights::open(&path, &card) {
            read_all(&weights, &card);
        }
    }
    assert!(peak_memory() < 700, "{} MiB", peak_memory());
}

#[test]
fn nothing_in_a_pickle_is_called() {
    for (module, name) in
        [("os", "system"), ("builtins", "eval"), ("torch", "load"), ("__torch", "X"), ("torch", "Storage")]
    {
        let call = Pickle::new().global(module, name).text("id").op(b"\x85R").stop();
        let message = refused_pickle(call);
        assert!(message.contains(&format!("it wants {module}.{name}")), "{message}");
    }
    let message = refused_pickle(Pickle::new().text("os").text("system").op(b"\x93.").stop());
    assert!(message.contains("opcode STACK_GLOBAL"), "{message}");
    let message = refused_pickle(Pickle::new().op(b"ios\nsystem\n.").stop());
    assert!(message.contains("opcode INST"), "{message}");
    let message = refused_pickle(Pickle::new().op(b"\xee").stop());
    assert!(message.contains("0xee is no pickle opcode"), "{message}");
    let class = Pickle::new().global("__torch__.m", "M");
    let message = refused_pickle(class.op(b")R").stop());
    assert!(message.contains("REDUCE of something that is neither"), "{message}");
}

#[test]
fn tensors_stay_within_their_storages() {
    let card = micro();
    let name = "backbone.ln1.weight";
    type Change<'a> = &'a dyn Fn(&mut View<'static>);
    let cases: [(Change<'_>, &str); 9] = [
        (&|view| view.offset = 1, "reach outside its storage of 16 values"),
        (&|view| view.strides = vec![2], "reach outside its storage of 16 values"),
        (&|view| view.offset = i64::MAX, "reach outside"),
        (&|view| view.strides = vec![i64::MAX], "reach outside"),
        (&|view| view.offset = -1, "offset is -1"),
        (&|view| view.strides = vec![-1], "-1 where a size or stride"),
        (&|view| view.count = 17, "has 64 bytes: expected 17 values of 4 bytes (FloatStorage)"),
        (&|view| view.count = i64::MAX, "has 64 bytes"),
        (&|view| view.key = "nowhere".into(), "top/data/nowhere is not in the archive"),
    ];
    for (change, expected) in cases {
        let mut dict = StateDict::of(&tensors(&card));
        change(dict.view(name));
        let message = refused(&dict.bytes(), &card, ErrorKind::InvalidWeights);
        assert!(message.contains(expected) && message.contains(name), "{message}");
    }
    let mut dict = StateDict::of(&tensors(&card));
    (dict.view(name).shape, dict.view(name).strides) = (vec![i64::MAX, i64::MAX], vec![0, 0]);
    let message = refused(&dict.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("more values than can be counted"), "{message}");
    // Petabytes of the same value: the shape is held against the card before anything is made room for.
    (dict.view(name).shape, dict.view(name).strides) = (vec![1 << 50], vec![0]);
    refused(&dict.bytes(), &card, ErrorKind::WeightsMismatch);
    (dict.view(name).shape, dict.view(name).strides) = (vec![1; 9], vec![0; 9]);
    let message = refused(&dict.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("9 dimensions"), "{message}");
}

#[test]
fn deep_and_endless_objects_are_errors() {
    let object = |pickle: Pickle| pickle.global("__torch__.m", "M").op(b")\x81");
    // An object that is its own attribute, twice over.
    let endless = object(Pickle::new()).op(b"q\x00}(").text("a").op(b"h\x00").text("b").op(b"h\x00ub").stop();
    let message = refused_pickle(endless);
    assert!(message.contains("nested deeper than 64 objects"), "{message}");
    // Sixty levels, each twice in the next: 2^60 paths.
    let mut doubling = object(Pickle::new()).op(b"}bq\x00");
    for _ in 0..60 {
        doubling = object(doubling).op(b"}(").text("a").op(b"h\x00").text("b").op(b"h\x00ubq\x00");
    }
    let message = refused_pickle(doubling.stop());
    assert!(message.contains("more than 65536 attributes"), "{message}");
    // A million tuples, each in the next, must not overflow anybody's stack.
    let nested = Pickle::new().op(b")").op(&[0x85; 1_000_000]).stop();
    let message = refused_pickle(nested);
    assert!(message.contains("neither"), "{message}");
    let message = refused_pickle(Pickle::new().op(b")").op(&[0x85; 1_100_000]).stop());
    assert!(message.contains("more than 1048576 objects"), "{message}");
    let message = refused_pickle(Pickle::new().op(&[b'('; 2000]).stop());
    assert!(message.contains("1024 marks"), "{message}");
    let message = refused_pickle(Pickle::new().op(&[b'N'; 1_100_000]).stop());
    assert!(message.contains("1048576 values on the stack"), "{message}");
    let message = refused_pickle(Pickle::new().op(b"X\xff\xff\xff\xffabc").stop());
    assert!(message.contains("the pickle ends early: expected 4294967295 more bytes, found 4"), "{message}");
}

#[test]
fn zip_bombs_stay_folded() {
    let card = micro();
    let mut dict = StateDict::of(&tensors(&card));
    // 40 MB of zeros behind a bias of 16 values, in 40 KB.
    dict.view("backbone.ln1.bias").count = 10_000_000;
    let key: usize = dict.view("backbone.ln1.bias").key.parse().unwrap();
    dict.storages[key].1 = vec![0; 40_000_000];
    let mut archive = dict.archive(dict.pickle(None));
    archive.method = CompressionMethod::Deflated;
    let message = refused(&archive.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("inflates to 40000000 bytes: expected at most"), "{message}");

    let mut archive = Archive::new(vec![0; 20_000_000]);
    archive.method = CompressionMethod::Deflated;
    let message = refused(&archive.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("top/data.pkl: 20000000 bytes: expected at most"), "{message}");
}

#[test]
fn archives_must_be_unambiguous() {
    let card = micro();
    let dict = StateDict::of(&tensors(&card));
    let archive = dict.archive(dict.pickle(None)).with("../other/data.pkl", "x");
    open(&archive.bytes(), &card).unwrap();

    let mut big = dict.archive(dict.pickle(None));
    big.entries.iter_mut().find(|(name, _)| name == "byteorder").unwrap().1 = b"big".to_vec();
    let message = refused(&big.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("byte order big: expected little"), "{message}");

    // Two entries of one name: the writer refuses, so the second is renamed behind its back.
    let mut twice = dict.archive(dict.pickle(None)).with("data.pk1", dict.pickle(None)).bytes();
    for at in 0..twice.len() - 8 {
        if &twice[at..at + 8] == b"data.pk1" {
            twice[at + 7] = b'l';
        }
    }
    let message = refused(&twice, &card, ErrorKind::InvalidWeights);
    assert!(message.contains("two entries of the same name"), "{message}");

    let mut twice = StateDict::of(&tensors(&card));
    let again = twice.views[0].clone();
    twice.views.push(again);
    let message = refused(&twice.bytes(), &card, ErrorKind::InvalidWeights);
    assert!(message.contains("tensor backbone.patch_embed.projection.weight is there twice"), "{message}");
}

#[test]
fn damaged_entries_are_noticed() {
    let card = micro();
    let dict = StateDict::of(&tensors(&card));
    let mut bytes = dict.bytes();
    let at = bytes.windows(8).position(|window| window == b"_rebuild").unwrap();
    bytes[at] ^= 1;
    let message = refused(&bytes, &card, ErrorKind::InvalidWeights);
    assert!(message.contains("data.pkl is damaged"), "{message}");
}

#[test]
fn hostile_safetensors_headers_are_errors() {
    let card = micro();
    let entry = |shape: &str, offsets: &str| {
        format!("{{\"a\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}")
    };
    let twice = format!(
        "{},{}",
        entry("[1]", "[0,4]").trim_end_matches('}').to_owned() + "}",
        &entry("[1]", "[0,4]")[1..]
    );
    for (header, data, expected) in [
        (entry("[1]", "[0,4]"), 3, "truncated"),
        (entry("[2]", "[0,4]"), 4, "damaged safetensors header"),
        (entry("[1]", "[4,8]"), 8, "damaged safetensors header"),
        (entry("[1]", "[4,0]"), 8, "damaged safetensors header"),
        (entry("[18446744073709551615,2]", "[0,4]"), 4, "damaged safetensors header"),
        (entry("[-1]", "[0,4]"), 4, "damaged safetensors header"),
        (entry("[1]", "[0,18446744073709551615]"), 4, "damaged safetensors header"),
        (twice, 4, "a is there twice"),
        ("{\"a\":".repeat(100_000), 0, "damaged safetensors header"),
        ("{".into(), 0, "damaged safetensors header"),
    ] {
        let message = refused(&raw_safetensors(&header, data), &card, ErrorKind::InvalidWeights);
        assert!(message.contains(expected), "{message}");
    }
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend(b"{}");
    let message = refused(&huge, &card, ErrorKind::InvalidWeights);
    assert!(message.contains("header of 18446744073709551615 bytes"), "{message}");
    let message = refused(&raw_safetensors("{}", 0), &card, ErrorKind::WeightsMismatch);
    assert!(message.contains("missing"), "{message}");
}

#[test]
fn no_path_escapes_an_index() {
    let folder = folder();
    write(&folder, "secret.safetensors", &safetensors(&tensors(&micro())));
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let index = inner.join("model.safetensors.index.json");
    let up = Path::new("..").join("secret.safetensors");
    fs::write(&index, format!("{{\"weight_map\":{{\"a\":{up:?}}}}}")).unwrap();
    let error = Weights::open(&inner, &micro()).unwrap_err();
    assert!(error.to_string().contains("is outside its folder"), "{error}");
}
