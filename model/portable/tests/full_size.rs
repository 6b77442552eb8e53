//! The published sizes at 1024 x 768 with generated weights, against the reference. Minutes, not seconds.

// Helpers outside #[test] functions, which clippy.toml doesn't know as tests.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use sapiens_portable::Step;

mod common;

/// Every `step`-th row and column from `first` of planes `[_, height, width]`.
fn slice(values: &[f32], [height, width]: [usize; 2], first: usize, step: usize) -> Vec<f32> {
    let rows = |plane: &[f32]| {
        let row = |y: usize| {
            plane[y * width..][..width].iter().skip(first).step_by(step).copied().collect::<Vec<_>>()
        };
        (first..height).step_by(step).flat_map(row).collect::<Vec<_>>()
    };
    values.chunks_exact(height * width).flat_map(rows).collect()
}

fn check(nick: &str, file: &str, first: usize, step: usize) {
    let dims = common::variant(nick).unwrap();
    let (height, width) = (1024, 768);
    let start = Instant::now();
    let network = common::network(&dims, 3);
    println!("{nick}: weights {:.1} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut features = Vec::new();
    let logits =
        network.forward_with(common::generated_input(height, width, 9), height, width, &mut |step, x| {
            if step == Step::Features {
                features = x.clone().permute([0, 3, 1, 2]).into_data().to_vec::<f32>().unwrap();
            }
        });
    println!("{nick}: forward {:.1} s, peak {:.2} GB", start.elapsed().as_secs_f64(), common::peak_rss_gb());
    for (name, _, expected) in common::reference(file) {
        match name.as_str() {
            "logits.slice" => {
                let found = slice(&logits.values, [logits.height, logits.width], first, step);
                let (max, mean) = common::difference(&name, &found, &expected);
                assert!(max <= 0.002 && mean <= 5e-4, "{nick}: max {max} mean {mean}");
            }
            "features.slice" => {
                let planes =
                    features.chunks_exact(64 * 48).step_by(16).flatten().copied().collect::<Vec<_>>();
                common::difference(&name, &slice(&planes, [64, 48], 0, 4), &expected);
            }
            _ => {}
        }
    }
}

// One test, so that the two networks aren't in memory at once.
#[test]
fn full_size_networks_agree_with_the_authors() {
    check("0.3b", "sapiens-0.3b.logits.safetensors", 4, 8);
    check("sapiens2-0.4b", "sapiens2-0.4b.logits.safetensors", 8, 16);
}
