//! Connections of commands to the server of a data directory.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use parlor_client::{Client, Connection, Connector, Error, Hello, Json, Object, Version};
use parlor_server::data_dir::DataDir;
use parlor_store::SessionRow;

use crate::background_server;
use crate::command_error::CommandError;
use crate::offline_sessions::id_json;
use crate::path_options::PathOptions;
use crate::runtime;

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
    Connector::new("parlor", env!("CARGO_PKG_VERSION")).only(Version::V2)
}

/// How long a server may take to answer a request that needs no agent.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request that needs no agent, and waits for its result.
pub(crate) fn call(socket: &Path, method: &str, timeout: Duration) -> Result<Object, CommandError> {
    let runtime = runtime::single_threaded()?;
    let answer = async {
        let hello = Hello { env: client_environment(), ..Hello::new() };
        let (server, _) = Connection::socket(socket, &hello).await?;
        server.call(method, &Object::default()).await
    };
    let result = runtime.block_on(async { tokio::time::timeout(timeout, answer).await });
    runtime.shutdown_background();
    match result {
        Ok(result) => result.map_err(|error| CommandError::client(&error)),
        Err(_) => {
            let seconds = timeout.as_secs();
            Err(CommandError::failed(format_args!("the server did not answer within {seconds} s"))
                .hint("`parlor logs` may say why; `parlor stop` stops it"))
        }
    }
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
