//! Which NVRTC compiles for which target, and where it is. It knows nothing of what is done with the result.

use std::ffi::{CString, NulError};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fmt};

use crate::library::{Input, Nvrtc, Output};
use crate::sources::{Source, Sources};

/// A version of NVRTC. It is exact: PTX is compared to the byte, and registers are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// Makes the PTX that is shipped (version 8.0 of the language), which drivers of CUDA 12.0 and later take.
    V12_0,
    /// For cards with compute capability 10 and 12, which the other doesn't know.
    V13_5,
}

impl Release {
    fn version(self) -> (i32, i32) {
        match self {
            Release::V12_0 => (12, 0),
            Release::V13_5 => (13, 5),
        }
    }

    /// Where `tools/fetch-cuda.sh` puts it, below the folder for all of CUDA.
    fn path(self) -> PathBuf {
        PathBuf::from(format!("nvrtc-{self}")).join(format!("libnvrtc.so.{}", self.version().0))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version();
        write!(f, "{major}.{minor}")
    }
}

/// What is compiled for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// As `--gpu-architecture` has it.
    pub(crate) name: &'static str,
    /// As the kernels see it: the compute capability of the PTX that such a card gets.
    pub(crate) sapiens_arch: u32,
    /// Who compiles.
    pub(crate) release: Release,
}

const fn target(name: &'static str, sapiens_arch: u32, release: Release) -> Target {
    Target { name, sapiens_arch, release }
}

/// The PTX that is shipped; a driver makes code of it for its own card.
pub(crate) const PTX_TARGETS: [Target; 2] =
    [target("compute_75", 75, Release::V12_0), target("compute_80", 80, Release::V12_0)];

/// The generations of cards.
pub(crate) const MACHINE_TARGETS: [Target; 7] = [
    target("sm_75", 75, Release::V12_0),
    target("sm_80", 80, Release::V12_0),
    target("sm_86", 80, Release::V12_0),
    target("sm_89", 80, Release::V12_0),
    target("sm_90", 80, Release::V12_0),
    target("sm_100", 80, Release::V13_5),
    target("sm_120", 80, Release::V13_5),
];

impl Target {
    fn options(&self, source: &Source, more: &[&str]) -> Result<Vec<CString>, NulError> {
        let own = [
            "--std=c++17".to_owned(),
            format!("--gpu-architecture={}", self.name),
            format!("-DSAPIENS_ARCH={}", self.sapiens_arch),
        ];
        let more = more.iter().map(|&option| option.to_owned());
        own.into_iter().chain(more).chain(source.options.iter().cloned()).map(CString::new).collect()
    }
}

/// The versions of NVRTC, each loaded when it is first used.
#[derive(Debug)]
pub(crate) struct Compilers {
    folder: PathBuf,
    v12_0: OnceLock<Result<Nvrtc, String>>,
    v13_5: OnceLock<Result<Nvrtc, String>>,
}

impl Compilers {
    /// Those in `folder`, or where they are if nobody says.
    pub(crate) fn new(folder: Option<&Path>) -> Result<Self, String> {
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => default_folder(|name| {
                env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
            })
            .ok_or("where is NVRTC? None of --nvrtc-dir, $SAPIENSSEG_CUDA, $XDG_CACHE_HOME and $HOME says")?,
        };
        Ok(Self { folder, v12_0: OnceLock::new(), v13_5: OnceLock::new() })
    }

    /// Loads what `targets` need, so that it is missed once rather than by every file.
    pub(crate) fn load(&self, targets: &[Target]) -> Result<(), String> {
        targets.iter().try_for_each(|target| self.get(target.release).map(drop))
    }

    /// Compiles a source for a target, with more options than the target's and the source's own.
    pub(crate) fn compile(
        &self,
        sources: &Sources,
        source: &Source,
        target: &Target,
        more: &[&str],
    ) -> Result<Output, String> {
        let options = target
            .options(source, more)
            .map_err(|error| format!("an option of {} can't be passed on: {error}", source.file()))?;
        let (name, text) = (source.name_for_compiler(), &source.text);
        let input = Input { name, text, headers: &sources.headers, options: &options };
        self.get(target.release)?.compile(&input)
    }

    fn get(&self, release: Release) -> Result<&Nvrtc, String> {
        let place = match release {
            Release::V12_0 => &self.v12_0,
            Release::V13_5 => &self.v13_5,
        };
        place.get_or_init(|| load(&self.folder, release)).as_ref().map_err(Clone::clone)
    }
}

fn load(folder: &Path, release: Release) -> Result<Nvrtc, String> {
    let path = folder.join(release.path());
    if !path.is_file() {
        return Err(format!(
            "NVRTC {release} is not at {}: `tools/fetch-cuda.sh` fetches it, --nvrtc-dir or $SAPIENSSEG_CUDA say where \
             else it is",
            path.display()
        ));
    }
    let nvrtc = Nvrtc::load(&path)?;
    if nvrtc.version() != release.version() {
        let (major, minor) = nvrtc.version();
        return Err(format!("{} is NVRTC {major}.{minor}, expected {release}", path.display()));
    }
    Ok(nvrtc)
}

/// Where `tools/fetch-cuda.sh` puts things, from the environment.
fn default_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("SAPIENSSEG_CUDA").or_else(|| {
        let cache =
            variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("sapiensseg/cuda"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_that_of_the_script() {
        let folder = |pairs: &[(&str, &str)]| {
            let found = |name: &str| pairs.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into());
            default_folder(found)
        };
        assert_eq!(folder(&[("HOME", "/h")]), Some("/h/.cache/sapiensseg/cuda".into()));
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), Some("/c/sapiensseg/cuda".into()));
        assert_eq!(folder(&[("HOME", "/h"), ("SAPIENSSEG_CUDA", "/s")]), Some("/s".into()));
        assert_eq!(folder(&[]), None);
        assert_eq!(Release::V12_0.path(), Path::new("nvrtc-12.0/libnvrtc.so.12"));
    }

    #[test]
    fn options_of_target_call_and_source() {
        let source = Source::new("a", "// nvrtc: --fmad=false\n").unwrap();
        let options = PTX_TARGETS[1].options(&source, &["-x"]).unwrap();
        let expected =
            [c"--std=c++17", c"--gpu-architecture=compute_80", c"-DSAPIENS_ARCH=80", c"-x", c"--fmad=false"];
        assert_eq!(options, expected.map(CString::from));
    }

    #[test]
    fn what_is_missing_says_who_fetches_it() {
        let error = Compilers::new(Some(Path::new("/nowhere"))).unwrap().load(&PTX_TARGETS).unwrap_err();
        assert!(error.contains("/nowhere/nvrtc-12.0/libnvrtc.so.12"), "{error}");
        assert!(error.contains("tools/fetch-cuda.sh"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("nvrtc-12.0")).unwrap();
        std::fs::write(folder.path().join(Release::V12_0.path()), "no library").unwrap();
        let error = Compilers::new(Some(folder.path())).unwrap().load(&PTX_TARGETS).unwrap_err();
        assert!(error.starts_with("can't load NVRTC from"), "{error}");
    }
}
