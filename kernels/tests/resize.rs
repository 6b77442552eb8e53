//! The 8-bit resizes: against the authors' preprocessed photos, against OpenCV, and against the naive twins.

mod support;

use sapiens_kernels::{Filter, ImageMut, ImageRef, Resizer, reference, resize};
use support::{Tensors, fnv1a64, hash_image, photo};

/// Width and height.
type Size = (usize, usize);

/// Resizes with gaps between the rows of both images and garbage in the destination; the gaps must stay as they were.
fn run(resizer: &mut Resizer, filter: Filter, src: &[u8], from: Size, to: Size) -> Vec<u8> {
    const GARBAGE: u8 = 0xA5;
    let (src_stride, dst_stride) = (from.0 * 3 + 5, to.0 * 3 + 7);
    let mut padded = vec![GARBAGE; src_stride * from.1];
    for (row, padded) in src.chunks_exact(from.0 * 3).zip(padded.chunks_exact_mut(src_stride)) {
        padded[..row.len()].copy_from_slice(row);
    }
    padded.truncate(src_stride * (from.1 - 1) + from.0 * 3);
    let mut dst = vec![GARBAGE; dst_stride * to.1];
    resizer.resize(
        filter,
        ImageRef::new(&padded, from.0, from.1, src_stride),
        ImageMut::new(&mut dst, to.0, to.1, dst_stride),
    );
    let mut dense = Vec::with_capacity(to.0 * to.1 * 3);
    for row in dst.chunks_exact(dst_stride) {
        let (row, gap) = row.split_at(to.0 * 3);
        assert!(gap.iter().all(|&byte| byte == GARBAGE), "{filter:?} {from:?} to {to:?} wrote past a row");
        dense.extend_from_slice(row);
    }
    dense
}

fn naive(filter: Filter, src: &[u8], from: Size, to: Size) -> Vec<u8> {
    match filter {
        Filter::Linear => reference::resize_linear(src, from, to),
        Filter::Area => reference::resize_area(src, from, to),
        Filter::Cubic => reference::resize_cubic(src, from, to),
    }
}

/// How many values differ, and the largest difference.
fn differing(a: &[u8], b: &[u8]) -> (usize, u8) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).filter(|&d| d > 0);
    (differences.clone().count(), differences.max().unwrap_or(0))
}

#[test]
fn equals_the_authors_preprocessed_photos() {
    for (model, photo_name, file, filter) in [
        ("tiny-sapiens", "photo-377x333.png", "photo", Filter::Linear),
        ("tiny-sapiens", "photo-61x45.png", "photo-61x45", Filter::Linear),
        ("tiny-sapiens2", "photo-377x333.png", "photo", Filter::Area),
        ("tiny-sapiens2", "photo-61x45.png", "photo-61x45", Filter::Cubic),
    ] {
        let (rgb, width, height) = photo(photo_name);
        let expected = Tensors::read(&format!("{model}.{file}.safetensors"));
        let actual = run(&mut Resizer::new(), filter, &rgb, (width, height), (96, 128));
        assert_eq!(
            differing(&actual, expected.u8("resized_rgb")),
            (0, 0),
            "{model}, {photo_name}, {filter:?}"
        );
    }
}

/// `opencv-resize.safetensors` names its origin in its metadata.
#[test]
fn equals_opencv() {
    let expected = Tensors::read("opencv-resize.safetensors");
    let mut off_by_one = 0;
    for name in expected.names() {
        let words: Vec<&str> = name.split(' ').collect();
        let number = |i: usize| words[i].parse().unwrap();
        let (from, to) = ((number(1), number(3)), (number(5), number(7)));
        let filter = match words[0] {
            "linear" => Filter::Linear,
            "area" => Filter::Area,
            "cubic" => Filter::Cubic,
            other => panic!("filter {other}"),
        };
        let actual = run(&mut Resizer::new(), filter, &hash_image(from.0, from.1), from, to);
        if expected.shape(name) == [8] {
            assert_eq!(fnv1a64(&actual).to_le_bytes(), expected.u8(name), "{name}");
            continue;
        }
        let (count, largest) = differing(&actual, expected.u8(name));
        // Where an image is less than 4 pixels wide or high, OpenCV falls back to another INTER_CUBIC, in fixed point;
        // elsewhere its sums have an order of their own, which shows at one value in thousands.
        let allowed = match filter {
            Filter::Cubic if from.0.min(from.1) < 4 => actual.len(),
            Filter::Cubic => actual.len() / 1000,
            _ => 0,
        };
        assert!(count <= allowed && largest <= 1, "{name}: {count} values differ by up to {largest}");
        off_by_one += count;
    }
    println!("cubic: {off_by_one} values off by one");
}

#[test]
fn equals_the_naive_twin_on_ugly_sizes() {
    let sides = [1, 2, 3, 5, 8, 16, 17, 33, 50, 96];
    let mut resizer = Resizer::new();
    let mut tried = 0;
    for (i, from) in sides.iter().flat_map(|&w| sides.map(|h| (w, h))).enumerate() {
        let src = hash_image(from.0, from.1);
        // Not all pairs: strides that are coprime with the number of sizes walk through all kinds.
        for k in 0..9 {
            let j = (i * 7 + k * 11) % 100;
            let to = (sides[j / 10], sides[j % 10]);
            for filter in [Filter::Linear, Filter::Area, Filter::Cubic] {
                let actual = run(&mut resizer, filter, &src, from, to);
                let expected = naive(filter, &src, from, to);
                assert_eq!(differing(&actual, &expected), (0, 0), "{filter:?} {from:?} to {to:?}");
                tried += 1;
            }
        }
    }
    println!("{tried} resizes");
}

#[test]
fn a_kept_resizer_forgets_the_last_image() {
    for filter in [Filter::Linear, Filter::Area, Filter::Cubic] {
        let mut resizer = Resizer::new();
        for (from, to) in
            [((40, 30), (24, 16)), ((40, 30), (24, 16)), ((24, 16), (40, 30)), ((40, 30), (24, 16))]
        {
            for flip in [0, 255] {
                let src: Vec<u8> = hash_image(from.0, from.1).iter().map(|byte| byte ^ flip).collect();
                let actual = run(&mut resizer, filter, &src, from, to);
                assert_eq!(actual, naive(filter, &src, from, to), "{filter:?} {from:?} to {to:?}");
            }
        }
    }
}

#[test]
fn the_same_size_is_a_copy_and_one_colour_stays() {
    let src = hash_image(31, 17);
    let grey = vec![200; 31 * 17 * 3];
    let mut dst = vec![0; 31 * 17 * 3];
    for resize in [resize::linear, resize::area, resize::cubic] {
        resize(ImageRef::new(&src, 31, 17, 93), ImageMut::new(&mut dst, 31, 17, 93));
        assert_eq!(dst, src);
    }
    for (width, height) in [(1, 1), (64, 5), (5, 64), (100, 100), (31, 4)] {
        for resize in [resize::linear, resize::area, resize::cubic] {
            let mut dst = vec![0; width * height * 3];
            resize(ImageRef::new(&grey, 31, 17, 93), ImageMut::new(&mut dst, width, height, width * 3));
            assert!(dst.iter().all(|&byte| byte == 200), "{width} x {height}");
        }
    }
}

#[test]
#[should_panic(expected = "hold no image")]
fn too_few_bytes_are_refused() {
    ImageRef::new(&[0; 26], 3, 3, 9);
}

#[test]
#[should_panic(expected = "shorter than a row")]
fn a_short_stride_is_refused() {
    ImageMut::new(&mut [0; 27], 3, 3, 8);
}
