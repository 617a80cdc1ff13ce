//! The server of a data directory, as the commands talk to it.

use std::os::unix::net::UnixStream;
use std::path::Path;

use parlor_client::{Client, Connection, Connector, Error, Hello, Json, Object, Version};
use parlor_server::data_dir::DataDir;

use crate::command_error::CommandError;
use crate::setup;

/// Whether somebody listens at a socket.
pub(crate) fn is_running(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Connects to a server and begins the protocol. That may start an agent.
pub(crate) async fn connect(data: &DataDir, hello: &Hello) -> Result<Client, Error> {
    let connector = Connector::new("parlor", env!("CARGO_PKG_VERSION")).only(Version::V2);
    connector.socket(&data.socket(), hello).await.map(|(client, _)| client)
}

/// Connects to a server for a person or a script that prompts: it is asked to fill in forms as well.
pub(crate) async fn connect_to_prompt(data: &DataDir, hello: &Hello) -> Result<Client, Error> {
    let connector = Connector::new("parlor", env!("CARGO_PKG_VERSION")).only(Version::V2);
    let modes = Json::parse(r#"{"form":{},"url":{}}"#).expect("it is JSON");
    let connector = connector.capability("elicitation", modes);
    connector.socket(&data.socket(), hello).await.map(|(client, _)| client)
}

/// Asks a server for something that no agent is needed for.
pub(crate) fn call(socket: &Path, method: &str) -> Result<Object, CommandError> {
    let answer = setup::runtime()?.block_on(async {
        let (server, _) = Connection::socket(socket, &Hello::new()).await?;
        server.call(method, &Object::default()).await
    });
    answer.map_err(|error| CommandError::client(&error))
}
