//! Every format gives the same values.

use std::fs;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView, serialize};
use sapiens_model::weights::expected_tensors;
use sapiens_model::{ErrorKind, ModelCard, Weights, WeightsIdentity};
use zip::CompressionMethod;

use crate::support::*;

fn assert_generated(file: &str, card: &ModelCard, seed: u64, stored: impl Fn(f32) -> f32) {
    let weights = Weights::open(&data(file), card).unwrap();
    let generated = Weights::generated(card, seed);
    for spec in expected_tensors(card) {
        assert_eq!(weights.shape(&spec.name), Some(&spec.shape[..]), "{file}: {}", spec.name);
        let expected: Vec<u32> = generated
            .tensor_f32(&spec.name)
            .unwrap()
            .into_iter()
            .map(|value| stored(value).to_bits())
            .collect();
        let found: Vec<u32> = weights.tensor_f32(&spec.name).unwrap().into_iter().map(f32::to_bits).collect();
        assert!(found == expected, "{file}: {}", spec.name);
    }
}

#[test]
fn reference_checkpoints_equal_the_generated_weights_bit_for_bit() {
    let card = tiny("tiny-sapiens");
    assert_generated("tiny-sapiens.torchscript.pt2", &card, 1, |value| value);
    assert_generated("tiny-sapiens.pth", &card, 1, |value| value);
    let card = tiny("tiny-sapiens2");
    assert_generated("tiny-sapiens2.safetensors", &card, 2, |value| value);
    assert_generated("tiny-sapiens2.bf16.safetensors", &card, 2, |value| bf16::from_f32(value).to_f32());
}

#[test]
fn descriptions_name_file_format_and_types() {
    let open =
        |file: &str, card: &str| Weights::open(&data(file), &tiny(card)).unwrap().describe().to_owned();
    let text = open("tiny-sapiens.torchscript.pt2", "tiny-sapiens");
    assert!(text.contains("torchscript.pt2 (TorchScript archive, 52 tensors, float32)"), "{text}");
    let text = open("tiny-sapiens.pth", "tiny-sapiens");
    assert!(text.contains("(state dict, 52 tensors, float32)"), "{text}");
    let text = open("tiny-sapiens2.bf16.safetensors", "tiny-sapiens2");
    assert!(text.contains("(safetensors, 321 tensors, bfloat16)"), "{text}");
}

#[test]
fn names_tell_nothing_the_content_everything() {
    let folder = folder();
    for (file, name) in
        [("tiny-sapiens.pth", "a.torchscript.pt2"), ("tiny-sapiens.torchscript.pt2", "b.safetensors")]
    {
        let path = folder.path().join(name);
        fs::copy(data(file), &path).unwrap();
        Weights::open(&path, &tiny("tiny-sapiens")).unwrap();
    }
}

#[test]
fn half_precision_is_widened() {
    let card = micro2();
    let written = tensors(&card);
    let bytes: Vec<Vec<u8>> = written
        .iter()
        .map(|tensor| tensor.values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect())
        .collect();
    let views = written.iter().zip(&bytes).map(|(tensor, bytes)| {
        (&tensor.name, TensorView::new(Dtype::F16, tensor.shape.clone(), bytes).unwrap())
    });
    let weights = open(&serialize(views, None).unwrap(), &card).unwrap();
    for tensor in &written {
        let expected: Vec<f32> = tensor.values.iter().map(|&value| f16::from_f32(value).to_f32()).collect();
        assert_eq!(weights.tensor_f32(&tensor.name).unwrap(), expected);
    }
    for storage in ["HalfStorage", "BFloat16Storage"] {
        let half = storage == "HalfStorage";
        let mut dict = StateDict::of(&written);
        for ((_, view), (_, bytes)) in dict.views.iter_mut().zip(&mut dict.storages) {
            view.storage = storage;
            let (values, _) = bytes.as_chunks::<4>();
            *bytes = values
                .iter()
                .map(|value| f32::from_le_bytes(*value))
                .flat_map(|value| {
                    if half {
                        f16::from_f32(value).to_le_bytes()
                    } else {
                        bf16::from_f32(value).to_le_bytes()
                    }
                })
                .collect();
        }
        let weights = open(&dict.bytes(), &card).unwrap();
        for tensor in &written {
            let round = |&value: &f32| {
                if half { f16::from_f32(value).to_f32() } else { bf16::from_f32(value).to_f32() }
            };
            let expected: Vec<f32> = tensor.values.iter().map(round).collect();
            assert_eq!(weights.tensor_f32(&tensor.name).unwrap(), expected);
        }
    }
}

