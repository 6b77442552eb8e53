//! Weights on the device against the same converted and laid out on the host, to the bit, from every type of a checkpoint.

use std::sync::Arc;

use half::{bf16, f16};
use safetensors::{Dtype, View};
use sapiens_kernels::cuda::product::deconv_weights;
use sapiens_kernels::cuda::{CudaError, Gpu};
use sapiens_stand_in_loader::inside;

use super::super::flight_tests::alone;
use super::*;
use crate::card::ModelCard;
use crate::engine::reference_data::{TINY, data};
use crate::weights::expected_tensors;

/// A network in which everything has to be padded: heads of 12, channels of 12, 20 and 9, 29 classes.
fn card() -> ModelCard {
    let mut card = ModelCard::load(&data(TINY[1].0)).unwrap();
    let network = &mut card.network;
    (network.embed_dim, network.heads, network.ffn_dim) = (24, 2, 40);
    (network.layers, network.full_kv_layers) = (3, Some(1));
    (network.deconv_channels, network.conv_channels) = (vec![12, 20], vec![9]);
    card
}

/// A tensor for a file.
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for &Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        (&self.bytes).into()
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The card's generated weights by way of a file that stores them so.
fn weights(card: &ModelCard, dtype: Dtype) -> Weights {
    let generated = Weights::generated(card, 9);
    let tensors = expected_tensors(card).into_iter().map(|spec| {
        let values = generated.tensor_f32(&spec.name).unwrap();
        let bytes = match dtype {
            Dtype::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
            Dtype::BF16 => values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        (spec.name, Stored { dtype, shape: spec.shape, bytes })
    });
    let tensors: Vec<_> = tensors.collect();
    let file = tempfile::NamedTempFile::with_suffix(".safetensors").unwrap();
    safetensors::serialize_to_file(tensors.iter().map(|(name, t)| (name, t)), None, file.path()).unwrap();
    Weights::open(file.path(), card).unwrap()
}

/// What is downloaded, and what the host makes.
struct Check<'a> {
    weights: &'a Weights,
    stream: &'a Stream,
    precision: Precision,
}

impl Check<'_> {
    fn download<T: Plain + Default>(&self, buffer: &Buffer<T>) -> Vec<T> {
        let mut values = vec![T::default(); buffer.len()];
        self.stream.download(buffer.slice(..), &mut values).unwrap();
        values
    }

    fn host(&self, name: &str) -> Vec<f32> {
        self.weights.tensor_f32(name).unwrap()
    }

    fn vector(&self, found: &Buffer<f32>, expected: &[f32], what: &str) {
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&self.download(found)), bits(expected), "{what}");
    }

    fn linear(&self, found: Linear, weights: &[f32], bias: Option<&[f32]>, what: &str) {
        let what = format!("{what}, {:?}", self.precision);
        let expected: Vec<u16> = weights.iter().map(|&x| self.precision.encode(x)).collect();
        assert!(self.download(&found.weights) == expected, "{what}: weights");
        assert_eq!(weights.len() % found.columns, 0, "{what}");
        assert_eq!(found.bias.is_some(), bias.is_some(), "{what}");
        if let (Some(found_bias), Some(bias)) = (&found.bias, bias) {
            assert_eq!(found.columns, bias.len(), "{what}");
            self.vector(found_bias, bias, &what);
        }
    }
}

/// Groups of `len` values followed by zeros up to `stride`.
fn padded(values: &[f32], len: usize, stride: usize) -> Vec<f32> {
    let zeros = vec![0.0; stride - len];
    values.chunks_exact(len).flat_map(|group| [group, &zeros].concat()).collect()
}

/// Rows of `len` of both halves in turn.
fn in_turn(values: &[f32], len: usize) -> Vec<f32> {
    let (first, second) = values.split_at(values.len() / 2);
    first.chunks_exact(len).zip(second.chunks_exact(len)).flat_map(|(a, b)| [a, b].concat()).collect()
}

