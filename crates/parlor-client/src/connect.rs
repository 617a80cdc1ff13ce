use std::ffi::OsStr;
use std::future::ready;
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

use parlor_dialect::live;
use parlor_json::{Json, Object};
use parlor_wire::hello::{Hello, Welcome};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;

#[cfg(feature = "websocket")]
use {
    tokio::net::TcpStream,
    tokio_tungstenite::tungstenite::handshake::client::{Request, Response},
    tokio_tungstenite::tungstenite::{self, protocol::WebSocketConfig},
    tokio_tungstenite::{MaybeTlsStream, WebSocketStream},
};

use crate::client::initialize_params;
use crate::connection::open_socket;
use crate::process;
use crate::transport::Transport;
use crate::{Client, Connection, Error, Version};

/// Opens connections, with the name and the capabilities of a client.
///
/// It tries version 2 of the protocol first. If the peer uses version 1, it connects again and translates: a [`Client`] is the
/// same for both.
///
/// ```
/// use parlor_client::{Connector, Error, Hello, Json, Version};
///
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let (read, write) = streams().await;
/// let form = Json::parse(r#"{"form":{}}"#).unwrap();
/// let connector = Connector::new("example", "1.0").capability("elicitation", form);
/// let client = connector.over(read, write).await?;
/// assert_eq!(client.version(), Version::V2);
///
/// // A program that does not exist, and a socket that does not exist.
/// let missing = connector.spawn("/nowhere/agent", &["--stdio"]).await;
/// assert!(matches!(missing, Err(Error::Connect(_))));
/// let missing = connector.only(Version::V1).socket("/nowhere/parlor.sock".as_ref(), &Hello::new()).await;
/// assert!(matches!(missing, Err(Error::Connect(_))));
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    name: String,
    version: String,
    only: Option<Version>,
    capabilities: Object,
    wants_clients: bool,
    wants_times: bool,
}

