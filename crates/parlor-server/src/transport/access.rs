//! Access control over HTTP.
//!
//! Every program on this machine and every web page in a browser on it can reach the port. So a request must name one of our
//! hosts (otherwise a page could point its own host name to our address), must come from one of our origins if it comes from
//! a page, and must show a token.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use subtle::ConstantTimeEq;

use crate::data_dir::Tokens;
use crate::hub::ClientRole;

/// The host name of the page. Browsers resolve it to this machine.
pub(super) const PAGE_HOST: &str = "parlor.localhost";

/// The tokens, hosts and origins that are accepted.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) tokens: Tokens,
    /// Host names besides our own, each with a port or for any.
    pub(super) hosts: Vec<String>,
    /// Origins besides our own.
    pub(super) origins: Vec<String>,
}

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, &'static str);

const NO_TOKEN: Refusal = (
    StatusCode::UNAUTHORIZED,
    "A token is required: send 'Authorization: Bearer TOKEN'.\n\
     It is in the file 'token' of the data directory, unless PARLOR_TOKEN was set for the server.\n",
);

const BAD_HOST: Refusal = (
    StatusCode::FORBIDDEN,
    "The host name is not accepted. List names besides localhost as 'hosts' under [server] in config.toml.\n",
);

const BAD_ORIGIN: Refusal = (
    StatusCode::FORBIDDEN,
    "The origin is not accepted. List origins that may connect as 'origins' under [server] in config.toml.\n",
);

impl Access {
    /// Checks the host and the origin of a request. `at` is our address of the connection.
    pub(super) fn check(&self, headers: &HeaderMap, uri: &Uri, at: SocketAddr) -> Result<(), Refusal> {
        let host = only(headers, &header::HOST).ok().flatten().ok_or(BAD_HOST)?;
        let named = uri.authority().is_none_or(|authority| self.is_ours(authority.as_str(), at));
        if !named || !self.is_ours(host, at) {
            return Err(BAD_HOST);
        }
        match only(headers, &header::ORIGIN).map_err(|()| BAD_ORIGIN)? {
            Some(origin) if !self.is_allowed_origin(origin, at) => Err(BAD_ORIGIN),
            Some(_) | None => Ok(()),
        }
    }

    /// The role that the token of a request grants.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<ClientRole, Refusal> {
        bearer(headers).and_then(|token| self.role(token)).ok_or(NO_TOKEN)
    }

    fn role(&self, token: &str) -> Option<ClientRole> {
        let is = |ours: &str| bool::from(token.as_bytes().ct_eq(ours.as_bytes()));
        if is(&self.tokens.driver) {
            Some(ClientRole::Driver)
        } else if self.tokens.observer.as_deref().is_some_and(is) {
            Some(ClientRole::Observer)
        } else {
            None
        }
    }

    fn is_ours(&self, host: &str, at: SocketAddr) -> bool {
        is_local(host, at) || self.is_configured(host)
    }

    /// Whether a host is one of those that the configuration lists.
    pub(super) fn is_configured(&self, host: &str) -> bool {
        let name = split_port(host).map_or(host, |(name, _)| name);
        self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host) || ours.eq_ignore_ascii_case(name))
    }

    fn is_allowed_origin(&self, origin: &str, at: SocketAddr) -> bool {
        let listed = |ours: &String| ours.trim_end_matches('/').eq_ignore_ascii_case(origin);
        if self.origins.iter().any(listed) {
            return true;
        }
        match origin.split_once("://") {
            Some(("http", host)) => self.is_ours(host, at),
            // A proxy may serve a configured host name over TLS.
            Some(("https", host)) => self.is_configured(host),
            Some(_) | None => false,
        }
    }
}

/// Whether a host is a local name with our port, or our address of the connection.
fn is_local(host: &str, at: SocketAddr) -> bool {
    let Some((name, port)) = split_port(host) else { return false };
    if port != at.port() {
        return false;
    }
    ["localhost", PAGE_HOST, "127.0.0.1", "[::1]"].iter().any(|ours| ours.eq_ignore_ascii_case(name))
        || format!("{name}:{port}").parse() == Ok(SocketAddr::new(at.ip().to_canonical(), port))
}