#[test]
fn state_dicts_may_be_wrapped() {
    let card = micro();
    let written = tensors(&card);
    let dict = StateDict::of(&written);
    for key in [None, Some("state_dict"), Some("model")] {
        assert_values(&open(&dict.archive(dict.pickle(key)).bytes(), &card).unwrap(), &written);
    }
    for prefix in ["module.", "model.module."] {
        let mut wrapped = StateDict::of(&written);
        for (name, _) in &mut wrapped.views {
            name.insert_str(0, prefix);
        }
        assert_values(&open(&wrapped.bytes(), &card).unwrap(), &written);
    }
}

#[test]
fn a_torchscript_root_may_wrap_the_model() {
    let card = micro();
    let written = tensors(&card);
    // One object whose attributes have dots in their names makes the same paths as a tree of them.
    let dict = StateDict::of(&written);
    let class = |pickle: Pickle| pickle.global("__torch__.a.___torch_mangle_7", "Model").op(b")\x81");
    let attributes = |pickle: Pickle| {
        let pickle = class(pickle).op(b"}(").text("training").op(b"\x89");
        dict.views.iter().fold(pickle, |pickle, (name, view)| pickle.text(name).tensor(view)).op(b"ub")
    };
    let bare = attributes(Pickle::new()).stop();
    let wrapped = attributes(class(Pickle::new()).op(b"}").text("model")).op(b"sb").stop();
    for pickle in [bare, wrapped] {
        assert_values(&open(&dict.archive(pickle).bytes(), &card).unwrap(), &written);
    }
}

#[test]
fn deflated_entries_are_inflated() {
    let card = micro();
    let mut written = tensors(&card);
    for tensor in &mut written {
        tensor.values.fill(0.5);
    }
    let dict = StateDict::of(&written);
    let mut archive = dict.archive(dict.pickle(Some("state_dict")));
    archive.method = CompressionMethod::Deflated;
    let bytes = archive.bytes();
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    assert_values(&open(&bytes, &card).unwrap(), &written);
}

#[test]
fn strides_offsets_and_shared_storages_are_honoured() {
    let card = micro();
    let mut written = tensors(&card);
    let mut dict = StateDict::of(&written);
    // A matrix stored transposed, and a bias that is a window into another tensor's storage.
    let weight = find(&mut written, "backbone.layers.0.attn.qkv.weight");
    let (rows, columns) = (weight.shape[0], weight.shape[1]);
    let stored = weight.values.clone();
    for (row, values) in weight.values.chunks_mut(columns).enumerate() {
        for (column, value) in values.iter_mut().enumerate() {
            *value = stored[column * rows + row];
        }
    }
    let view = dict.view("backbone.layers.0.attn.qkv.weight");
    view.strides = vec![1, rows as i64];
    let mut window = view.clone();
    (window.offset, window.shape, window.strides) = (5, vec![16], vec![2]);
    *dict.view("backbone.layers.0.ln1.bias") = window;
    find(&mut written, "backbone.layers.0.ln1.bias").values = (0..16).map(|i| stored[5 + 2 * i]).collect();
    assert_values(&open(&dict.bytes(), &card).unwrap(), &written);
    // The same with both sharing one inflated storage.
    let mut archive = dict.archive(dict.pickle(None));
    archive.method = CompressionMethod::Deflated;
    assert_values(&open(&archive.bytes(), &card).unwrap(), &written);
}

