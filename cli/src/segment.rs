//! `sapiens segment`: images in, pictures and arrays of labels out.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use image::RgbImage;
use sapiens_cli::complain;
use sapiens_cli::picture::{self, SharedImage};
use sapiens_model::{
    ErrorKind, FrameViewMut, LabelMap, ModelCard, Output, Palette, Result, SegmentError, Segmenter,
    paint_overlay,
};

use crate::any_model::AnyModelArguments;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Images: PNG, JPEG, WebP or BMP. JPEGs are turned upright by their orientation; alpha is ignored.
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,

    /// Folder to write to; made if it isn't there. Gets NAME.labels.png and NAME.overlay.png for each image.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// The classes to show in overlays, by name or number, separated by commas [default: all but the background].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    classes: Option<Vec<String>>,

    /// How opaque overlays are: 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = opacity)]
    opacity: f64,

    /// Also write the labels as NumPy arrays: NAME.labels.npy, uint8 [height, width].
    #[arg(long)]
    npy: bool,

    /// Also write what the labels were made from: NAME.logits.npy, float32 [classes, height, width] at the network's
    /// output size.
    #[arg(long)]
    logits: bool,

    #[command(flatten)]
    model: AnyModelArguments,
}

fn opacity(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// An image on its way through the engine.
struct Job {
    path: PathBuf,
    image: Arc<RgbImage>,
}

/// Where results go.
struct Sink<'a> {
    arguments: &'a Arguments,
    card: &'a ModelCard,
    palette: Palette,
}

/// Runs the command. Images that fail are reported and the others are done; then the exit code says so.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let card = arguments.model.model.card()?;
    let mut palette = Palette::of(&card);
    if let Some(classes) = &arguments.classes {
        palette = palette.showing(&card, classes.iter().map(|name| name.trim()))?;
    }
    check_names(&arguments.images)?;
    let segmenter = arguments.model.segmenter(card, arguments.logits)?;
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| SegmentError::io("make folder", &arguments.output, error))?;
    let sink = Sink { arguments, card: segmenter.card(), palette };
    let failed = label(&arguments.images, &segmenter, &sink);
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let images = arguments.images.len();
    complain(&format!("{failed} of {images} {} failed", if images == 1 { "image" } else { "images" }));
    Ok(ExitCode::FAILURE)
}

/// Two images of one name would overwrite each other's results: refused before anything is done.
fn check_names(images: &[PathBuf]) -> Result<()> {
    let mut seen: HashMap<_, &Path> = HashMap::new();
    for path in images {
        if let Some(other) = seen.insert(path.file_stem().unwrap_or_default(), path) {
            return Err(SegmentError::new(
                ErrorKind::Io,
                format!(
                    "{} and {} would be written to the same files: expected images of different names",
                    other.display(),
                    path.display()
                ),
            ));
        }
    }
    Ok(())
}

/// Labels every image, as many at a time as the engine has slots, and returns how many failed.
fn label(images: &[PathBuf], segmenter: &Segmenter, sink: &Sink<'_>) -> usize {
    let mut failed = 0;
    let mut jobs = VecDeque::new();
    let mut output = Output::default();
    let mut note = |result: std::result::Result<(), String>| {
        if let Err(message) = result {
            complain(&message);
            failed += 1;
        }
    };
    for path in images {
        match start(path, segmenter) {
            Ok(job) => jobs.push_back(job),
            Err(message) => note(Err(message)),
        }
        if segmenter.in_flight() == segmenter.slots() {
            note(finish(&mut jobs, segmenter, &mut output, sink));
        }
    }
    while !jobs.is_empty() {
        note(finish(&mut jobs, segmenter, &mut output, sink));
    }
    failed
}

fn start(path: &Path, segmenter: &Segmenter) -> std::result::Result<Job, String> {
    let image = Arc::new(picture::read(path)?);
    let frame = SharedImage::new(image.clone());
    frame
        .and_then(|frame| segmenter.submit(frame))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Job { path: path.to_owned(), image })
}

fn finish(
    jobs: &mut VecDeque<Job>,
    segmenter: &Segmenter,
    output: &mut Output,
    sink: &Sink<'_>,
) -> std::result::Result<(), String> {
    let Some(Job { path, image }) = jobs.pop_front() else { return Ok(()) };
    segmenter.receive(output).map_err(|error| format!("{}: {error}", path.display()))?;
    sink.write(&path, image, output).map_err(|error| error.to_string())?;
    anstream::println!("{}", sink.summary(&path, output));
    Ok(())
}

impl Sink<'_> {
    fn file(&self, path: &Path, ending: &str) -> PathBuf {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(ending);
        self.arguments.output.join(name)
    }

    fn write(&self, path: &Path, image: Arc<RgbImage>, output: &Output) -> Result<()> {
        let Output { labels, logits, .. } = output;
        let write = |ending: &str, write: &dyn Fn(&Path) -> std::io::Result<()>| {
            let file = self.file(path, ending);
            write(&file).map_err(|error| SegmentError::io("write", &file, error))
        };
        write(".labels.png", &|file| picture::write_labels_png(file, labels, &self.palette))?;
        let overlay = self.overlay(image, labels)?;
        write(".overlay.png", &|file| picture::write_rgb_png(file, &overlay))?;
        if self.arguments.npy {
            write(".labels.npy", &|file| picture::write_labels_npy(file, labels))?;
        }
        if let Some(logits) = logits {
            write(".logits.npy", &|file| picture::write_logits_npy(file, logits))?;
        }
        Ok(())
    }

    fn overlay(&self, image: Arc<RgbImage>, labels: &LabelMap) -> Result<RgbImage> {
        // The engine has given its share back by now, so this moves the pixels.
        let mut image = Arc::unwrap_or_clone(image);
        let (width, height) = (image.width() as usize, image.height() as usize);
        let mut frame = FrameViewMut::rgb(width, height, &mut image)?;
        paint_overlay(&mut frame, labels, &self.palette, self.arguments.opacity)?;
        Ok(image)
    }

    /// One line: the image, its size, the time it took, and what covers most of it.
    fn summary(&self, path: &Path, output: &Output) -> String {
        let labels = &output.labels;
        let pixels = (labels.width() * labels.height()) as f64;
        let mut regions = labels.regions();
        regions.sort_by_key(|region| std::cmp::Reverse(region.pixels));
        let classes: Vec<_> = regions
            .iter()
            .take(5)
            .map(|region| {
                let name = &self.card.classes[usize::from(region.class)].name;
                format!("{name} {:.1} %", region.pixels as f64 * 100.0 / pixels)
            })
            .collect();
        format!(
            "{}: {} x {}, {:.2} s: {}",
            path.display(),
            labels.width(),
            labels.height(),
            output.timing.total().as_secs_f64(),
            classes.join(", ")
        )
    }
}
