//! Image files: what users have in, pictures and arrays of labels out. Output files appear whole or not at all.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use image::{DynamicImage, ImageDecoder, ImageReader, RgbImage};
use npyz::WriterBuilder;
use sapiens_model::{Frame, FrameView, LabelMap, Logits, Palette};

/// Reads an image as 8-bit RGB, turned upright by its EXIF orientation. Gray becomes three equal channels,
/// 16 bits are scaled to 8, alpha is dropped.
pub(crate) fn read(path: &Path) -> Result<RgbImage, String> {
    let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    if path.is_dir() {
        return Err(explain(&"expected an image file, found a folder"));
    }
    // By content alone: names of files lie.
    let open = || ImageReader::new(BufReader::new(File::open(path)?)).with_guessed_format();
    let reader = open().map_err(|error| explain(&error))?;
    if reader.format().is_none() {
        return Err(explain(&"expected an image (PNG, JPEG, WebP or BMP), found something else"));
    }
    let decode = || {
        let mut decoder = reader.into_decoder()?;
        let orientation = decoder.orientation()?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image.into_rgb8())
    };
    decode().map_err(|error: image::ImageError| explain(&format!("can't be decoded: {error}")))
}

/// An image shared by the engine, which reads it, and the overlay, which paints on it later.
pub(crate) struct SharedImage(Arc<RgbImage>);

impl SharedImage {
    pub(crate) fn new(image: Arc<RgbImage>) -> sapiens_model::Result<Self> {
        // Checked here, so that `view` can't fail.
        FrameView::rgb(image.width() as usize, image.height() as usize, image.as_raw())?;
        Ok(Self(image))
    }
}

impl Frame for SharedImage {
    fn view(&self) -> FrameView<'_> {
        let (width, height) = (self.0.width() as usize, self.0.height() as usize);
        FrameView::rgb(width, height, self.0.as_raw())
            .unwrap_or_else(|error| unreachable!("checked before: {error}"))
    }
}

/// Writes labels as a PNG whose pixel values are the class numbers, shown in the palette's colours.
pub(crate) fn write_labels_png(path: &Path, labels: &LabelMap, palette: &Palette) -> io::Result<()> {
    whole(path, |file| {
        let mut encoder = png::Encoder::new(file, labels.width() as u32, labels.height() as u32);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette.to_bytes());
        let mut writer = encoder.write_header()?;
        writer.write_image_data(labels.labels())?;
        Ok(writer.finish()?)
    })
}

/// Writes an RGB PNG.
pub(crate) fn write_rgb_png(path: &Path, image: &RgbImage) -> io::Result<()> {
    whole(path, |file| {
        image.write_with_encoder(image::codecs::png::PngEncoder::new(file)).map_err(io::Error::other)
    })
}

/// Writes labels as a NumPy array of uint8 `[height, width]`.
pub(crate) fn write_labels_npy(path: &Path, labels: &LabelMap) -> io::Result<()> {
    let shape = [labels.height() as u64, labels.width() as u64];
    whole(path, |file| {
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
        writer.extend(labels.labels())?;
        writer.finish()
    })
}

/// Writes logits as a NumPy array of float32 `[classes, height, width]`.
pub(crate) fn write_logits_npy(path: &Path, logits: &Logits) -> io::Result<()> {
    let shape = [logits.classes as u64, logits.height as u64, logits.width as u64];
    whole(path, |file| {
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
        writer.extend(&logits.values)?;
        writer.finish()
    })
}

/// Has `write` fill a temporary file beside `path`, which then takes its place.
fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut options = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // As any other file made here; temporary files are for their owner alone by default.
        use std::os::unix::fs::PermissionsExt;
        options.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let temporary = options.prefix(".sapiens-").tempfile_in(folder)?;
    let mut file = BufWriter::new(temporary.as_file());
    write(&mut file)?;
    file.flush()?;
    drop(file);
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}
