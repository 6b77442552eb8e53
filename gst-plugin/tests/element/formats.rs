//! Every format at ordinary, odd and extreme sizes, however its planes lie in memory: labels come from the right
//! pixels, pictures are right, and nothing between pixels is touched.

use gst::prelude::*;
use gst_check::Harness;
use gst_video::{VideoFormat, VideoInfo, VideoMeta};
use gstsapiensseg::{OutputChoice, SapiensSegMeta};
use sapiens_model::{ModelCard, Palette, Variant};

use crate::common::green_element;
use crate::frames::{self, ALPHA, FORMATS, LAYS, Lay, Picture};

const SIZES: [(u32, u32); 11] = [
    (1, 1),
    (1, 19),
    (19, 1),
    (2, 2),
    (3, 3),
    (61, 45),
    (3, 200),
    (200, 3),
    (377, 333),
    (4097, 3),
    (2, 4099),
];

/// A label of 0 to 15 for each place, in runs and alone, that tells rows from columns.
fn label(x: usize, y: usize) -> u8 {
    let block = x / 9 + 3 * (y / 5);
    (if block.is_multiple_of(3) { x * 7 + y * 3 } else { block * 5 } % 16) as u8
}

fn harness(output: OutputChoice) -> Harness {
    let element = green_element();
    element.set_property("output", output);
    Harness::with_element(&element, Some("sink"), Some("src"))
}

/// Calls `check` with what came in and what went out for every size and lay of one format. Every other frame is
/// held by somebody else while the element has it.
fn each_frame(
    output: OutputChoice,
    format: VideoFormat,
    check: impl Fn(&Picture, &gst::Buffer, &gst::Buffer, bool),
) {
    let mut harness = harness(output);
    let mut frame = 0;
    for size in SIZES {
        let info = frames::info(format, size);
        harness.set_src_caps(info.to_caps().unwrap());
        for lay in LAYS {
            for held in [false, true] {
                let picture = Picture::of_labels(&info, lay, label);
                let buffer = picture.buffer(frame * 33);
                frame += 1;
                let shared = held.then(|| buffer.clone());
                // The same bytes elsewhere, to compare with.
                let given = picture.buffer(0);
                let before = frames::address(&buffer);
                assert_eq!(harness.push(buffer), Ok(gst::FlowSuccess::Ok), "{format} {size:?} {lay:?}");
                let out = harness.pull().unwrap();
                if let Some(shared) = shared {
                    let same = frames::bytes(&shared) == picture.bytes;
                    assert!(same, "{output:?}, {format} {size:?} {lay:?}: another's frame was written to");
                }
                let painted_in_place = matches!(lay, Lay::Default | Lay::Padded | Lay::Reversed) && !held;
                if output != OutputChoice::Mask && (painted_in_place || output == OutputChoice::Meta) {
                    assert_eq!(
                        frames::address(&out),
                        before,
                        "{output:?}, {format} {size:?} {lay:?}: a copy"
                    );
                }
                let meta = SapiensSegMeta::from_buffer(&out).unwrap();
                let (width, height) = picture.size();
                assert_eq!((meta.width as usize, meta.height as usize), (width, height));
                let labels = frames::bytes(&meta.mask);
                assert_eq!(labels.len(), width * height);
                for (i, found) in labels.iter().enumerate() {
                    let (x, y) = (i % width, i / width);
                    assert_eq!(*found, label(x, y), "{output:?}, {format} {size:?} {lay:?} at {x},{y}");
                }
                check(&picture, &given, &out, held);
            }
        }
    }
}

#[test]
fn meta_leaves_every_byte_as_it_was() {
    for format in FORMATS {
        each_frame(OutputChoice::Meta, format, |picture, _, out, _| {
            assert!(frames::bytes(out) == picture.bytes, "{format} {:?} {:?}", picture.size(), picture.lay);
            let meta = out.meta::<VideoMeta>().map(|meta| (meta.offset().to_vec(), meta.stride().to_vec()));
            let given = picture.buffer(0);
            let given =
                given.meta::<VideoMeta>().map(|meta| (meta.offset().to_vec(), meta.stride().to_vec()));
            assert_eq!(meta, given, "{format}: the frame's planes moved");
        });
    }
}

