//! Writes pictures of drawn people, their labels, and a sheet of both side by side.
//!
//! `cargo run -p sapiens-figures --release --example draw -- --out DIR --count N --seed S [--clip] [--size WxH]
//! [--every SECONDS] [--kinds training|held-out|all] [--aspect A] [--people N] [--clean]`

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use image::RgbImage;
use sapiens_figures::{CLASSES, Clip, Kinds, Picture, Scene, SceneOptions};

/// The classes' colours: R, G, B.
const COLOURS: [[u8; 3]; CLASSES] = [
    [50, 50, 50],
    [255, 218, 0],
    [14, 204, 182],
    [128, 200, 255],
    [255, 0, 109],
    [189, 0, 204],
    [255, 0, 218],
    [0, 160, 204],
    [0, 255, 145],
    [204, 0, 131],
    [182, 0, 255],
    [255, 109, 0],
    [0, 255, 255],
    [72, 0, 255],
    [204, 131, 0],
    [255, 0, 0],
    [72, 255, 0],
    [189, 204, 0],
    [182, 255, 0],
    [102, 0, 204],
    [32, 72, 204],
    [0, 145, 255],
    [14, 204, 0],
    [0, 128, 72],
    [235, 205, 119],
    [115, 227, 112],
    [157, 113, 143],
    [132, 93, 50],
    [82, 21, 114],
];

struct Arguments {
    out: PathBuf,
    count: usize,
    seed: u64,
    clip: bool,
    /// Seconds from one frame of a clip to the next.
    every: f64,
    size: (usize, usize),
    options: SceneOptions,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments {
        out: PathBuf::from("figures-drawn"),
        count: 24,
        seed: 0,
        clip: false,
        every: 1.0 / 30.0,
        size: (192, 256),
        options: SceneOptions::default(),
    };
    let mut aspect = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--out" => found.out = PathBuf::from(value()?),
            "--count" => found.count = value()?.parse()?,
            "--seed" => found.seed = value()?.parse()?,
            "--clip" => found.clip = true,
            "--every" => found.every = value()?.parse()?,
            "--size" => {
                let text = value()?;
                let (width, height) = text.split_once('x').ok_or("--size wants WIDTHxHEIGHT")?;
                found.size = (width.parse()?, height.parse()?);
            }
            "--aspect" => aspect = Some(value()?.parse()?),
            "--people" => {
                let count = value()?.parse()?;
                found.options.people = count..=count;
            }
            "--clean" => found.options.degrade = false,
            "--kinds" => {
                found.options.kinds = match value()?.as_str() {
                    "training" => Kinds::Training,
                    "held-out" => Kinds::HeldOut,
                    "all" => Kinds::All,
                    other => return Err(format!("no such kinds: {other}").into()),
                }
            }
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    // Square pixels unless something else is asked for.
    found.options.aspect = aspect.unwrap_or(found.size.0 as f64 / found.size.1 as f64);
    Ok(found)
}

fn painted(labels: &[u8]) -> Vec<u8> {
    labels.iter().flat_map(|&label| COLOURS[usize::from(label)]).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { out, count, seed, clip, every, size: (width, height), options } = arguments()?;
    std::fs::create_dir_all(&out)?;
    let moving = clip.then(|| Clip::sample(seed, &options));
    let columns = (1600 / (2 * width)).clamp(1, 6);
    let rows = count.div_ceil(columns).min(6);
    let mut sheet = RgbImage::new((columns * 2 * width) as u32, (rows * height) as u32);
    let mut spent = Duration::ZERO;
    for index in 0..count {
        let before = Instant::now();
        let Picture { rgb, labels, .. } = match &moving {
            Some(clip) => clip.scene_at(index as f64 * every).render(width, height),
            None => Scene::sample(seed + index as u64, &options).render(width, height),
        };
        spent += before.elapsed();
        let size = (width as u32, height as u32);
        let picture = RgbImage::from_raw(size.0, size.1, rgb).ok_or("a picture of another size")?;
        let labels = RgbImage::from_raw(size.0, size.1, painted(&labels)).ok_or("labels of another size")?;
        picture.save(out.join(format!("{index:05}.png")))?;
        labels.save(out.join(format!("{index:05}.labels.png")))?;
        if index < columns * rows {
            let (x, y) = (index % columns * 2 * width, index / columns * height);
            image::imageops::replace(&mut sheet, &picture, x as i64, y as i64);
            image::imageops::replace(&mut sheet, &labels, (x + width) as i64, y as i64);
        }
    }
    sheet.save(out.join("sheet.png"))?;
    println!(
        "{count} pictures of {width}x{height}, {:.2} ms each",
        spent.as_secs_f64() * 1e3 / count.max(1) as f64
    );
    Ok(())
}
