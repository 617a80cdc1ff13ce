//! The client side of the Unix socket: relays between an editor's streams and a server, and connects to another server when
//! the server is gone.

mod state;

use std::fmt::Write as _;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use parlor_wire::{InputLine, LineDecoder};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use self::state::{Progress, RelayState};
use super::hello::{Hello, VERSION, Welcome};
use crate::lock;

/// How a relay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The editor sent no more, or is gone.
    ByEditor,
    /// The server is gone, and there was no other one in time. The editor got an error for each request without a response.
    ByServer(String),
    /// The server rejected the client.
    Refused(String),
}

/// Connects a relay to servers.
pub trait ServerConnector {
    /// Connects to the server. Starts one if none is running and `may_start` is set.
    fn connect(&mut self, may_start: bool) -> impl Future<Output = Result<UnixStream, String>> + Send;

    /// Reports something to the person who uses the editor.
    fn notice(&mut self, message: &str);
}

/// How many bytes are copied at once.
const COPY_BUFFER: usize = 64 << 10;

/// How long a server may still send responses when the editor sends no more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of the answer to a hello.
const WELCOME_LIMIT: u64 = 64 << 10;

/// How long a relay tries to connect to another server before it gives up.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses between attempts to connect to another server.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often a relay looks for a server while the editor needs none.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Why relaying between an editor and one server ended.
enum End {
    Editor,
    Server,
    Refused(String),
}

/// The editor's streams.
struct Editor<I, O> {
    input: I,
    output: O,
    lines: LineDecoder,
    /// Bytes that were read while no server was there.
    early: Vec<u8>,
    is_closed: bool,
}

/// The streams of a server that accepted the relay.
struct Server {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    lines: LineDecoder,
}

/// Relays between an editor and a server, until the editor ends.
///
/// If the server is gone, the relay connects to another one within `timeout`, attaches the editor to its sessions again and sends
/// its prompts without a response again. The editor notices nothing, except that its other requests without a response fail.
/// While the editor waits for nothing, no server is started for it.
///
/// Only the first connection can fail: what goes wrong later counts as the end of that side. As with
/// [`stdio`](super::stdio()), reading standard input cannot be interrupted.
pub async fn relay<C, I, O>(
    connect: &mut C,
    hello: &Hello,
    input: I,
    output: O,
    timeout: Duration,
) -> io::Result<Ended>
where
    C: ServerConnector,
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let state = Mutex::new(RelayState::new(uuid::Uuid::new_v4().to_string()));
    let mut editor =
        Editor { input, output, lines: LineDecoder::default(), early: Vec::new(), is_closed: false };
    let stream = connect.connect(false).await.map_err(io::Error::other)?;
    let mut server = match Server::open(stream, hello).await? {
        Ok(server) => server,
        Err(reason) => return Ok(Ended::Refused(reason)),
    };
    // Since when there is no server to which the editor is attached.
    let mut lost_since: Option<Instant> = None;
    loop {
        let end = run(&mut editor, &mut server, &state, &mut lost_since).await;
        drop(server);
        match end {
            End::Editor => return Ok(Ended::ByEditor),
            End::Refused(reason) => {
                let _ = give_up(&mut editor, &state, &reason).await;
                return Ok(Ended::Refused(reason));
            }
            End::Server if editor.is_closed => return Ok(Ended::ByEditor),
            End::Server => {}
        }
        let mut to_editor = String::new();
        let lost = lock(&state).on_server_lost(&mut to_editor);
        for session in lost {
            connect.notice(&format!("session {session} may lack changes after the restart: load it again"));
        }
        if editor.write(&to_editor).await.is_err() {
            return Ok(Ended::ByEditor);
        }
        let needs_server = lock(&state).needs_server();
        let stream = if needs_server { None } else { wait_until_needed(connect, &mut editor).await };
        if editor.is_closed && editor.early.is_empty() {
            return Ok(Ended::ByEditor);
        }
        let since = *lost_since.get_or_insert_with(Instant::now);
        server = match reconnect(connect, hello, stream, since + timeout).await {
            Ok(Ok(server)) => server,
            Ok(Err(reason)) => {
                let _ = give_up(&mut editor, &state, &reason).await;
                return Ok(Ended::Refused(reason));
            }
            Err(error) => {
                let reason =
                    format!("no server accepted a connection within {} s: {error}", timeout.as_secs());
                let _ = give_up(&mut editor, &state, &reason).await;
                return Ok(Ended::ByServer(reason));
            }
        };
        connect.notice("connected to the server again");
    }
}

