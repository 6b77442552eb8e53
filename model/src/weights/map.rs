//! A file as memory, or bytes that are memory already. The one place in this crate that is unsafe; knows nothing of what the bytes mean.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use crate::error::{Result, SegmentError};

use super::invalid;

/// Which file, and which state of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// Its path, links resolved.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Its number on its device (0 where the system has none).
    pub inode: u64,
}

impl FileIdentity {
    /// The file at `path` as it is now.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| SegmentError::io("look at", path, error))?;
        let canonical = path.canonicalize().map_err(|error| SegmentError::io("resolve", path, error))?;
        let (modified_ns, inode) = modified_and_inode(&metadata);
        Ok(Self { path: canonical, size: metadata.len(), modified_ns, inode })
    }
}

/// A regular file, opened for reading and mapped whole, or bytes built into the program.
#[derive(Debug)]
pub(super) struct Map {
    memory: Memory,
    path: PathBuf,
    identity: FileIdentity,
}

#[derive(Debug)]
enum Memory {
    File { map: memmap2::Mmap, file: File },
    BuiltIn(&'static [u8]),
}

impl Map {
    /// Maps the file at `path`, which must not be empty.
    pub fn open(path: &Path) -> Result<Self> {
        // Asked before opening: opening a pipe for reading waits for a writer.
        let kind = std::fs::metadata(path).map_err(|error| SegmentError::io("open", path, error))?;
        if !kind.is_file() {
            return Err(invalid(path, "not a regular file: expected a checkpoint"));
        }
        let file = File::open(path).map_err(|error| SegmentError::io("open", path, error))?;
        let metadata = file.metadata().map_err(|error| SegmentError::io("open", path, error))?;
        if metadata.len() == 0 {
            return Err(invalid(path, "empty file: expected a checkpoint"));
        }
        let canonical = path.canonicalize().map_err(|error| SegmentError::io("resolve", path, error))?;
        // SAFETY: the mapping is read-only and private to this value, and only plain bytes are read from it,
        // so whatever another process writes to the file is at worst a wrong weight. If another process
        // truncates the file, touching the pages past its new end raises SIGBUS; every read of tensor
        // values therefore asks for the file's size first (`bytes`), which leaves only a truncation during
        // that read. Downloads don't do that: they write under another name and rename.
        let memory =
            unsafe { memmap2::Mmap::map(&file) }.map_err(|error| SegmentError::io("map", path, error))?;
        let (modified_ns, inode) = modified_and_inode(&metadata);
        let identity = FileIdentity { path: canonical, size: memory.len() as u64, modified_ns, inode };
        Ok(Self { memory: Memory::File { map: memory, file }, path: path.to_owned(), identity })
    }

    /// Bytes that are part of the program; `name` stands for a path in messages.
    pub fn built_in(bytes: &'static [u8], name: &str) -> Self {
        let path = PathBuf::from(name);
        let identity =
            FileIdentity { path: path.clone(), size: bytes.len() as u64, modified_ns: 0, inode: 0 };
        Self { memory: Memory::BuiltIn(bytes), path, identity }
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// The bytes in `range`, after a look at whether the file still has them.
    pub fn bytes(&self, range: Range<usize>) -> std::result::Result<&[u8], String> {
        if let Memory::File { file, .. } = &self.memory {
            let size = file.metadata().map_err(|error| format!("{}: {error}", self.path.display()))?.len();
            if size < self.identity.size {
                return Err(format!(
                    "{} was cut short while in use: expected {} bytes, found {size}",
                    self.path.display(),
                    self.identity.size
                ));
            }
        }
        self.get(range.clone()).ok_or_else(|| {
            format!("{}: bytes {range:?} are beyond its {} bytes", self.path.display(), self.len())
        })
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::File { map, .. } => map,
            Memory::BuiltIn(bytes) => bytes,
        }
    }
}

#[cfg(unix)]
fn modified_and_inode(metadata: &std::fs::Metadata) -> (i64, u64) {
    use std::os::unix::fs::MetadataExt;
    let modified = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    (modified, metadata.ino())
}

#[cfg(not(unix))]
fn modified_and_inode(metadata: &std::fs::Metadata) -> (i64, u64) {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    (since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)), 0)
}
