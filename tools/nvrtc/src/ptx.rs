//! The PTX that is committed: written, or compared with what the compiler makes of the sources now.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::messages::{CompilerTalk, complain, count};
use crate::release::{Compilers, PTX_TARGETS};
use crate::sources::{self, Sources};

/// What is to be below the folder of the sources: paths and texts.
type Files = BTreeMap<PathBuf, String>;

/// Writes what differs, removes what has no source any more, and prints sizes.
pub(crate) fn write(sources: &Sources, compilers: &Compilers) -> Result<(), String> {
    let files = compile(sources, compilers)?;
    for path in stale(&sources.folder, &files)? {
        fs::remove_file(&path).map_err(|error| format!("can't remove {}: {error}", path.display()))?;
        anstream::println!("{}: removed, it has no source any more", path.display());
    }
    for (path, text) in &files {
        // One that is right keeps its time, and what it is built into need not be built again.
        let state = if is(path, text)? {
            "as it was"
        } else {
            put(path, text)?;
            "written"
        };
        anstream::println!("{:9} {:>8} bytes  {}", state, text.len(), path.display());
    }
    say_if_none(sources);
    Ok(())
}

/// Compares, and names what differs.
pub(crate) fn check(sources: &Sources, compilers: &Compilers) -> Result<(), String> {
    let files = compile(sources, compilers)?;
    let mut different = 0;
    let mut differs = |path: &Path, how: &str| {
        complain(&format_args!("{} {how}", path.display()));
        different += 1;
    };
    for (path, text) in &files {
        if !path.exists() {
            differs(path, "is missing");
        } else if !is(path, text)? {
            differs(path, "is not what the compiler makes of its source now");
        }
    }
    for path in stale(&sources.folder, &files)? {
        differs(&path, "has no source any more");
    }
    if different > 0 {
        return Err(format!(
            "{} not as the sources want: `make ptx` writes PTX anew",
            count(different, "file")
        ));
    }
    if !files.is_empty() {
        anstream::println!("{} of PTX are what the sources say", count(files.len(), "file"));
    }
    say_if_none(sources);
    Ok(())
}

/// The PTX of every source for every target.
fn compile(sources: &Sources, compilers: &Compilers) -> Result<Files, String> {
    if sources.programs.is_empty() {
        return Ok(Files::new());
    }
    compilers.load(&PTX_TARGETS)?;
    let jobs: Vec<_> = sources
        .programs
        .iter()
        .flat_map(|source| PTX_TARGETS.iter().map(move |target| (source, target)))
        .collect();
    let results: Vec<_> =
        jobs.par_iter().map(|(source, target)| compilers.compile(sources, source, target, &[])).collect();

    let mut talk = CompilerTalk::default();
    let mut files = Files::new();
    for ((source, target), result) in jobs.iter().zip(results) {
        match result {
            Ok(output) => {
                talk.note(&source.file(), target.name, &output.log);
                let path =
                    sources.folder.join("ptx").join(target.name).join(format!("{}.ptx", source.name()));
                files.insert(path, normalised(&output.ptx));
            }
            Err(error) => talk.note(&source.file(), target.name, &error),
        }
    }
    talk.print();
    match jobs.len() - files.len() {
        0 => Ok(files),
        failures => Err(format!("{} of {} failed", count(failures, "compilation"), jobs.len())),
    }
}

/// PTX as it is committed. There is no path and no date in what the compiler writes; its build's number goes, since the
/// same version has been built for several systems, and empty lines at the end.
fn normalised(ptx: &str) -> String {
    let lines = ptx.trim_end().lines().filter(|line| !line.starts_with("// Compiler Build ID:"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Files of PTX that nothing is compiled to.
fn stale(folder: &Path, files: &Files) -> Result<Vec<PathBuf>, String> {
    let mut stale = Vec::new();
    for target in sources::entries(&folder.join("ptx"))? {
        if target.is_dir() {
            stale.extend(sources::files(&target, "ptx")?.into_iter().map(|(_, path)| path));
        }
    }
    stale.retain(|path| !files.contains_key(path));
    stale.sort();
    Ok(stale)
}

/// Whether the file is there and holds that text.
fn is(path: &Path, text: &str) -> Result<bool, String> {
    Ok(path.exists() && sources::read(path)? == text)
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    let trouble = |error| format!("can't write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(trouble)?;
    }
    fs::write(path, text).map_err(trouble)
}

fn say_if_none(sources: &Sources) {
    if sources.programs.is_empty() {
        anstream::println!("nothing to compile in {}", sources.folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_number_and_the_empty_end_go() {
        let ptx = "//\n// Compiler Build ID: CL-1\n// release 12.0\n\n.version 8.0\n}\n\n\n";
        assert_eq!(normalised(ptx), "//\n// release 12.0\n\n.version 8.0\n}\n");
    }

    #[test]
    fn what_has_no_source_is_stale_whatever_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join("ptx").join(name);
        for name in ["compute_75/a.ptx", "compute_75/b.ptx", "compute_60/a.ptx", "compute_75/notes.md"] {
            put(&path(name), "").unwrap();
        }
        let files = Files::from([(path("compute_75/a.ptx"), String::new())]);
        assert_eq!(
            stale(folder.path(), &files).unwrap(),
            [path("compute_60/a.ptx"), path("compute_75/b.ptx")]
        );
        assert_eq!(stale(&folder.path().join("none"), &files).unwrap(), [""; 0].map(PathBuf::from));
    }
}
