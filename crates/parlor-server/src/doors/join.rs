//! The other side of the Unix socket: an editor's standard streams, joined to a server.

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
use super::owed::{Owed, Scan};

/// How joining a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The editor had no more to say, or is gone.
    ByEditor,
    /// The server is gone. The editor was told so for each request that had no answer.
    ByServer,
    /// The server did not want the client.
    Refused(String),
}

/// How much is copied at once.
const COPIED: usize = 64 << 10;

/// How long a server may still answer when the editor has no more to say.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer to a greeting.
const WELCOME_LIMIT: u64 = 64 << 10;

/// Who goes first.
enum Gone {
    Editor,
    Server,
}

/// Joins the server at `socket` and copies both ways until one side ends.
///
/// An error is one of connecting; what goes wrong later is the one or the other side going away. As with
/// [`stdio`](super::stdio()), reading standard input cannot be interrupted.
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

    let owed = Owed::new();
    let mut down = Scan::default();
    let said_all = AtomicBool::new(false);
    let gone = tokio::select! {
        gone = copy_up(stdin, &mut server, &owed, &said_all) => gone,
        gone = copy_down(&mut from_server, &mut stdout, &owed, &mut down) => gone,
    };
    // A server that ends when the editor has said all does what it is supposed to do.
    let ended = match gone {
        Gone::Editor => Ended::ByEditor,
        Gone::Server if said_all.load(Ordering::Relaxed) => Ended::ByEditor,
        Gone::Server => Ended::ByServer,
    };
    let _ = tell_the_rest(&mut stdout, &owed, &down).await;
    Ok(ended)
}

/// Why the server does not want us, if so.
async fn refusal<R: AsyncBufRead + Unpin>(from_server: &mut R) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    from_server.take(WELCOME_LIMIT).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up without a word"));
    }
    let welcome: Welcome = match serde_json::from_slice(&line) {
        Ok(welcome) => welcome,
        Err(error) => return Ok(Some(format!("the server's answer cannot be read: {error}"))),
    };
    Ok(match welcome.error {
        Some(why) => Some(why),
        None if welcome.parlor != VERSION => Some(format!("the server speaks version {}", welcome.parlor)),
        None => None,
    })
}

async fn copy_up<I, W>(mut stdin: I, server: &mut W, owed: &Owed, said_all: &AtomicBool) -> Gone
where
    I: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; COPIED];
    let mut scan = Scan::default();
    loop {
        // An editor whose stream is broken has no more to say either.
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            break;
        }
        // Before it is written: the answer must not come first.
        scan.feed(&buffer[..read], |line| owed.heard(line));
        if server.write_all(&buffer[..read]).await.is_err() {
            // What the server said last may still be there to be read, so the other direction finds its end.
            tokio::time::sleep(PATIENCE).await;
            return Gone::Server;
        }
    }
    scan.finish(|line| owed.heard(line));
    said_all.store(true, Ordering::Relaxed);
    let _ = server.shutdown().await;
    tokio::time::sleep(PATIENCE).await;
    Gone::Editor
}

async fn copy_down<R, O>(from_server: &mut R, stdout: &mut O, owed: &Owed, scan: &mut Scan) -> Gone
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
        scan.feed(read, |line| owed.told(line));
        let length = read.len();
        from_server.consume(length);
    }
}

/// Answers what the server will not.
async fn tell_the_rest<O: AsyncWrite + Unpin>(stdout: &mut O, owed: &Owed, down: &Scan) -> io::Result<()> {
    let error = RpcError::new(code::INTERNAL_ERROR, "the parlor server is gone");
    let mut answers = String::new();
    // The server may have gone in the middle of a line, which must not swallow the first answer.
    if down.in_line() {
        answers.push('\n');
    }
    for id in owed.drain() {
        answers.push_str(&write::error_response(&id, &error));
        answers.push('\n');
    }
    stdout.write_all(answers.as_bytes()).await?;
    stdout.flush().await
}
