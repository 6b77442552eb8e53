//! Held against what the authors' code made of two photos.

use std::path::Path;

use safetensors::SafeTensors;

use super::*;
use crate::card::ModelCard;
use crate::input_size::InputSize;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

/// `resized_rgb` and `input` for a photo through our preprocessing and through the authors'.
fn both(card: &str, photo: &str, golden: &str) -> ([Vec<u8>; 2], [Vec<f32>; 2]) {
    let card = ModelCard::load(&data(card)).unwrap();
    let photo = image::open(data(photo)).unwrap().into_rgb8();
    let (width, height) = (photo.width() as usize, photo.height() as usize);
    let frame = FrameView::rgb(width, height, photo.as_raw()).unwrap();
    let mut preprocessor = Preprocessor::new(&card.input);
    let mut input = Vec::new();
    preprocessor.run(&frame, InputSize::Card.place(&card, width, height).unwrap(), &mut input);
    let bytes = std::fs::read(data(golden)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let resized = file.tensor("resized_rgb").unwrap().data().to_vec();
    let values =
        file.tensor("input").unwrap().data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
    ([preprocessor.resized_rgb().to_vec(), resized], [input, values.collect()])
}

#[test]
fn the_first_familys_pixels_are_the_authors_bit_for_bit() {
    for (photo, golden) in [
        ("photo-377x333.png", "tiny-sapiens.photo.safetensors"),
        ("photo-61x45.png", "tiny-sapiens.photo-61x45.safetensors"),
    ] {
        let ([ours, theirs], [input, expected]) = both("tiny-sapiens.toml", photo, golden);
        assert!(ours == theirs, "{photo}: resized pixels differ");
        let worst = input.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{photo}: input differs by at most {worst:e}");
        assert!(worst <= 1e-6, "{photo}: {worst}");
    }
}

#[test]
fn the_second_familys_pixels_are_within_one_level() {
    for (photo, golden) in [
        ("photo-377x333.png", "tiny-sapiens2.photo.safetensors"),
        ("photo-61x45.png", "tiny-sapiens2.photo-61x45.safetensors"),
    ] {
        let ([ours, theirs], _) = both("tiny-sapiens2.toml", photo, golden);
        assert_eq!(ours.len(), theirs.len());
        let off = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
        println!("{photo}: {off} of {} values differ", ours.len());
        assert!(ours.iter().zip(&theirs).all(|(a, b)| a.abs_diff(*b) <= 1), "{photo}");
    }
}

#[test]
fn native_frames_are_padded_with_the_mean_colour() {
    let card = ModelCard::load(&data("tiny-sapiens2.toml")).unwrap();
    let pixels: Vec<u8> = (0..33 * 5 * 3).map(|i| (i % 251) as u8).collect();
    let frame = FrameView::rgb(33, 5, &pixels).unwrap();
    // Whatever a frame before left there.
    let mut input = vec![f32::NAN; 7];
    let placement = InputSize::Native.place(&card, 33, 5).unwrap();
    Preprocessor::new(&card.input).run(&frame, placement, &mut input);
    assert_eq!(input.len(), 3 * 32 * 64);
    for (i, value) in input.iter().enumerate() {
        let (channel, y, x) = (i / (32 * 64), i / 64 % 32, i % 64);
        let expected = if x < 33 && y < 5 {
            (f32::from(pixels[(y * 33 + x) * 3 + channel]) - card.input.mean[channel])
                / card.input.std[channel]
        } else {
            0.0
        };
        assert_eq!(*value, expected, "channel {channel} at {x},{y}");
    }
}
