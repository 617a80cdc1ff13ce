//! A browser and its tabs, as far as the server can tell.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error, Message, WebSocket};

/// How long a tab waits for something.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A browser that is signed in.
pub(crate) struct Browser {
    address: String,
    /// The secret of its cookie.
    secret: String,
}

/// A tab with what its page would show.
pub(crate) struct Tab {
    socket: WebSocket<TcpStream>,
    /// The patches that were not waited for, each as its kind and content.
    pub(crate) patches: Vec<(String, Value)>,
    /// The regions by their ids.
    pub(crate) regions: HashMap<String, String>,
    /// The HTML of all entries that the tab was sent.
    pub(crate) entries: String,
    pub(crate) revision: u64,
    pub(crate) epoch: String,
}

impl Browser {
    pub(crate) fn sign_in(server: &Server, is_observer: bool) -> Self {
        Self::sign_in_as(
            server,
            is_observer,
            "Mozilla/5.0 (X11; Linux x86_64) Chrome/150.0.0.0 Safari/537.36",
        )
    }

    /// Signs a browser in that calls itself this.
    pub(crate) fn sign_in_as(server: &Server, is_observer: bool, name: &str) -> Self {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "demo");
        let link = client.call("_parlor/browsers/link", json!({ "observer": is_observer })).unwrap();
        let code = link["code"].as_str().expect("the code of a link");
        let browser = Self { address: server.address().to_owned(), secret: String::new() };
        let (status, head, _) =
            browser.request(&format!("GET /sign-in?code={code}"), &[("User-Agent", name)]);
        assert_eq!(status, 303, "{head}");
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        let (_, secret) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        Self { secret: secret.to_owned(), ..browser }
    }

    /// The same browser with the server's next process.
    pub(crate) fn at(&self, server: &Server) -> Self {
        Self { address: server.address().to_owned(), secret: self.secret.clone() }
    }

    fn port(&self) -> &str {
        self.address.rsplit_once(':').unwrap().1
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://parlor.localhost:{}", self.port())
    }

    fn cookie(&self) -> String {
        format!("parlor-{}={}", self.port(), self.secret)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String, String) {
        self.request(&format!("GET {path}"), &[])
    }

    /// Sends a request, and returns the status, the headers and the body.
    fn request(&self, line: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut text = format!("{line} HTTP/1.1\r\nHost: parlor.localhost:{}\r\n", self.port());
        let _ = write!(text, "Connection: close\r\nContent-Length: 0\r\nCookie: {}\r\n", self.cookie());
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let (line, head) = head.split_once("\r\n").unwrap();
        (line.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    pub(crate) fn ticket(&self) -> String {
        let (status, _, ticket) = self.request("POST /ticket", &[("Origin", &self.origin())]);
        assert_eq!(status, 200);
        ticket
    }

    /// Opens a WebSocket; the error is the status of the response.
    pub(crate) fn socket(&self, query: &str, origin: &str) -> Result<Tab, u16> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let address = format!("ws://parlor.localhost:{}/live{query}", self.port());
        let mut request = address.into_client_request().unwrap();
        request.headers_mut().insert("Origin", origin.parse().unwrap());
        request.headers_mut().insert("Cookie", self.cookie().parse().unwrap());
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match tungstenite::client::client_with_config(request, stream, Some(config)) {
            Ok((socket, _)) => Ok(Tab {
                socket,
                patches: Vec::new(),
                regions: HashMap::new(),
                entries: String::new(),
                revision: 0,
                epoch: String::new(),
            }),
            Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a tab that shows nothing yet.
    pub(crate) fn connect(&self) -> Tab {
        self.socket(&format!("?ticket={}", self.ticket()), &self.origin()).unwrap()
    }

    /// Opens a tab that shows a session.
    pub(crate) fn show(&self, session: &str) -> Tab {
        let mut tab = self.connect();
        tab.send(&json!({ "do": "show", "session": session }));
        tab.wait_for("tail", |_| true);
        tab
    }
}

impl Tab {
    pub(crate) fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    /// Reads one message; false if the server closed the connection.
    pub(crate) fn read(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Text(text)) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                if let Some(revision) = message["revision"].as_u64() {
                    self.revision = revision;
                }
                for patch in message["patch"].as_array().into_iter().flatten() {
                    let (kind, content) = patch.as_object().unwrap().iter().next().unwrap();
                    if kind == "tail" {
                        content["epoch"].as_str().unwrap().clone_into(&mut self.epoch);
                    }
                    let html = content["html"].as_str().unwrap_or_default();
                    match kind.as_str() {
                        "replace" => {
                            self.regions.insert(content["id"].as_str().unwrap().to_owned(), html.to_owned());
                        }
                        "put" | "blocks" | "tail" => self.entries.push_str(html),
                        _ => {}
                    }
                    self.patches.push((kind.clone(), content.clone()));
                }
                true
            }
            Ok(Message::Close(_))
            | Err(Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_)) => false,
            Ok(_) => true,
            Err(Error::Io(error)) => panic!("{error}; the tab has {:?}", self.kinds()),
            Err(error) => panic!("{error}"),
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.patches.iter().map(|(kind, _)| kind.as_str()).collect()
    }

    /// Waits until `find` finds something.
    fn wait_until<T>(&mut self, what: &str, mut find: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "no {what}; the tab has {:?}", self.patches);
            assert!(self.read(), "the server closed the connection before {what}");
        }
    }

    /// Waits for a patch, and returns it. It is not found again.
    pub(crate) fn wait_for(&mut self, kind: &str, mut is_wanted: impl FnMut(&Value) -> bool) -> Value {
        self.wait_until(kind, |tab| {
            let at = tab.patches.iter().position(|(known, content)| known == kind && is_wanted(content))?;
            Some(tab.patches.remove(at).1)
        })
    }

    /// Waits until the server closes the connection.
    pub(crate) fn wait_for_close(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.read() {
            assert!(Instant::now() < deadline, "the connection is open");
        }
    }

    /// Waits until a region is as wanted, and returns it.
    pub(crate) fn wait_for_region(&mut self, id: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        self.wait_until(id, |tab| tab.regions.get(id).filter(|html| is_wanted(html)).cloned())
    }

    /// Waits until the entries that the tab was sent contain this text.
    pub(crate) fn wait_for_text(&mut self, text: &str) {
        self.wait_until(text, |tab| tab.entries.contains(text).then_some(()));
    }

    /// Waits until the turn of the session has ended.
    pub(crate) fn wait_for_idle(&mut self) {
        self.wait_for_region("head", |html| html.contains("data-state=\"idle\""));
    }

    pub(crate) fn prompt(&mut self, text: &str) {
        let key = format!("{text}-{:?}", Instant::now());
        self.send(&json!({ "do": "prompt", "key": key, "text": text }));
    }
}

/// The ids of the entries in a fragment of HTML.
pub(crate) fn entry_ids(html: &str) -> Vec<String> {
    let entries = html.split("<li class=\"entry").skip(1);
    let id = |entry: &str| Some(entry.split_once("id=\"")?.1.split_once('"')?.0.to_owned());
    entries.filter_map(id).collect()
}

/// The value of an attribute in a fragment of HTML.
pub(crate) fn attribute(html: &str, name: &str) -> String {
    let (_, rest) = html.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name} in {html}"));
    rest.split_once('"').unwrap().0.to_owned()
}