/// Relays between an editor and one server until one of them ends.
async fn run<I, O>(
    editor: &mut Editor<I, O>,
    server: &mut Server,
    state: &Mutex<RelayState>,
    lost_since: &mut Option<Instant>,
) -> End
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let mut to_server = String::new();
    let is_first = lost_since.is_none();
    let must_wait = !is_first && lock(state).reattach(&mut to_server);
    let Server { read, write, lines } = server;
    if must_wait {
        let sent = write.write_all(to_server.as_bytes());
        let reattached = reattach(read, lines, &mut editor.output, state);
        // A server that cannot be written to any more has ended, which the other direction reads.
        let (_, reattached) = tokio::join!(sent, reattached);
        to_server = match reattached {
            Ok(repeated) => repeated,
            Err(end) => return end,
        };
    }
    *lost_since = None;
    let Editor { input, output, lines: editor_lines, early, is_closed } = editor;
    tokio::select! {
        end = copy_up(input, editor_lines, early, is_closed, write, to_server, state) => end,
        end = copy_down(read, lines, output, state) => end,
    }
}

impl<I: AsyncRead + Unpin, O: AsyncWrite + Unpin> Editor<I, O> {
    async fn write(&mut self, lines: &str) -> io::Result<()> {
        self.output.write_all(lines.as_bytes()).await?;
        self.output.flush().await
    }
}

impl Server {
    /// Sends the hello. Returns the reason if the server rejects the client.
    async fn open(stream: UnixStream, hello: &Hello) -> io::Result<Result<Self, String>> {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::with_capacity(COPY_BUFFER, read);
        write.write_all(hello.to_line().as_bytes()).await?;
        Ok(match refusal(&mut read).await? {
            Some(reason) => Err(reason),
            None => Ok(Self { read, write, lines: LineDecoder::default() }),
        })
    }
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

/// Waits until there is a server, which is not started, or the editor sends something, which is kept.
async fn wait_until_needed<C, I, O>(connect: &mut C, editor: &mut Editor<I, O>) -> Option<UnixStream>
where
    C: ServerConnector,
    I: AsyncRead + Unpin,
{
    let mut buffer = vec![0; COPY_BUFFER];
    loop {
        tokio::select! {
            read = editor.input.read(&mut buffer) => {
                let read = read.unwrap_or(0);
                editor.is_closed = read == 0;
                editor.early.extend_from_slice(&buffer[..read]);
                return None;
            }
            () = tokio::time::sleep(IDLE_INTERVAL) => {
                if let Ok(stream) = connect.connect(false).await {
                    return Some(stream);
                }
            }
        }
    }
}

/// Connects to another server until the deadline, first with a stream that is open. Returns the reason if a server rejects the
/// client.
async fn reconnect<C: ServerConnector>(
    connect: &mut C,
    hello: &Hello,
    mut stream: Option<UnixStream>,
    deadline: Instant,
) -> Result<Result<Server, String>, String> {
    let mut pause = RETRY_PAUSE;
    let mut error = "it did not respond".to_owned();
    loop {
        let attempt = async {
            let stream = match stream.take() {
                Some(stream) => stream,
                None => connect.connect(true).await?,
            };
            Server::open(stream, hello).await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout_at(deadline, attempt).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(failed)) => error = failed,
            Err(_) => return Err(error),
        }
        if Instant::now() + pause >= deadline {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
    }
}

/// Answers the requests of the editor to which no server will respond.
async fn give_up<I, O>(editor: &mut Editor<I, O>, state: &Mutex<RelayState>, reason: &str) -> io::Result<()>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let mut to_editor = String::new();
    let mut ignored = String::new();
    // What it sent meanwhile was not relayed.
    editor.lines.extend(&std::mem::take(&mut editor.early));
    add_editor_lines(&mut editor.lines, &mut lock(state), &mut ignored);
    lock(state).on_given_up(reason, &mut to_editor);
    editor.write(&to_editor).await
}

