//! A client that reads as fast as possible.
//!
//! It measures bytes and microseconds: it shares the machine with the server, so that everything it spends on a line
//! is measured too. Scenarios that measure what users wait for use a client of the client library, the
//! `library_client`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use parlor_json::string_literal;
use parlor_server::transport::hello::Hello;
use tokio::net::unix::pipe;

use super::environment::{Bench, Peer, Server, Version};
use super::received::{Line, Received};
use super::websocket;
use crate::failure::Failure;

/// A client on one connection.
pub(crate) struct Client {
    input: File,
    output: File,
    stream: Stream,
    framing: Framing,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not yet parsed.
    unread: Range<usize>,
    version: Version,
    next_id: u64,
    session: String,
    pub(crate) received: Received,
    /// The program that it started, if any. Dropped last: a program ends when its input is closed.
    child: Option<Program>,
}

/// The framing of messages on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Lines,
    WebSocket,
}

/// The type of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Pipe,
    Unix,
    Tcp,
}

/// The input of a connection, registered with the runtime.
enum Source {
    Pipe(pipe::Receiver),
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream),
}

/// A child process that is waited for when this is dropped.
pub(crate) struct Program(pub(crate) Child);

/// The least number of bytes to read at once.
const BUFFER: usize = 256 << 10;

