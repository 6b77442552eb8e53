//! The folder that a file is fetched into: one process at a time, space, the part's name, the last step.
//! Knows no network.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use indicatif::HumanBytes;

use super::failure::{Failure, Result};

/// A place for a file, held against other processes until dropped.
pub(super) struct Place {
    target: PathBuf,
    folder: PathBuf,
    lock: Option<File>,
}

impl Place {
    /// Makes the folder and waits for its turn.
    pub fn take(target: PathBuf, say: impl FnOnce(&str)) -> Result<Self> {
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, error))?;
        let mut place = Self { target, folder, lock: None };
        place.lock = lock(&place.lock_path(), say)?;
        Ok(place)
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where the part of the file with this hash is. Another version's part has another name, and is never continued.
    pub fn part(&self, sha256: &str) -> PathBuf {
        self.beside(&format!(".{}.part", sha256.get(..16).unwrap_or(sha256)))
    }

    /// An error unless `needed` more bytes have room.
    pub fn check_space(&self, needed: u64) -> Result<()> {
        let status = match rustix::fs::statvfs(&self.folder) {
            Ok(status) => status,
            Err(error) => {
                log::warn!("can't tell the free space in {}: {error}", self.folder.display());
                return Ok(());
            }
        };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        if needed <= free {
            return Ok(());
        }
        Err(Failure::Final(format!(
            "no space for {}: it needs {} ({needed} bytes), and {} has {} free ({free} bytes)",
            self.target.display(),
            HumanBytes(needed),
            self.folder.display(),
            HumanBytes(free)
        )))
    }

    /// Gives the part its name, at once and for good, and clears away other versions' parts.
    pub fn put(&self, part: &Path) -> Result<()> {
        std::fs::rename(part, &self.target).map_err(|error| Failure::io("write", &self.target, error))?;
        // The name is to outlast a power cut too. Not every file system can do that.
        if let Err(error) = File::open(&self.folder).and_then(|folder| folder.sync_all()) {
            log::info!("can't sync {}: {error}", self.folder.display());
        }
        self.clear_parts();
        Ok(())
    }

    /// Removes every part of this file; what can't be removed does no harm.
    pub fn clear_parts(&self) {
        let prefix = self.beside(".");
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().map(|name| name.as_encoded_bytes().to_owned()).unwrap_or_default();
            let prefix = prefix.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
            let middle = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(b".part"));
            if middle.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
                && let Err(error) = std::fs::remove_file(&path)
            {
                log::info!("can't remove {}: {error}", path.display());
            }
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.beside(".lock")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = OsString::from(self.target.as_os_str());
        path.push(suffix);
        PathBuf::from(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // While it is still held: whoever waits for it sees that it is gone and makes a new one.
        if self.lock.is_some() {
            let _ = std::fs::remove_file(self.lock_path());
        }
    }
}

/// Waits for the lock; nothing on a file system that has none, where the rename at the end still keeps
/// half a file from being taken for one.
fn lock(path: &Path, say: impl FnOnce(&str)) -> Result<Option<File>> {
    let mut say = Some(say);
    loop {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::io("write", path, error))?;
        let locked = match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                if let Some(say) = say.take() {
                    say("another process is fetching it: waiting");
                }
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
        };
        if let Err(error) = locked {
            log::warn!(
                "{} can't be locked, so another process may fetch the same file: {error}",
                path.display()
            );
            return Ok(None);
        }
        if same_file(&file, path) {
            return Ok(Some(file));
        }
    }
}

/// Whether the path still leads to this file: who had the lock has removed it.
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(held), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (held.dev(), held.ino()) == (named.dev(), named.ino())
}
