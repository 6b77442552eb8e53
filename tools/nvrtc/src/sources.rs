//! The kernels' sources as texts: programs, what they include, and the options they ask for. It never compiles.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};

/// How a source asks for options, in one of its first comments.
const OPTIONS: &str = "nvrtc:";

/// A folder of sources, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Where they are.
    pub(crate) folder: PathBuf,
    /// The `.cu` files.
    pub(crate) programs: Vec<Source>,
    /// The `.cuh` files, which programs include by name: names and texts.
    pub(crate) headers: Vec<(CString, CString)>,
}

/// A `.cu` file.
#[derive(Debug)]
pub(crate) struct Source {
    file: CString,
    name: String,
    /// What is in it.
    pub(crate) text: CString,
    /// What it asks of the compiler.
    pub(crate) options: Vec<String>,
}

impl Sources {
    /// Reads a folder; one that isn't there has no sources.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let mut sources = Self { folder: folder.to_owned(), ..Self::default() };
        for (stem, path) in files(folder, "cu")? {
            sources.programs.push(Source::new(&stem, &read(&path)?)?);
        }
        for (stem, path) in files(folder, "cuh")? {
            let zero = |_| format!("{} holds a zero byte", path.display());
            let name = CString::new(format!("{stem}.cuh")).map_err(zero)?;
            sources.headers.push((name, CString::new(read(&path)?).map_err(zero)?));
        }
        Ok(sources)
    }
}

impl Source {
    /// `<name>.cu` with that text.
    pub(crate) fn new(name: &str, text: &str) -> Result<Self, String> {
        let zero = |_| format!("{name}.cu holds a zero byte");
        Ok(Self {
            file: CString::new(format!("{name}.cu")).map_err(zero)?,
            name: name.to_owned(),
            text: CString::new(text).map_err(zero)?,
            options: options(text).map_err(|error| format!("{name}.cu, {error}"))?,
        })
    }

    /// The file's name without `.cu`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file's name.
    pub(crate) fn file(&self) -> String {
        format!("{}.cu", self.name)
    }

    /// The file's name, without its folder: what the compiler makes of it must be the same everywhere.
    pub(crate) fn name_for_compiler(&self) -> &CStr {
        &self.file
    }
}

/// Stems and paths of the files in `folder` that end in `.<extension>`, sorted; none if there is no such folder.
pub(crate) fn files(folder: &Path, extension: &str) -> Result<Vec<(String, PathBuf)>, String> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.extension().is_none_or(|end| end != extension) {
            continue;
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.ok_or_else(|| format!("the name of {} is no text", path.display()))?;
        files.push((stem.to_owned(), path));
    }
    files.sort();
    Ok(files)
}

/// What is in `folder`; nothing if there is no such folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let trouble = |error| format!("can't list {}: {error}", folder.display());
    if !folder.try_exists().map_err(trouble)? {
        return Ok(Vec::new());
    }
    fs::read_dir(folder).map_err(trouble)?.map(|entry| Ok(entry.map_err(trouble)?.path())).collect()
}

/// The file's text.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// The options in the comments before the first line of code, separated by spaces. One further down is an error: it
/// would look as if it did something.
fn options(text: &str) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    let mut first_lines = true;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim().strip_prefix("//");
        first_lines &= comment.is_some() || line.trim().is_empty();
        let Some(asked) = comment.and_then(|comment| comment.trim_start().strip_prefix(OPTIONS)) else {
            continue;
        };
        if !first_lines {
            return Err(format!(
                "line {}: `// {OPTIONS}` must come before the first line of code",
                index + 1
            ));
        }
        if asked.trim().is_empty() {
            return Err(format!("line {}: `// {OPTIONS}` without options", index + 1));
        }
        options.extend(asked.split_whitespace().map(str::to_owned));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_the_first_comments() {
        assert_eq!(options("").unwrap(), [""; 0]);
        assert_eq!(
            options("// A kernel.\n\n//   nvrtc: -a  --b=c\r\n// nvrtc:-d\nint x;\n").unwrap(),
            ["-a", "--b=c", "-d"]
        );
        assert_eq!(options("// nvrtc is a compiler\nint x; // nvrtc: no\n").unwrap(), [""; 0]);
    }

    #[test]
    fn options_that_would_not_count_are_an_error() {
        let error = options("// A kernel.\nint x;\n// nvrtc: -a\n").unwrap_err();
        assert_eq!(error, "line 3: `// nvrtc:` must come before the first line of code");
        assert_eq!(options("// nvrtc: \n").unwrap_err(), "line 1: `// nvrtc:` without options");
        assert!(Source::new("name", "int x;\n// nvrtc: -a\n").unwrap_err().starts_with("name.cu, line 2"));
        assert_eq!(Source::new("name", "\0").unwrap_err(), "name.cu holds a zero byte");
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.cu", "a.cu", "device.cuh", "notes.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let sources = Sources::read(folder.path()).unwrap();
        let names: Vec<_> = sources.programs.iter().map(Source::name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(sources.programs[0].text.as_c_str(), c"a.cu");
        assert_eq!(sources.headers, [(c"device.cuh".into(), c"device.cuh".into())]);
        assert!(Sources::read(&folder.path().join("none")).unwrap().programs.is_empty());
    }
}
