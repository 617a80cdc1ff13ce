use std::ffi::OsStr;
use std::future::ready;
use std::path::Path;
#[cfg(feature = "tls")]
use std::sync::Arc;

use parlor_dialect::{Dialect, live};
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

use crate::client::initialize;
use crate::connection::greet;
use crate::program::start;
use crate::transport::Transport;
use crate::{Client, Connection, Error, Version};

/// How to connect, and who is there.
///
/// The other side is asked for version 2 of the protocol first. One that speaks version 1 is connected to again in its own
/// version, and translated: a [`Client`] is the same with both.
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
/// assert_eq!(client.version(), 2);
///
/// // A program that cannot be started, and a server that is not there.
/// let nothing = connector.spawn("/nowhere/agent", &["--stdio"]).await;
/// assert!(matches!(nothing, Err(Error::Connect(_))));
/// let nobody = connector.only(Version::V1).socket("/nowhere/parlor.sock".as_ref(), &Hello::new()).await;
/// assert!(matches!(nobody, Err(Error::Connect(_))));
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    name: String,
    version: String,
    only: Option<Version>,
    capabilities: Object,
}

impl Connector {
    /// A client of this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), only: None, capabilities: Object::default() }
    }

    /// Speaks this version and no other.
    #[must_use]
    pub fn only(mut self, version: Version) -> Self {
        self.only = Some(version);
        self
    }

    /// What the client can do, as version 2 of the protocol has it, such as `elicitation`.
    #[must_use]
    pub fn capability(mut self, name: &str, value: Json) -> Self {
        self.capabilities.set(name, value);
        self
    }

    /// Starts a program and talks to its standard streams. What it writes to standard error goes where this process's
    /// does. It gets a process group of its own and ends with the client, and with it all that is in the group.
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

    /// Starts a program in a way of one's own. It is started again if it turns out to speak another version.
    pub async fn spawn_with(&self, command: impl Fn() -> Command) -> Result<Client, Error> {
        let connected = self.connect(|| ready(start(command()).map(|transport| Some((transport, ())))));
        connected.await.map(|(client, ())| client)
    }

    /// Connects to the Unix socket of a server of parlor's. `hello` says which agent is wanted, and what to start it with.
    pub async fn socket(&self, path: &Path, hello: &Hello) -> Result<(Client, Welcome), Error> {
        self.connect(|| async { greet(path, hello).await.map(Some) }).await
    }

    /// Connects to a `ws://` address, with a token if it wants one; with the feature `tls` also to a `wss://` one.
    #[cfg(feature = "websocket")]
    pub async fn url(&self, url: &str, token: Option<&str>) -> Result<Client, Error> {
        use tokio_tungstenite::tungstenite::client::IntoClientRequest;
        use tokio_tungstenite::tungstenite::http::HeaderValue;

        let trouble = |error: tungstenite::Error| {
            if let tungstenite::Error::Io(error) = error {
                Error::Connect(error)
            } else {
                Error::Refused(error.to_string())
            }
        };
        let connected = self.connect(|| async {
            let mut request = url.into_client_request().map_err(trouble)?;
            if let Some(token) = token {
                let value = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| Error::Protocol("a token that cannot be sent"))?;
                request.headers_mut().insert("authorization", value);
            }
            let limit = Some(parlor_wire::DEFAULT_LINE_LIMIT);
            let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
            let (socket, _) = dial(request, config).await.map_err(trouble)?;
            Ok(Some((Transport::over_websocket(socket), ())))
        });
        connected.await.map(|(client, ())| client)
    }

    /// Talks over any two streams. There is only one of them, so the version is the one that was asked for, or 2.
    pub async fn over<R, W>(&self, read: R, write: W) -> Result<Client, Error>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let mut streams = Some((read, write));
        let connected = self.connect(|| {
            let over = streams.take().map(|(read, write)| (Transport::over(read, write).0, ()));
            ready(over.map(Ok).transpose())
        });
        connected.await.map(|(client, ())| client)
    }

    /// Connects, if need be again in the other version, unless there is nothing to be opened again. What else comes of
    /// opening is handed on.
    async fn connect<T, F>(&self, mut open: impl FnMut() -> F) -> Result<(Client, T), Error>
    where
        F: Future<Output = Result<Option<(Transport, T)>, Error>>,
    {
        let dialects = match self.only {
            Some(Version::V1) => &[Dialect::V1][..],
            Some(Version::V2) => &[Dialect::V2],
            None => &[Dialect::V2, Dialect::V1],
        };
        let params = initialize(&self.name, &self.version, &self.capabilities);
        let mut last = Error::Protocol("an agent of neither version");
        for &dialect in dialects {
            let Some((transport, besides)) = open().await? else { break };
            match Client::begin(Connection::start(transport, dialect), &params, dialect).await {
                Ok(client) if dialect == Dialect::V1 || live::speaks_v2(client.info()) => {
                    return Ok((client, besides));
                }
                Ok(_) => {
                    last = Error::Refused("it speaks version 1 of the protocol: ask for that".to_owned());
                }
                // Some agents answer an unknown version with an error, or end.
                Err(error @ (Error::Rpc(_) | Error::Disconnected)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// What opening a WebSocket comes to.
#[cfg(feature = "websocket")]
type Dialled = Result<(WebSocketStream<MaybeTlsStream<TcpStream>>, Response), tungstenite::Error>;

/// Opens a WebSocket, to a `wss://` address with the certificates that the system trusts.
#[cfg(feature = "tls")]
async fn dial(request: Request, config: WebSocketConfig) -> Dialled {
    let mut roots = rustls::RootCertStore::empty();
    // One that cannot be read is trusted by nobody.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    // Named, because a program may have more than one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls =
        tls.expect("it has the versions that it says").with_root_certificates(roots).with_no_client_auth();
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

    /// A place where somebody listens who does not answer, and its `wss://` address.
    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://{}/acp", listener.local_addr().unwrap());
        (listener, url)
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn a_wss_address_is_spoken_to_in_tls() {
        use tokio::io::AsyncReadExt;

        let (listener, url) = listener().await;
        let connecting = tokio::spawn(async move { Connector::new("test", "1").url(&url, None).await });
        let (mut theirs, _) = listener.accept().await.unwrap();
        let mut beginning = [0; 2];
        theirs.read_exact(&mut beginning).await.unwrap();
        // A handshake record of TLS.
        assert_eq!(beginning, [0x16, 0x03]);
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
