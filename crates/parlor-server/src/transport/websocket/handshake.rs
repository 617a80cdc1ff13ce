//! How an HTTP request becomes a WebSocket.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::transport::access::Refusal;

/// A request that is accepted. The connection is a WebSocket once the response has been sent.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    on_upgrade: OnUpgrade,
}

/// A connection that has become a WebSocket, with the bytes that the client has sent since.
#[derive(Debug)]
pub(crate) struct UpgradedStream {
    pub(super) stream: TcpStream,
    pub(super) received: bytes::Bytes,
}

impl Handshake {
    /// Checks a request by RFC 6455, section 4.2.1.
    pub(crate) fn accept(request: &mut Request) -> Result<Self, Refusal> {
        if request.method() != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "The request method must be GET.\n"));
        }
        let headers = request.headers();
        if !has_token(headers, &header::CONNECTION, "upgrade") {
            return Err((StatusCode::BAD_REQUEST, "The header 'Connection' must contain 'upgrade'.\n"));
        }
        if !has_token(headers, &header::UPGRADE, "websocket") {
            return Err((StatusCode::BAD_REQUEST, "The header 'Upgrade' must contain 'websocket'.\n"));
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err((StatusCode::BAD_REQUEST, "The header 'Sec-WebSocket-Version' must be '13'.\n"));
        }
        let key = headers.get(header::SEC_WEBSOCKET_KEY);
        let accept = key.and_then(|key| HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok());
        let accept =
            accept.ok_or((StatusCode::BAD_REQUEST, "The header 'Sec-WebSocket-Key' is missing.\n"))?;
        let on_upgrade = request.extensions_mut().remove::<OnUpgrade>();
        let on_upgrade =
            on_upgrade.ok_or((StatusCode::UPGRADE_REQUIRED, "The connection cannot be upgraded.\n"))?;
        Ok(Self { accept, on_upgrade })
    }

    /// The response to the request.
    pub(crate) fn response(&self) -> Response {
        let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        response
    }

    /// Waits until the response has been sent; `None` if the client is gone by then.
    pub(crate) async fn upgraded(self) -> Option<UpgradedStream> {
        let upgraded = self.on_upgrade.await;
        let parts =
            upgraded.ok().and_then(|upgraded: Upgraded| upgraded.downcast::<TokioIo<TcpStream>>().ok())?;
        Some(UpgradedStream { stream: parts.io.into_inner(), received: parts.read_buf })
    }
}

impl UpgradedStream {
    /// The connection, and what was read of it.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.received.into())
    }
}

/// Whether a header that is a list has an element.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|element| element.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const COMPLETE: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn refusal(method: Method, headers: &[(&str, &str)]) -> StatusCode {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Handshake::accept(&mut request.body(Body::empty()).unwrap()).unwrap_err().0
    }

    #[test]
    fn a_request_that_is_no_handshake_is_refused() {
        for missing in 0..COMPLETE.len() {
            let mut headers = COMPLETE.to_vec();
            let (name, _) = headers.remove(missing);
            assert_eq!(refusal(Method::GET, &headers), StatusCode::BAD_REQUEST, "without {name}");
            headers.push((name, "other"));
            if name != "sec-websocket-key" {
                assert_eq!(refusal(Method::GET, &headers), StatusCode::BAD_REQUEST, "with another {name}");
            }
        }
        assert_eq!(refusal(Method::HEAD, &COMPLETE), StatusCode::METHOD_NOT_ALLOWED);
        // Complete, but of a connection that cannot become anything else.
        assert_eq!(refusal(Method::GET, &COMPLETE), StatusCode::UPGRADE_REQUIRED);
    }
}
