//! Login methods.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;

use parlor_json::ObjectWriter;
use parlor_wire::{RequestId, RpcError, code, write};

use super::Options;
use super::json::{self, list};
use super::names::{self, UnknownName};
use super::server::{Agent, ClientInfo};
use super::session::Event;

/// The password of the login on a terminal.
const PASSWORD: &str = "swordfish";

/// The variable with the key of the method `env`.
const KEY_VARIABLE: &str = "TEST_API_KEY";

/// A login method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// `authenticate`, which always works.
    Test,
    /// `authenticate`, which works when the person has accepted to open a link.
    Url,
    /// The agent's own program on a terminal.
    Terminal,
    /// A command on a terminal, named in the metadata.
    Meta,
    /// An environment variable.
    Env,
}

/// The login methods of the agent; without any, no login is required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthMethods(Vec<Method>);

impl Method {
    const ALL: [(&str, Self); 5] = [
        ("test", Self::Test),
        ("url", Self::Url),
        ("terminal", Self::Terminal),
        ("meta", Self::Meta),
        ("env", Self::Env),
    ];

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }
}

impl AuthMethods {
    pub(super) fn is_required(&self) -> bool {
        !self.0.is_empty()
    }

    fn has(&self, method: Method) -> bool {
        self.0.contains(&method)
    }
}

impl FromStr for AuthMethods {
    type Err = UnknownName;

    fn from_str(list: &str) -> Result<Self, UnknownName> {
        names::parse("login method", list, &Method::ALL).map(Self)
    }
}

/// Encodes the methods for the response to `initialize`.
pub(super) fn methods(options: &Options, client: &ClientInfo) -> String {
    let is_v1 = client.encoder.is_v1();
    let supported = options.auth.0.iter().filter(|method| match method {
        Method::Terminal => client.has_capability(&["auth", "terminal"]),
        Method::Meta => client.has_capability(&["_meta", "terminal-auth"]),
        Method::Test | Method::Url | Method::Env => true,
    });
    list(supported.map(|method| {
        let kind = match method {
            Method::Terminal => Some("terminal"),
            Method::Env => Some("env_var"),
            Method::Test | Method::Url | Method::Meta => (!is_v1).then_some("agent"),
        };
        let text = ObjectWriter::new().optional_str("type", kind);
        let text = text.str(if is_v1 { "id" } else { "methodId" }, method.name());
        match method {
            Method::Test => text.str("name", "Test login").str("description", "Always works"),
            Method::Url => text.str("name", "Login by link"),
            Method::Terminal => {
                let env = if is_v1 {
                    r#"{"TEST_LOGIN":"yes"}"#
                } else {
                    r#"[{"name":"TEST_LOGIN","value":"yes"}]"#
                };
                text.str("name", "Login on a terminal").raw("args", r#"["--log-in"]"#).raw("env", env)
            }
            Method::Meta => {
                let program = std::env::current_exe().unwrap_or_default();
                let file = options.login_file.as_deref().unwrap_or("/nonexistent".as_ref());
                let args =
                    ["--log-in", "--login-file", &file.to_string_lossy()].map(parlor_json::string_literal);
                let command = ObjectWriter::new()
                    .str("command", &program.to_string_lossy())
                    .raw("args", &list(args))
                    .str("label", "Login by command");
                let meta = ObjectWriter::new().raw("terminal-auth", &command.finish()).finish();
                text.str("name", "Login by command").raw("_meta", &meta)
            }
            Method::Env => {
                let variable = ObjectWriter::new().str("name", KEY_VARIABLE).str("label", "Key").finish();
                let text = text.str("name", "Key").raw("vars", &list(std::iter::once(variable)));
                text.str("link", "https://example.org/keys")
            }
        }
        .finish()
    }))
}

/// Asks for the password on the terminal, and creates the login file if it is right.
pub(super) fn log_in_on_terminal(options: &Options) -> io::Result<()> {
    let file = options.login_file.as_ref().ok_or_else(|| io::Error::other("--login-file is missing"))?;
    if !io::stdin().is_terminal() {
        return Err(io::Error::other("standard input is not a terminal"));
    }
    let mut out = io::stdout();
    let variable = std::env::var("TEST_LOGIN").unwrap_or_default();
    write!(out, "pid {}, TEST_LOGIN {variable:?}\nPassword: ", std::process::id())?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match line.trim() {
        PASSWORD => {
            writeln!(out, "Welcome.")?;
            fs::write(file, "")
        }
        "hang" => loop {
            thread::park();
        },
        "chatter" => loop {
            writeln!(out, "{}", "x".repeat(4000))?;
        },
        _ => Err(io::Error::other("wrong password")),
    }
}

impl Agent {
    /// Whether sessions can be opened.
    fn is_logged_in(&self) -> bool {
        let options = &self.options;
        let has_file = options.login_file.as_ref().is_some_and(|file| file.exists());
        let has_key = options.auth.has(Method::Env) && std::env::var_os(KEY_VARIABLE).is_some();
        self.is_logged_in.load(Ordering::Relaxed) || has_file || has_key
    }

    /// Fails if a login is required and missing.
    pub(super) fn require_login(&self) -> Result<(), RpcError> {
        if !self.options.auth.is_required() || self.is_logged_in() {
            return Ok(());
        }
        Err(RpcError::new(code::AUTH_REQUIRED, "log in first"))
    }

    /// Handles a login request.
    pub(super) fn log_in(self: &Arc<Self>, id: &RequestId, method: &str) -> Result<(), RpcError> {
        let is_named = |(name, _): &(&str, Method)| *name == method;
        match Method::ALL.iter().find(|known| is_named(known)).map(|(_, method)| *method) {
            Some(Method::Terminal) => {
                return Err(RpcError::new(code::INVALID_PARAMS, "run it in a terminal"));
            }
            Some(Method::Url) => return self.log_in_by_link(id),
            Some(Method::Test | Method::Meta | Method::Env) | None => {}
        }
        self.set_logged_in(id, true);
        Ok(())
    }

    pub(super) fn set_logged_in(&self, id: &RequestId, is_logged_in: bool) {
        self.is_logged_in.store(is_logged_in, Ordering::Relaxed);
        self.respond(id, "{}");
    }

    /// Asks the person to open a link. Waits in a thread of its own, because this one reads the response.
    fn log_in_by_link(self: &Arc<Self>, id: &RequestId) -> Result<(), RpcError> {
        let (sender, events) = channel();
        let busy = || RpcError::new(code::INTERNAL_ERROR, "too many open requests");
        let request = self.client_requests().register(sender).map_err(|_| busy())?;
        let params = ObjectWriter::new()
            .raw("requestId", id.as_literal())
            .str("mode", "url")
            .str("elicitationId", "login")
            .str("url", "https://example.org/login")
            .str("message", "Open the page and log in");
        self.out.line(&write::request(
            &request,
            "elicitation/create",
            Some(json::value(params.finish()).raw()),
        ));
        let (agent, id) = (Arc::clone(self), id.clone());
        thread::spawn(move || {
            let Ok(Event::Response(_, answer)) = events.recv() else { return };
            let action = answer.ok().and_then(|answer| answer.to_object()?.get_string("action"));
            if action.as_deref() == Some("accept") {
                agent.set_logged_in(&id, true);
            } else {
                let error = RpcError::new(code::INTERNAL_ERROR, "the link was not opened");
                agent.out.line(&write::error_response(&id, &error));
            }
            agent.out.flush();
        });
        Ok(())
    }
}
