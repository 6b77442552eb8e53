//! The GStreamer plugin `sapiensseg`: an element that labels every pixel of people in video with body parts.
//!
//! `element` is the element, `queue` its frames in flight, `meta` how labels travel on frames, `render` what leaves
//! for a frame and its labels. Networks, checkpoints and labels are the library's (`sapiens-model`).

#[cfg(feature = "cuda")]
mod cuda;
mod element;
mod formats;
mod labels;
mod log_bridge;
pub mod meta;
pub mod queue;
mod render;

pub use element::{BackendChoice, LateChoice, OutputChoice, PrecisionChoice, SapiensSeg, VariantChoice};
pub use formats::frame_info;
pub use meta::SapiensSegMeta;
/// Registers the element in this process, for programs that link it instead of installing the plugin.
pub use plugin::plugin_register_static;

mod plugin {
    //! The plugin's description and entry points, as GStreamer looks for them.
    #![allow(missing_docs)]

    gst::plugin_define!(
        sapiensseg,
        env!("CARGO_PKG_DESCRIPTION"),
        init,
        env!("CARGO_PKG_VERSION"),
        "MIT/X11",
        env!("CARGO_PKG_NAME"),
        "sapiensseg",
        env!("CARGO_PKG_REPOSITORY")
    );

    fn init(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
        // A program that links the element may install a logger of its own later.
        if plugin.filename().is_some() {
            crate::log_bridge::install();
        }
        crate::meta::register();
        crate::element::register(plugin)
    }
}