impl Connector {
    /// A connector for a client of this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            only: None,
            capabilities: Object::default(),
            wants_clients: false,
            wants_times: false,
        }
    }

    /// Uses this version and no other.
    #[must_use]
    pub fn only(mut self, version: Version) -> Self {
        self.only = Some(version);
        self
    }

    /// Declares a capability of the client, as version 2 of the protocol has it, such as `elicitation`.
    #[must_use]
    pub fn capability(mut self, name: &str, value: Json) -> Self {
        self.capabilities.set(name, value);
        self
    }

    /// Asks a parlor server to report which clients are attached: `_meta["parlor/clients"]` in the information of a session.
    #[must_use]
    pub fn with_clients(mut self) -> Self {
        self.wants_clients = true;
        self
    }

    /// Asks a parlor server when the entries were created that it sends again: `_meta["parlor/at"]` of an entry.
    #[must_use]
    pub fn with_times(mut self) -> Self {
        self.wants_times = true;
        self
    }

    /// Starts an agent and connects to its standard streams. It inherits standard error. It runs in a process group of its
    /// own, all of which is ended with the connection.
    pub async fn spawn<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        args: &[A],
    ) -> Result<Client, Error> {
        self.spawn_with(|| {
            let mut command = Command::new(&program);
            command.args(args);
            command
        })
        .await
    }

    /// Starts an agent with a command that the caller makes. It is started again if it uses version 1.
    pub async fn spawn_with(&self, command: impl Fn() -> Command) -> Result<Client, Error> {
        let connected =
            self.connect(|| ready(process::spawn(command()).map(|transport| Some((transport, ())))));
        connected.await.map(|(client, ())| client)
    }

    /// Connects to the Unix socket of a parlor server. `hello` selects the agent, and has what to start it with.
    pub async fn socket(&self, path: &Path, hello: &Hello) -> Result<(Client, Welcome), Error> {
        self.connect(|| async { open_socket(path, hello).await.map(Some) }).await
    }

    /// Connects to a `ws://` address, with an access token if the server requires one; with the feature `tls` also to a
    /// `wss://` address.
    #[cfg(feature = "websocket")]
    pub async fn url(&self, url: &str, token: Option<&str>) -> Result<Client, Error> {
        use tokio_tungstenite::tungstenite::client::IntoClientRequest;
        use tokio_tungstenite::tungstenite::http::HeaderValue;

        let connect_error = |error: tungstenite::Error| {
            if let tungstenite::Error::Io(error) = error {
                Error::Connect(error)
            } else if let tungstenite::Error::Http(response) = error {
                refusal(&response)
            } else {
                Error::Refused(error.to_string())
            }
        };
        let connected = self.connect(|| async {
            let mut request = url.into_client_request().map_err(connect_error)?;
            if let Some(token) = token {
                let value = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| Error::Protocol("the token is not a header value"))?;
                request.headers_mut().insert("authorization", value);
            }
            let limit = Some(parlor_wire::DEFAULT_LINE_LIMIT);
            let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
            // The handshake of TLS would make every future that connects large.
            let (socket, _) = Box::pin(dial(request, config)).await.map_err(connect_error)?;
            Ok(Some((Transport::over_websocket(socket), ())))
        });
        connected.await.map(|(client, ())| client)
    }

    /// Connects over two byte streams. They cannot be opened again, so the version is the one that was asked for, or 2.
    pub async fn over<R, W>(&self, read: R, write: W) -> Result<Client, Error>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let mut streams = Some((read, write));
        let connected = self.connect(|| {
            let over = streams.take().map(|(read, write)| (Transport::over("stream", read, write).0, ()));
            ready(over.map(Ok).transpose())
        });
        connected.await.map(|(client, ())| client)
    }

    /// Connects, and again in version 1 if version 2 fails and `open` can open another transport. Returns also what else
    /// `open` returned.
    async fn connect<T, F>(&self, mut open: impl FnMut() -> F) -> Result<(Client, T), Error>
    where
        F: Future<Output = Result<Option<(Transport, T)>, Error>>,
    {
        let versions = self.only.map_or_else(|| vec![Version::V2, Version::V1], |version| vec![version]);
        let mut params = initialize_params(&self.name, &self.version, &self.capabilities);
        if self.wants_clients {
            params.set_nested("_meta", "parlor/clients", true);
        }
        if self.wants_times {
            params.set_nested("_meta", "parlor/times", true);
        }
        let mut last = Error::Protocol("the peer uses neither version");
        for version in versions {
            let Some((transport, opened)) = open().await? else { break };
            let connection = Connection::start(transport, version.dialect());
            match Client::initialize(connection, &params, version).await {
                Ok(client) if version == Version::V1 || live::speaks_v2(client.info()) => {
                    return Ok((client, opened));
                }
                Ok(_) => {
                    last = Error::Refused(
                        "it uses version 1 of the protocol, and this connection version 2".to_owned(),
                    );
                }
                // Some agents respond to an unknown version with an error, or exit.
                Err(error @ (Error::Rpc(_) | Error::Disconnected)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// Why a server has not opened a WebSocket: the status, and the first line of its text.
#[cfg(feature = "websocket")]
fn refusal(response: &tungstenite::http::Response<Option<Vec<u8>>>) -> Error {
    use tungstenite::http::StatusCode;

    let status = response.status();
    let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let reason = match body.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => format!("{status}: {line}"),
        None => status.to_string(),
    };
    let is_temporary = status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    if is_temporary { Error::Unavailable(reason) } else { Error::Refused(reason) }
}

/// An open WebSocket, or why there is none.
#[cfg(feature = "websocket")]
type Dialled = Result<(WebSocketStream<MaybeTlsStream<TcpStream>>, Response), tungstenite::Error>;

/// Opens a WebSocket, to a `wss://` address with the certificates that the system trusts.
#[cfg(feature = "tls")]
async fn dial(request: Request, config: WebSocketConfig) -> Dialled {
    let mut roots = rustls::RootCertStore::empty();
    // Certificates that cannot be parsed are not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    // Chosen here, because a program may have several.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls
        .expect("the provider supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Some(tokio_tungstenite::Connector::Rustls(Arc::new(tls)));
    tokio_tungstenite::connect_async_tls_with_config(request, Some(config), false, tls).await
}

/// Opens a WebSocket. Without the feature `tls` a `wss://` address is refused.
#[cfg(all(feature = "websocket", not(feature = "tls")))]
async fn dial(request: Request, config: WebSocketConfig) -> Dialled {
    tokio_tungstenite::connect_async_with_config(request, Some(config), false).await
}

#[cfg(all(test, feature = "websocket"))]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A listener that does not respond, and its `wss://` address.
    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://{}/acp", listener.local_addr().unwrap());
        (listener, url)
    }

    #[tokio::test]
    async fn a_status_of_overload_is_not_a_refusal() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let (listener, _) = listener().await;
        let url = format!("ws://{}/acp", listener.local_addr().unwrap());
        for (status, is_refusal) in [
            ("401 Unauthorized", true),
            ("404 Not Found", true),
            ("429 Too Many Requests", false),
            ("502 Bad Gateway", false),
            ("503 Service Unavailable", false),
        ] {
            let respond = async {
                let (mut theirs, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    theirs.read_buf(&mut request).await.unwrap();
                }
                let response = format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\n\r\nwhy\n");
                theirs.write_all(response.as_bytes()).await.unwrap();
            };
            let connector = Connector::new("test", "1");
            let (connected, ()) = tokio::join!(connector.url(&url, None), respond);
            let error = connected.unwrap_err();
            assert_eq!(matches!(error, Error::Refused(_)), is_refusal, "{status}: {error:?}");
            assert_eq!(matches!(error, Error::Unavailable(_)), !is_refusal, "{status}: {error:?}");
            assert!(error.to_string().ends_with(&format!("{status}: why")), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn a_wss_address_is_connected_to_with_tls() {
        use tokio::io::AsyncReadExt;

        let (listener, url) = listener().await;
        let connecting = tokio::spawn(async move { Connector::new("test", "1").url(&url, None).await });
        let (mut theirs, _) = listener.accept().await.unwrap();
        let mut start = [0; 2];
        theirs.read_exact(&mut start).await.unwrap();
        // A TLS handshake record.
        assert_eq!(start, [0x16, 0x03]);
        drop(theirs);
        let error = connecting.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Connect(_)), "{error}");
    }

    #[cfg(not(feature = "tls"))]
    #[tokio::test]
    async fn a_wss_address_is_refused_without_tls() {
        let (_listener, url) = listener().await;
        let error = Connector::new("test", "1").url(&url, None).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(why) if why.contains("TLS")), "{error}");
    }
}
