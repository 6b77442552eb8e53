//! The tiny models of the reference data: every activation.

// Helpers outside #[test] functions, which clippy.toml doesn't know as tests.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use sapiens_portable::Dims;

mod common;

/// Compares every activation that `file` has.
fn check(dims: &Dims, seed: u64, file: &str) {
    let expected: HashMap<_, _> = common::reference(file).into_iter().map(|(n, s, v)| (n, (s, v))).collect();
    let (input_shape, input) = &expected["input"];
    let network = common::network(dims, seed);
    println!("{file}");
    let mut seen = Vec::new();
    let logits = network.forward_with(input.clone(), input_shape[2], input_shape[3], &mut |step, tensor| {
        let name = step.to_string();
        let Some((shape, values)) = expected.get(&name) else { return };
        // Maps are planar in the reference.
        let tensor = if shape.len() == 4 { tensor.clone().permute([0, 3, 1, 2]) } else { tensor.clone() };
        let (max, mean) = common::difference(&name, &tensor.into_data().to_vec::<f32>().unwrap(), values);
        // Roundings of the second family's rotary embedding flip; a wrong activation is off by far more.
        assert!(max <= 0.005 && mean <= 5e-4, "{name}: max {max} mean {mean}");
        seen.push(name);
    });
    let (shape, values) = &expected["logits"];
    assert_eq!(*shape, [1, logits.classes, logits.height, logits.width]);
    assert_eq!([logits.height, logits.width], dims.logits_size(input_shape[2], input_shape[3]));
    let (max, mean) = common::difference("logits", &logits.values, values);
    assert!(max <= 0.002 && mean <= 1e-4, "max {max} mean {mean}");
    let unseen: Vec<_> =
        expected.keys().filter(|n| *n != "input" && !n.starts_with("rope.") && !seen.contains(n)).collect();
    assert!(unseen.is_empty(), "never computed: {unseen:?}");
}

#[test]
fn sapiens() {
    check(&common::tiny_sapiens(), 1, "tiny-sapiens.activations.safetensors");
}

#[test]
fn sapiens_at_another_grid() {
    check(&common::tiny_sapiens(), 1, "tiny-sapiens.activations-160x64.safetensors");
}

#[test]
fn sapiens2() {
    check(&common::tiny_sapiens2(), 2, "tiny-sapiens2.activations.safetensors");
}

#[test]
fn sapiens2_at_another_grid() {
    check(&common::tiny_sapiens2(), 2, "tiny-sapiens2.activations-160x64.safetensors");
}

#[test]
fn generated_weights_are_the_reference_files() {
    for (name, shape, values) in common::reference("tiny-sapiens2.safetensors") {
        if name == "backbone.rope_embed.periods" {
            continue;
        }
        let generated = common::generated(&name, &shape, 2);
        assert!(generated.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
    }
}
