//! Sends to and receives from `http://` and `https://` addresses.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long an address may take to answer, or to continue, a download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How many redirects of a download are followed.
const MAX_REDIRECTS: usize = 5;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The connection failed, or ended before the whole body was received.
    #[error("{0}")]
    Connection(io::Error),
    /// The server did not answer or continue in time.
    #[error("no answer within {} s", DOWNLOAD_TIMEOUT.as_secs())]
    TimedOut,
    /// The server refused the request.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// There were too many redirects.
    #[error("the server redirected more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    /// A redirect has no address, or an invalid one.
    #[error("{url} redirects to an invalid address")]
    InvalidRedirect {
        /// The address that redirects.
        url: String,
    },
    /// What was received could not be stored.
    #[error("{0}")]
    Sink(io::Error),
}

/// Downloads from an address, and follows redirects. `sink` gets each part of the body, and the length of the whole body if the
/// server declares it.
pub async fn download(
    url: &str,
    mut sink: impl FnMut(&[u8], Option<u64>) -> io::Result<()>,
) -> Result<(), DownloadError> {
    let mut response = follow(url).await?;
    let length = response.body().size_hint().exact();
    loop {
        let frame = poll_fn(|context| Pin::new(response.body_mut()).poll_frame(context));
        let frame = timeout(DOWNLOAD_TIMEOUT, frame).await.map_err(|_| DownloadError::TimedOut)?;
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|error| DownloadError::Connection(io::Error::other(error)))?;
        if let Some(data) = frame.data_ref() {
            sink(data, length).map_err(DownloadError::Sink)?;
        }
    }
}

/// Requests an address, and those that it redirects to.
async fn follow(url: &str) -> Result<Response<Incoming>, DownloadError> {
    let mut url = url.to_owned();
    for _ in 0..=MAX_REDIRECTS {
        let response = timeout(DOWNLOAD_TIMEOUT, get(&url)).await.map_err(|_| DownloadError::TimedOut)?;
        let response = response.map_err(DownloadError::Connection)?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        if !response.status().is_redirection() {
            return Err(DownloadError::Status(response.status()));
        }
        let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let target = location.and_then(|location| resolve(&url, location));
        url = target.ok_or(DownloadError::InvalidRedirect { url })?;
    }
    Err(DownloadError::TooManyRedirects)
}

/// The address that a redirect names: an absolute one, or a path on the same server.
fn resolve(base: &str, location: &str) -> Option<String> {
    if location.starts_with("https://") || location.starts_with("http://") {
        return Some(location.to_owned());
    }
    let base: Uri = base.parse().ok()?;
    let path = location.strip_prefix('/').filter(|path| !path.starts_with('/'))?;
    Some(format!("{}://{}/{path}", base.scheme_str()?, base.authority()?))
}

async fn get(url: &str) -> io::Result<Response<Incoming>> {
    let target = Target::parse(url)?;
    let request = Request::get(&target.path)
        .header(header::HOST, &target.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .body(Body::empty())
        .map_err(|error| invalid(&error))?;
    let stream = target.connect().await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the body of the response, or when that is dropped.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(io::Error::other)
}

const USER_AGENT: &str = concat!("parlor/", env!("CARGO_PKG_VERSION"));

/// Posts a text, and returns the status of the response. Redirects are not followed.
pub(crate) async fn post(
    url: &str,
    headers: &BTreeMap<String, String>,
    content_type: &'static str,
    body: String,
) -> io::Result<StatusCode> {
    let target = Target::parse(url)?;
    let mut request = Request::post(&target.path)
        .header(header::HOST, &target.authority)
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::CONTENT_TYPE, content_type);
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|error| invalid(&error))?;
        let value = HeaderValue::try_from(value).map_err(|error| invalid(&error))?;
        if let Some(all) = request.headers_mut() {
            all.insert(name, value);
        }
    }
    let request = request.body(Body::from(body)).map_err(|error| invalid(&error))?;
    let stream = target.connect().await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut response = std::pin::pin!(sender.send_request(request));
    // The body of the response is not read. The connection may end with the response, which is there then.
    let response = tokio::select! {
        response = &mut response => response,
        _ = connection => response.await,
    };
    Ok(response.map_err(io::Error::other)?.status())
}

fn invalid(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

/// The parts of an address.
struct Target {
    host: String,
    port: u16,
    is_secure: bool,
    authority: String,
    path: String,
}

impl Target {
    fn parse(url: &str) -> io::Result<Self> {
        let uri: Uri = url.parse().map_err(|error| invalid(&error))?;
        let host = uri.host().ok_or_else(|| invalid(&"the address has no host"))?;
        let is_secure = uri.scheme_str() == Some("https");
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            is_secure,
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        if !self.is_secure {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone()).map_err(|error| invalid(&error))?;
        let config = tokio::task::spawn_blocking(tls_config).await.map_err(io::Error::other)??;
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
    }
}

/// A connection, with or without TLS.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

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
