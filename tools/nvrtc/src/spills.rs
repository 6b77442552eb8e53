//! The spills that are known and explained (`spills.toml` beside the sources), held against those that happen.

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use crate::machine::Row;
use crate::sources;

/// The list's file.
pub(crate) const FILE: &str = "spills.toml";

/// The list of explained spills.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spills {
    #[serde(default)]
    spill: Vec<Spill>,
}

/// A kernel that may spill.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spill {
    kernel: String,
    arch: Archs,
    /// Of stores and loads together.
    max_bytes: u32,
    why: String,
}

/// Where it may: "*" or a list such as `["sm_75", "sm_86"]`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Archs {
    Pattern(String),
    List(Vec<String>),
}

impl Archs {
    fn hold(&self, arch: &str) -> bool {
        match self {
            Archs::Pattern(_) => true,
            Archs::List(archs) => archs.iter().any(|listed| listed == arch),
        }
    }
}

/// The list held against what happens; each in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Spills that nobody explained, or that are larger than explained.
    pub(crate) unexplained: Vec<String>,
    /// What is on the list and doesn't happen: the list can shrink.
    pub(crate) gone: Vec<String>,
}

impl Spills {
    /// Reads the list in `folder`, if there is one; `archs` are all that it can name.
    pub(crate) fn read(folder: &Path, archs: &[&str]) -> Result<Self, String> {
        let path = folder.join(FILE);
        if !path.try_exists().map_err(|error| format!("can't look at {}: {error}", path.display()))? {
            return Ok(Self::default());
        }
        Self::parse(&sources::read(&path)?, archs).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str, archs: &[&str]) -> Result<Self, String> {
        let spills: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut seen = HashSet::new();
        for Spill { kernel, arch, why, .. } in &spills.spill {
            let named = match arch {
                Archs::Pattern(pattern) if pattern == "*" => archs.to_vec(),
                Archs::Pattern(other) => {
                    return Err(format!(
                        "{kernel}: arch is {other:?}, expected \"*\" or a list such as [\"sm_75\"]"
                    ));
                }
                Archs::List(list) => list.iter().map(String::as_str).collect(),
            };
            if let Some(unknown) = named.iter().find(|name| !archs.contains(name)) {
                return Err(format!(
                    "{kernel}: arch {unknown:?} is unknown, expected one of {}",
                    archs.join(", ")
                ));
            }
            if let Some(again) = named.iter().find(|name| !seen.insert((kernel.clone(), (**name).to_owned())))
            {
                return Err(format!("{kernel}: listed twice for {again}"));
            }
            if why.trim().is_empty() {
                return Err(format!("{kernel}: why is empty, expected the reason for the spill"));
            }
        }
        Ok(spills)
    }

    /// Holds the list against what happens.
    pub(crate) fn judge(&self, rows: &[Row]) -> Verdict {
        let unexplained = rows.iter().filter(|row| row.spilled_bytes() > 0).filter_map(|row| {
            let entry =
                self.spill.iter().find(|spill| spill.kernel == row.kernel && spill.arch.hold(row.arch));
            let limit = entry.map(|spill| spill.max_bytes);
            let known = match limit {
                Some(limit) if row.spilled_bytes() <= limit => return None,
                Some(limit) => format!("{limit} are explained"),
                None => "none are explained".to_owned(),
            };
            let Row { file, kernel, arch, .. } = row;
            Some(format!("{file}, kernel {kernel} on {arch}: spills {} bytes, {known}", row.spilled_bytes()))
        });
        let happens = |kernel: &str, on: &dyn Fn(&str) -> bool| {
            rows.iter().any(|row| row.kernel == kernel && on(row.arch) && row.spilled_bytes() > 0)
        };
        let mut gone = Vec::new();
        for Spill { kernel, arch, .. } in &self.spill {
            match arch {
                Archs::Pattern(_) if happens(kernel, &|_| true) => {}
                Archs::Pattern(_) => gone.push(format!("kernel {kernel}")),
                Archs::List(list) => {
                    let over = list.iter().filter(|name| !happens(kernel, &|arch| arch == *name));
                    gone.extend(over.map(|name| format!("kernel {kernel} on {name}")));
                }
            }
        }
        Verdict { unexplained: unexplained.collect(), gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHS: [&str; 2] = ["sm_75", "sm_80"];

    fn row(kernel: &str, arch: &'static str, bytes: u32) -> Row {
        Row {
            file: "file.cu".to_owned(),
            kernel: kernel.to_owned(),
            arch,
            registers: 255,
            shared_bytes: 0,
            stack_bytes: bytes,
            spill_store_bytes: bytes / 2,
            spill_load_bytes: bytes - bytes / 2,
        }
    }

    fn list(text: &str) -> Spills {
        Spills::parse(text, &ARCHS).unwrap()
    }

    fn entry(kernel: &str, arch: &str) -> String {
        format!("[[spill]]\nkernel = \"{kernel}\"\narch = {arch}\nmax_bytes = 16\nwhy = \"rare\"\n")
    }

    #[test]
    fn only_explained_spills_pass() {
        let rows = [row("a", "sm_75", 0), row("a", "sm_80", 8), row("b", "sm_80", 16), row("c", "sm_75", 17)];
        assert_eq!(
            list(&(entry("b", "\"*\"") + &entry("c", "[\"sm_75\"]"))).judge(&rows),
            Verdict {
                unexplained: vec![
                    "file.cu, kernel a on sm_80: spills 8 bytes, none are explained".to_owned(),
                    "file.cu, kernel c on sm_75: spills 17 bytes, 16 are explained".to_owned(),
                ],
                gone: Vec::new(),
            }
        );
        assert_eq!(list("").judge(&rows[..1]), Verdict::default());
        // Explained for another card.
        assert_eq!(list(&entry("a", "[\"sm_75\"]")).judge(&rows[1..2]).unexplained.len(), 1);
    }

    #[test]
    fn what_does_not_happen_any_more_is_reported() {
        let rows = [row("a", "sm_75", 0), row("a", "sm_80", 8)];
        let gone = |text: &str| list(text).judge(&rows).gone;
        assert_eq!(gone(&entry("a", "\"*\"")), [""; 0]);
        assert_eq!(gone(&entry("a", "[\"sm_75\", \"sm_80\"]")), ["kernel a on sm_75"]);
        assert_eq!(gone(&entry("renamed", "\"*\"")), ["kernel renamed"]);
    }

    #[test]
    fn mistakes_in_the_list_are_errors() {
        let error = |text: &str| Spills::parse(text, &ARCHS).unwrap_err();
        assert_eq!(
            error(&entry("a", "\"sm_75\"")),
            "a: arch is \"sm_75\", expected \"*\" or a list such as [\"sm_75\"]"
        );
        assert_eq!(
            error(&entry("a", "[\"sm_70\"]")),
            "a: arch \"sm_70\" is unknown, expected one of sm_75, sm_80"
        );
        let twice = entry("a", "\"*\"") + &entry("a", "[\"sm_80\"]");
        assert_eq!(error(&twice), "a: listed twice for sm_80");
        assert_eq!(
            error(&entry("a", "\"*\"").replace("rare", " ")),
            "a: why is empty, expected the reason for the spill"
        );
        assert!(error(&entry("a", "\"*\"").replace("max_bytes", "bytes")).contains("unknown field"));
    }
}
