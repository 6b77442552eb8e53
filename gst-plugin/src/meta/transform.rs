//! What becomes of the labels when elements downstream make a new buffer of the frame.
//!
//! GStreamer calls [`transform`] for each such buffer and says what happens to the frame. The library's own way to
//! register such a function leaves out from which size to which size a frame is scaled, so this goes around it.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use glib::translate::{IntoGlib, ToGlibPtr, from_glib};
use gst::meta::{CustomMeta, MetaTransform, MetaTransformCopy};
use gst_video::VideoInfo;
use gst_video::video_meta::VideoMetaTransformScale;

use super::{NAME, gray_buffer};

/// Elements that turn, crop or otherwise move pixels drop metas with these tags unless they know how to move them,
/// and those that scale call [`transform`].
const TAGS: [&str; 3] = ["video", "size", "orientation"];

/// Registers the meta under [`NAME`].
pub(super) fn register() {
    // SAFETY: the name and the tags are valid C strings, the tags' list ends with NULL, and both are copied. The
    // function keeps to the contract of `GstCustomMetaTransformFunction`; there is no data to free.
    unsafe {
        gst::ffi::gst_meta_register_custom(
            NAME.to_glib_none().0,
            TAGS.as_slice().to_glib_none().0,
            Some(transform),
            ptr::null_mut(),
            None,
        );
    }
}

/// Called with a buffer to put the meta on, the meta, the buffer that has it, and what happens on the way.
///
/// SAFETY: GStreamer's, for a meta registered under [`NAME`]: the pointers are valid while this runs, `into` is
/// writable, and `data` is what `kind` says.
unsafe extern "C" fn transform(
    into: *mut gst::ffi::GstBuffer,
    meta: *mut gst::ffi::GstCustomMeta,
    _from: *mut gst::ffi::GstBuffer,
    kind: glib::ffi::GQuark,
    data: glib::ffi::gpointer,
    _user_data: glib::ffi::gpointer,
) -> glib::ffi::gboolean {
    // SAFETY: `kind` is a quark.
    let kind: glib::Quark = unsafe { from_glib(kind) };
    let change = if data.is_null() {
        Change::Unknown
    } else if kind == MetaTransformCopy::quark() {
        // SAFETY: that's what a copy's data is, and the wrapper is transparent.
        let copy = unsafe { &*data.cast::<MetaTransformCopy>() };
        if copy.range().is_none() { Change::None } else { Change::Unknown }
    } else if kind == VideoMetaTransformScale::quark() {
        // SAFETY: that's what a scaler's data is, and the wrapper is transparent.
        let scale = unsafe { &*data.cast::<VideoMetaTransformScale>() };
        Change::of_scaling(scale.in_info(), scale.out_info())
    } else {
        Change::Unknown
    };
    // SAFETY: `into` is valid and writable, and nobody else uses it now.
    let into = unsafe { gst::BufferRef::from_mut_ptr(into) };
    // SAFETY: `meta` is a custom meta, and the wrapper is transparent.
    let meta = unsafe { &*meta.cast::<CustomMeta>() };
    // Nothing is left half done: `into` has the meta whole or is told to drop it.
    catch_unwind(AssertUnwindSafe(|| carry(into, meta.structure(), change))).unwrap_or(false).into_glib()
}

/// What happens to the frame's geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// To this width and height.
    Scale(u32, u32),
    /// Something that labels can't be made to follow.
    Unknown,
}

impl Change {
    fn of_scaling(from: &VideoInfo, to: &VideoInfo) -> Self {
        let shape = |info: &VideoInfo| {
            let (par, size) = (info.par(), (i64::from(info.width()), i64::from(info.height())));
            (size.0 * i64::from(par.numer()), size.1 * i64::from(par.denom()))
        };
        let (from_shape, to_shape) = (shape(from), shape(to));
        if (from.width(), from.height()) == (to.width(), to.height()) && from.par() == to.par() {
            Self::None
        } else if from_shape.0 * to_shape.1 == from_shape.1 * to_shape.0 {
            Self::Scale(to.width(), to.height())
        } else {
            // The picture has another shape now: it may have borders, or be stretched, which isn't said.
            Self::Unknown
        }
    }
}

/// Puts the meta on `into`; false if it can't follow.
fn carry(into: &mut gst::BufferRef, from: &gst::StructureRef, change: Change) -> bool {
    let resized = match change {
        Change::None => None,
        Change::Scale(width, height) => match scaled(from, width, height) {
            Some(mask) => Some((mask, width, height)),
            None => return false,
        },
        Change::Unknown => return false,
    };
    let Ok(mut meta) = CustomMeta::add(into, NAME) else { return false };
    let fields = meta.mut_structure();
    for (name, value) in from.iter() {
        fields.set_value(name, value.clone());
    }
    if let Some((mask, width, height)) = resized {
        fields.set("mask", mask);
        fields.set("width", width);
        fields.set("height", height);
    }
    true
}

/// The meta's mask at another size: the nearest label.
fn scaled(from: &gst::StructureRef, width: u32, height: u32) -> Option<gst::Buffer> {
    let old_width = from.get::<u32>("width").ok()? as usize;
    let old_height = from.get::<u32>("height").ok()? as usize;
    let mask = from.get::<gst::Buffer>("mask").ok()?;
    let old = mask.map_readable().ok()?;
    if old_width == 0 || old.len() < old_width * old_height {
        return None;
    }
    let (new_width, new_height) = (width as usize, height as usize);
    let mut labels = Vec::with_capacity(new_width * new_height);
    for y in 0..new_height {
        let row = &old[(2 * y + 1) * old_height / (2 * new_height) * old_width..][..old_width];
        labels.extend((0..new_width).map(|x| row[(2 * x + 1) * old_width / (2 * new_width)]));
    }
    Some(gray_buffer(labels, width, height))
}

#[cfg(test)]
mod tests {
    use gst_video::VideoFormat;

    use super::*;

    #[test]
    fn scaling_is_followed_only_where_the_picture_keeps_its_shape() {
        gst::init().unwrap();
        let info = |width, height, par: (i32, i32)| {
            let par = gst::Fraction::new(par.0, par.1);
            VideoInfo::builder(VideoFormat::I420, width, height).par(par).build().unwrap()
        };
        let from = info(640, 480, (1, 1));
        for (to, change) in [
            (info(640, 480, (1, 1)), Change::None),
            (info(320, 240, (1, 1)), Change::Scale(320, 240)),
            (info(720, 576, (16, 15)), Change::Scale(720, 576)),
            (info(320, 320, (1, 1)), Change::Unknown),
            (info(640, 480, (2, 1)), Change::Unknown),
        ] {
            assert_eq!(Change::of_scaling(&from, &to), change, "{to:?}");
        }
    }

    #[test]
    fn labels_are_scaled_to_the_nearest() {
        gst::init().unwrap();
        let meta = gst::Structure::builder(NAME)
            .field("mask", gray_buffer(vec![1, 2, 3, 4], 2, 2))
            .field("width", 2u32)
            .field("height", 2u32)
            .build();
        let labels = |width, height| scaled(&meta, width, height).unwrap().map_readable().unwrap().to_vec();
        assert_eq!(labels(4, 2), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(labels(3, 1), [3, 4, 4]);
        assert_eq!(labels(1, 1), [4]);
    }
}
