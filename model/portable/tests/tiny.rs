//! The tiny models of the reference data: every activation.

use std::collections::HashMap;

use sapiens_portable::Dims;

mod common;

/// Largest differences of the features' and the logits' reference, the logits' mean.
fn check(dims: &Dims, seed: u64, file: &str) {
    let expected: HashMap<_, _> = common::reference(file).into_iter().map(|(n, s, v)| (n, (s, v))).collect();
    let (shape, input) = &expected["input"];
    let network = common::network(dims, seed);
    println!("{file}");
    let mut seen = Vec::new();
    let logits = network.forward_with(input.clone(), shape[2], shape[3], &mut |step, tensor| {
        let name = step.to_string();
        let Some((shape, values)) = expected.get(&name) else { return };
        // Maps are planar in the reference.
        let tensor = if shape.len() == 4 { tensor.clone().permute([0, 3, 1, 2]) } else { tensor.clone() };
        let (max, _) = common::difference(&name, &tensor.into_data().to_vec::<f32>().unwrap(), values);
        assert!(max <= 0.002 || (name != "logits"), "{name}: {max}");
        seen.push(name);
    });
    let (shape, values) = &expected["logits"];
    assert_eq!(*shape, [1, logits.classes, logits.height, logits.width]);
    assert_eq!(
        [logits.height, logits.width],
        dims.logits_size(common_side(&expected, 2), common_side(&expected, 3))
    );
    let (max, mean) = common::difference("logits", &logits.values, values);
    assert!(max <= 0.002 && mean <= 1e-4, "max {max} mean {mean}");
    let unseen: Vec<_> =
        expected.keys().filter(|n| *n != "input" && !n.starts_with("rope.") && !seen.contains(n)).collect();
    assert!(unseen.is_empty(), "never computed: {unseen:?}");
}

fn common_side(expected: &HashMap<String, (Vec<usize>, Vec<f32>)>, axis: usize) -> usize {
    expected["input"].0[axis]
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
