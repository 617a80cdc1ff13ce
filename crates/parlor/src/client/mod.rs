//! A client of the local server, over its Unix socket.
//!
//! [`Client`] speaks: it asks and waits for answers, and hands out everything else as [`Event`]s, in order. What they
//! mean to a session is folded by a [`Follower`].

mod error;
mod follow;

use std::collections::VecDeque;
use std::path::Path;

use parlor_dialect::Dialect;
use parlor_json::{Json, Object};
use parlor_server::doors::hello::{Hello, VERSION, Welcome};
use parlor_wire::{
    Body, CANCEL_REQUEST, Frame, Incoming, Lines, Outcome, RequestId, RpcError, cancel_line, cancel_target,
    code, parse, write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

pub(crate) use self::error::Error;
pub(crate) use self::follow::Follower;

/// A connection to a server.
pub(crate) struct Client {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    lines: Lines,
    /// What was read and not handed out yet.
    waiting: VecDeque<Event>,
    next_id: u64,
    /// Who answers.
    pub(crate) server: Welcome,
}

/// Something that a server says.
#[derive(Debug)]
pub(crate) enum Event {
    /// An update of a session, as the line that it came in.
    Update(String),
    /// A question, which wants an answer.
    Asked { id: RequestId, method: String, params: Object },
    /// A question needs no answer any more.
    Unasked(RequestId),
    /// The answer to something that was asked.
    Answered { id: RequestId, outcome: Result<Object, RpcError> },
}

/// Whether somebody listens at a socket.
pub(crate) fn answers(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

impl Client {
    /// Connects and greets.
    pub(crate) async fn connect(socket: &Path, hello: &Hello) -> Result<Self, Error> {
        let stream = UnixStream::connect(socket).await.map_err(Error::NoServer)?;
        let (read, write) = stream.into_split();
        let server = Welcome { parlor: VERSION, version: None, pid: None, error: None };
        let lines = Lines::default();
        let mut client = Self { read, write, lines, waiting: VecDeque::new(), next_id: 0, server };
        client.send(&hello.to_line()).await?;
        let welcome = client.line().await?;
        let welcome: Welcome = serde_json::from_str(&welcome)
            .map_err(|error| Error::Refused(format!("its greeting cannot be read: {error}")))?;
        if let Some(why) = welcome.error {
            return Err(Error::Refused(why));
        }
        client.server = welcome;
        Ok(client)
    }

    /// Begins the protocol, in version 2.
    pub(crate) async fn initialize(&mut self) -> Result<Object, Error> {
        let info = format!(r#"{{"name":"parlor","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
        let params = format!(r#"{{"protocolVersion":2,"info":{info},"capabilities":{{}}}}"#);
        let params = Object::parse(Json::parse(params).expect("it is JSON").raw()).expect("it is an object");
        self.call("initialize", &params).await
    }

    /// Asks, and waits for the answer. What else comes meanwhile is handed out later.
    pub(crate) async fn call(&mut self, method: &str, params: &Object) -> Result<Object, Error> {
        let asked = self.ask(method, params).await?;
        let mut passed = VecDeque::new();
        loop {
            match self.next().await? {
                Event::Answered { id, outcome } if id == asked => {
                    passed.append(&mut self.waiting);
                    self.waiting = passed;
                    return outcome.map_err(Error::Rpc);
                }
                event @ (Event::Update(_)
                | Event::Asked { .. }
                | Event::Unasked(_)
                | Event::Answered { .. }) => passed.push_back(event),
            }
        }
    }

    /// Asks; the answer is an event.
    pub(crate) async fn ask(&mut self, method: &str, params: &Object) -> Result<RequestId, Error> {
        let id = RequestId::from(self.next_id);
        self.next_id += 1;
        let line = write::request(&id, method, Some(params.to_json().raw()));
        self.send(&(line + "\n")).await?;
        Ok(id)
    }

    /// Takes back what was asked.
    pub(crate) async fn unask(&mut self, id: &RequestId) -> Result<(), Error> {
        self.send(&(cancel_line(id) + "\n")).await
    }

    /// Says something that wants no answer.
    pub(crate) async fn notify(&mut self, method: &str, params: &Object) -> Result<(), Error> {
        let line = write::notification(method, Some(params.to_json().raw()));
        self.send(&(line + "\n")).await
    }

    /// Answers a question.
    pub(crate) async fn answer(&mut self, id: &RequestId, result: &Object) -> Result<(), Error> {
        self.send(&(write::response(id, result.to_json().raw()) + "\n")).await
    }

    /// Says that a question cannot be answered here.
    pub(crate) async fn decline(&mut self, id: &RequestId) -> Result<(), Error> {
        let error = RpcError::new(code::METHOD_NOT_FOUND, "this client cannot do that");
        self.send(&(write::error_response(id, &error) + "\n")).await
    }

    /// The next event. A call that is given up loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            while let Some(frame) = self.lines.next_frame() {
                if let Frame::Line(line) = frame {
                    self.waiting.extend(event(line));
                }
            }
            if self.waiting.is_empty() {
                self.fill().await?;
            }
        }
    }

    async fn line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(Frame::Line(line)) = self.lines.next_frame() {
                return Ok(line.to_owned());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let mut bytes = vec![0; 64 << 10];
        match self.read.read(&mut bytes).await {
            Ok(0) | Err(_) => Err(Error::Gone),
            Ok(read) => {
                self.lines.extend(&bytes[..read]);
                Ok(())
            }
        }
    }

    async fn send(&mut self, line: &str) -> Result<(), Error> {
        self.write.write_all(line.as_bytes()).await.map_err(|_| Error::Gone)
    }
}

/// What a line means. What nobody here understands means nothing.
fn event(line: &str) -> Option<Event> {
    let Ok(Incoming::One(message)) = parse(line, Dialect::V2.batches()) else { return None };
    let object = |raw: &serde_json::value::RawValue| Object::parse(raw).unwrap_or_default();
    match message.body {
        Body::Notification { method, .. } if method == "session/update" => {
            Some(Event::Update(line.to_owned()))
        }
        Body::Notification { method, params } if method == CANCEL_REQUEST => {
            cancel_target(params).map(Event::Unasked)
        }
        Body::Notification { .. } => None,
        Body::Request { id, method, params } => Some(Event::Asked {
            id,
            method: method.into_owned(),
            params: params.map(object).unwrap_or_default(),
        }),
        Body::Response { id, outcome } => {
            let outcome = match outcome {
                Outcome::Result(result) => Ok(object(result)),
                Outcome::Error(error) => Err(RpcError::from_raw(error)),
            };
            Some(Event::Answered { id, outcome })
        }
    }
}
