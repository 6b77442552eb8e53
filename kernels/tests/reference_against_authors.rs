//! The reference operations, composed into the tiny networks, against the activations of the authors' own code.

mod support;

use sapiens_kernels::reference::{
    AttentionShape, RopeTables, attention, conv_transpose_k4s2p1, conv1x1, gelu, instance_norm, layer_norm,
    linear, patch_embed, position_embedding, rms_norm, rope, rope_periods, scale_residual, silu, swiglu,
};
use support::{Tensors, difference, generated};

const D: usize = 64;
const HEADS: usize = 4;
const HEAD_DIM: usize = D / HEADS;
const FFN: usize = 256;
const EPS: f64 = 1e-6;

/// Largest difference of logits, and of other activations for each 1 of their root mean square (the residual stream of
/// Sapiens2 grows from layer to layer): float32 sums in another order, and, in Sapiens2, bfloat16 roundings of the
/// rotary embedding that such a difference flips.
const MAX: f64 = 0.002;
/// Mean difference of the logits.
const MEAN_LOGITS: f64 = 1e-4;

/// Compares with the authors' tensor `name`, where the file has it.
fn compare(expected: &Tensors, name: &str, actual: &[f32]) {
    if !expected.has(name) {
        return;
    }
    let expected = expected.f32(name);
    let (max, mean) = difference(actual, expected);
    let square: f64 = expected.iter().map(|&x| f64::from(x).powi(2)).sum();
    let scale = (square / expected.len() as f64).sqrt();
    println!("  {name:12} max {max:.2e} mean {mean:.2e}, values of {scale:.2}");
    let (max_limit, mean_limit) =
        if name == "logits" { (MAX, MEAN_LOGITS) } else { (MAX * scale.max(1.0), f64::INFINITY) };
    assert!(max <= max_limit && mean <= mean_limit, "{name}: max {max:e}, mean {mean:e}");
}

/// `x` plus a branch of it.
fn add(x: &mut [f32], branch: &[f32]) {
    scale_residual(x, branch, None);
}

/// Tokens `[plane, D]` as channels `[D, plane]`.
fn planar(tokens: &[f32], channels: usize) -> Vec<f32> {
    let plane = tokens.len() / channels;
    (0..tokens.len()).map(|i| tokens[i % plane * channels + i / plane]).collect()
}

/// The head, the same in both families but for its sizes.
fn head(
    weight: &dyn Fn(&str, &[usize]) -> Vec<f32>,
    features: Vec<f32>,
    (mut h, mut w): (usize, usize),
    deconvs: &[usize],
    convs: &[usize],
    classes: usize,
    visit: &dyn Fn(&str, &[f32]),
) {
    let mut x = features;
    let mut channels = D;
    for (i, &out) in deconvs.iter().enumerate() {
        let name = format!("decode_head.deconv_layers.{}.weight", 3 * i);
        x = conv_transpose_k4s2p1(&x, h, w, &weight(&name, &[channels, out, 4, 4]), out);
        visit(&format!("deconv.{i}"), &x);
        (h, w, channels) = (2 * h, 2 * w, out);
        instance_norm(&mut x, h * w, 1e-5);
        silu(&mut x);
    }
    for (i, &out) in convs.iter().enumerate() {
        let name = format!("decode_head.conv_layers.{}", 3 * i);
        let kernel = weight(&format!("{name}.weight"), &[out, channels, 1, 1]);
        x = conv1x1(&x, h * w, &kernel, &weight(&format!("{name}.bias"), &[out]));
        channels = out;
        instance_norm(&mut x, h * w, 1e-5);
        silu(&mut x);
    }
    let kernel = weight("decode_head.conv_seg.weight", &[classes, channels, 1, 1]);
    visit("logits", &conv1x1(&x, h * w, &kernel, &weight("decode_head.conv_seg.bias", &[classes])));
}

fn sapiens(file: &str, height: usize, width: usize) {
    println!("tiny-sapiens at {height} x {width}");
    let expected = Tensors::read(file);
    let visit = |name: &str, actual: &[f32]| compare(&expected, name, actual);
    let weight = |name: &str, shape: &[usize]| generated(name, shape, 1);
    let vector = |name: String| weight(&name, &[D]);
    let (h, w) = (height / 16, width / 16);
    let tokens = h * w;

    let mut x = patch_embed(
        expected.f32("input"),
        height,
        width,
        &weight("backbone.patch_embed.projection.weight", &[D, 3, 16, 16]),
        &vector("backbone.patch_embed.projection.bias".into()),
    );
    visit("patch_embed", &x);
    let trained = weight("backbone.pos_embed", &[1, 48, D]);
    add(&mut x, &position_embedding(&trained, (8, 6), (h, w)));
    for i in 0..3 {
        let name = |part: &str| format!("backbone.layers.{i}.{part}");
        let project = |x: &[f32], part: &str, inputs: usize, outputs: usize| {
            let kernel = weight(&name(&format!("{part}.weight")), &[outputs, inputs]);
            linear(x, &kernel, Some(&weight(&name(&format!("{part}.bias")), &[outputs])), inputs)
        };
        let norm = |x: &[f32], part: &str| {
            layer_norm(
                x,
                &vector(name(&format!("{part}.weight"))),
                &vector(name(&format!("{part}.bias"))),
                EPS,
            )
        };
        let qkv = project(&norm(&x, "ln1"), "attn.qkv", D, 3 * D);
        let third = |n: usize| -> Vec<f32> {
            (0..tokens).flat_map(|t| &qkv[(3 * t + n) * D..][..D]).copied().collect()
        };
        let shape = AttentionShape { heads: HEADS, kv_heads: HEADS, head_dim: HEAD_DIM };
        let mixed = attention(&third(0), &third(1), &third(2), shape);
        add(&mut x, &project(&mixed, "attn.proj", D, D));
        let mut hidden = project(&norm(&x, "ln2"), "ffn.layers.0.0", D, FFN);
        gelu(&mut hidden);
        add(&mut x, &project(&hidden, "ffn.layers.1", FFN, D));
        visit(&format!("block.{i}"), &x);
    }
    let [last_weight, last_bias] = ["weight", "bias"].map(|part| vector(format!("backbone.ln1.{part}")));
    let features = planar(&layer_norm(&x, &last_weight, &last_bias, EPS), D);
    visit("features", &features);
    head(&weight, features, (h, w), &[48; 3], &[48; 3], 28, &visit);
}