/// Reads until the editor is attached to its sessions again. Returns the lines for the server that follow.
async fn reattach<R, O>(
    from_server: &mut R,
    lines: &mut LineDecoder,
    output: &mut O,
    state: &Mutex<RelayState>,
) -> Result<String, End>
where
    R: AsyncBufRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let mut to_editor = String::new();
    loop {
        let mut reattached = None;
        while let Some(line) = lines.next_line() {
            let InputLine::Line(line) = line else { continue };
            match lock(state).on_server_line(line, &mut to_editor) {
                Progress::None => {}
                Progress::Reattached(to_server) => reattached = Some(to_server),
                Progress::Rejected(reason) => return Err(End::Refused(reason)),
            }
        }
        if !to_editor.is_empty() {
            if output.write_all(to_editor.as_bytes()).await.is_err() || output.flush().await.is_err() {
                return Err(End::Editor);
            }
            to_editor.clear();
        }
        if let Some(to_server) = reattached {
            return Ok(to_server);
        }
        if !read_more(from_server, lines).await {
            return Err(End::Server);
        }
    }
}

/// Reads from a server. Returns whether there was something to read.
async fn read_more<R: AsyncBufRead + Unpin>(from_server: &mut R, lines: &mut LineDecoder) -> bool {
    let length = match from_server.fill_buf().await {
        Ok(bytes) => {
            lines.extend(bytes);
            bytes.len()
        }
        Err(_) => 0,
    };
    from_server.consume(length);
    length > 0
}

/// Adds the complete lines of the editor to those for the server.
fn add_editor_lines(lines: &mut LineDecoder, state: &mut RelayState, to_server: &mut String) {
    while let Some(line) = lines.next_line() {
        match line {
            InputLine::Line(line) => state.on_editor_line(line, to_server),
            InputLine::Blank => {}
            // The server responds with a parse error.
            InputLine::TooLong { bytes, limit } => {
                let _ = writeln!(to_server, "a line of {bytes} bytes is longer than the limit of {limit}");
            }
            InputLine::NotUtf8 { excerpt } => {
                let _ = writeln!(to_server, "a line that is not UTF-8: {}", excerpt.replace('\n', " "));
            }
        }
    }
}

async fn copy_up<I, W>(
    input: &mut I,
    lines: &mut LineDecoder,
    early: &mut Vec<u8>,
    is_closed: &mut bool,
    server: &mut W,
    mut to_server: String,
    state: &Mutex<RelayState>,
) -> End
where
    I: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    lines.extend(&std::mem::take(early));
    let mut buffer = vec![0; COPY_BUFFER];
    loop {
        if *is_closed {
            lines.finish();
        }
        // Before they are written, so that the responses cannot come first.
        add_editor_lines(lines, &mut lock(state), &mut to_server);
        if server.write_all(to_server.as_bytes()).await.is_err() {
            // The other direction ends when it has read what the server sent last.
            tokio::time::sleep(DRAIN_TIMEOUT).await;
            return End::Server;
        }
        to_server.clear();
        to_server.shrink_to(COPY_BUFFER);
        if *is_closed {
            break;
        }
        // A stream that fails has ended as well.
        let read = input.read(&mut buffer).await.unwrap_or(0);
        lines.extend(&buffer[..read]);
        *is_closed = read == 0;
    }
    let _ = server.shutdown().await;
    tokio::time::sleep(DRAIN_TIMEOUT).await;
    End::Editor
}

async fn copy_down<R, O>(
    from_server: &mut R,
    lines: &mut LineDecoder,
    output: &mut O,
    state: &Mutex<RelayState>,
) -> End
where
    R: AsyncBufRead + Unpin,
    O: AsyncWrite + Unpin,
{
    let mut to_editor = String::new();
    loop {
        while let Some(line) = lines.next_line() {
            if let InputLine::Line(line) = line {
                lock(state).on_server_line(line, &mut to_editor);
            }
        }
        if !to_editor.is_empty() {
            if output.write_all(to_editor.as_bytes()).await.is_err() || output.flush().await.is_err() {
                return End::Editor;
            }
            to_editor.clear();
            to_editor.shrink_to(COPY_BUFFER);
        }
        // A line that broke off is dropped.
        if !read_more(from_server, lines).await {
            return End::Server;
        }
    }
}
