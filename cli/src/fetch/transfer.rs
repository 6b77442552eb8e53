//! One file's bytes from the hub into a part file, hashed on the way, however often the connection is lost.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use indicatif::HumanBytes;
use sha2::{Digest, Sha256};
use ureq::Body;
use ureq::http::Response;

use super::failure::{Failure, Patience, Result};
use super::hub::{Address, Hub, number, text};
use super::progress::Progress;

/// Read, hashed and written at a time.
const CHUNK: usize = 256 << 10;

/// What is there of a file. Every byte of it has been hashed.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    hasher: Sha256,
    length: u64,
}

impl Part {
    /// Opens the part at `path`, or begins one. What it has must be hashed by [`Part::take_stock`].
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::io("write", path, error))?;
        Ok(Self { file, path: path.to_owned(), hasher: Sha256::new(), length: 0 })
    }

    /// Hashes what an earlier download left, unless it is more than the whole file.
    pub fn take_stock(&mut self, size: u64, say: impl FnOnce(&str)) -> Result<()> {
        let read = |error| Failure::io("read", &self.path, error);
        let there = self.file.metadata().map_err(read)?.len();
        if there > size {
            return self.start_over();
        }
        if there > 0 {
            say(&format!("continuing at {} of {}", HumanBytes(there), HumanBytes(size)));
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.hasher.update(&buffer[..count]);
                    self.length += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io("read", &self.path, error)),
            }
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    fn start_over(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|error| Failure::io("empty", &self.path, error))?;
        self.hasher = Sha256::new();
        self.length = 0;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| {
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                Failure::Final(format!(
                    "no space left for {}: what is there is kept; make room and run the same command again to continue",
                    self.path.display()
                ))
            } else {
                Failure::io("write", &self.path, error)
            }
        })?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Brings it all to the disk, and tells its SHA-256.
    pub fn finish(self) -> Result<String> {
        self.file.sync_all().map_err(|error| Failure::io("write", &self.path, error))?;
        Ok(self.hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Fetches what `part` lacks of `size` bytes.
pub(super) fn download(
    hub: &Hub,
    address: &Address<'_>,
    part: &mut Part,
    size: u64,
    progress: &mut Progress,
) -> Result<()> {
    let mut patience = Patience::default();
    // Only what goes beyond this is progress: a server that starts over each time would else never be given up.
    let mut furthest = part.length;
    while part.length < size {
        let Err(failure) = attempt(hub, address, part, size, progress) else { continue };
        if part.length > furthest {
            furthest = part.length;
            patience.renew();
        }
        let at = format!("at {} of {}", HumanBytes(part.length), HumanBytes(size));
        let passing = matches!(failure, Failure::Passing { .. });
        if let Err(given_up) = patience.wait(failure, |line| progress.say(&format!("{at}: {line}"))) {
            return Err(if passing {
                Failure::Final(format!("{given_up}; stopped {at}: run the same command again to continue"))
            } else {
                given_up
            });
        }
    }
    Ok(())
}

/// One connection's worth of it. `Ok` only when the file is whole.
fn attempt(
    hub: &Hub,
    address: &Address<'_>,
    part: &mut Part,
    size: u64,
    progress: &mut Progress,
) -> Result<()> {
    let response = hub.open(address, part.length)?;
    match response.status().as_u16() {
        206 => check_range(&response, part.length, size)?,
        416 => {
            part.start_over()?;
            return Err(Failure::passing("the hub has nothing from there on: starting over"));
        }
        _ => {
            if let Some(found) = number(&response, "content-length").filter(|&found| found != size) {
                return Err(wrong_size(size, found));
            }
            if part.length > 0 {
                progress.say("the hub can't continue: starting over");
                part.start_over()?;
            }
        }
    }
    progress.at(part.length);
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; CHUNK];
    while part.length < size {
        let count = match body.read(&mut buffer) {
            Ok(0) => return Err(Failure::passing("the connection was closed early")),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::passing(format!("the connection was lost ({error})"))),
        };
        // What a server sends beyond the end is its own affair: the hash decides.
        let wanted = usize::try_from(size - part.length).map_or(count, |left| left.min(count));
        part.append(&buffer[..wanted])?;
        progress.at(part.length);
    }
    Ok(())
}

/// Whether a part of the file is the one asked for: `bytes 100-199/200`.
fn check_range(response: &Response<Body>, from: u64, size: u64) -> Result<()> {
    let range = text(response, "content-range").unwrap_or_default();
    let parsed = range.strip_prefix("bytes ").and_then(|range| {
        let (range, total) = range.split_once('/')?;
        Some((range.split_once('-')?.0.trim().parse::<u64>().ok()?, total.trim()))
    });
    match parsed {
        Some((start, total)) if start == from => match total.parse::<u64>() {
            Ok(total) if total != size => Err(wrong_size(size, total)),
            _ => Ok(()),
        },
        _ => Err(Failure::passing(format!(
            "asked for the bytes from {from} on, the hub sent others (Content-Range: {range:?})"
        ))),
    }
}

fn wrong_size(expected: u64, found: u64) -> Failure {
    Failure::Final(format!(
        "the hub says that the file has {expected} bytes, and where it is stored it has {found}: not fetched"
    ))
}
