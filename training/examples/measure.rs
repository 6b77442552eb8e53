//! How long one training step of the demo network takes.
#![allow(clippy::unwrap_used)]

use std::time::Instant;

use sapiens_portable::{Dims, Family};
use sapiens_training::{gradient::GradientOfBatch, loss::Weights, parameters::Layout, sample::{Sample, Normalisation}};

fn main() {
    let args: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (batch, part, threads) = (args[0], args[1], args[2]);
    let dims = Dims {
        family: Family::Sapiens2 { full_kv_layers: 2 },
        embed_dim: 192, layers: 6, heads: 6, ffn_dim: 384,
        deconv_channels: vec![96, 64, 32, 24], conv_channels: vec![24, 24], classes: 29,
    };
    let layout = Layout::new(&dims);
    println!("{} parameters", layout.count());
    let values = layout.initial(&dims, 1);
    let normalisation = Normalisation { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] };
    let weights = Weights { dice: 1.0, smoothing: 0.0 };
    let g = GradientOfBatch::new(&dims, &layout, normalisation, weights, part, threads).unwrap();
    let images: Vec<_> = (0..batch).map(|i| {
        let rgb = (0..3 * 256 * 192).map(|j| (j * 7 + i * 13) as u8).collect();
        let labels = (0..256 * 192).map(|j| ((j / 1000 + i) % 29) as u8).collect();
        Sample::new(256, 192, rgb, labels)
    }).collect();
    for _ in 0..4 {
        let start = Instant::now();
        let r = g.compute(&layout, &values, &images);
        let s = start.elapsed().as_secs_f64();
        println!("{s:.3} s, {:.1} images/s, {:?}", batch as f64 / s, r.loss);
    }
}
