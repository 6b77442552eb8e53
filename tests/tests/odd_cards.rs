//! Networks of sizes that no published model has, on both backends: what one layout gets right by luck shows here.
#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use sapiens_model::{
    BackendRequest, InputSize, Logits, Mode, ModelCard, Options, Output, OwnedFrame, Precision, Segmenter,
    Weights,
};
use sapiens_tests::{data, difference};

fn logits(card: &ModelCard, mode: Mode, input_size: InputSize) -> Logits {
    let backend = BackendRequest { mode: Some(mode), precision: Some(Precision::F32), ..Default::default() };
    let options = Options { backend, input_size, keep_logits: true, ..Options::default() };
    let segmenter = Segmenter::new(card.clone(), &Weights::generated(card, 5), options).unwrap();
    let pixels = (0..75 * 50 * 3).map(|i: usize| (i * i % 251) as u8).collect();
    let mut output = Output::default();
    segmenter.submit(OwnedFrame::rgb(75, 50, pixels).unwrap()).unwrap();
    segmenter.receive(&mut output).unwrap();
    output.logits.unwrap()
}

/// Embedding, heads, FFN, deconvolutions, convolutions.
type Sizes = (usize, usize, usize, &'static [usize], &'static [usize]);

const SIZES: [Sizes; 6] = [
    (60, 1, 37, &[7], &[]),
    (40, 2, 64, &[9, 13], &[5]),
    (152, 2, 33, &[16, 8, 3], &[3, 11]),
    (64, 4, 1, &[1], &[1, 1]),
    (256, 2, 96, &[33, 17, 6, 2], &[]),
    (48, 12, 100, &[20, 31], &[19, 2, 40]),
];

#[test]
fn both_backends_agree() {
    for name in ["tiny-sapiens.toml", "tiny-sapiens2.toml"] {
        for (embed_dim, heads, ffn_dim, deconv, conv) in SIZES {
            let mut card = ModelCard::load(&data(name)).unwrap();
            let network = &mut card.network;
            (network.embed_dim, network.heads, network.ffn_dim, network.layers) =
                (embed_dim, heads, ffn_dim, 3);
            (network.deconv_channels, network.conv_channels) = (deconv.to_vec(), conv.to_vec());
            // The middle one of three layers has grouped keys, where there are two heads to a group.
            let full = if heads.is_multiple_of(2) { 1 } else { 2 };
            network.full_kv_layers = network.full_kv_layers.map(|_| full);
            for input_size in [InputSize::Card, InputSize::Native, InputSize::Fixed { width: 16, height: 48 }]
            {
                let [portable, kernels] =
                    [Mode::Portable, Mode::Kernels].map(|mode| logits(&card, mode, input_size));
                assert_eq!((kernels.height, kernels.width), (portable.height, portable.width));
                let found = difference(&kernels.values, &portable.values);
                println!("{name}, D {embed_dim}, {deconv:?}, {conv:?}, input {input_size}: {found:?}");
                // Roundings of the second family's rotary embedding flip; a wrong value is off by far more.
                assert!(found.max <= 0.02 && found.mean <= 5e-4, "{name}, D {embed_dim}: {found:?}");
            }
        }
    }
}
