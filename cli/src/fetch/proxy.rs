//! Which proxy a request goes through, by the variables that everybody uses. The HTTP client would read them
//! too, but takes one proxy for both schemes and no blanks or subdomains in `NO_PROXY`.

use ureq::Proxy;
use ureq::http::Uri;

use super::failure::{Failure, Result};
use super::settings::variable;

/// The proxy for `uri`, if it is to go through one.
pub(super) fn proxy_for(uri: &Uri) -> Result<Option<Proxy>> {
    let either = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
    let by_scheme = if uri.scheme_str() == Some("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let Some((name, address)) =
        [by_scheme, "ALL_PROXY"].into_iter().find_map(|name| Some((name, either(name)?)))
    else {
        return Ok(None);
    };
    if either("NO_PROXY").is_some_and(|list| bypassed(&list, uri)) {
        return Ok(None);
    }
    // The address may have a password in it, so the message doesn't repeat it.
    Proxy::new(&address).map(Some).map_err(|_| {
        Failure::Final(format!("{name} is no proxy's address: expected http://proxy.example:8080, say"))
    })
}

/// Whether the comma-separated list has the host, a domain it is in, or `*`.
fn bypassed(list: &str, uri: &Uri) -> bool {
    let Some(host) = uri.host() else { return false };
    let host = host.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        if entry == "*" {
            return true;
        }
        // `example.com:8080` is for that port alone; the colons of an IPv6 address are no port.
        let (entry, wanted) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                (name, digits.parse::<u16>().ok())
            }
            _ => (entry.as_str(), None),
        };
        let entry = entry.trim_start_matches('*').trim_start_matches('.');
        let inside = host.strip_suffix(entry).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        !entry.is_empty() && inside && wanted.is_none_or(|wanted| wanted == port)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test that can't go on has failed.

    use super::bypassed;

    #[test]
    fn hosts_domains_and_ports_of_no_proxy() {
        for (list, address, expected) in [
            ("*", "https://huggingface.co/x", true),
            ("localhost, huggingface.co", "https://huggingface.co/x", true),
            ("huggingface.co", "https://cdn.huggingface.co/x", true),
            (".huggingface.co", "https://cdn.HuggingFace.co/x", true),
            ("*.huggingface.co", "https://cdn.huggingface.co/x", true),
            ("face.co", "https://huggingface.co/x", false),
            ("127.0.0.1:8080", "http://127.0.0.1:8080/x", true),
            ("127.0.0.1:8080", "http://127.0.0.1:8081/x", false),
            ("huggingface.co:443", "https://huggingface.co/x", true),
            ("", "https://huggingface.co/x", false),
            ("[::1]", "http://[::1]:80/x", true),
        ] {
            assert_eq!(bypassed(list, &address.parse().unwrap()), expected, "{list:?} {address}");
        }
    }
}
