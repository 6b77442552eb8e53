//! Where an input's results grow and where they end. Knows files, locks and what survives a crash; nothing of labels.
//!
//! Work is done in `.annotate/ID/` of the output folder, and the whole folder takes its place under the input's name
//! when it is complete: nobody ever sees half a result. `run.json` is there from the beginning; it has a `result` once
//! everything else is on the disk. Files in the work folder appear whole or not at all, so whatever is there is done.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::inputs::Input;
use crate::plan::{self, RESULT};
use crate::trouble::{Result, Trouble};

/// Where unfinished work is.
pub(crate) const WORK: &str = ".annotate";
const RUN: &str = "run.json";
/// Files being written.
const TEMPORARY: &str = "tmp";
/// Label PNGs.
pub(crate) const LABELS: &str = "labels";
/// Label PNGs that a label video is made of in the end.
pub(crate) const FRAMES: &str = "frames";

/// The places of one input.
#[derive(Debug)]
pub(crate) struct Place {
    done: PathBuf,
    work: PathBuf,
    lock: PathBuf,
    /// A result that is being replaced.
    old: PathBuf,
}

/// What there is of an input's result.
#[derive(Debug)]
pub(crate) enum State {
    New,
    /// Unfinished; its `run.json` if that's readable.
    Begun(Option<Value>),
    /// Finished, with its `run.json`.
    Done(Value),
}

impl Place {
    pub(crate) fn of(output: &Path, input: &Input) -> Self {
        let (work, id) = (output.join(WORK), input.id());
        Self {
            done: output.join(&input.name),
            lock: work.join(format!("{id}.lock")),
            old: work.join(format!("{id}.old")),
            work: work.join(id),
        }
    }

    /// What is there, whoever may be working on it.
    pub(crate) fn state(&self) -> Result<State> {
        match fs::metadata(&self.done) {
            Ok(_) => match read_run(&self.done) {
                Some(run) => return Ok(State::Done(run)),
                None => {
                    return Err(Trouble::Input(format!(
                        "{} is there already and is no result of this program: expected a free place, or a folder with {RUN}",
                        self.done.display()
                    )));
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Trouble::io("read", &self.done, &error)),
        }
        Ok(if self.work.exists() { State::Begun(read_run(&self.work)) } else { State::New })
    }

    /// How what is there differs from what is asked for, in words.
    pub(crate) fn conflict(&self, state: &State, now: &Value) -> Option<Conflict> {
        let (there, finished) = match state {
            State::Done(run) => (run, true),
            State::Begun(Some(run)) => (run, false),
            _ => return None,
        };
        let difference = plan::difference(there, now, finished)?;
        let (verb, folder) = if finished { ("made", &self.done) } else { ("begun", &self.work) };
        let message = format!(
            "{} was {verb} otherwise: {difference}; --overwrite starts it anew, another --output leaves it alone",
            folder.display()
        );
        Some(Conflict { message, of_input: difference.is_of_input() })
    }

    /// Takes up work where it was left, or begins; none if there's nothing left to do.
    pub(crate) fn open(self, now: &Value, overwrite: bool) -> Result<Option<Work>> {
        let lock = self.take_lock()?;
        let work = Work { place: self, lock };
        let place = &work.place;
        let mut state = place.state()?;
        if let State::Done(_) = state
            && place.conflict(&state, now).is_none()
        {
            // Left over where a kill came between the last two steps.
            work.close()?;
            return Ok(None);
        }
        if let State::Done(_) = state
            && overwrite
        {
            // The old result stays until there is a new one, which may have been begun.
            state = State::Begun(read_run(&place.work));
        }
        if let Some(conflict) = place.conflict(&state, now)
            && !overwrite
        {
            return Err(Trouble::Input(conflict.message));
        }
        let goes_on = match &state {
            State::Begun(Some(run)) => plan::difference(run, now, false).is_none(),
            _ => false,
        };
        if !goes_on {
            remove_folder(&place.work)?;
        }
        remove_folder(&place.work.join(TEMPORARY))?;
        make_folder(&place.work.join(TEMPORARY))?;
        if let State::Begun(Some(run)) = state
            && goes_on
        {
            if run.get(RESULT).is_some() {
                work.put_in_place()?;
                return Ok(None);
            }
        } else {
            work.write_run(now)?;
        }
        Ok(Some(work))
    }

    /// The file's lock, for as long as it is open.
    fn take_lock(&self) -> Result<File> {
        loop {
            make_folder(self.lock.parent().unwrap_or(Path::new(".")))?;
            let explain = |error: io::Error| Trouble::io("lock", &self.lock, &error);
            let file = match File::options().create(true).append(true).open(&self.lock) {
                // Another process has just tidied up.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(explain)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Trouble::Input(format!(
                        "another annotate is at work on it: {} is locked",
                        self.lock.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(explain(error)),
            }
            // Whoever had it may have finished and removed it since it was opened.
            let ours = file.metadata().map_err(explain)?.ino();
            if fs::metadata(&self.lock).is_ok_and(|there| there.ino() == ours) {
                return Ok(file);
            }
        }
    }
}

/// See [`Place::conflict`].
#[derive(Debug)]
pub(crate) struct Conflict {
    pub message: String,
    /// The input isn't what it was; else what is asked for isn't.
    pub of_input: bool,
}

/// An input's work folder, which no other process writes to meanwhile.
#[derive(Debug)]
pub(crate) struct Work {
    place: Place,
    lock: File,
}

impl Work {
    /// A file's path in the folder.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.work.join(name)
    }

