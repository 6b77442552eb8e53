//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use sapiens_cli::ModelArguments;
use serde::Serialize;

use crate::inputs::Shard;

const EXAMPLES: &str = "\
Examples:
  annotate clip.mp4 -o out --variant sapiens2-0.4b --accept-license
  annotate videos/ photos/ -o out --overlay --jobs 2
  annotate --list files.txt -o out --shard 3/8           the third of eight machines
  annotate clip.mp4 -o out --labels video --every 5 --start 1:30 --end 2:00 --classes Hair

Each input gets a folder below the output folder that is called as the input is in what was
given: clip.mp4 is written to out/clip.mp4/, and videos/day1/a.mp4 of `annotate videos` to
out/day1/a.mp4/. There are
  labels/00000000.png   a class number per pixel, shown in the model's colours; a file per
                        frame, named by its number (labels.png of an image)
  labels.mkv            instead, with --labels video: FFV1; gray values are class numbers
  overlay.webm          with --overlay (overlay.png of an image)
  labels.jsonl          a line per frame: its number, its time in ns, its size, and the pixels
                        and bounding box of each class
  run.json              model, weights and their SHA-256, backend, options, input

Stop it and start it again as often as you like: what is done isn't done again, and in the end
the files are the same, byte by byte, as if it had never stopped. Unfinished work is in
out/.annotate.

Exit codes: 0 all is done, 1 some inputs failed, 2 a mistake in the arguments, 130 stopped.";

/// Labels videos and images with body parts and writes the labels to files, as many inputs as you like.
#[derive(Parser, Debug)]
#[command(name = "annotate", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Videos, images, and folders of them, which are searched to the bottom.
    #[arg(value_name = "INPUT", required_unless_present = "list")]
    pub inputs: Vec<PathBuf>,

    /// A file with one path on each line; relative ones are relative to the file's folder. May be given again.
    #[arg(long, value_name = "FILE")]
    pub list: Vec<PathBuf>,

    /// Folder to write to; made if it isn't there.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// How labels of videos are written: a PNG per frame, or one lossless video.
    #[arg(long, value_enum, default_value_t = LabelFiles::Png)]
    pub labels: LabelFiles,

    /// Also write what was labelled with the classes' colours blended in: overlay.webm (VP8), overlay.png of an image.
    #[arg(long)]
    pub overlay: bool,

    /// How opaque the colours of overlays are: 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = opacity)]
    pub opacity: f64,

    /// Keep only these classes, by name or number, separated by commas. Every pixel of another class becomes background:
    /// it is 0 in PNGs and label videos, counts as background in labels.jsonl, and is left as it was in overlays.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub classes: Option<Vec<String>>,

    /// Label every Nth frame of a video, beginning with the first in the range of time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,

    /// Label videos from this time on: seconds, or HH:MM:SS with or without a fraction.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub start: Option<u64>,

    /// Label videos up to this time, which is not included.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub end: Option<u64>,

    /// Inputs at once. They share one network.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,

    /// Do only the Ith of N parts of the inputs. An input's name (its path in what was given) decides by its SHA-256
    /// in which part it is, on every machine, whatever the other inputs are; parts differ in size by chance.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,

    /// Start anew where the output folder has results of other options, other weights or another state of the input.
    /// Without this they are left alone and reported.
    #[arg(long)]
    pub overwrite: bool,

    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Say what is found, chosen and run; twice for more. `RUST_LOG` overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    #[command(flatten)]
    pub model: ModelArguments,
}

/// How labels of videos are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LabelFiles {
    /// labels/00000000.png and so on.
    Png,
    /// labels.mkv.
    Video,
}

fn opacity(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// Nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    let wrong = || "expected seconds or HH:MM:SS, such as 90, 1.5 or 00:01:30".to_owned();
    let (whole, seconds) = text.rsplit_once(':').unwrap_or(("", text));
    let minutes = match whole.split_once(':') {
        _ if whole.is_empty() => Some(0),
        None => whole.parse::<u64>().ok(),
        Some((hours, minutes)) => {
            let minutes = minutes.parse::<u64>().ok().filter(|minutes| *minutes < 60);
            hours.parse::<u64>().ok().zip(minutes).and_then(|(h, m)| h.checked_mul(60)?.checked_add(m))
        }
    };
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds)
        || !digits(fraction)
        || fraction.len() > 9
        || (seconds.is_empty() && fraction.is_empty())
    {
        return Err(wrong());
    }
    let seconds = if seconds.is_empty() { Some(0) } else { seconds.parse::<u64>().ok() };
    let seconds = seconds.filter(|seconds| whole.is_empty() || *seconds < 60);
    let nanoseconds = format!("{fraction:0<9}").parse::<u64>().map_err(|_| wrong())?;
    let total = || {
        minutes?.checked_mul(60)?.checked_add(seconds?)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    };
    total().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_are_seconds_or_clock_times() {
        let seconds = |text: &str| time(text).ok().map(|nanoseconds| nanoseconds as f64 / 1e9);
        for (text, expected) in [
            ("0", 0.0),
            ("90", 90.0),
            ("1.5", 1.5),
            (".25", 0.25),
            ("1:30", 90.0),
            ("01:02:03.004", 3723.004),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for wrong in ["", "-1", "1:60", "1:60:00", "a", "1:", "1e3", "1:2:3:4", "99999999999999999999"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