impl Client {
    /// Starts a program and connects to its standard streams.
    pub(crate) fn start(peer: Peer) -> Result<Self, Failure> {
        let version = peer.version;
        let mut command = peer.piped();
        let mut child = command.spawn().map_err(|error| {
            Failure::failed(format_args!("cannot start {}: {error}", command.get_program().display()))
        })?;
        let (Some(write), Some(read)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::failed("a process has no standard streams"));
        };
        let (input, output) = (File::from(OwnedFd::from(read)), File::from(OwnedFd::from(write)));
        let mut client = Self::over(input, output, (Stream::Pipe, Framing::Lines), version);
        client.child = Some(Program(child));
        client.initialize()?;
        Ok(client)
    }

    /// Connects to a server's Unix socket.
    pub(crate) fn socket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let stream = UnixStream::connect(server.socket()).map_err(|error| unreachable(&error))?;
        let mut client = Self::on_socket(stream.into(), (Stream::Unix, Framing::Lines), bench.client)?;
        client.send(&Hello::new().to_line())?;
        client.initialize()?;
        Ok(client)
    }

    /// Connects to a server over a WebSocket.
    pub(crate) fn websocket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let address = server.address()?;
        let mut stream = TcpStream::connect(address).map_err(|error| unreachable(&error))?;
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        websocket::upgrade(&mut stream, address, &server.token()?).map_err(|error| unreachable(&error))?;
        let mut client = Self::on_socket(stream.into(), (Stream::Tcp, Framing::WebSocket), bench.client)?;
        client.initialize()?;
        Ok(client)
    }

    /// Takes a connection with line framing, and sends nothing yet.
    pub(crate) fn lines_on_unix(socket: UnixStream, version: Version) -> Result<Self, Failure> {
        Self::on_socket(socket.into(), (Stream::Unix, Framing::Lines), version)
    }

    /// Takes a TCP connection with line framing, and sends nothing yet.
    pub(crate) fn lines_on_tcp(socket: TcpStream, version: Version) -> Result<Self, Failure> {
        Self::on_socket(socket.into(), (Stream::Tcp, Framing::Lines), version)
    }

    fn on_socket(socket: OwnedFd, kind: (Stream, Framing), version: Version) -> Result<Self, Failure> {
        let output = File::from(socket);
        let input = output.try_clone().map_err(|error| unreachable(&error))?;
        Ok(Self::over(input, output, kind, version))
    }

    fn over(input: File, output: File, kind: (Stream, Framing), version: Version) -> Self {
        let (stream, framing) = kind;
        Self {
            input,
            output,
            stream,
            framing,
            buffer: vec![0; BUFFER],
            unread: 0..0,
            version,
            next_id: 0,
            session: String::new(),
            received: Received::default(),
            child: None,
        }
    }

    /// Returns the id of the process that it started.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|program| program.0.id())
    }

    pub(crate) fn initialize(&mut self) -> Result<(), Failure> {
        let params = match self.version {
            Version::V1 => {
                r#"{"protocolVersion":1,"clientInfo":{"name":"bench","version":"1"},"clientCapabilities":{}}"#
            }
            Version::V2 => r#"{"protocolVersion":2,"info":{"name":"bench","version":"1"},"capabilities":{}}"#,
        };
        self.ask("initialize", params).map(drop)
    }

    /// Creates a session.
    pub(crate) fn begin(&mut self) -> Result<(), Failure> {
        let answer = self.ask("session/new", r#"{"cwd":"/","mcpServers":[]}"#)?;
        self.enter(&answer)
    }

    /// Forks its session at the end and continues in the fork.
    pub(crate) fn fork(&mut self) -> Result<(), Failure> {
        let params = format!(r#"{{"sessionId":"{}","cwd":"/","mcpServers":[]}}"#, self.session);
        let answer = self.ask("session/fork", &params)?;
        self.enter(&answer)
    }

    /// Deletes its session.
    pub(crate) fn delete(&mut self) -> Result<(), Failure> {
        let params = format!(r#"{{"sessionId":"{}"}}"#, self.session);
        self.ask("session/delete", &params).map(drop)
    }

    /// Continues in the session that a response names.
    fn enter(&mut self, answer: &str) -> Result<(), Failure> {
        let id = answer.split_once(r#""sessionId":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (id, _) = id.ok_or_else(|| Failure::failed("the answer names no session"))?;
        id.clone_into(&mut self.session);
        Ok(())
    }

    /// Attaches to the session of another client and reads its replay.
    pub(crate) fn join(&mut self, session: &str) -> Result<(), Failure> {
        session.clone_into(&mut self.session);
        let (method, from) = match self.version {
            Version::V1 => ("session/load", ""),
            Version::V2 => ("session/resume", r#","replayFrom":{"type":"start"}"#),
        };
        let params = format!(r#"{{"sessionId":"{session}","cwd":"/","mcpServers":[]{from}}}"#);
        self.ask(method, &params).map(drop)
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Sends a prompt, reads until the turn ends and returns the duration.
    pub(crate) fn turn(&mut self, prompt: &str) -> Result<Duration, Failure> {
        let (begun, idles) = (Instant::now(), self.received.idles);
        let id = self.prompt(prompt)?;
        match self.version {
            Version::V1 => drop(self.answer_to(id)?),
            Version::V2 => self.until(|received| received.idles > idles)?,
        }
        Ok(begun.elapsed())
    }

    /// Sends a prompt and does not wait for the turn.
    pub(crate) fn prompt(&mut self, prompt: &str) -> Result<u64, Failure> {
        let session = self.session.clone();
        self.prompt_in(&session, prompt)
    }

    /// Sends a prompt to one of several sessions of this connection and does not wait for the turn.
    fn prompt_in(&mut self, session: &str, prompt: &str) -> Result<u64, Failure> {
        let prompt = string_literal(prompt);
        let params = format!(r#"{{"sessionId":"{session}","prompt":[{{"type":"text","text":{prompt}}}]}}"#);
        self.request("session/prompt", &params)
    }

    /// Sends a prompt to one of several sessions of this connection and reads until it is accepted: updates of many
    /// prompts would fill the pipe, and the agent would read no more prompts. In version 1 there is no acceptance
    /// before the stream.
    pub(crate) fn prompt_accepted(&mut self, session: &str, prompt: &str) -> Result<(), Failure> {
        let id = self.prompt_in(session, prompt)?;
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => self.answer_to(id).map(drop),
        }
    }

    /// Sends a request and waits for the response.
    fn ask(&mut self, method: &str, params: &str) -> Result<String, Failure> {
        let id = self.request(method, params)?;
        self.answer_to(id)
    }

    fn request(&mut self, method: &str, params: &str) -> Result<u64, Failure> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        ))?;
        Ok(id)
    }

    fn answer_to(&mut self, id: u64) -> Result<String, Failure> {
        self.received.answer = None;
        self.until(|received| received.answer.as_ref().is_some_and(|(answered, _)| *answered == id))?;
        let (_, answer) = self.received.answer.take().unwrap_or_default();
        if answer.contains(r#""error":"#) {
            return Err(Failure::failed(format_args!("the benchmark is refused: {answer}")));
        }
        Ok(answer)
    }

    fn send(&mut self, line: &str) -> Result<(), Failure> {
        let sent = match self.framing {
            Framing::Lines => self.output.write_all(line.as_bytes()),
            Framing::WebSocket => self.output.write_all(&websocket::text(line.trim_end())),
        };
        sent.map_err(|error| gone(&error))
    }

    /// Reads until a condition on the received messages holds.
    pub(crate) fn until(&mut self, received: impl Fn(&Received) -> bool) -> Result<(), Failure> {
        loop {
            while let Some(line) = self.next_line()? {
                if self.received.line(&self.buffer[line]) == Line::Other && received(&self.received) {
                    return Ok(());
                }
            }
            self.read_more().map_err(|error| gone(&error))?;
        }
    }

    /// Like `until`, for many clients in one thread; also checks after each chunk, and can be cancelled.
    pub(crate) async fn until_beside_others(
        &mut self,
        received: &impl Fn(&Received) -> bool,
    ) -> Result<(), Failure> {
        if received(&self.received) {
            return Ok(());
        }
        let source = self.source().map_err(|error| gone(&error))?;
        loop {
            while let Some(line) = self.next_line()? {
                let _ = self.received.line(&self.buffer[line]);
                if received(&self.received) {
                    return Ok(());
                }
            }
            source.readable().await.map_err(|error| gone(&error))?;
            self.make_room();
            match source.try_read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Err(gone(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.unread.end += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(gone(&error)),
            }
        }
    }

    /// Registers the input with the current runtime; it must be [nonblocking](Self::set_blocking).
    fn source(&self) -> io::Result<Source> {
        let input = OwnedFd::from(self.input.try_clone()?);
        Ok(match self.stream {
            Stream::Pipe => Source::Pipe(pipe::Receiver::from_owned_fd(input)?),
            Stream::Unix => Source::Unix(tokio::net::UnixStream::from_std(input.into())?),
            Stream::Tcp => Source::Tcp(tokio::net::TcpStream::from_std(input.into())?),
        })
    }

    /// Sets whether reads block.
    pub(crate) fn set_blocking(&self, is_blocking: bool) -> Result<(), Failure> {
        rustix::io::ioctl_fionbio(&self.input, !is_blocking).map_err(|error| gone(&error.into()))
    }

    /// Returns the next complete message in the buffer.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, Failure> {
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if self.framing == Framing::Lines {
                let Some(length) = memchr::memchr(b'\n', unread) else { return Ok(None) };
                let line = self.unread.start..self.unread.start + length;
                self.unread.start = line.end + 1;
                return Ok(Some(line));
            }
            let Some(frame) = websocket::Frame::parse(unread) else { return Ok(None) };
            let payload = self.unread.start + frame.header..self.unread.start + frame.header + frame.length;
            self.unread.start = payload.end;
            match frame.opcode {
                websocket::TEXT => return Ok(Some(payload)),
                websocket::PING => {
                    let pong = websocket::pong(&self.buffer[payload]);
                    self.output.write_all(&pong).map_err(|error| gone(&error))?;
                }
                websocket::PONG => {}
                _ => return Err(Failure::failed("the server closed a WebSocket during the benchmark")),
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.make_room();
        match self.input.read(&mut self.buffer[self.unread.end..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.unread.end += count;
                Ok(())
            }
        }
    }

    fn make_room(&mut self) {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end + BUFFER / 2 > self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }
}

impl Source {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.readable().await,
            Self::Unix(socket) => socket.readable().await,
            Self::Tcp(socket) => socket.readable().await,
        }
    }

    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read(into),
            Self::Unix(socket) => socket.try_read(into),
            Self::Tcp(socket) => socket.try_read(into),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

fn unreachable(error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot connect to the server: {error}"))
}

fn gone(error: &io::Error) -> Failure {
    Failure::failed(format_args!("a connection ended during the benchmark: {error}"))
}
