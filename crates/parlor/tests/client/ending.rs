//! Connections that end, and programs that end with them, also those that do not want to.

use std::path::Path;
use std::time::Duration;

use parlor_client::{Client, Error, Json, Object};
use parlor_testkit::wait::within_timeout;
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::connector;

const WELCOME: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2,"info":{"name":"x","version":"1"},"capabilities":{}}}"#;

/// A program of this shell script, which is greeted first, and the directory that it is in.
async fn program(script: &str) -> (Client, TempDir) {
    let home = TempDir::new().unwrap();
    let script = format!("exec 2>/dev/null; read line; echo '{WELCOME}'; {script}");
    let command = || {
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(home.path());
        command
    };
    (within_timeout(connector().spawn_with(command)).await.unwrap(), home)
}

/// The process whose number a program wrote into a file.
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

async fn goes(process: Pid) {
    let gone = async {
        while test_kill_process(process).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_timeout(gone).await;
}

/// Speaks until nobody listens.
pub(crate) async fn fill(client: &Client) {
    let mut params = Object::default();
    params.set("text", Json::parse(format!("{:?}", "x".repeat(1024))).unwrap());
    for said in 0.. {
        // However slow the machine is, what is taken is taken by then.
        let saying = client.notify("_x/y", &params);
        if tokio::time::timeout(Duration::from_millis(500), saying).await.is_err() {
            return;
        }
        assert!(said < 10_000, "all of it was taken");
    }
}

#[tokio::test]
async fn a_program_that_does_not_listen_ends_with_its_client() {
    let (client, home) = program("echo $$ > it; exec sleep 1000").await;
    let it = process(&home.path().join("it")).await;
    fill(&client).await;
    drop(client);
    goes(it).await;
}

#[tokio::test]
async fn a_program_that_does_not_listen_can_be_left() {
    let (client, home) = program("echo $$ > it; exec sleep 1000").await;
    let it = process(&home.path().join("it")).await;
    fill(&client).await;
    within_timeout(client.disconnect()).await;
    goes(it).await;
}

#[tokio::test]
async fn what_was_said_last_is_still_heard() {
    let (client, home) = program("read line; echo \"$line\" > it").await;
    client.notify("_x/last", &Object::default()).await.unwrap();
    drop(client);
    let heard = async {
        while !std::fs::read_to_string(home.path().join("it")).unwrap_or_default().contains("_x/last") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_timeout(heard).await;
}

#[tokio::test]
async fn a_program_that_ends_is_missed_and_leaves_nothing_behind() {
    let (client, home) = program("sleep 1000 & echo $! > it; exit 1").await;
    let it = process(&home.path().join("it")).await;
    within_timeout(client.closed()).await;
    assert!(matches!(within_timeout(client.call("x/y", &Object::default())).await, Err(Error::Disconnected)));
    goes(it).await;
}

#[tokio::test]
async fn a_program_that_ends_is_missed_also_if_somebody_else_has_its_streams() {
    let (client, home) = program("setsid sh -c 'echo $$ > it; exec sleep 1000' & sleep 0.5; exit 1").await;
    let it = process(&home.path().join("it")).await;
    within_timeout(client.closed()).await;
    rustix::process::kill_process(it, rustix::process::Signal::KILL).unwrap();
}