fn sapiens2(file: &str, height: usize, width: usize) {
    const LAYERS: usize = 18;
    const PREFIX: usize = 9;
    println!("tiny-sapiens2 at {height} x {width}");
    let expected = Tensors::read(file);
    let weights = Tensors::read("tiny-sapiens2.safetensors");
    let visit = |name: &str, actual: &[f32]| compare(&expected, name, actual);
    let weight = |name: &str, shape: &[usize]| {
        assert_eq!(weights.shape(name), shape, "{name}");
        weights.f32(name).to_vec()
    };
    let (h, w) = (height / 16, width / 16);

    let periods = rope_periods(HEAD_DIM);
    assert_eq!(periods, weights.f32("backbone.rope_embed.periods"), "periods");
    let tables = RopeTables::new(h, w, &periods);
    assert_eq!(tables.sin, expected.f32("rope.sin"), "rope.sin");
    assert_eq!(tables.cos, expected.f32("rope.cos"), "rope.cos");
    println!("  periods, rope.sin, rope.cos equal");

    let patches = patch_embed(
        expected.f32("input"),
        height,
        width,
        &weight("backbone.patch_embed.projection.weight", &[D, 3, 16, 16]),
        &weight("backbone.patch_embed.projection.bias", &[D]),
    );
    visit("patch_embed", &patches);
    let mut x = weight("backbone.cls_token", &[1, 1, D]);
    x.extend(weight("backbone.storage_tokens", &[1, 8, D]));
    x.extend(patches);
    for i in 0..LAYERS {
        let name = |part: &str| format!("backbone.blocks.{i}.{part}");
        let project = |x: &[f32], part: &str, inputs: usize, outputs: usize| {
            let kernel = weight(&name(&format!("{part}.weight")), &[outputs, inputs]);
            linear(x, &kernel, Some(&weight(&name(&format!("{part}.bias")), &[outputs])), inputs)
        };
        let norm = |x: &[f32], part: &str, size: usize| {
            rms_norm(x, &weight(&name(&format!("{part}.weight")), &[size]), EPS)
        };
        let kv_heads = if (8..LAYERS - 8).contains(&i) { HEADS / 2 } else { HEADS };
        let normed = norm(&x, "ln1", D);
        let mut q = norm(&project(&normed, "attn.wq", D, D), "attn.q_norm", HEAD_DIM);
        let mut k = norm(&project(&normed, "attn.wk", D, kv_heads * HEAD_DIM), "attn.k_norm", HEAD_DIM);
        let v = project(&normed, "attn.wv", D, kv_heads * HEAD_DIM);
        rope(&mut q, HEADS, PREFIX, &tables);
        rope(&mut k, kv_heads, PREFIX, &tables);
        let mixed = attention(&q, &k, &v, AttentionShape { heads: HEADS, kv_heads, head_dim: HEAD_DIM });
        let gamma = weight(&name("attn.gamma.weight"), &[D]);
        scale_residual(&mut x, &project(&mixed, "attn.proj", D, D), Some(&gamma));
        let hidden = swiglu(&project(&norm(&x, "ln2", D), "ffn.w12", D, 2 * FFN), FFN);
        add(&mut x, &project(&hidden, "ffn.w3", FFN, D));
        visit(&format!("block.{i}"), &x);
    }
    let normed = rms_norm(&x, &weight("backbone.ln1.weight", &[D]), EPS);
    let features = planar(&normed[PREFIX * D..], D);
    visit("features", &features);
    head(&weight, features, (h, w), &[32, 24, 16, 16], &[16; 2], 29, &visit);
}

#[test]
fn generated_weights_are_the_stored_ones() {
    let weights = Tensors::read("tiny-sapiens2.safetensors");
    for name in [
        "backbone.cls_token",
        "backbone.blocks.3.attn.gamma.weight",
        "backbone.blocks.9.attn.wk.weight",
        "backbone.ln1.weight",
        "decode_head.deconv_layers.3.weight",
        "decode_head.conv_seg.bias",
    ] {
        assert_eq!(generated(name, weights.shape(name), 2), weights.f32(name), "{name}");
    }
}

#[test]
fn sapiens_at_128x96() {
    sapiens("tiny-sapiens.activations.safetensors", 128, 96);
}

#[test]
fn sapiens_at_160x64() {
    sapiens("tiny-sapiens.activations-160x64.safetensors", 160, 64);
}

#[test]
fn sapiens2_at_128x96() {
    sapiens2("tiny-sapiens2.activations.safetensors", 128, 96);
}

#[test]
fn sapiens2_at_160x64() {
    sapiens2("tiny-sapiens2.activations-160x64.safetensors", 160, 64);
}