#[test]
fn buffers_of_other_types_are_fine_where_nobody_reads_them() {
    let card = micro();
    let written = tensors(&card);
    let mut dict = StateDict::of(&written);
    let mut counter = View::plain("counter", &[]);
    counter.storage = "LongStorage";
    dict.views.push(("decode_head.norm.num_batches_tracked".into(), counter));
    dict.storages.push(("counter".into(), vec![0; 8]));
    assert_values(&open(&dict.bytes(), &card).unwrap(), &written);

    let mut dict = StateDict::of(&written);
    dict.view("backbone.ln1.bias").storage = "IntStorage";
    let message = refused(&dict.bytes(), &card, ErrorKind::WeightsMismatch);
    assert!(
        message.contains("backbone.ln1.bias: expected float32, float16 or bfloat16, found Int"),
        "{message}"
    );
}

#[test]
fn position_embeddings_of_other_grids_and_with_a_class_token_are_taken() {
    let card = micro();
    let mut written = tensors(&card);
    let pos_embed = find(&mut written, "backbone.pos_embed");
    *pos_embed = Tensor::new("backbone.pos_embed", &[1, 48, 16]);
    let weights = open(&safetensors(&written), &card).unwrap();
    assert_eq!(weights.shape("backbone.pos_embed"), Some(&[1, 48, 16][..]));

    *find(&mut written, "backbone.pos_embed") = Tensor::new("backbone.pos_embed", &[1, 49, 16]);
    let weights = open(&safetensors(&written), &card).unwrap();
    assert_eq!(weights.shape("backbone.pos_embed"), Some(&[1, 48, 16][..]));
    let values = weights.tensor_f32("backbone.pos_embed").unwrap();
    assert_eq!((values[0], values.len()), (16.0, 48 * 16));

    for shape in [&[1, 50, 16][..], &[1, 48, 8], &[48, 16], &[2, 48, 16], &[1, 0, 16], &[1, 1, 16]] {
        *find(&mut written, "backbone.pos_embed") = Tensor::new("backbone.pos_embed", shape);
        let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
        assert!(message.contains(&format!("[1, 12k² (or one more), 16], found {shape:?}")), "{message}");
    }
}

#[test]
fn rotary_periods_may_be_missing_but_not_wrong() {
    let card = micro2();
    let mut written = tensors(&card);
    open(&safetensors(&written), &card).unwrap();
    // 100^(2j/4) for a head dim of 8.
    let mut periods = Tensor::new("backbone.rope_embed.periods", &[2]);
    periods.values = vec![1.0, 10.0];
    written.push(periods);
    let weights = open(&safetensors(&written), &card).unwrap();
    assert_eq!(weights.shape("backbone.rope_embed.periods"), None);

    find(&mut written, "backbone.rope_embed.periods").values[1] = 11.0;
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    assert!(
        message.contains("backbone.rope_embed.periods: expected [1.0, 10.0], found [1.0, 11.0]"),
        "{message}"
    );
    *find(&mut written, "backbone.rope_embed.periods") = Tensor::new("backbone.rope_embed.periods", &[3]);
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    assert!(message.contains("expected [2] for a head dim of 8, found [3]"), "{message}");
}

/// Writes the tensors as two shards and their index.
fn write_shards(folder: &tempfile::TempDir, written: &[Tensor], index: &str) {
    let (first, second) = written.split_at(written.len() / 2);
    let mut map = serde_json::Map::new();
    for (name, part) in [("model-1.safetensors", first), ("model-2.safetensors", second)] {
        write(folder, name, &safetensors(part));
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), name.into())));
    }
    let json = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    write(folder, index, json.to_string().as_bytes());
}

#[test]
fn folders_and_shards_are_opened() {
    let card = micro2();
    let written = tensors(&card);
    let whole = folder();
    write(&whole, "config.json", b"{\"model_type\": \"sapiens2\"}");
    write(&whole, "model.safetensors", &safetensors(&written));
    assert_values(&Weights::open(whole.path(), &card).unwrap(), &written);

    for index in ["model.safetensors.index.json", "other.index.json"] {
        let sharded = folder();
        write(&sharded, "config.json", b"{}");
        write_shards(&sharded, &written, index);
        for path in [sharded.path().to_owned(), sharded.path().join(index)] {
            let weights = Weights::open(&path, &card).unwrap();
            assert_values(&weights, &written);
            let WeightsIdentity::Files(files) = weights.identity() else { panic!("generated") };
            assert_eq!(files.len(), 2);
        }
    }

    let one = folder();
    write(&one, "mine.pth", &StateDict::of(&written).bytes());
    assert_values(&Weights::open(one.path(), &card).unwrap(), &written);
}

