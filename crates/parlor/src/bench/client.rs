//! A client that does little but read fast.
//!
//! It is for what is measured in bytes and microseconds: it shares the machine with the server, and whatever it spent on a
//! line would be measured as well. What people wait for is measured with a client as they have it, the `holder`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use parlor_json::string_literal;
use parlor_server::doors::hello::Hello;

use super::heard::{Heard, Line};
use super::place::{Bench, Peer, Server, Version};
use crate::failure::Failure;

/// A client on one connection.
pub(crate) struct Client {
    read: Box<dyn Read + Send>,
    write: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// What of the buffer was read and not yet looked at.
    unread: std::ops::Range<usize>,
    version: Version,
    next_id: u64,
    session: String,
    pub(crate) heard: Heard,
    /// What it talks to, if it started that itself.
    child: Option<Child>,
}

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
        let mut client = Self::over(Box::new(read), Box::new(write), Some(child), version);
        client.initialize()?;
        Ok(client)
    }

    /// Talks to a server's socket.
    pub(crate) fn socket(bench: &Bench, server: &Server) -> Result<Self, Failure> {
        let trouble =
            |error: std::io::Error| Failure::failed(format_args!("cannot join the server: {error}"));
        let stream = UnixStream::connect(server.socket()).map_err(trouble)?;
        let read = stream.try_clone().map_err(trouble)?;
        let mut client = Self::over(Box::new(read), Box::new(stream), None, bench.client);
        client.send(&Hello::new().to_line())?;
        client.initialize()?;
        Ok(client)
    }

    fn over(
        read: Box<dyn Read + Send>,
        write: Box<dyn Write + Send>,
        child: Option<Child>,
        version: Version,
    ) -> Self {
        let (session, heard) = (String::new(), Heard::default());
        Self {
            read,
            write,
            buffer: vec![0; BUFFER],
            unread: 0..0,
            version,
            next_id: 0,
            session,
            heard,
            child,
        }
    }

    /// The process that it started.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn initialize(&mut self) -> Result<(), Failure> {
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
        let prompt = string_literal(prompt);
        let params =
            format!(r#"{{"sessionId":"{}","prompt":[{{"type":"text","text":{prompt}}}]}}"#, self.session);
        self.request("session/prompt", &params)
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
        self.write
            .write_all(line.as_bytes())
            .map_err(|error| Failure::failed(format_args!("a connection is gone: {error}")))
    }

    /// Reads until something was heard.
    pub(crate) fn until(&mut self, heard: impl Fn(&Heard) -> bool) -> Result<(), Failure> {
        loop {
            while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.unread.clone()]) {
                let line = self.unread.start..self.unread.start + length;
                self.unread.start = line.end + 1;
                if self.heard.line(&self.buffer[line]) == Line::Other && heard(&self.heard) {
                    return Ok(());
                }
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> Result<(), Failure> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end + BUFFER / 2 > self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match self.read.read(&mut self.buffer[self.unread.end..]) {
            Ok(0) => Err(Failure::failed("a connection ended in the middle of the benchmark")),
            Ok(count) => {
                self.unread.end += count;
                Ok(())
            }
            Err(error) => Err(Failure::failed(format_args!("a connection is gone: {error}"))),
        }
    }
}

/// What it started ends when its input does.
impl Drop for Client {
    fn drop(&mut self) {
        self.write = Box::new(std::io::sink());
        self.read = Box::new(std::io::empty());
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}
