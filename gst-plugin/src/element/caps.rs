//! Which caps go in and come out, per output.

use gst_video::VideoFormat;

use super::settings::OutputChoice;
use crate::formats::{FORMATS, video_caps, with_alpha};

/// Fields that are about the frame's colours and mean nothing on a mask.
const COLOR_FIELDS: [&str; 2] = ["colorimetry", "chroma-site"];

/// Caps that the sink pad ever takes.
pub(crate) fn sink_template() -> gst::Caps {
    video_caps(FORMATS.map(|(format, _)| format))
}

/// Caps that the src pad ever gives: GRAY8 masks are among the frames' formats.
pub(crate) fn src_template() -> gst::Caps {
    sink_template()
}

/// Caps of the `mask` pad.
pub(crate) fn mask_template() -> gst::Caps {
    video_caps([VideoFormat::Gray8])
}

/// What `caps` on the sink pad come out as.
pub(crate) fn forward(output: OutputChoice, caps: &gst::CapsRef) -> gst::Caps {
    transform(output, caps, |format| match output {
        OutputChoice::Meta | OutputChoice::Overlay => vec![format],
        OutputChoice::Mask => vec![VideoFormat::Gray8],
        OutputChoice::Alpha => with_alpha(format).into_iter().collect(),
    })
}

/// What must come in for `caps` to come out.
pub(crate) fn backward(output: OutputChoice, caps: &gst::CapsRef) -> gst::Caps {
    transform(output, caps, |format| match output {
        OutputChoice::Meta | OutputChoice::Overlay => vec![format],
        OutputChoice::Mask if format == VideoFormat::Gray8 => FORMATS.map(|(format, _)| format).to_vec(),
        OutputChoice::Mask => Vec::new(),
        OutputChoice::Alpha => {
            // The format itself first: then nothing changes.
            let twins = FORMATS.into_iter().map(|(other, _)| other).filter(|other| *other != format);
            let same = (with_alpha(format) == Some(format)).then_some(format);
            same.into_iter().chain(twins.filter(|other| with_alpha(*other) == Some(format))).collect()
        }
    })
}

