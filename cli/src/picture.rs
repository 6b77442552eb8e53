//! Image files: what users have in, pictures and arrays of labels out. Output files appear whole or not at all.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use image::{DynamicImage, ImageDecoder, ImageReader, RgbImage};
use npyz::WriterBuilder;
use sapiens_model::{Frame, FrameView, LabelMap, Logits, Palette, Pixels};

/// Reads an image as 8-bit RGB, turned upright by its EXIF orientation. Gray becomes three equal channels,
/// 16 bits are scaled to 8, alpha is dropped.
///
/// # Errors
/// A message that names the file, if it is no image or can't be read.
pub fn read(path: &Path) -> Result<RgbImage, String> {
    let explain = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    if path.is_dir() {
        return Err(explain(&"expected an image file, found a folder"));
    }
    let reader = open(path).map_err(|error| explain(&error))?;
    if reader.format().is_none() {
        return Err(explain(&"expected an image (PNG, JPEG, WebP or BMP), found something else"));
    }
    decode(reader).map_err(|error| explain(&format!("can't be decoded: {error}")))
}

/// Opens an image. What it is its content tells: names of files lie.
///
/// # Errors
/// If it can't be opened.
pub fn open(path: &Path) -> io::Result<ImageReader<BufReader<File>>> {
    ImageReader::new(BufReader::new(File::open(path)?)).with_guessed_format()
}

/// Decodes an image as [`read`] does.
///
/// # Errors
/// If it is no whole image.
pub fn decode(reader: ImageReader<BufReader<File>>) -> image::ImageResult<RgbImage> {
    let mut decoder = reader.into_decoder()?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image.into_rgb8())
}

/// An image shared by the engine, which reads it, and the overlay, which paints on it later.
pub struct SharedImage(Arc<RgbImage>);

impl SharedImage {
    /// Shares an image.
    ///
    /// # Errors
    /// If the image is larger than frames may be.
    pub fn new(image: Arc<RgbImage>) -> sapiens_model::Result<Self> {
        // Checked here, so that `pixels` can't fail.
        FrameView::rgb(image.width() as usize, image.height() as usize, image.as_raw())?;
        Ok(Self(image))
    }
}

impl Frame for SharedImage {
    fn pixels(&self) -> Pixels<'_> {
        let (width, height) = (self.0.width() as usize, self.0.height() as usize);
        let view = FrameView::rgb(width, height, self.0.as_raw());
        Pixels::Host(view.unwrap_or_else(|error| unreachable!("checked before: {error}")))
    }
}

/// Writes labels as a PNG whose pixel values are the class numbers, shown in the palette's colours.
///
/// # Errors
/// As the writer gave them, so that a full disk is known as one.
pub fn write_labels(to: &mut impl Write, labels: &LabelMap, palette: &Palette) -> io::Result<()> {
    let write = || {
        let mut encoder = png::Encoder::new(to, labels.width() as u32, labels.height() as u32);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette.to_bytes());
        let mut writer = encoder.write_header()?;
        writer.write_image_data(labels.labels())?;
        writer.finish()
    };
    write().map_err(|error| match error {
        png::EncodingError::IoError(error) => error,
        other => io::Error::other(other),
    })
}

/// Writes an RGB PNG.
///
/// # Errors
/// As [`write_labels`].
pub fn write_rgb(to: &mut impl Write, image: &RgbImage) -> io::Result<()> {
    image.write_with_encoder(image::codecs::png::PngEncoder::new(to)).map_err(|error| match error {
        image::ImageError::IoError(error) => error,
        other => io::Error::other(other),
    })
}

/// Writes [`write_labels`]'s PNG to a file.
///
/// # Errors
/// If it can't be written.
pub fn write_labels_png(path: &Path, labels: &LabelMap, palette: &Palette) -> io::Result<()> {
    whole(path, |file| write_labels(file, labels, palette))
}

/// Writes [`write_rgb`]'s PNG to a file.
///
/// # Errors
/// If it can't be written.
pub fn write_rgb_png(path: &Path, image: &RgbImage) -> io::Result<()> {
    whole(path, |file| write_rgb(file, image))
}

/// Writes labels as a NumPy array of uint8 `[height, width]`.
///
/// # Errors
/// If it can't be written.
pub fn write_labels_npy(path: &Path, labels: &LabelMap) -> io::Result<()> {
    let shape = [labels.height() as u64, labels.width() as u64];
    whole(path, |file| {
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
        writer.extend(labels.labels())?;
        writer.finish()
    })
}

/// Writes logits as a NumPy array of float32 `[classes, height, width]`.
///
/// # Errors
/// If it can't be written.
pub fn write_logits_npy(path: &Path, logits: &Logits) -> io::Result<()> {
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
