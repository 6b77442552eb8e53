//! Which caps go in and come out, per output.

use gst_video::VideoFormat;

use super::settings::OutputChoice;
use crate::formats::{CUDA_FORMATS, CUDA_MEMORY, FORMATS, cuda_caps, is_cuda, video_caps, with_alpha};

/// Fields that are about the frame's colours and mean nothing on a mask.
const COLOR_FIELDS: [&str; 2] = ["colorimetry", "chroma-site"];

/// Whether this build can have frames in an NVIDIA GPU's memory.
pub(crate) const CUDA: bool = cfg!(feature = "cuda");

/// Caps that the sink pad takes; `cuda`: with frames in an NVIDIA GPU's memory, which are better read where they are.
pub(crate) fn sink(cuda: bool) -> gst::Caps {
    let host = video_caps(FORMATS.map(|(format, _)| format));
    if !cuda {
        return host;
    }
    let mut caps = cuda_caps();
    caps.merge(host);
    caps
}

/// Caps that the src pad gives: GRAY8 masks are among the frames' formats.
pub(crate) fn source(cuda: bool) -> gst::Caps {
    sink(cuda)
}

/// Caps of the `mask` pad.
pub(crate) fn mask_template() -> gst::Caps {
    video_caps([VideoFormat::Gray8])
}

/// Whether frames of these caps are in an NVIDIA GPU's memory.
pub(crate) fn on_cuda(caps: &gst::CapsRef) -> bool {
    caps.features(0).is_some_and(is_cuda)
}

/// What `caps` on the sink pad come out as.
pub(crate) fn forward(output: OutputChoice, caps: &gst::CapsRef) -> gst::Caps {
    transform(output, caps, |format, features| {
        let (formats, features) = match output {
            OutputChoice::Meta | OutputChoice::Overlay => (vec![format], features.to_owned()),
            // Masks leave in the machine's memory, wherever frames are.
            OutputChoice::Mask if is_cuda(features) => (vec![VideoFormat::Gray8], system_memory()),
            OutputChoice::Mask => (vec![VideoFormat::Gray8], features.to_owned()),
            OutputChoice::Alpha => (with_alpha(format).into_iter().collect(), features.to_owned()),
        };
        vec![(formats, features)]
    })
}

/// What must come in for `caps` to come out.
pub(crate) fn backward(output: OutputChoice, caps: &gst::CapsRef) -> gst::Caps {
    transform(output, caps, |format, features| match output {
        OutputChoice::Meta | OutputChoice::Overlay => vec![(vec![format], features.to_owned())],
        OutputChoice::Mask if format != VideoFormat::Gray8 || is_cuda(features) => Vec::new(),
        OutputChoice::Mask => {
            let host = (FORMATS.map(|(format, _)| format).to_vec(), features.to_owned());
            let cuda = (CUDA_FORMATS.to_vec(), gst::CapsFeatures::new([CUDA_MEMORY]));
            if features.is_equal(&system_memory()) { vec![cuda, host] } else { vec![host] }
        }
        OutputChoice::Alpha => {
            // The format itself first: then nothing changes.
            let twins = FORMATS.into_iter().map(|(other, _)| other).filter(|other| *other != format);
            let same = (with_alpha(format) == Some(format)).then_some(format);
            let twins = twins.filter(|other| with_alpha(*other) == Some(format));
            vec![(same.into_iter().chain(twins).collect(), features.to_owned())]
        }
    })
}

fn system_memory() -> gst::CapsFeatures {
    gst::CapsFeatures::new([gst::CAPS_FEATURE_MEMORY_SYSTEM_MEMORY])
}

/// Formats, and the features that frames of them have.
type Exchanged = Vec<(Vec<VideoFormat>, gst::CapsFeatures)>;

