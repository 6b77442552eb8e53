//! The contact sheet: frames beside their overlays, and what the colours mean.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use embedded_graphics::Drawable;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_8X13;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::text::{Baseline, Text};
use gst::prelude::*;
use gst_video::prelude::*;
use image::{Rgb, RgbImage};
use sapiens_model::ModelCard;

/// Rows of pairs.
const ROWS: u64 = 3;
/// Pairs in a row.
const PAIRS: u64 = 2;
const TILE_WIDTH: u32 = 400;
const GAP: u32 = 8;
const LEGEND_COLUMNS: usize = 6;
const LEGEND_ROW: u32 = 20;
const PAPER: Rgb<u8> = Rgb([250, 250, 248]);
const INK: Rgb888 = Rgb888::new(30, 30, 34);

/// Writes the sheet of `frames` frames of `input` and `overlay`, two videos of the same frames, with the classes of
/// which there are `pixels`.
pub(crate) fn write(
    path: &Path,
    input: &Path,
    overlay: &Path,
    frames: u64,
    card: &ModelCard,
    pixels: &BTreeMap<u32, u64>,
) -> Result<(), String> {
    let shown = (ROWS * PAIRS).min(frames);
    // The middles of equal parts.
    let indices: Vec<u64> = (0..shown).map(|part| (2 * part + 1) * frames / (2 * shown)).collect();
    let pairs: Vec<_> = tiles(input, &indices)?.into_iter().zip(tiles(overlay, &indices)?).collect();
    let tile_height = pairs.first().map_or(0, |(frame, _)| frame.height());
    let rows = pairs.len().div_ceil(PAIRS as usize) as u32;
    // Those with a tenth of a thousandth of the people's pixels: a legend of specks helps nobody.
    let people: u64 = pixels.iter().filter(|(class, _)| **class != 0).map(|(_, count)| count).sum();
    let classes: Vec<_> = card
        .classes
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(index, _)| pixels.get(&(*index as u32)).is_some_and(|count| count * 10_000 > people))
        .map(|(_, class)| class)
        .collect();
    let legend_rows = classes.len().div_ceil(LEGEND_COLUMNS) as u32;
    let width = GAP + 2 * PAIRS as u32 * (TILE_WIDTH + GAP);
    let top = GAP + LEGEND_ROW;
    let legend_top = top + rows * (tile_height + GAP) + GAP;
    let mut sheet = Sheet(RgbImage::from_pixel(width, legend_top + legend_rows * LEGEND_ROW + GAP, PAPER));
    sheet.text(GAP, GAP, &format!("{}: frames of {}, and the labels over them", card.name(), name(input)));
    for (index, (frame, labels)) in pairs.iter().enumerate() {
        let column = 2 * (index as u32 % PAIRS as u32);
        let y = top + index as u32 / PAIRS as u32 * (tile_height + GAP);
        for (offset, tile) in [frame, labels].into_iter().enumerate() {
            let x = GAP + (column + offset as u32) * (TILE_WIDTH + GAP);
            image::imageops::replace(&mut sheet.0, tile, i64::from(x), i64::from(y));
        }
    }
    let column_width = (width - GAP) / LEGEND_COLUMNS as u32;
    for (index, class) in classes.into_iter().enumerate() {
        let x = GAP + (index % LEGEND_COLUMNS) as u32 * column_width;
        let y = legend_top + (index / LEGEND_COLUMNS) as u32 * LEGEND_ROW;
        let swatch = RgbImage::from_pixel(14, 14, Rgb(class.color));
        image::imageops::replace(&mut sheet.0, &swatch, i64::from(x), i64::from(y));
        sheet.text(x + 20, y, &class.name);
    }
    sheet.0.save(path).map_err(|error| format!("can't write {}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The frames of a video of these numbers, in ascending order, small.
fn tiles(video: &Path, indices: &[u64]) -> Result<Vec<RgbImage>, String> {
    let wrong = |what: &str| format!("{}: {what}", video.display());
    let description =
        "filesrc name=source ! decodebin ! videoconvert ! videoscale ! appsink name=sink sync=false";
    let pipeline = gst::parse::launch(description).map_err(|error| wrong(error.message()))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().map_err(|_| wrong("expected several elements"))?;
    let by_name = |name: &str| pipeline.by_name(name).ok_or_else(|| wrong("the pipeline lost an element"));
    by_name("source")?.set_property("location", video);
    let sink = by_name("sink")?.downcast::<gst_app::AppSink>().map_err(|_| wrong("expected an appsink"))?;
    sink.set_caps(Some(
        &gst_video::VideoCapsBuilder::new()
            .format(gst_video::VideoFormat::Rgb)
            .width(TILE_WIDTH as i32)
            .pixel_aspect_ratio(gst::Fraction::new(1, 1))
            .build(),
    ));
    // What goes wrong shows as a missing frame.
    let _ = pipeline.set_state(gst::State::Playing);
    let mut tiles = Vec::new();
    let mut frame = 0;
    while tiles.len() < indices.len() {
        let Ok(sample) = sink.pull_sample() else { break };
        if indices[tiles.len()] == frame {
            tiles.push(tile(&sample).ok_or_else(|| wrong("a frame without pixels"))?);
        }
        frame += 1;
    }
    let _ = pipeline.set_state(gst::State::Null);
    if tiles.len() < indices.len() {
        return Err(wrong(&format!("expected frame {}, found {frame} frames", indices[tiles.len()])));
    }
    Ok(tiles)
}

fn tile(sample: &gst::Sample) -> Option<RgbImage> {
    let info = gst_video::VideoInfo::from_caps(sample.caps()?).ok()?;
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
    let (width, height) = (info.width() as usize, info.height() as usize);
    let stride = *frame.plane_stride().first()? as usize;
    let data = frame.plane_data(0).ok()?;
    let pixels = data.chunks(stride).take(height).flat_map(|row| &row[..width * 3]).copied().collect();
    RgbImage::from_raw(info.width(), info.height(), pixels)
}

/// An image that can be written on.
struct Sheet(RgbImage);

impl Sheet {
    fn text(&mut self, x: u32, y: u32, text: &str) {
        let style = MonoTextStyle::new(&FONT_8X13, INK);
        let Ok(_) =
            Text::with_baseline(text, Point::new(x as i32, y as i32), style, Baseline::Top).draw(self);
    }
}

impl OriginDimensions for Sheet {
    fn size(&self) -> Size {
        Size::new(self.0.width(), self.0.height())
    }
}

impl DrawTarget for Sheet {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, color) in pixels {
            let inside = u32::try_from(at.x).ok().zip(u32::try_from(at.y).ok());
            if let Some(pixel) = inside.and_then(|(x, y)| self.0.get_pixel_mut_checked(x, y)) {
                *pixel = Rgb([color.r(), color.g(), color.b()]);
            }
        }
        Ok(())
    }
}