/// A host without its port, and the port. Without one it is that of HTTP.
pub(super) fn split_port(host: &str) -> Option<(&str, u16)> {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => Some((name, port.parse().ok()?)),
        Some(_) | None => Some((host, 80)),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &header::AUTHORIZATION).ok().flatten()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The header's value; an error if there are several, because programs differ in which one they use.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn access() -> Access {
        Access {
            tokens: Tokens { driver: "drive".into(), observer: Some("watch".into()) },
            hosts: vec!["parlor.example".into(), "other.example:8443".into()],
            origins: vec!["https://page.example/".into()],
        }
    }

    fn headers(list: &[(HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_host_is_accepted_if_it_is_local_with_our_port_or_configured() {
        for (host, at, ours) in [
            ("localhost:7667", "127.0.0.1:7667", true),
            ("LOCALHOST:7667", "127.0.0.1:7667", true),
            ("127.0.0.1:7667", "127.0.0.1:7667", true),
            ("parlor.localhost:7667", "127.0.0.1:7667", true),
            ("parlor.localhost:7668", "127.0.0.1:7667", false),
            ("x.parlor.localhost:7667", "127.0.0.1:7667", false),
            ("[::1]:7667", "[::1]:7667", true),
            ("localhost", "127.0.0.1:80", true),
            ("192.168.1.5:7667", "192.168.1.5:7667", true),
            ("192.168.1.5:7667", "[::ffff:192.168.1.5]:7667", true),
            ("parlor.example", "127.0.0.1:7667", true),
            ("Parlor.Example:1234", "127.0.0.1:7667", true),
            ("other.example:8443", "127.0.0.1:7667", true),
            ("other.example", "127.0.0.1:7667", false),
            ("localhost", "127.0.0.1:7667", false),
            ("localhost:7668", "127.0.0.1:7667", false),
            ("localhost:7667:7667", "127.0.0.1:7667", false),
            ("[::1]", "[::1]:7667", false),
            ("192.168.1.6:7667", "192.168.1.5:7667", false),
            ("evil.example:7667", "127.0.0.1:7667", false),
            ("evil.localhost:7667", "127.0.0.1:7667", false),
            ("", "127.0.0.1:7667", false),
        ] {
            let checked =
                access().check(&headers(&[(header::HOST, host)]), &Uri::default(), at.parse().unwrap());
            assert_eq!(checked.is_ok(), ours, "{host} at {at}");
        }
    }

    #[test]
    fn a_request_has_one_host_header_and_no_other_host_in_its_target() {
        let at = "127.0.0.1:7667".parse().unwrap();
        let ours = (header::HOST, "localhost:7667");
        let check = |list: &[_], uri: &'static str| {
            access().check(&headers(list), &Uri::from_static(uri), at).is_ok()
        };
        assert!(check(std::slice::from_ref(&ours), "/acp"));
        assert!(!check(&[], "/acp"));
        assert!(!check(&[ours.clone(), ours.clone()], "/acp"));
        assert!(!check(&[ours], "http://evil.example/acp"));
    }

    #[test]
    fn an_origin_is_accepted_if_it_is_ours_or_listed() {
        for (origin, welcome) in [
            ("http://localhost:7667", true),
            ("http://127.0.0.1:7667", true),
            ("https://page.example", true),
            ("https://parlor.example", true),
            ("https://localhost:7667", false),
            ("http://localhost:3000", false),
            ("http://page.example", false),
            ("https://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let list = [(header::HOST, "localhost:7667"), (header::ORIGIN, origin)];
            let at = "127.0.0.1:7667".parse().unwrap();
            let checked = access().check(&headers(&list), &Uri::default(), at);
            assert_eq!(checked.is_ok(), welcome, "{origin}");
        }
    }

    #[test]
    fn tokens_come_in_the_header() {
        let protocols = header::SEC_WEBSOCKET_PROTOCOL;
        for (list, role) in [
            (vec![(header::AUTHORIZATION, "Bearer drive")], Some(ClientRole::Driver)),
            (vec![(header::AUTHORIZATION, "bearer  watch")], Some(ClientRole::Observer)),
            (vec![], None),
            (vec![(header::AUTHORIZATION, "Bearer drivel")], None),
            (vec![(header::AUTHORIZATION, "Bearer ")], None),
            (vec![(header::AUTHORIZATION, "Basic drive")], None),
            // Pages have tickets: scripts and logs would see a token there.
            (vec![(protocols, "parlor.token.drive")], None),
        ] {
            assert_eq!(access().admit(&headers(&list)).ok(), role, "{list:?}");
        }
    }
}
