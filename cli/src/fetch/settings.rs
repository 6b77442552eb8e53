//! What the hub's usual environment variables say: address, token, offline, patience. Sends nothing.

use std::path::PathBuf;
use std::time::Duration;

use ureq::http::Uri;

use super::failure::{Failure, Result};

const HUB: &str = "https://huggingface.co";

/// How long nothing may arrive before the connection counts as lost.
const STALL: Duration = Duration::from_secs(30);

/// Where the hub is.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Without a slash at the end.
    pub text: String,
    pub uri: Uri,
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim().trim_end_matches('/').to_owned();
        let problem =
            |found: String| format!("{text:?} is no address of a hub: expected {HUB}, say; {found}");
        let uri: Uri = text.parse().map_err(|error| problem(format!("{error}")))?;
        match (uri.scheme_str(), uri.host(), uri.query()) {
            (Some("http" | "https"), Some(host), None) if !host.is_empty() => Ok(Self { text, uri }),
            _ => Err(problem("it needs http:// or https://, a host, and nothing after the path".into())),
        }
    }
}

impl Endpoint {
    /// The one given, else `$HF_ENDPOINT`, else the hub.
    pub fn chosen(given: Option<&Endpoint>) -> Result<Self> {
        if let Some(given) = given {
            return Ok(given.clone());
        }
        let set = variable("HF_ENDPOINT");
        let parsed = set.as_deref().unwrap_or(HUB).parse();
        parsed.map_err(|error| Failure::Final(format!("HF_ENDPOINT: {error}")))
    }
}

/// A variable's value; one set to nothing counts as not set.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn folder(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether the user wants nothing to be sent.
pub(super) fn offline() -> bool {
    variable("HF_HUB_OFFLINE")
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}

/// How long nothing may arrive.
pub(super) fn stall() -> Result<Duration> {
    const NAME: &str = "HF_HUB_DOWNLOAD_TIMEOUT";
    let Some(value) = variable(NAME) else { return Ok(STALL) };
    value.parse::<u64>().ok().filter(|&seconds| seconds > 0).map(Duration::from_secs).ok_or_else(|| {
        Failure::Final(format!("{NAME} is {value:?}: expected a number of seconds, 1 or more"))
    })
}

/// The user's token for the hub, and where it is from.
pub(super) struct Token {
    pub value: String,
    pub origin: String,
}

impl Token {
    /// The first of the variables and files that has one.
    pub fn find() -> Result<Option<Self>> {
        for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
            if let Some(value) = variable(name) {
                return Self::new(value, name.to_owned()).map(Some);
            }
        }
        for path in token_files() {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let value = text.trim();
            if !value.is_empty() {
                return Self::new(value.to_owned(), path.display().to_string()).map(Some);
            }
        }
        Ok(None)
    }

    /// Refuses what can't stand in a request. The message doesn't repeat it: it is a secret.
    fn new(value: String, origin: String) -> Result<Self> {
        if value.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self { value, origin })
        } else {
            Err(Failure::Final(format!("the token in {origin} has blanks or letters that no token has")))
        }
    }
}

fn token_files() -> Vec<PathBuf> {
    if let Some(path) = folder("HF_TOKEN_PATH") {
        return vec![path];
    }
    if let Some(home) = folder("HF_HOME") {
        return vec![home.join("token")];
    }
    let caches = [folder("XDG_CACHE_HOME"), folder("HOME").map(|home| home.join(".cache"))];
    caches.into_iter().flatten().map(|cache| cache.join("huggingface/token")).collect()
}
