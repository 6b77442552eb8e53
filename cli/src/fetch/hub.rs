//! Requests to the hub: what it says of a file, and the file from some byte on. Writes nothing to the disk.

use std::time::Duration;

use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::failure::{Failure, Result};
use super::proxy::proxy_for;
use super::settings::{self, Endpoint, Token};

const CONNECT: Duration = Duration::from_secs(20);
const MAX_HOPS: usize = 10;

/// A file on the hub.
pub(super) struct Address<'a> {
    pub repository: &'a str,
    pub revision: &'a str,
    pub file: &'a str,
}

/// What the hub says of a file.
pub(super) struct Published {
    pub size: u64,
    /// In lower-case hex, where the hub knows it.
    pub sha256: Option<String>,
}

pub(super) struct Hub {
    agent: Agent,
    endpoint: Endpoint,
    token: Option<Token>,
}

impl Hub {
    pub fn new(endpoint: Endpoint) -> Result<Self> {
        let stall = settings::stall()?;
        // The system's certificates, and those of $SSL_CERT_FILE: companies' proxies sign with their own.
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("sapiensseg/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            // Followed here, for the token must not follow.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(stall))
            .timeout_per_read(Some(stall))
            .build();
        Ok(Self { agent: config.into(), endpoint, token: Token::find()? })
    }

    /// Asks for a file's size and hash. A large file's are in the answer that redirects to its storage.
    pub fn look(&self, address: &Address<'_>) -> Result<Published> {
        let (response, own) =
            self.follow(address, |uri| self.send(true, uri, 0), |response| linked_hash(response).is_some())?;
        // The length of a redirect is that of the redirect.
        let length = || number(&response, "content-length").filter(|_| response.status().is_success());
        let size = number(&response, "x-linked-size").or_else(length);
        let Some(size) = size else {
            return Err(Failure::Final(format!(
                "{} does not say how large {} is: is it a hub?",
                self.endpoint.text, address.file
            )));
        };
        // What a storage calls a file's tag may be any hash.
        let tag = || sha256(&response, "etag").filter(|_| own);
        Ok(Published { size, sha256: linked_hash(&response).or_else(tag) })
    }

    /// Starts the download at byte `from`: the answer is 200, 206 or 416.
    pub fn open(&self, address: &Address<'_>, from: u64) -> Result<Response<Body>> {
        self.follow(address, |uri| self.send(false, uri, from), |_| false).map(|(response, _)| response)
    }

    /// Goes from the file's address to where it is, or to the first answer that is enough; tells whether that is the
    /// hub's own.
    fn follow(
        &self,
        address: &Address<'_>,
        send: impl Fn(&Uri) -> Result<Response<Body>>,
        enough: impl Fn(&Response<Body>) -> bool,
    ) -> Result<(Response<Body>, bool)> {
        let mut uri = self.uri(address)?;
        for _ in 0..MAX_HOPS {
            let response = send(&uri)?;
            let status = response.status();
            let own = same_origin(&uri, &self.endpoint.uri);
            if !status.is_redirection() {
                let fine = status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE;
                return if fine {
                    Ok((response, own))
                } else {
                    Err(self.refused(address, &uri, own, &response))
                };
            }
            if own && enough(&response) {
                return Ok((response, own));
            }
            uri = next(&uri, text(&response, "location").unwrap_or_default()).map_err(Failure::Final)?;
        }
        Err(Failure::Final(format!("{}: more than {MAX_HOPS} redirects", self.endpoint.text)))
    }

    fn send(&self, head: bool, uri: &Uri, from: u64) -> Result<Response<Body>> {
        let mut request = if head { self.agent.head(uri) } else { self.agent.get(uri) };
        // Sizes and ranges are to be those of the file, not of something compressed.
        request = request.header("accept-encoding", "identity");
        if let Some(token) = self.token.as_ref().filter(|_| same_origin(uri, &self.endpoint.uri)) {
            request = request.header("authorization", format!("Bearer {}", token.value));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let proxy = proxy_for(uri)?;
        request.config().proxy(proxy).build().call().map_err(|error| transport(uri, error))
    }

    fn uri(&self, address: &Address<'_>) -> Result<Uri> {
        let Address { repository, revision, file } = address;
        // A branch may have a slash in its name, which is one part of the address all the same.
        let revision = escape(revision, "");
        let text = format!(
            "{}/{}/resolve/{revision}/{}",
            self.endpoint.text,
            escape(repository, "/"),
            escape(file, "/")
        );
        text.parse().map_err(|error| Failure::Final(format!("{text}: {error}")))
    }

    /// An answer that is neither the file nor a way to it.
    fn refused(&self, address: &Address<'_>, uri: &Uri, own: bool, response: &Response<Body>) -> Failure {
        let Address { repository, revision, file } = address;
        let status = response.status();
        let host = place(uri);
        let after = number(response, "retry-after").map(Duration::from_secs);
        match status.as_u16() {
            code @ (401 | 403) if own => {
                let token = match &self.token {
                    None => "none is set".to_owned(),
                    Some(token) => format!("the one in {} was not enough", token.origin),
                };
                Failure::Final(format!(
                    "{host} gives {repository} to those only whom it knows ({code}): the model may be gated; accept its terms at {}/{repository}, and set HF_TOKEN to a token of yours ({token})",
                    self.endpoint.text
                ))
            }
            404 if own => Failure::Final(format!(
                "{host} has no file {file} in repository {repository}, revision {revision} (404)"
            )),
            code @ (408 | 429 | 500..) => {
                Failure::Passing { why: format!("{host} is busy or out of order ({code})"), after }
            }
            // The address that the hub gave may have run out; a new try gets a new one.
            code if !own => Failure::passing(format!("{host}, where {file} is stored, refused ({code})")),
            code => Failure::Final(format!("{host} answered {code} when asked for {file}")),
        }
    }
}

/// The SHA-256 that the hub gives for a large file that is stored elsewhere.
fn linked_hash(response: &Response<Body>) -> Option<String> {
    sha256(response, "x-linked-etag")
}

/// The SHA-256 in a header. Small files have a hash of another kind there.
fn sha256(response: &Response<Body>, header: &str) -> Option<String> {
    let digits = text(response, header)?.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
    let hex = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(digits)
}

pub(super) fn text<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok().map(str::trim)
}

pub(super) fn number(response: &Response<Body>, name: &str) -> Option<u64> {
    text(response, name)?.parse().ok()
}

/// Scheme, host and port: who a secret may be told.
fn same_origin(one: &Uri, other: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let scheme = uri.scheme_str().map(str::to_ascii_lowercase);
        let port = uri.port_u16().unwrap_or(if scheme.as_deref() == Some("https") { 443 } else { 80 });
        (scheme, uri.host().map(str::to_ascii_lowercase), port)
    };
    origin(one) == origin(other)
}

