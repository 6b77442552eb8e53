//! What there is to do: files, folders and lists become inputs, each with the folder it is written to, and a shard
//! takes its part of them. Knows names and a file's first bytes, nothing of pictures.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::folder::WORK;

/// What files of folders are taken. Files that are named themselves may be called anything.
const IMAGES: &[&str] = &["png", "jpg", "jpeg", "webp", "bmp"];
const VIDEOS: &[&str] = &[
    "3gp", "avi", "flv", "m2ts", "m4v", "mjpeg", "mjpg", "mkv", "mov", "mp4", "mpeg", "mpg", "mts", "mxf",
    "ogg", "ogv", "ts", "webm", "wmv", "y4m",
];

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Image,
    Video,
}

/// A file to be annotated.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub path: PathBuf,
    /// Its path in what was given, which is also the folder in the output that it is written to.
    pub name: PathBuf,
    pub kind: Kind,
}

impl Input {
    /// The input's name as 16 hex digits: the same on every machine.
    pub(crate) fn id(&self) -> String {
        hex(&Sha256::digest(self.name.as_os_str().as_bytes())[..8])
    }
}

/// A part of all inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shard {
    number: u64,
    of: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err("expected I/N with I from 1 to N, such as 1/4".to_owned()),
        }
    }
}

impl Shard {
    /// Whether an input is in this part. Its name alone decides, so that whatever else a machine sees, adds or has
    /// done already, no input is in two parts or in none.
    pub(crate) fn has(self, input: &Input) -> bool {
        let digest = Sha256::digest(input.name.as_os_str().as_bytes());
        let mut head = [0; 8];
        head.copy_from_slice(&digest[..8]);
        u64::from_be_bytes(head) % self.of == self.number - 1
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Sorted by name.
    pub inputs: Vec<Input>,
    /// What was named and can't be read.
    pub bad: Vec<String>,
}

/// Finds the inputs. `output` isn't looked into, in case it lies in a folder of inputs.
///
/// # Errors
/// If two inputs would be written to the same folder, or a list can't be read.
pub(crate) fn find(given: &[PathBuf], lists: &[PathBuf], output: &Path) -> Result<Found, String> {
    let mut finder = Finder { output: fs::canonicalize(output).ok(), ..Finder::default() };
    for path in given {
        finder.named(path, path.file_name().map_or_else(|| inside(path), PathBuf::from));
    }
    for list in lists {
        finder.list(list)?;
    }
    let Finder { found, bad, clash, .. } = finder;
    match clash {
        Some(clash) => Err(clash),
        None => {
            no_nesting(&found)?;
            Ok(Found { inputs: found.into_values().collect(), bad })
        }
    }
}

#[derive(Default)]
struct Finder {
    output: Option<PathBuf>,
    found: BTreeMap<PathBuf, Input>,
    bad: Vec<String>,
    clash: Option<String>,
    /// Folders on the way here, links resolved, so that a link to one of them ends the walk.
    above: HashSet<PathBuf>,
}

impl Finder {
    /// A file or folder that was named by the user.
    fn named(&mut self, path: &Path, name: PathBuf) {
        match fs::metadata(path) {
            Err(error) => self.bad.push(format!("can't read {}: {error}", path.display())),
            Ok(metadata) if metadata.is_dir() => self.folder(path, Path::new("")),
            Ok(metadata) if metadata.is_file() => self.file(path, name),
            Ok(_) => self.bad.push(format!("{}: expected a file or a folder", path.display())),
        }
    }

    fn folder(&mut self, folder: &Path, name: &Path) {
        let real = match fs::canonicalize(folder) {
            Ok(real) => real,
            Err(error) => return self.bad.push(format!("can't read {}: {error}", folder.display())),
        };
        if self.output.as_ref() == Some(&real) || !self.above.insert(real.clone()) {
            return;
        }
        match fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Err(error) => self.bad.push(format!("can't read {}: {error}", folder.display())),
            Ok(entries) => {
                for entry in entries {
                    let (path, file) = (entry.path(), entry.file_name());
                    if file.as_bytes().starts_with(b".") {
                        continue;
                    }
                    match fs::metadata(&path) {
                        Err(error) => self.bad.push(format!("can't read {}: {error}", path.display())),
                        Ok(metadata) if metadata.is_dir() => self.folder(&path, &name.join(file)),
                        Ok(_) if taken(&path) => self.file(&path, name.join(file)),
                        Ok(_) => log::info!("{}: neither an image nor a video by its name", path.display()),
                    }
                }
            }
        }
        self.above.remove(&real);
    }

