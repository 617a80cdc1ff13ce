//! Compression of pages, and the style sheet and script with a version in their addresses.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::assets;

/// The most bytes of a page that are compressed. A longer one is an export, which is sent once and to this machine.
const MAX_COMPRESSED: u64 = 4 << 20;

/// A file of the page that is the same for everybody.
pub(super) struct Asset {
    kind: &'static str,
    text: &'static str,
    /// Names this version of the file.
    version: String,
    compressed: Vec<u8>,
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/css", assets::STYLE));
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| Asset::new("text/javascript", assets::SCRIPT));
pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| Asset::new("image/svg+xml", assets::ICON));

impl Asset {
    fn new(kind: &'static str, text: &'static str) -> Self {
        let compressed = gzip(text.as_bytes(), Compression::best());
        let version = format!("{:x}", hash_of(text));
        Self { kind, text, version, compressed }
    }

    /// The address of this version at a path. Browsers keep it.
    pub(super) fn address(&self, path: &str) -> String {
        format!("{path}?v={}", self.version)
    }

    /// The response to a request for it.
    pub(super) fn response(&'static self, uri: &Uri, headers: &HeaderMap) -> Response {
        let is_this_version = uri.query().and_then(|query| query.strip_prefix("v=")) == Some(&*self.version);
        let cache = if is_this_version { "max-age=31536000, immutable" } else { "no-cache" };
        let fixed = [
            (header::CONTENT_TYPE, format!("{}; charset=utf-8", self.kind)),
            (header::CACHE_CONTROL, cache.to_owned()),
            (header::VARY, "accept-encoding".to_owned()),
        ];
        if accepts_gzip(headers) {
            (fixed, [(header::CONTENT_ENCODING, "gzip")], self.compressed.as_slice()).into_response()
        } else {
            (fixed, self.text).into_response()
        }
    }
}

/// Compresses pages for browsers that accept it.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let is_accepted = accepts_gzip(request.headers());
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let size = response.body().size_hint().exact();
    if !is_accepted || !is_page || size.is_none_or(|size| size > MAX_COMPRESSED) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The body is in memory already, and its size is known.
    let Ok(page) = to_bytes(body, usize::MAX).await else { return parts.into_response() };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Response::from_parts(parts, Body::from(gzip(&page, Compression::fast())))
}

/// Whether a browser accepts compressed responses.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = quality
            .trim()
            .strip_prefix("q=")
            .is_some_and(|quality| quality.trim().parse::<f64>().is_ok_and(|quality| quality <= 0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), level);
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory can be written")
}

/// FNV-1a, which is the same in every build of the same text.
fn hash_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_say_whether_they_accept_compressed_responses() {
        for (accepted, is_accepted) in [
            ("gzip, deflate, br", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("identity", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accepted.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), is_accepted, "{accepted}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn only_the_present_version_of_a_file_is_kept() {
        let cache = |uri: &str| {
            let response = STYLE.response(&uri.parse().unwrap(), &HeaderMap::new());
            response.headers()[header::CACHE_CONTROL].to_str().unwrap().to_owned()
        };
        assert!(cache(&STYLE.address("/assets/page.css")).contains("immutable"));
        assert_eq!(cache("/assets/page.css"), "no-cache");
        assert_eq!(cache("/assets/page.css?v=0"), "no-cache");
        assert_ne!(STYLE.version, SCRIPT.version);
    }
}