#[test]
fn shards_must_be_what_their_index_says() {
    let card = micro2();
    let written = tensors(&card);
    let refused = |change: &dyn Fn(&mut serde_json::Value), kind: ErrorKind, expected: &str| {
        let folder = folder();
        write_shards(&folder, &written, "model.safetensors.index.json");
        let path = folder.path().join("model.safetensors.index.json");
        let mut json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
        let error = Weights::open(folder.path(), &card).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    let gone = |json: &mut serde_json::Value| {
        json["weight_map"]["backbone.cls_token"] = "model-3.safetensors".into()
    };
    refused(
        &gone,
        ErrorKind::WeightsNotFound,
        "1 of its 3 shards are missing beside it: model-3.safetensors",
    );
    let elsewhere = |json: &mut serde_json::Value| {
        json["weight_map"]["backbone.cls_token"] = "model-2.safetensors".into()
    };
    refused(&elsewhere, ErrorKind::InvalidWeights, "doesn't list for it");
    let absent =
        |json: &mut serde_json::Value| json["weight_map"]["backbone.more"] = "model-1.safetensors".into();
    refused(
        &absent,
        ErrorKind::InvalidWeights,
        "lacks 1 of the tensors that the index says it has: backbone.more",
    );
    for outside in ["../model-1.safetensors", "/etc/passwd", "a/../../b", "", ".", "..\\a"] {
        let outside =
            |json: &mut serde_json::Value| json["weight_map"]["backbone.cls_token"] = outside.into();
        refused(&outside, ErrorKind::InvalidWeights, "is outside its folder");
    }
    let itself = |json: &mut serde_json::Value| {
        json["weight_map"]["backbone.cls_token"] = "model.safetensors.index.json".into();
    };
    refused(&itself, ErrorKind::InvalidWeights, "index");
    let number = |json: &mut serde_json::Value| json["weight_map"]["backbone.cls_token"] = 3.into();
    refused(&number, ErrorKind::InvalidWeights, "no index of shards");

    let twice = folder();
    let path = write(&twice, "a.index.json", b"{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}");
    let error = Weights::open(&path, &card).unwrap_err();
    assert!(error.to_string().contains("a is there twice"), "{error}");
}

#[test]
fn identities_tell_files_apart() {
    let card = micro();
    let folder = folder();
    let path = write(&folder, "a.safetensors", &safetensors(&tensors(&card)));
    let first = Weights::open(&path, &card).unwrap();
    let again = Weights::open(&folder.path().join(".").join("a.safetensors"), &card).unwrap();
    assert_eq!(first.identity(), again.identity());
    fs::write(folder.path().join("b"), fs::read(&path).unwrap()).unwrap();
    fs::rename(folder.path().join("b"), &path).unwrap();
    assert_ne!(first.identity(), Weights::open(&path, &card).unwrap().identity());
    assert_eq!(Weights::generated(&card, 3).identity(), Weights::generated(&card, 3).identity());
    assert_ne!(Weights::generated(&card, 3).identity(), Weights::generated(&card, 4).identity());
}

#[test]
fn values_are_asked_for_by_name_and_length() {
    let card = micro();
    let weights = Weights::generated(&card, 1);
    assert_eq!(weights.tensor_f32("backbone.ln2").unwrap_err().kind(), ErrorKind::UnknownName);
    let error = weights.read_f32("backbone.ln1.bias", &mut [0.0; 3]).unwrap_err();
    assert!(
        error.to_string().contains("backbone.ln1.bias has 16 values [16]: asked to put them in 3"),
        "{error}"
    );
    assert_eq!(weights.shape("backbone.ln1.bias"), Some(&[16][..]));
    assert_eq!(weights.sha256(), None);
}