    fn list(&mut self, list: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("can't read the list {}: {error}", list.display());
        let folder = list.parent().unwrap_or(Path::new(""));
        for line in BufReader::new(fs::File::open(list).map_err(failed)?).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let path = Path::new(std::ffi::OsStr::from_bytes(line));
            self.named(&folder.join(path), inside(path));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: PathBuf) {
        let kind = match kind(path) {
            Ok(kind) => kind,
            Err(error) => return self.bad.push(format!("can't read {}: {error}", path.display())),
        };
        let same = |a: &Path, b: &Path| fs::canonicalize(a).ok() == fs::canonicalize(b).ok();
        match self.found.get(&name) {
            None => drop(self.found.insert(name.clone(), Input { path: path.to_owned(), name, kind })),
            // Once named and once in a folder, say.
            Some(other) if same(&other.path, path) => {}
            Some(other) => {
                self.clash.get_or_insert(format!(
                    "{} and {} would both be written to {}: expected inputs of different names; a folder above both, or a list, keeps them apart",
                    other.path.display(),
                    path.display(),
                    name.display()
                ));
            }
        }
    }
}

/// Whether a file in a folder is one of ours, by its name.
fn taken(path: &Path) -> bool {
    let Some(ending) = path.extension().and_then(|ending| ending.to_str()) else { return false };
    IMAGES.iter().chain(VIDEOS).any(|known| known.eq_ignore_ascii_case(ending))
}

/// What a file is by its first bytes: names of files lie. A raw stream of JPEGs begins as a JPEG does.
fn kind(path: &Path) -> std::io::Result<Kind> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(64).read_to_end(&mut head)?;
    let ending = path.extension().unwrap_or_default();
    if ["mjpeg", "mjpg"].iter().any(|stream| ending.eq_ignore_ascii_case(stream)) {
        return Ok(Kind::Video);
    }
    Ok(match image::guess_format(&head) {
        Ok(
            image::ImageFormat::Png
            | image::ImageFormat::Jpeg
            | image::ImageFormat::WebP
            | image::ImageFormat::Bmp,
        ) => Kind::Image,
        _ => Kind::Video,
    })
}

/// A path as one below the output folder.
fn inside(path: &Path) -> PathBuf {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(PathBuf::from(name)),
            Component::ParentDir => Some(PathBuf::from("_above")),
            _ => None,
        })
        .collect()
}

/// The folder of one input must not lie in another's, nor among unfinished work.
fn no_nesting(found: &BTreeMap<PathBuf, Input>) -> Result<(), String> {
    for input in found.values() {
        if input.name.starts_with(WORK) {
            return Err(format!(
                "{} would be written to {WORK}, which is for unfinished work: expected another name",
                input.path.display()
            ));
        }
        if let Some(outer) = input.name.ancestors().skip(1).find_map(|above| found.get(above)) {
            return Err(format!(
                "{} would be written to a folder in that of {}: expected inputs of different names",
                input.path.display(),
                outer.path.display()
            ));
        }
    }
    Ok(())
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str) -> Input {
        Input { path: PathBuf::from(name), name: PathBuf::from(name), kind: Kind::Video }
    }

    #[test]
    fn a_shard_is_the_same_everywhere_and_each_input_in_one() {
        let shard = |text: &str| text.parse::<Shard>().unwrap();
        // Written down, since machines with other versions of this program must agree.
        let first: Vec<_> = ["a.mp4", "b.mp4", "c.mp4", "d/e.png"]
            .into_iter()
            .filter(|n| shard("1/2").has(&input(n)))
            .collect();
        assert_eq!(first, ["a.mp4", "b.mp4"]);
        let mut counts = [0; 5];
        for n in 0..2000 {
            let input = input(&format!("clips/{n}.mp4"));
            let parts: Vec<_> = (0..5).filter(|part| shard(&format!("{}/5", part + 1)).has(&input)).collect();
            assert_eq!(parts.len(), 1);
            counts[parts[0]] += 1;
        }
        // 400 each, and 18 the standard deviation.
        assert!(counts.iter().all(|count| (310..490).contains(count)), "{counts:?}");
        for wrong in ["0/4", "5/4", "1", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_stay_below_the_output() {
        let names = [("/data/a.mp4", "data/a.mp4"), ("../x/./b.png", "_above/x/b.png"), ("c.mp4", "c.mp4")];
        for (path, name) in names {
            assert_eq!(inside(Path::new(path)), Path::new(name));
        }
    }
}