/// An address without what may be secret in it: storage is opened by a signature behind the `?`.
fn place(uri: &Uri) -> String {
    let port = uri.port_u16().map_or(String::new(), |port| format!(":{port}"));
    format!("{}{port}", uri.host().unwrap_or_default())
}

/// Where a redirect leads.
fn next(uri: &Uri, location: &str) -> std::result::Result<Uri, String> {
    let from = place(uri);
    let (scheme, authority) =
        (uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()));
    let text = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        location.to_owned()
    };
    let parsed = text.parse::<Uri>().ok();
    let Some(target) = parsed.filter(|target| matches!(target.scheme_str(), Some("http" | "https"))) else {
        return Err(format!("{from} redirects to nowhere that can be understood"));
    };
    if scheme == "https" && target.scheme_str() == Some("http") {
        return Err(format!("{from} redirects to {} without encryption: refused", place(&target)));
    }
    Ok(target)
}

fn transport(uri: &Uri, error: ureq::Error) -> Failure {
    let why = format!("can't reach {}: {error}", place(uri));
    match error {
        // What rustls reports comes as this kind: certificates don't get better by waiting.
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Failure::Final(why),
        ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::Protocol(_)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::ConnectProxyFailed(_) => Failure::passing(why),
        _ => Failure::Final(why),
    }
}

/// Percent-encodes what can't stand in an address, and all that isn't in `keep`.
fn escape(text: &str, keep: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain =
            byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.as_bytes().contains(&byte);
        if plain {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that can't go on has failed.

    use super::{escape, next, same_origin};

    #[test]
    fn redirects_are_resolved_and_never_lose_encryption() {
        let from = "https://hub.example/a/resolve/main/f".parse().unwrap();
        for (location, expected) in [
            ("/b/f", Some("https://hub.example/b/f")),
            ("//cdn.example/f?s=1", Some("https://cdn.example/f?s=1")),
            ("https://cdn.example/f", Some("https://cdn.example/f")),
            ("http://cdn.example/f", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            let found = next(&from, location).ok().map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |one: &str, other: &str| same_origin(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(same("https://Hub.example/a", "https://hub.example:443/b"));
        assert!(!same("https://hub.example/a", "http://hub.example/a"));
        assert!(!same("https://hub.example/a", "https://hub.example:8443/a"));
        assert!(!same("https://hub.example/a", "https://cdn.hub.example/a"));
    }

    #[test]
    fn a_revision_with_a_slash_is_one_part_of_the_address() {
        assert_eq!(escape("refs/pr/1", ""), "refs%2Fpr%2F1");
        assert_eq!(escape("owner/na me", "/"), "owner/na%20me");
    }
}
