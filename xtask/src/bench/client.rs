//! A client that does little but read fast.
//!
//! It is for what is measured in bytes and microseconds: it shares the machine with the server, and whatever it spent on a
//! line would be measured as well. What people wait for is measured with a client as they have it, the `holder`.

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

use super::heard::{Heard, Line};
use super::place::{Bench, Peer, Server, Version};
use super::websocket;
use crate::failure::Failure;

/// A client on one connection.
pub(crate) struct Client {
    input: File,
    output: File,
    stream: Stream,
    framing: Framing,
    buffer: Vec<u8>,
    /// What of the buffer was read and not yet looked at.
    unread: Range<usize>,
    version: Version,
    next_id: u64,
    session: String,
    pub(crate) heard: Heard,
    /// What it talks to, if it started that itself. Dropped last: a program ends when its input does.
    child: Option<Program>,
}

/// How messages are told apart on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Lines,
    WebSocket,
}

/// What sort of file a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Pipe,
    Unix,
    Tcp,
}

/// A connection's input as the runtime knows it.
enum Source {
    Pipe(pipe::Receiver),
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream),
}

/// A program that is waited for when it is dropped.
pub(crate) struct Program(pub(crate) Child);

/// How much is read at once, at least.
const BUFFER: usize = 256 << 10;

impl Client {
    /// Starts a program and talks to it.
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

    /// Talks to a server's socket.
    pub(crate) fn socket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let stream = UnixStream::connect(server.socket()).map_err(|error| unreachable(&error))?;
        let mut client = Self::on_socket(stream.into(), (Stream::Unix, Framing::Lines), bench.client)?;
        client.send(&Hello::new().to_line())?;
        client.initialize()?;
        Ok(client)
    }

    /// Talks to a server over a WebSocket.
    pub(crate) fn websocket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let address = server.address()?;
        let mut stream = TcpStream::connect(address).map_err(|error| unreachable(&error))?;
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        websocket::upgrade(&mut stream, address, &server.token()?).map_err(|error| unreachable(&error))?;
        let mut client = Self::on_socket(stream.into(), (Stream::Tcp, Framing::WebSocket), bench.client)?;
        client.initialize()?;
        Ok(client)
    }

    /// Takes a connection on which lines are exchanged, and sends nothing yet.
    pub(crate) fn lines_on_unix(socket: UnixStream, version: Version) -> Result<Self, Failure> {
        Self::on_socket(socket.into(), (Stream::Unix, Framing::Lines), version)
    }

    /// The same for TCP.
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
            heard: Heard::default(),
            child: None,
        }
    }

    /// The process that it started.
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

    /// Begins a session.
    pub(crate) fn begin(&mut self) -> Result<(), Failure> {
        let answer = self.ask("session/new", r#"{"cwd":"/","mcpServers":[]}"#)?;
        self.enter(&answer)
    }

    /// Forks its session at the end and goes on in the fork.
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

    /// Goes on in the session that a response names.
    fn enter(&mut self, answer: &str) -> Result<(), Failure> {
        let id = answer.split_once(r#""sessionId":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (id, _) = id.ok_or_else(|| Failure::failed("the answer names no session"))?;
        id.clone_into(&mut self.session);
        Ok(())
    }

    /// Joins the session of another client and is told all of it.
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

    /// Has the agent do something and reads until the turn is over. Says how long that took.
    pub(crate) fn turn(&mut self, prompt: &str) -> Result<Duration, Failure> {
        let (begun, idles) = (Instant::now(), self.heard.idles);
        let id = self.prompt(prompt)?;
        match self.version {
            Version::V1 => drop(self.answer_to(id)?),
            Version::V2 => self.until(|heard| heard.idles > idles)?,
        }
        Ok(begun.elapsed())
    }

    /// Has the agent do something and does not wait for it.
    pub(crate) fn prompt(&mut self, prompt: &str) -> Result<u64, Failure> {
        let session = self.session.clone();
        self.prompt_in(&session, prompt)
    }

    /// Sends a prompt to one of several sessions of this connection and does not wait for it.
    fn prompt_in(&mut self, session: &str, prompt: &str) -> Result<u64, Failure> {
        let prompt = string_literal(prompt);
        let params = format!(r#"{{"sessionId":"{session}","prompt":[{{"type":"text","text":{prompt}}}]}}"#);
        self.request("session/prompt", &params)
    }

    /// Sends a prompt to one of several sessions of this connection and reads until it is accepted: what the agent says of
    /// many prompts fills a pipe, and then it takes no more of them. In version 1 it says nothing before it streams.
    pub(crate) fn prompt_accepted(&mut self, session: &str, prompt: &str) -> Result<(), Failure> {
        let id = self.prompt_in(session, prompt)?;
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => self.answer_to(id).map(drop),
        }
    }

    /// Asks something and waits for the answer.
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
        self.heard.answer = None;
        self.until(|heard| heard.answer.as_ref().is_some_and(|(answered, _)| *answered == id))?;
        let (_, answer) = self.heard.answer.take().unwrap_or_default();
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

    /// Reads until something was heard.
    pub(crate) fn until(&mut self, heard: impl Fn(&Heard) -> bool) -> Result<(), Failure> {
        loop {
            while let Some(line) = self.next_line()? {
                if self.heard.line(&self.buffer[line]) == Line::Other && heard(&self.heard) {
                    return Ok(());
                }
            }
            self.read_more().map_err(|error| gone(&error))?;
        }
    }

    /// The same beside other clients in one thread, for whatever can be heard, chunks included. Reading can be given up.
    pub(crate) async fn until_beside_others(
        &mut self,
        heard: &impl Fn(&Heard) -> bool,
    ) -> Result<(), Failure> {
        if heard(&self.heard) {
            return Ok(());
        }
        let source = self.source().map_err(|error| gone(&error))?;
        loop {
            while let Some(line) = self.next_line()? {
                let _ = self.heard.line(&self.buffer[line]);
                if heard(&self.heard) {
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

    /// The input for a runtime, in whose context this is called. It has to be [nonblocking](Self::set_blocking).
    fn source(&self) -> io::Result<Source> {
        let input = OwnedFd::from(self.input.try_clone()?);
        Ok(match self.stream {
            Stream::Pipe => Source::Pipe(pipe::Receiver::from_owned_fd(input)?),
            Stream::Unix => Source::Unix(tokio::net::UnixStream::from_std(input.into())?),
            Stream::Tcp => Source::Tcp(tokio::net::TcpStream::from_std(input.into())?),
        })
    }

    /// Says whether reads wait for something to come.
    pub(crate) fn set_blocking(&self, is_blocking: bool) -> Result<(), Failure> {
        rustix::io::ioctl_fionbio(&self.input, !is_blocking).map_err(|error| gone(&error.into()))
    }

    /// Takes the next message out of what was read, if all of it was.
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
