//! The client side of the Unix socket: copies between an editor's streams and a server.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parlor_wire::{RpcError, code, write};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::UnixStream;

use super::hello::{Hello, VERSION, Welcome};
use super::in_flight::{InFlightRequests, LineScanner};

/// How copying between an editor and a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The editor sent no more, or is gone.
    ByEditor,
    /// The server is gone. The editor got an error for each request without a response.
    ByServer,
    /// The server rejected the client.
    Refused(String),
}

/// How many bytes are copied at once.
const COPIED: usize = 64 << 10;

/// How long a server may still send responses when the editor sends no more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of the answer to a hello.
const WELCOME_LIMIT: u64 = 64 << 10;

/// Which side ended first.
enum Gone {
    Editor,
    Server,
}

/// Connects to the server at `socket` and copies in both directions until one side ends.
///
/// Only connecting can fail: what goes wrong later counts as the end of that side. As with [`stdio`](super::stdio()), reading
/// standard input cannot be interrupted.
pub async fn join<I, O>(socket: &Path, hello: Hello, stdin: I, mut stdout: O) -> io::Result<Ended>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let (read, mut server) = UnixStream::connect(socket).await?.into_split();
    let mut from_server = BufReader::with_capacity(COPIED, read);
    server.write_all(hello.to_line().as_bytes()).await?;
    if let Some(why) = refusal(&mut from_server).await? {
        return Ok(Ended::Refused(why));
    }

    let in_flight = InFlightRequests::new();
    let mut down = LineScanner::default();
    let is_input_closed = AtomicBool::new(false);
    let gone = tokio::select! {
        gone = copy_up(stdin, &mut server, &in_flight, &is_input_closed) => gone,
        gone = copy_down(&mut from_server, &mut stdout, &in_flight, &mut down) => gone,
    };
    // A server is supposed to end the connection when the editor sends no more.
    let ended = match gone {
        Gone::Editor => Ended::ByEditor,
        Gone::Server if is_input_closed.load(Ordering::Relaxed) => Ended::ByEditor,
        Gone::Server => Ended::ByServer,
    };
    let _ = fail_unanswered(&mut stdout, &in_flight, &down).await;
    Ok(ended)
}

/// Why the server rejects the client, if it does.
async fn refusal<R: AsyncBufRead + Unpin>(from_server: &mut R) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    from_server.take(WELCOME_LIMIT).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let welcome: Welcome = match serde_json::from_slice(&line) {
        Ok(welcome) => welcome,
        Err(error) => return Ok(Some(format!("the server's answer cannot be read: {error}"))),
    };
    Ok(match welcome.error {
        Some(why) => Some(why),
        None if welcome.parlor != VERSION => Some(format!(
            "the server speaks version {}; this parlor speaks {VERSION}: restart the server",
            welcome.parlor
        )),
        None => None,
    })
}

async fn copy_up<I, W>(
    mut stdin: I,
    server: &mut W,
    in_flight: &InFlightRequests,
    is_input_closed: &AtomicBool,
) -> Gone
where
    I: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; COPIED];
    let mut scan = LineScanner::default();
    loop {
        // A stream that fails has ended as well.
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            break;
        }
        // Before it is written, so that the response cannot come first.
        scan.feed(&buffer[..read], |line| in_flight.on_client_line(line));
        if server.write_all(&buffer[..read]).await.is_err() {
            // The other direction ends when it has read what the server sent last.
            tokio::time::sleep(DRAIN_TIMEOUT).await;
            return Gone::Server;
        }
    }
    scan.finish(|line| in_flight.on_client_line(line));
    is_input_closed.store(true, Ordering::Relaxed);
    let _ = server.shutdown().await;
    tokio::time::sleep(DRAIN_TIMEOUT).await;
    Gone::Editor
}

async fn copy_down<R, O>(
    from_server: &mut R,
    stdout: &mut O,
    in_flight: &InFlightRequests,
    scan: &mut LineScanner,
) -> Gone
where
    R: AsyncBufRead + Unpin,
    O: AsyncWrite + Unpin,
{
    loop {
        let read = match from_server.fill_buf().await {
            Ok(bytes) if !bytes.is_empty() => bytes,
            Ok(_) | Err(_) => return Gone::Server,
        };
        if stdout.write_all(read).await.is_err() || stdout.flush().await.is_err() {
            return Gone::Editor;
        }
        scan.feed(read, |line| in_flight.on_server_line(line));
        let length = read.len();
        from_server.consume(length);
    }
}

/// Answers the requests to which the server will not respond.
async fn fail_unanswered<O: AsyncWrite + Unpin>(
    stdout: &mut O,
    in_flight: &InFlightRequests,
    down: &LineScanner,
) -> io::Result<()> {
    let error = RpcError::new(code::INTERNAL_ERROR, "the parlor server is gone");
    let mut answers = String::new();
    // The server's last line may have no end.
    if down.in_line() {
        answers.push('\n');
    }
    for id in in_flight.drain() {
        answers.push_str(&write::error_response(&id, &error));
        answers.push('\n');
    }
    stdout.write_all(answers.as_bytes()).await?;
    stdout.flush().await
}