/// R, G, B as Y, U, V by ITU-R BT.601 or BT.709, 8 bits.
fn to_yuv(rgb: [u8; 3], info: &VideoInfo) -> [f64; 3] {
    let (kr, kb) = match info.colorimetry().matrix() {
        gst_video::VideoColorMatrix::Bt709 => (0.2126, 0.0722),
        _ => (0.299, 0.114),
    };
    let [r, g, b] = rgb.map(|value| f64::from(value) / 255.0);
    let y = kr * r + (1.0 - kr - kb) * g + kb * b;
    let (pb, pr) = ((b - y) / 2.0 / (1.0 - kb), (r - y) / 2.0 / (1.0 - kr));
    match info.colorimetry().range() {
        gst_video::VideoColorRange::Range0_255 => [y * 255.0, 128.0 + pb * 255.0, 128.0 + pr * 255.0],
        _ => [16.0 + y * 219.0, 128.0 + pb * 224.0, 128.0 + pr * 224.0],
    }
}

#[test]
fn overlay_paints_the_shown_classes_and_nothing_else() {
    let palette = Palette::of(&ModelCard::of(Variant::Sapiens1b));
    for format in FORMATS {
        each_frame(OutputChoice::Overlay, format, |picture, _, out, _| {
            let out = frames::bytes(out);
            let (width, height) = picture.size();
            let finfo = picture.info.format_info();
            let colors: Vec<[f64; 3]> = (0..16)
                .map(|label| match finfo.is_rgb() {
                    true => palette.color(label).map(f64::from),
                    false => to_yuv(palette.color(label), &picture.info),
                })
                .collect();
            let mut untouched = picture.bytes.clone();
            for component in 0..frames::colors(&picture.info) {
                let c = component as usize;
                let (across, down) = (1 << finfo.w_sub()[c], 1 << finfo.h_sub()[c]);
                for y in (0..height).step_by(down) {
                    for x in (0..width).step_by(across) {
                        let at = picture.at(component, x, y);
                        let before = f64::from(picture.bytes[at]);
                        let (mut sum, mut pixels) = (0.0, 0.0);
                        for y in y..(y + down).min(height) {
                            for x in x..(x + across).min(width) {
                                let label = label(x, y);
                                sum += match label {
                                    0 => before,
                                    _ => 0.5 * before + 0.5 * colors[usize::from(label)][c],
                                };
                                pixels += 1.0;
                            }
                        }
                        let expected = sum / pixels;
                        // Exactly the nearest value in RGB; in YUV the colour itself is rounded before it is mixed.
                        let tolerance = if finfo.is_rgb() { 0.5 } else { 1.0 };
                        let found = f64::from(out[at]);
                        assert!(
                            (found - expected).abs() <= tolerance,
                            "{format} {width} x {height} {:?}: component {c} at {x},{y} is {found}, expected {expected}",
                            picture.lay
                        );
                        untouched[at] = out[at];
                    }
                }
            }
            assert!(
                untouched == out,
                "{format} {width} x {height} {:?}: padding or alpha changed",
                picture.lay
            );
        });
    }
}

#[test]
fn alpha_cuts_out_the_shown_classes_and_nothing_else() {
    for (format, twin) in ALPHA {
        each_frame(OutputChoice::Alpha, format, |picture, _, out, _| {
            let out = frames::bytes(out);
            let (width, height) = picture.size();
            // Where the twin has its alpha; the lay is the same.
            let with_alpha =
                Picture { info: frames::info(twin, (width as u32, height as u32)), ..picture.clone() };
            let mut expected = picture.bytes.clone();
            for y in 0..height {
                for x in 0..width {
                    let at = with_alpha.at(3, x, y);
                    expected[at] = match label(x, y) {
                        0 => 0,
                        _ if format == twin => picture.bytes[at],
                        _ => 255,
                    };
                }
            }
            assert!(out == expected, "{format} {width} x {height} {:?}", picture.lay);
        });
    }
}

