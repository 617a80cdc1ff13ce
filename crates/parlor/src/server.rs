//! Connections of commands to the server of a data directory.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_client::{Client, Connection, Connector, Error, Hello, Json, Object, OpenRequest, Version};
use parlor_server::data_dir::DataDir;
use parlor_store::SessionRow;

use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::id_json;
use crate::output::short_path;
use crate::path_options::PathOptions;
use crate::runtime;

/// The name of the command line among the clients of a session.
const CLIENT_NAME: &str = "parlor";

/// Whether a server accepts connections on a socket.
pub(crate) fn is_running(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// The environment variables that are valid UTF-8; others cannot be sent to the server.
pub(crate) fn client_environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Connects to the server and initializes the protocol, which may start an agent.
pub(crate) async fn connect(data: &DataDir, hello: &Hello) -> Result<Client, Error> {
    connector().socket(&data.socket(), hello).await.map(|(client, _)| client)
}

/// Connects as a client that can also fill in forms.
pub(crate) async fn connect_with_forms(data: &DataDir, hello: &Hello) -> Result<Client, Error> {
    let modes = Json::parse(r#"{"form":{},"url":{}}"#).expect("it is JSON");
    let connector = connector().capability("elicitation", modes);
    connector.socket(&data.socket(), hello).await.map(|(client, _)| client)
}

fn connector() -> Connector {
    Connector::new(CLIENT_NAME, env!("CARGO_PKG_VERSION")).only(Version::V2)
}

/// How long a server may take to answer a request that needs no agent.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request that needs no agent, and waits for its result.
pub(crate) fn call(socket: &Path, method: &str, timeout: Duration) -> Result<Object, CommandError> {
    query_within(socket, timeout, async |server| server.call(method, &Object::default()).await)
}

/// The same with parameters.
pub(crate) fn call_with(socket: &Path, method: &str, params: &Object) -> Result<Object, CommandError> {
    query(socket, async |server| server.call(method, params).await)
}

/// The requests that wait for a person.
pub(crate) fn open_requests(socket: &Path) -> Result<Vec<OpenRequest>, CommandError> {
    query(socket, async |server| server.open_requests().await)
}

/// Connects to a server without starting an agent, and waits for the results of a few requests.
pub(crate) fn query<T>(
    socket: &Path,
    send: impl AsyncFnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, CommandError> {
    query_within(socket, ANSWER_TIMEOUT, send)
}

fn query_within<T>(
    socket: &Path,
    timeout: Duration,
    send: impl AsyncFnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, CommandError> {
    let runtime = runtime::single_threaded()?;
    let result = runtime.block_on(within(timeout, async {
        let hello = Hello { env: client_environment(), name: Some(CLIENT_NAME.to_owned()), ..Hello::new() };
        let (server, _) = Connection::socket(socket, &hello).await?;
        send(&server).await
    }));
    runtime.shutdown_background();
    result
}

/// Waits for responses of the server for at most [`ANSWER_TIMEOUT`].
pub(crate) async fn respond_in_time<T>(
    responses: impl Future<Output = Result<T, Error>>,
) -> Result<T, CommandError> {
    within(ANSWER_TIMEOUT, responses).await
}

async fn within<T>(
    timeout: Duration,
    responses: impl Future<Output = Result<T, Error>>,
) -> Result<T, CommandError> {
    match tokio::time::timeout(timeout, responses).await {
        Ok(result) => result.map_err(|error| CommandError::client(&error)),
        Err(_) => {
            let seconds = timeout.as_secs();
            Err(CommandError::server_unavailable(format_args!(
                "the server did not respond within {seconds} s"
            ))
            .hint("`parlor logs` may say why; `parlor stop` stops it"))
        }
    }
}

/// The socket of the running server.
pub(crate) fn running(paths: &PathOptions) -> Result<PathBuf, CommandError> {
    let socket = paths.existing_data_dir()?.map(|data| data.socket()).filter(|socket| is_running(socket));
    let path = short_path(&paths.data_dir()?.to_string_lossy());
    socket.ok_or_else(|| {
        CommandError::server_unavailable(format_args!("no server is running for {path}"))
            .hint("`parlor serve` starts one")
    })
}

/// Sends a request about a session to the server, which is started if it is not running.
pub(crate) fn call_for_session(
    paths: &PathOptions,
    row: &SessionRow,
    method: &str,
    mut params: Object,
) -> Result<Object, CommandError> {
    let data = background_server::ensure_running(paths)?;
    params.set("sessionId", Json::from(&id_json(row)));
    let runtime = runtime::multi_threaded()?;
    let result = runtime.block_on(async {
        let client = connect(&data, &Hello::new()).await?;
        client.call(method, &params).await
    });
    runtime.shutdown_background();
    result.map_err(|error| CommandError::client(&error))
}
