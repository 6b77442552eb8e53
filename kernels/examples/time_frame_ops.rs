//! Prints how long the operations around the network take on one core: `cargo run --release --example time_frame_ops`.

use std::time::Instant;

use sapiens_kernels::{Filter, ImageMut, ImageRef, LabelWindow, Logits, ResizeArgmax, Resizer};

/// Milliseconds of the fastest of several calls, after one that makes the tables.
fn best_of(mut call: impl FnMut()) -> f64 {
    call();
    (0..15)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64() * 1e3
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let sizes = [(1920, 1080), (1280, 720), (3840, 2160), (640, 480), (1536, 2048)];
    for (width, height) in sizes {
        let src: Vec<u8> =
            (0..width * height * 3).map(|i: usize| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
        let mut dst = vec![0; 768 * 1024 * 3];
        for filter in [Filter::Linear, Filter::Area, Filter::Cubic] {
            let mut resizer = Resizer::new();
            let ms = best_of(|| {
                resizer.resize(
                    filter,
                    ImageRef::new(&src, width, height, width * 3),
                    ImageMut::new(&mut dst, 768, 1024, 768 * 3),
                );
            });
            println!("resize {filter:?} {width} x {height} to 768 x 1024: {ms:.2} ms");
        }
    }
    for (classes, height, width) in [(28, 512, 384), (29, 1024, 768)] {
        let values: Vec<f32> = (0..classes * height * width)
            .map(|i: usize| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8 as f32)
            .collect();
        for (out_width, out_height) in [(1920, 1080), (3840, 2160), (640, 480)] {
            let mut labels = vec![0; out_width * out_height];
            let mut argmax = ResizeArgmax::new();
            let window = LabelWindow::whole(out_height, out_width);
            let ms = best_of(|| {
                let logits = Logits::new(&values, classes, height, width);
                argmax.run(logits, window, 0..out_height, &mut labels);
            });
            println!("argmax {classes} x {height} x {width} to {out_width} x {out_height}: {ms:.1} ms");
        }
    }
}
