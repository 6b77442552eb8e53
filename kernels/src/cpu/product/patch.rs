//! An image as rows of patches: the patch embedding's left operand.

use crate::ImageRef;
use crate::cpu::threads::SharedMut;
use crate::cpu::{Element, Threads};
use crate::image::CHANNELS;

/// The side of a patch.
pub const PATCH: usize = 16;

/// Cuts `image [channels, height, width]` into `rows [height / 16 * width / 16, channels * 256]`: patches in row-major order of
/// their grid, values in the order of the embedding's weight `[D, channels, 16, 16]`.
///
/// # Panics
/// If a side isn't a multiple of 16 or lengths don't fit together.
pub fn patch_rows<A: Element>(
    threads: &mut Threads,
    image: &[f32],
    [height, width]: [usize; 2],
    rows: &mut [A],
) {
    assert!(height.is_multiple_of(PATCH) && width.is_multiple_of(PATCH), "patches of {height} x {width}");
    assert_eq!(rows.len(), image.len(), "patches have all of the image's values");
    let plane = height * width;
    assert!(plane > 0 && image.len().is_multiple_of(plane), "{} values of {height} x {width}", image.len());
    let (channels, across) = (image.len() / plane, width / PATCH);
    let band = across * channels * PATCH * PATCH;
    let to = SharedMut(rows.as_mut_ptr());
    threads.run(height / PATCH, |_, task| {
        // SAFETY: bands of patches are disjoint stretches of `rows`.
        let rows = unsafe { std::slice::from_raw_parts_mut(to.at(task * band), band) };
        for (i, line) in rows.chunks_exact_mut(PATCH).enumerate() {
            let (patch, line_of_patch) = (i / (channels * PATCH), i % (channels * PATCH));
            let (channel, y) = (line_of_patch / PATCH, task * PATCH + line_of_patch % PATCH);
            let from = &image[channel * plane + y * width + patch * PATCH..][..PATCH];
            line.iter_mut().zip(from).for_each(|(to, &from)| *to = A::from_f32(from));
        }
    });
}

/// What [`patch_rows`] makes of a canvas `[3, height, width]` whose top left is `image`, a colour's level `i` being `levels[colour][i]`, and
/// the rest of it zero.
///
/// # Panics
/// If a side of the canvas isn't a multiple of 16 or smaller than the image's, or `rows` has another length.
pub fn pixel_patches<A: Element>(
    threads: &mut Threads,
    image: ImageRef<'_>,
    levels: &[[A; 256]; CHANNELS],
    [height, width]: [usize; 2],
    rows: &mut [A],
) {
    assert!(height.is_multiple_of(PATCH) && width.is_multiple_of(PATCH), "patches of {height} x {width}");
    assert!(image.height() <= height && image.width() <= width, "an image larger than {height} x {width}");
    assert_eq!(rows.len(), CHANNELS * height * width, "patches have all of the canvas's values");
    let band = width * PATCH * CHANNELS;
    let to = SharedMut(rows.as_mut_ptr());
    threads.run(height / PATCH, |_, task| {
        // SAFETY: bands of patches are disjoint stretches of `rows`.
        let rows = unsafe { std::slice::from_raw_parts_mut(to.at(task * band), band) };
        for (index, patch) in rows.chunks_exact_mut(PATCH * PATCH * CHANNELS).enumerate() {
            let left = (index * PATCH).min(image.width());
            let right = (left + PATCH).min(image.width());
            for y in 0..PATCH {
                let from = task * PATCH + y;
                let pixels = match from < image.height() {
                    true => image.row(from)[left * CHANNELS..right * CHANNELS].as_chunks::<CHANNELS>().0,
                    false => &[],
                };
                for (channel, levels) in levels.iter().enumerate() {
                    let line = &mut patch[(channel * PATCH + y) * PATCH..][..PATCH];
                    let (there, beside) = line.split_at_mut(pixels.len());
                    for (to, pixel) in there.iter_mut().zip(pixels) {
                        *to = levels[usize::from(pixel[channel])];
                    }
                    beside.fill(A::from_f32(0.0));
                }
            }
        }
    });
}
