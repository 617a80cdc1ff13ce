//! A process with which the SDK exchanges lines.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;

use agent_client_protocol::Lines;
use futures_util::{Sink, Stream};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) type Wire = Lines<
    Pin<Box<dyn Sink<String, Error = io::Error> + Send>>,
    Pin<Box<dyn Stream<Item = io::Result<String>> + Send>>,
>;

/// Starts an agent in a directory.
pub(crate) fn start(agent: &[String], cwd: &Path) -> (Wire, Child) {
    let mut child = Command::new(&agent[0])
        .args(&agent[1..])
        .current_dir(cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let write = child.stdin.take().unwrap();
    let read = BufReader::new(child.stdout.take().unwrap()).lines();
    let sink = futures_util::sink::unfold(write, async |mut write, mut line: String| {
        line.push('\n');
        write.write_all(line.as_bytes()).await?;
        write.flush().await?;
        Ok(write)
    });
    let stream = futures_util::stream::unfold(read, async |mut read| {
        Some((read.next_line().await.transpose()?, read))
    });
    (Lines::new(Box::pin(sink), Box::pin(stream)), child)
}
