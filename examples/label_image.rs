//! Labels one image with the library and prints what covers how much of it.
//!
//! ```text
//! cargo run --release --example label_image -- sapiens2-0.4b sapiens2_0.4b_seg.safetensors photo.jpg
//! ```

use std::path::Path;

use sapiens_model::{ModelCard, Options, Output, OwnedFrame, Segmenter, Variant, Weights};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [variant, weights, image] = arguments.as_slice() else {
        return Err("expected three arguments: VARIANT WEIGHTS IMAGE".into());
    };

    // A card says what the model is; weights are checked against it when they are opened.
    let card = ModelCard::of(variant.parse::<Variant>()?);
    let weights = Weights::locate_and_open(&card, Some(Path::new(weights)), false)?;
    let segmenter = Segmenter::new(card, &weights, Options::default())?;

    let image = image::open(image)?.into_rgb8();
    let frame = OwnedFrame::rgb(image.width() as usize, image.height() as usize, image.into_raw())?;

    // A video would submit the next frame before it receives the labels of the last one.
    let mut output = Output::default();
    segmenter.submit(frame)?;
    segmenter.receive(&mut output)?;

    println!("{} ran on {}", segmenter.card().name(), segmenter.backend());
    for region in output.labels.regions() {
        let name = &segmenter.card().classes[usize::from(region.class)].name;
        println!("{name}: {} pixels within {:?}", region.pixels, region.bounds);
    }
    Ok(())
}
