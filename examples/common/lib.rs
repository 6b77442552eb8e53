//! What the programs share: GStreamer with the element in it, and models for it.

mod model;

pub use model::{Model, labeller};

/// Starts GStreamer with the element `sapiensseg` in it, which is part of these programs.
///
/// # Errors
/// If there is no GStreamer that can be used.
pub fn start_gstreamer() -> Result<(), String> {
    gst::init().map_err(|error| format!("GStreamer can't be started: {error}"))?;
    gstsapiensseg::plugin_register_static()
        .map_err(|error| format!("the element sapiensseg can't be registered: {error}"))
}

/// A new element, or what to install to have it.
///
/// # Errors
/// If GStreamer has no such element.
pub fn element(factory: &str) -> Result<gst::Element, String> {
    gst::ElementFactory::make(factory).build().map_err(|_| {
        let package = match factory {
            "textoverlay" => "gstreamer1.0-plugins-base (with Pango: gstreamer1.0-x)",
            "appsrc" | "appsink" | "decodebin" | "videoconvert" | "videotestsrc" | "videorate" => {
                "gstreamer1.0-plugins-base"
            }
            "avenc_ffv1" => "gstreamer1.0-libav",
            _ => "gstreamer1.0-plugins-good",
        };
        format!("GStreamer has no element {factory}: install {package}")
    })
}

/// What an error message on a bus says, with the element's own details only where they add something.
pub fn bus_error(error: &gst::message::Error) -> String {
    let text = error.error().to_string();
    let details = error.debug().unwrap_or_default();
    if error.error().matches(gst::CoreError::MissingPlugin) {
        // A line per stream: "Missing decoder: H.264 (video/x-h264, ...)". Streams of sound aren't asked for.
        let missing = details.lines().filter_map(|line| line.strip_prefix("Missing decoder: "));
        let mut pictures = missing.filter(|stream| stream.contains("(video/") || stream.contains("(image/"));
        return match pictures.next().and_then(|stream| stream.split(" (").next()) {
            Some(codec) => format!("GStreamer has no decoder for {codec}: install gstreamer1.0-libav"),
            None if details.contains("Missing decoder") => "there is no video in it".to_owned(),
            None => text,
        };
    }
    // GStreamer's general errors ("Internal data stream error.") say nothing without these.
    if text.starts_with("Internal") || text.starts_with("GStreamer") {
        return format!("{text} ({})", details.lines().last().unwrap_or_default());
    }
    text
}