fn check(card: &ModelCard, weights: &Weights, stream: &Stream, precision: Precision) -> Result<()> {
    let mut loader = Loader::new(weights, stream, precision)?;
    let check = Check { weights, stream, precision };
    let sizes = Sizes::of(card);
    let (dim, head_dim, stride) = (sizes.embed_dim, sizes.head_dim(), head_stride(&sizes));
    let both = |name: &str| ["weight", "bias"].map(|part| check.host(&format!("{name}.{part}")));

    let prefix = ["backbone.cls_token", "backbone.storage_tokens"];
    let tokens = prefix.map(|name| check.host(name)).concat();
    check.vector(&loader.vector(&prefix)?, &tokens, "prefix");
    let norm = loader.rms_norm("backbone.ln1")?;
    assert!(norm.bias.is_none());
    check.vector(&norm.weight, &check.host("backbone.ln1.weight"), "RMSNorm");

    let name = "backbone.patch_embed.projection";
    let [weight, bias] = both(name);
    // Any two tensors of these names will do: of this family none is of a LayerNorm.
    let norm = loader.layer_norm(name)?;
    check.vector(&norm.weight, &weight, "LayerNorm");
    check.vector(&norm.bias.unwrap(), &bias, "LayerNorm");
    check.linear(loader.linear(name, 768)?, &weight, Some(&bias), name);

    // Layer 1 has fewer heads of keys and values.
    let names = ["wq", "wk", "wv"].map(|part| format!("backbone.blocks.1.attn.{part}"));
    let (mut weight, mut bias) = (Vec::new(), Vec::new());
    for [w, b] in names.each_ref().map(|name| both(name)) {
        weight.extend(padded(&w, head_dim * dim, stride * dim));
        bias.extend(padded(&b, head_dim, stride));
    }
    let found = loader.heads(&names.each_ref().map(String::as_str), &sizes)?;
    assert_eq!(found.columns, 4 * stride);
    check.linear(found, &weight, Some(&bias), "heads");

    let name = "backbone.blocks.2.attn.proj";
    let [weight, bias] = both(name);
    check.linear(loader.projection(name, &sizes)?, &padded(&weight, head_dim, stride), Some(&bias), name);

    let name = "backbone.blocks.0.ffn.w12";
    let [weight, bias] = both(name);
    let found = loader.gated(name, sizes.ffn_dim, dim)?;
    check.linear(found, &in_turn(&weight, dim), Some(&in_turn(&bias, 1)), name);

    for (name, inputs, outputs) in [("0", 24, 12), ("3", 12, 20)] {
        let name = format!("decode_head.deconv_layers.{name}.weight");
        let [channels, columns] = [inputs, outputs].map(|count: usize| count.next_multiple_of(CHUNK));
        let mut weight = padded(&check.host(&name), outputs * 16, columns * 16);
        weight.resize(channels * columns * 16, 0.0);
        let found = loader.conv_transpose(&name, inputs, outputs)?;
        assert_eq!(found.columns, columns);
        check.linear(found, &deconv_weights(&weight, channels, columns), None, &name);
    }

    let mut weight = padded(&check.host("decode_head.conv_layers.0.weight"), 20, 24);
    weight.resize(16 * 24, 0.0);
    check.linear(loader.conv("decode_head.conv_layers.0", 20, 9)?, &weight, None, "conv");

    let name = "decode_head.conv_seg";
    let [weight, bias] = both(name);
    let mut weight = padded(&weight, 9, 16);
    weight.resize(32 * 16, 0.0);
    check.linear(loader.classifier(name, 9, 29)?, &weight, Some(&padded(&bias, 29, 32)), name);
    loader.finish()
}

/// All devices, for who is [`alone`]: a call that another test fails or leaves out may be anybody's.
fn gpus() -> Vec<Arc<Gpu>> {
    (0..).map_while(|index| Gpu::open(index).ok()).collect()
}

#[test]
fn every_layout_is_the_hosts_to_the_bit() {
    let _alone = alone();
    let card = card();
    let [f32, f16, bf16] = [Dtype::F32, Dtype::F16, Dtype::BF16].map(|dtype| weights(&card, dtype));
    let all = [f32, f16, bf16, Weights::generated(&card, 9)];
    for gpu in gpus() {
        let stream = Stream::new(&gpu).unwrap();
        for precision in [Precision::F16, Precision::F16Promoted, Precision::Bf16] {
            for weights in &all {
                if let Err(error) = check(&card, weights, &stream, precision) {
                    let turing = CudaError::NoBf16 { found: gpu.properties().capability }.to_string();
                    assert_eq!((precision, error.to_string()), (Precision::Bf16, turing));
                }
            }
        }
    }
}

/// Of generated weights nothing is copied up; stored ones don't come without.
#[test]
fn generated_weights_are_made_on_the_device() {
    let card = card();
    let all = [(Weights::generated(&card, 9), true), (weights(&card, Dtype::F32), false)];
    let _alone = alone();
    if sapiens_stand_in_loader::wants_card() {
        return;
    }
    let stream = Stream::new(&gpus()[1]).unwrap();
    let name = "backbone.blocks.0.ffn.w12";
    for precision in [Precision::F16, Precision::Bf16] {
        for (weights, there) in &all {
            let mut loader = Loader::new(weights, &stream, precision).unwrap();
            inside::leave_out("cuMemcpyHtoDAsync_v2", 1, 0);
            let found = loader.linear(name, card.network.embed_dim);
            inside::leave_out_nothing();
            let found = Check { weights, stream: &stream, precision }.download(&found.unwrap().weights);
            let expected = weights.tensor_f32(&format!("{name}.weight")).unwrap();
            let expected: Vec<u16> = expected.into_iter().map(|x| precision.encode(x)).collect();
            assert_eq!(found == expected, *there, "{weights:?}, {precision:?}");
        }
    }
}

#[test]
fn tensors_that_are_not_there_are_named() {
    let _alone = alone();
    let weights = Weights::generated(&card(), 9);
    let stream = Stream::new(&gpus()[0]).unwrap();
    let mut loader = Loader::new(&weights, &stream, Precision::F16).unwrap();
    let error = loader.linear("backbone.head", 8).unwrap_err();
    assert!(error.to_string().contains("no tensor backbone.head.bias"), "{error}");
}