    /// Makes a folder in the folder.
    pub(crate) fn folder(&self, name: &str) -> Result<()> {
        make_folder(&self.path(name))
    }

    /// Begins a file that takes its place when it is complete.
    pub(crate) fn begin(&self, name: impl AsRef<Path>) -> Result<Pending> {
        let path = self.path(name);
        let file = tempfile::Builder::new()
            // As any other file made here; temporary files are for their owner alone by default.
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(self.path(TEMPORARY))
            .map_err(|error| Trouble::io("write", &path, &error))?;
        Ok(Pending { path, file: BufWriter::new(file) })
    }

    /// Writes a whole file.
    pub(crate) fn write(
        &self,
        name: impl AsRef<Path>,
        write: impl FnOnce(&mut BufWriter<NamedTempFile>) -> io::Result<()>,
    ) -> Result<()> {
        let mut pending = self.begin(name)?;
        pending.with(write)?;
        pending.commit()
    }

    fn write_run(&self, run: &Value) -> Result<()> {
        self.write(RUN, |file| {
            serde_json::to_writer_pretty(&mut *file, run)?;
            file.write_all(b"\n")
        })
    }

    /// All is written: the folder takes its place.
    pub(crate) fn finish(self, mut run: Value, result: Value) -> Result<()> {
        let sync = |path: &Path| {
            let failed = |error: io::Error| Trouble::io("write", path, &error);
            let folder = File::open(path).map_err(failed)?;
            // One call for however many files there are.
            rustix::fs::syncfs(&folder).map_err(|error| failed(error.into()))
        };
        sync(&self.place.work)?;
        run[RESULT] = result;
        self.write_run(&run)?;
        sync(&self.place.work)?;
        self.put_in_place()
    }

    fn put_in_place(self) -> Result<()> {
        let place = &self.place;
        remove_folder(&place.work.join(TEMPORARY))?;
        remove_folder(&place.work.join(FRAMES))?;
        let rename = |from: &Path, to: &Path| {
            fs::rename(from, to).map_err(|error| Trouble::io("put in place", to, &error))
        };
        let above = place.done.parent().unwrap_or(Path::new("."));
        make_folder(above)?;
        if place.done.exists() {
            remove_folder(&place.old)?;
            rename(&place.done, &place.old)?;
        }
        rename(&place.work, &place.done)?;
        File::open(above)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| Trouble::io("write", above, &error))?;
        self.close()
    }

    /// Leaves the work for another time, or nothing at all if nothing has been done.
    pub(crate) fn leave(self) {
        let is_empty =
            |name: &str| fs::read_dir(self.path(name)).is_ok_and(|mut files| files.next().is_none());
        let has_folder = |name: &str| self.path(name).exists();
        if [LABELS, FRAMES].iter().all(|name| !has_folder(name) || is_empty(name)) {
            // What can't be removed is no more than what a kill would have left.
            let _ = self.close();
        }
    }

    /// Removes what only unfinished work needs.
    fn close(self) -> Result<()> {
        remove_folder(&self.place.old)?;
        remove_folder(&self.place.work)?;
        fs::remove_file(&self.place.lock).map_err(|error| Trouble::io("remove", &self.place.lock, &error))?;
        // Only now may others have it.
        drop(self.lock);
        Ok(())
    }
}

/// A file that isn't complete yet.
#[derive(Debug)]
pub(crate) struct Pending {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl Pending {
    /// Has `write` write to it; errors name the file.
    pub(crate) fn with<T>(
        &mut self,
        write: impl FnOnce(&mut BufWriter<NamedTempFile>) -> io::Result<T>,
    ) -> Result<T> {
        write(&mut self.file).map_err(|error| Trouble::io("write", &self.path, &error))
    }

    /// Puts it in its place.
    pub(crate) fn commit(self) -> Result<()> {
        let Self { path, file } = self;
        let failed = |error: &io::Error| Trouble::io("write", &path, error);
        let file = file.into_inner().map_err(|error| failed(error.error()))?;
        file.persist(&path).map_err(|error| failed(&error.error))?;
        Ok(())
    }
}

/// Removes the folder of unfinished work if nothing is in it any more.
pub(crate) fn tidy(output: &Path) {
    let _ = fs::remove_dir(output.join(WORK));
}

fn read_run(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join(RUN)).ok()?).ok()
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| Trouble::io("make folder", path, &error))
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Trouble::io("remove", path, &error)),
        _ => Ok(()),
    }
}
