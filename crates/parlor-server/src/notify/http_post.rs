//! Posts to an `http://` or `https://` address.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use hyper::client::conn::http1;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Posts a text, and returns the status of the response. Redirects are not followed.
pub(super) async fn post(
    url: &str,
    headers: &BTreeMap<String, String>,
    content_type: &'static str,
    body: String,
) -> io::Result<StatusCode> {
    let invalid =
        |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let uri: Uri = url.parse().map_err(|error| invalid(&error))?;
    let host = uri.host().ok_or_else(|| invalid(&"the address has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("parlor/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, content_type);
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|error| invalid(&error))?;
        let value = HeaderValue::try_from(value).map_err(|error| invalid(&error))?;
        if let Some(all) = request.headers_mut() {
            all.insert(name, value);
        }
    }
    let request = request.body(Body::from(body)).map_err(|error| invalid(&error))?;
    let stream = TcpStream::connect((host, port)).await?;
    if is_secure {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| invalid(&error))?;
        let config = tokio::task::spawn_blocking(tls_config).await.map_err(io::Error::other)??;
        send(TlsConnector::from(config).connect(name, stream).await?, request).await
    } else {
        send(stream, request).await
    }
}

async fn send<S>(stream: S, request: Request<Body>) -> io::Result<StatusCode>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut response = std::pin::pin!(sender.send_request(request));
    // The body of the response is not read. The connection may end with the response, which is there then.
    let response = tokio::select! {
        response = &mut response => response,
        _ = connection => response.await,
    };
    Ok(response.map_err(io::Error::other)?.status())
}

/// Trusts the authorities that the system trusts. This blocks.
fn tls_config() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // Systems have certificates that are not valid for this.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