/// Exchanges the formats of each structure; all else stays, but for what a mask can't have.
fn transform(
    output: OutputChoice,
    caps: &gst::CapsRef,
    exchange: impl Fn(VideoFormat, &gst::CapsFeaturesRef) -> Exchanged,
) -> gst::Caps {
    if matches!(output, OutputChoice::Meta | OutputChoice::Overlay) {
        return caps.to_owned();
    }
    // An unlinked peer allows anything, which has no structures to go through.
    let any = caps.is_any().then(|| sink(CUDA));
    let caps = any.as_deref().unwrap_or(caps);
    let mut transformed = gst::Caps::new_empty();
    for (structure, features) in caps.iter_with_features() {
        let mut exchanged: Exchanged = Vec::new();
        for (formats, features) in
            formats_of(structure).into_iter().flat_map(|format| exchange(format, features))
        {
            let known = exchanged.iter_mut().find(|(_, known)| known.is_equal(&features));
            let formats = formats.into_iter();
            match known {
                Some((known, _)) => {
                    let new: Vec<_> = formats.filter(|format| !known.contains(format)).collect();
                    known.extend(new);
                }
                None => exchanged.push((formats.collect(), features)),
            }
        }
        for (formats, features) in exchanged {
            let mut structure = structure.to_owned();
            match formats.as_slice() {
                [] => continue,
                [format] => structure.set("format", format.to_str()),
                _ => structure.set("format", gst::List::new(formats.iter().map(|format| format.to_str()))),
            }
            if output == OutputChoice::Mask {
                structure.remove_fields(COLOR_FIELDS);
            }
            if let Some(transformed) = transformed.get_mut() {
                // Frames in other memory stay there: that the templates refuse them is for who intersects.
                transformed.append_structure_full(structure, Some(features));
            }
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
        assert_eq!(counts(&back), [(true, CUDA_FORMATS.len()), (false, FORMATS.len())]);
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
            let back = backward(OutputChoice::Alpha, &any).intersect(&sink(false));
            assert_eq!(counts(&back), [(false, 8)]);
            let masks = forward(OutputChoice::Mask, &any);
            assert!(formats(&masks).iter().all(|format| format == "GRAY8"), "{masks}");
            assert!(masks.can_intersect(&mask_template()) && !on_cuda(&masks), "{masks}");
        }
    }
    #[test]
    fn who_asks_prefers_the_first_format() {
        let given = caps("video/x-raw,format={ABGR,NV12,RGBA}");
        assert_eq!(formats(&backward(OutputChoice::Alpha, &given)), ["ABGR xBGR RGBA RGBx"]);
        let given = caps("video/x-raw,format=ARGB; video/x-raw,format=RGBA");
        assert_eq!(formats(&backward(OutputChoice::Alpha, &given)), ["ARGB xRGB", "RGBA RGBx"]);
    }

    /// Of each structure whether it is of frames in a GPU's memory, and how many formats it has.
    fn counts(caps: &gst::Caps) -> Vec<(bool, usize)> {
        let cuda = caps.iter_with_features().map(|(_, features)| is_cuda(features));
        cuda.zip(formats(caps).iter().map(|formats| formats.split(' ').count())).collect()
    }

    #[test]
    fn frames_in_a_gpus_memory_stay_there_and_masks_leave_it() {
        let given = caps("video/x-raw(memory:CUDAMemory),format=BGRx; video/x-raw,format=RGBA");
        for output in [OutputChoice::Alpha, OutputChoice::Overlay, OutputChoice::Meta] {
            for there in [forward(output, &given), backward(output, &forward(output, &given))] {
                assert!(on_cuda(&there), "{output:?}: {there}");
                assert_eq!(there.intersect(&source(true)).size(), 2, "{output:?}: {there}");
                assert_eq!(there.intersect(&source(false)).size(), 1, "{output:?}: {there}");
            }
        }
        let masks = forward(OutputChoice::Mask, &given);
        assert!(masks.is_subset(&mask_template_of_any_size()), "{masks}");
        let there = caps("video/x-raw(memory:CUDAMemory),format=GRAY8");
        assert!(backward(OutputChoice::Mask, &there).is_empty());
        // What can't be in a GPU's memory isn't offered there.
        let there = caps("video/x-raw(memory:CUDAMemory),format=ARGB");
        assert!(backward(OutputChoice::Alpha, &there).intersect(&sink(true)).is_empty());
    }

    fn mask_template_of_any_size() -> gst::Caps {
        caps("video/x-raw,format=GRAY8")
    }

    #[test]
    fn frames_in_memory_of_another_kind_stay_there() {
        let given = caps("video/x-raw(memory:GLMemory),format=BGRA");
        for output in [OutputChoice::Alpha, OutputChoice::Mask, OutputChoice::Meta] {
            let there = forward(output, &given);
            assert!(there.features(0).unwrap().contains("memory:GLMemory"), "{output:?}: {there}");
            assert!(!there.can_intersect(&source(true)), "{output:?}: {there}");
        }
    }
}