#[test]
fn alpha_is_named_in_the_video_meta_too() {
    for (format, twin) in ALPHA {
        each_frame(OutputChoice::Alpha, format, |_, input, out, _| {
            let meta = out.meta::<VideoMeta>();
            assert_eq!(meta.is_some(), input.meta::<VideoMeta>().is_some());
            assert!(meta.is_none_or(|meta| meta.format() == twin), "{format}");
        });
    }
}

#[test]
fn masks_are_the_labels_in_rows_of_four_bytes() {
    for format in FORMATS {
        each_frame(OutputChoice::Mask, format, |picture, _, out, _| {
            let (width, height) = picture.size();
            // The harness doesn't say that it takes GstVideoMeta.
            let stride = width.next_multiple_of(4);
            let mask = frames::bytes(out);
            assert_eq!(mask.len(), stride * height, "{format} {width} x {height}");
            for y in 0..height {
                for x in 0..stride {
                    let expected = if x < width { label(x, y) } else { 0 };
                    assert_eq!(mask[y * stride + x], expected, "{format} {width} x {height} at {x},{y}");
                }
            }
            if let Some(meta) = out.meta::<VideoMeta>() {
                assert_eq!((meta.stride(), meta.offset()), ([stride as i32].as_slice(), [0].as_slice()));
            }
        });
    }
}

/// Pushes one buffer that can't be right; gives what the error says.
fn refused(info: &VideoInfo, buffer: gst::Buffer) -> String {
    let mut harness = harness(OutputChoice::Overlay);
    let bus = gst::Bus::new();
    harness.element().unwrap().set_bus(Some(&bus));
    harness.set_src_caps(info.to_caps().unwrap());
    assert_eq!(harness.push(buffer), Err(gst::FlowError::Error));
    let message =
        bus.timed_pop_filtered(gst::ClockTime::from_seconds(5), &[gst::MessageType::Error]).unwrap();
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    format!("{} {:?}", error.error(), error.debug())
}

#[test]
fn buffers_that_do_not_hold_their_frame_are_refused() {
    let info = frames::info(VideoFormat::I420, (64, 48));
    let text = refused(&info, gst::Buffer::from_mut_slice(vec![0; info.size() - 1]));
    assert!(text.contains("a buffer of 4607 bytes can't be mapped as I420 of 64 x 48"), "{text}");

    let with_meta = |format, size: (u32, u32), offsets: &[usize], strides: &[i32]| {
        let mut buffer = gst::Buffer::from_mut_slice(vec![0; info.size()]);
        let flags = gst_video::VideoFrameFlags::empty();
        let writable = buffer.get_mut().unwrap();
        VideoMeta::add_full(writable, flags, format, size.0, size.1, offsets, strides).unwrap();
        buffer
    };
    let size = (64, 48);
    for (format, size, offsets, strides, expected) in [
        (VideoFormat::I420, size, [0, 3072, 3840], [64, 32, 33], "plane 2 end at byte 4631: expected 4608"),
        (VideoFormat::I420, size, [0, 3072, 3841], [64, 32, 32], "plane 2 end at byte 4609: expected 4608"),
        (
            VideoFormat::I420,
            size,
            [0, 3072, 3840],
            [63, 32, 32],
            "stride 63 in plane 0: expected at least 64",
        ),
        (VideoFormat::I420, size, [0, 3072, 3840], [64, -32, 32], "stride -32 in plane 1"),
        (VideoFormat::I420, size, [0, usize::MAX - 8, 3840], [64, 32, 32], "plane 1"),
        (VideoFormat::I420, (64, 40), [0, 3072, 3840], [64, 32, 32], "is of I420 of 64 x 40"),
        (VideoFormat::Yv12, size, [0, 3072, 3840], [64, 32, 32], "is of YV12 of 64 x 48"),
    ] {
        let text = refused(&info, with_meta(format, size, &offsets, &strides));
        assert!(text.contains(expected), "{text}");
    }
}
