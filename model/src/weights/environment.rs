//! The environment variables that decide where weights are and whether they may be used. Read once, here,
//! so that everything else takes them as a value.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub(super) const CHECKPOINT_ROOT: &str = "SAPIENS_CHECKPOINT_ROOT";
pub(super) const HUB_CACHE: &str = "HF_HUB_CACHE";
pub(super) const HUB_HOME: &str = "HF_HOME";
const CACHE_HOME: &str = "XDG_CACHE_HOME";
const HOME: &str = "HOME";

/// The variables that matter here. One set to nothing counts as not set.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    vars: BTreeMap<String, OsString>,
}

impl Environment {
    pub fn of_process() -> Self {
        // Everything is taken: which licence variables there are is the card's business.
        Self::from_vars(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))),
        )
    }

    pub fn from_vars(vars: impl IntoIterator<Item = (String, OsString)>) -> Self {
        Self { vars: vars.into_iter().filter(|(_, value)| !value.is_empty()).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(name).map(OsString::as_os_str)
    }

    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// `~/.cache`, wherever it is.
    pub fn user_cache(&self) -> Option<PathBuf> {
        self.path(HOME).map(|home| home.join(".cache"))
    }

    /// The project's cache folder. A relative `$XDG_CACHE_HOME` is to be ignored, says its specification.
    pub fn project_cache(&self) -> Option<PathBuf> {
        let base = self.path(CACHE_HOME).filter(|path| path.is_absolute()).or_else(|| self.user_cache());
        base.map(|base| base.join("sapiensseg"))
    }
}