/// Exchanges the formats of each structure; all else stays, but for what a mask can't have.
fn transform(
    output: OutputChoice,
    caps: &gst::CapsRef,
    exchange: impl Fn(VideoFormat) -> Vec<VideoFormat>,
) -> gst::Caps {
    if matches!(output, OutputChoice::Meta | OutputChoice::Overlay) {
        return caps.to_owned();
    }
    // An unlinked peer allows anything, which has no structures to go through.
    let any = caps.is_any().then(sink_template);
    let caps = any.as_deref().unwrap_or(caps);
    let mut transformed = gst::Caps::new_empty();
    for (structure, features) in caps.iter_with_features() {
        let mut formats: Vec<VideoFormat> = Vec::new();
        for format in formats_of(structure).into_iter().flat_map(&exchange) {
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        if formats.is_empty() {
            continue;
        }
        let mut structure = structure.to_owned();
        match formats.as_slice() {
            [format] => structure.set("format", format.to_str()),
            _ => structure.set("format", gst::List::new(formats.iter().map(|format| format.to_str()))),
        }
        if output == OutputChoice::Mask {
            structure.remove_fields(COLOR_FIELDS);
        }
        if let Some(transformed) = transformed.get_mut() {
            // Frames in a graphics card's memory stay there: that the templates refuse them is for who intersects.
            transformed.append_structure_full(structure, Some(features.to_owned()));
        }
    }
    transformed
}

/// A structure's formats, of those there are here, in its own order: whose caps they are prefers the first.
fn formats_of(structure: &gst::StructureRef) -> Vec<VideoFormat> {
    let known = |name: &str| FORMATS.iter().map(|(format, _)| *format).find(|format| format.to_str() == name);
    let Ok(value) = structure.value("format") else { return FORMATS.map(|(format, _)| format).to_vec() };
    if let Ok(one) = value.get::<&str>() {
        return known(one).into_iter().collect();
    }
    let Ok(list) = value.get::<gst::ListRef<'_>>() else { return Vec::new() };
    list.iter().filter_map(|value| known(value.get::<&str>().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats(caps: &gst::Caps) -> Vec<String> {
        let names = caps.iter().map(|structure| match structure.get::<&str>("format") {
            Ok(one) => one.to_owned(),
            Err(_) => {
                let list = structure.get::<gst::List>("format").unwrap();
                list.iter().map(|value| value.get::<String>().unwrap()).collect::<Vec<_>>().join(" ")
            }
        });
        names.collect()
    }

    fn caps(text: &str) -> gst::Caps {
        gst::init().unwrap();
        text.parse().unwrap()
    }

    #[test]
    fn frames_keep_their_caps() {
        let given =
            caps("video/x-raw,format=NV12,width=64,height=48,colorimetry=bt709,pixel-aspect-ratio=4/3");
        assert_eq!(forward(OutputChoice::Meta, &given), given);
        assert_eq!(backward(OutputChoice::Overlay, &given), given);
    }

    #[test]
    fn masks_are_gray_and_keep_size_rate_and_pixel_shape() {
        let given = caps(
            "video/x-raw,format=NV12,width=64,height=48,colorimetry=bt709,chroma-site=mpeg2,framerate=30/1,pixel-aspect-ratio=4/3",
        );
        let expected =
            caps("video/x-raw,format=GRAY8,width=64,height=48,framerate=30/1,pixel-aspect-ratio=4/3");
        assert_eq!(forward(OutputChoice::Mask, &given), expected);
        let back = backward(OutputChoice::Mask, &expected);
        assert_eq!(formats(&back)[0].split(' ').count(), FORMATS.len());
        assert!(backward(OutputChoice::Mask, &caps("video/x-raw,format=RGB")).is_empty());
    }

    #[test]
    fn alpha_turns_unused_bytes_into_alpha_and_takes_nothing_else() {
        assert_eq!(
            formats(&forward(OutputChoice::Alpha, &caps("video/x-raw,format={BGRx,ARGB,NV12}"))),
            ["BGRA ARGB"]
        );
        assert!(forward(OutputChoice::Alpha, &caps("video/x-raw,format=NV12")).is_empty());
        assert_eq!(formats(&backward(OutputChoice::Alpha, &caps("video/x-raw,format=BGRA"))), ["BGRA BGRx"]);
        assert!(backward(OutputChoice::Alpha, &caps("video/x-raw,format=BGRx")).is_empty());
        for any in [caps("video/x-raw"), gst::Caps::new_any()] {
            assert_eq!(formats(&backward(OutputChoice::Alpha, &any))[0].split(' ').count(), 8);
            assert_eq!(formats(&forward(OutputChoice::Mask, &any)), ["GRAY8"]);
        }
    }
    #[test]
    fn who_asks_prefers_the_first_format() {
        let given = caps("video/x-raw,format={ABGR,NV12,RGBA}");
        assert_eq!(formats(&backward(OutputChoice::Alpha, &given)), ["ABGR xBGR RGBA RGBx"]);
        let given = caps("video/x-raw,format=ARGB; video/x-raw,format=RGBA");
        assert_eq!(formats(&backward(OutputChoice::Alpha, &given)), ["ARGB xRGB", "RGBA RGBx"]);
    }

    #[test]
    fn frames_in_other_memory_stay_there() {
        let given = caps("video/x-raw(memory:CUDAMemory),format=BGRA; video/x-raw,format=RGBA");
        for output in [OutputChoice::Alpha, OutputChoice::Mask, OutputChoice::Meta] {
            let there = forward(output, &given);
            assert!(there.features(0).unwrap().contains("memory:CUDAMemory"), "{output:?}: {there}");
            assert_eq!(there.intersect(&src_template()).size(), 1, "{output:?}: {there}");
        }
    }
}
