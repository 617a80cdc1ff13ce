//! Agents as child processes: they end with the connection, and it with them.

use std::path::Path;
use std::time::Duration;

use parlor_client::{Client, Error, Json, Object};
use parlor_testkit::wait::within_timeout;
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::connector;

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}}"#;

/// A client of a shell script that has answered `initialize`, and its working directory.
async fn program(script: &str) -> (Client, TempDir) {
    let directory = TempDir::new().unwrap();
    let script = format!("exec 2>/dev/null; read line; echo '{INITIALIZED}'; {script}");
    let command = || {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(directory.path());
        command
    };
    (within_timeout(connector().spawn_with(command)).await.unwrap(), directory)
}

/// The process whose id a script wrote into a file.
async fn process(file: &Path) -> Pid {
    let read = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                return Pid::from_raw(number.parse().unwrap()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_timeout(read).await
}

async fn wait_for_exit(process: Pid) {
    let gone = async {
        while test_kill_process(process).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_timeout(gone).await;
}

/// A notification that is larger than the buffer of a pipe.
async fn notify_large(client: &Client) {
    let mut params = Object::default();
    params.set("text", Json::parse(format!("{:?}", "x".repeat(1 << 20))).unwrap());
    client.notify("_x/y", &params).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_does_not_read_is_killed_when_the_client_is_dropped() {
    let (client, directory) = program("echo $$ > it; exec sleep 1000").await;
    let it = process(&directory.path().join("it")).await;
    notify_large(&client).await;
    drop(client);
    wait_for_exit(it).await;
}

#[tokio::test]
async fn an_agent_that_does_not_read_is_killed_when_the_client_disconnects() {
    let (client, directory) = program("echo $$ > it; exec sleep 1000").await;
    let it = process(&directory.path().join("it")).await;
    notify_large(&client).await;
    within_timeout(client.disconnect()).await;
    wait_for_exit(it).await;
}

#[tokio::test]
async fn the_last_notification_is_written_before_the_connection_closes() {
    let (client, directory) = program("read line; echo \"$line\" > it").await;
    client.notify("_x/last", &Object::default()).await.unwrap();
    drop(client);
    let heard = async {
        while !std::fs::read_to_string(directory.path().join("it")).unwrap_or_default().contains("_x/last") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_timeout(heard).await;
}

#[tokio::test]
async fn an_agent_that_exits_closes_the_connection_and_its_process_group_is_killed() {
    let (client, directory) = program("sleep 1000 & echo $! > it; exit 1").await;
    let it = process(&directory.path().join("it")).await;
    within_timeout(client.closed()).await;
    assert!(matches!(within_timeout(client.call("x/y", &Object::default())).await, Err(Error::Disconnected)));
    wait_for_exit(it).await;
}

#[tokio::test]
async fn an_agent_that_exits_closes_the_connection_also_if_another_process_has_its_streams() {
    let (client, directory) =
        program("setsid sh -c 'echo $$ > it; exec sleep 1000' & sleep 0.5; exit 1").await;
    let it = process(&directory.path().join("it")).await;
    within_timeout(client.closed()).await;
    // It left the process group, and is killed as a descendant.
    wait_for_exit(it).await;
}
