//! Readable checkpoints of another network.

use sapiens_model::weights::expected_tensors;
use sapiens_model::{ErrorKind, ModelCard, Variant};

use crate::support::*;

/// A state dict of full-size shapes over one value: strides of zero.
fn hollow(card: &ModelCard) -> StateDict {
    let mut dict = StateDict { views: Vec::new(), storages: vec![("0".into(), vec![0; 4])] };
    for spec in expected_tensors(card) {
        let mut view = View::plain("0", &spec.shape);
        view.count = 1;
        view.strides.fill(0);
        dict.views.push((spec.name, view));
    }
    dict
}

#[test]
fn everything_wrong_is_in_one_error() {
    let card = micro();
    let mut written = tensors(&card);
    written.retain(|tensor| !tensor.name.contains("ffn"));
    written.push(Tensor::new("backbone.extra", &[2, 3]));
    *find(&mut written, "backbone.ln1.weight") = Tensor::new("backbone.ln1.weight", &[17]);
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    for expected in [
        "its tensors are not those of micro",
        "4 missing: backbone.layers.0.ffn.layers.0.0.weight, backbone.layers.0.ffn.layers.0.0.bias, ",
        "1 unexpected: backbone.extra [2, 3]",
        "1 of another shape or type: backbone.ln1.weight: expected [16], found [17]",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn long_lists_are_cut() {
    let card = ModelCard::of(Variant::Sapiens2_1b);
    let mut dict = hollow(&card);
    dict.views.retain(|(name, _)| !name.contains(".attn."));
    let message = refused(&dict.bytes(), &card, ErrorKind::WeightsMismatch);
    assert!(message.contains("440 missing: ") && message.contains(" and 420 more"), "{message}");
    assert!(message.len() < 2000, "{message}");
}

#[test]
fn tokenizer_checkpoints_are_refused_by_name() {
    let card = micro2();
    let mut written = tensors(&card);
    written.push(Tensor::new("backbone.tokenizer.blocks.0.ln1.weight", &[16]));
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    assert!(
        message.contains("a checkpoint of the 4K models") && message.contains("backbone.tokenizer."),
        "{message}"
    );
}

#[test]
fn backbones_without_a_head_are_refused_with_what_is_missing() {
    let card = micro();
    let mut written = tensors(&card);
    written.retain(|tensor| tensor.name.starts_with("backbone."));
    let bare: Vec<_> = written
        .iter()
        .cloned()
        .map(|mut tensor| {
            tensor.name = tensor.name.replacen("backbone.", "", 1);
            tensor
        })
        .collect();
    for tensors in [written, bare] {
        let message = refused(&safetensors(&tensors), &card, ErrorKind::WeightsMismatch);
        assert!(message.contains("a backbone without its segmentation head"), "{message}");
        let missing = "5 missing: decode_head.deconv_layers.0.weight, decode_head.conv_layers.0.weight, ";
        assert!(message.contains(missing), "{message}");
        assert!(!message.contains("unexpected"), "{message}");
    }
}

#[test]
fn other_class_counts_are_explained() {
    let card = micro();
    let mut written = tensors(&card);
    *find(&mut written, "decode_head.conv_seg.weight") =
        Tensor::new("decode_head.conv_seg.weight", &[29, 4, 1, 1]);
    *find(&mut written, "decode_head.conv_seg.bias") = Tensor::new("decode_head.conv_seg.bias", &[29]);
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    assert!(message.contains("29 classes apart, micro has 28 (29 are those of sapiens2-0.4b, "), "{message}");
    assert!(message.contains("decode_head.conv_seg.bias: expected [28], found [29]"), "{message}");

    *find(&mut written, "decode_head.conv_seg.weight") =
        Tensor::new("decode_head.conv_seg.weight", &[20, 4, 1, 1]);
    let message = refused(&safetensors(&written), &card, ErrorKind::WeightsMismatch);
    assert!(message.contains("needs a card of its own"), "{message}");
}

#[test]
fn checkpoints_of_other_variants_name_the_variant_to_set() {
    let variants: Vec<_> = Variant::all().collect();
    for &found in &variants {
        let bytes = hollow(&ModelCard::of(found)).bytes();
        for &wanted in &variants {
            let card = ModelCard::of(wanted);
            if found == wanted {
                open(&bytes, &card).unwrap();
                continue;
            }
            let message = refused(&bytes, &card, ErrorKind::WeightsMismatch);
            assert!(message.contains(&format!("set variant={found}\n")), "{wanted}: {message}");
        }
    }
}

#[test]
fn grouped_keys_and_head_dims_are_read_off_the_shapes() {
    let card = tiny("tiny-sapiens2");
    let mut dict = hollow(&card);
    for part in ["weight", "bias"] {
        let view = dict.view(&format!("backbone.blocks.8.attn.wk.{part}"));
        view.shape[0] = 64;
    }
    dict.view("backbone.blocks.0.attn.q_norm.weight").shape[0] = 32;
    let message = refused(&dict.bytes(), &card, ErrorKind::WeightsMismatch);
    for expected in [
        "backbone.blocks.8.attn.wk.weight: expected [32, 64], found [64, 64]",
        "backbone.blocks.0.attn.q_norm.weight: expected [16], found [32]",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}
