use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::wire_text::array;
use parlor_dialect::live;
use parlor_json::{JsonStr, Object, ObjectWriter, string_literal};

use crate::{RequestError, Session};

/// The files and terminals of the client.
///
/// The requests go to the client whose prompt runs; outside of turns, to the client that is attached the longest and supports them.
/// Version 1 of the protocol defines these requests, and clients declare which they support. For all other clients, those of
/// version 2 included, they fail with [`RequestError::Unsupported`]. An agent that runs on the machine of its sessions can use
/// the disk then.
///
/// ```
/// # use parlor_agent::{RequestError, TerminalCommand, Turn, TurnError};
/// # async fn example(turn: Turn) -> Result<(), TurnError> {
/// let command = TerminalCommand::new("cargo").arg("test").cwd(turn.cwd());
/// match turn.client().create_terminal(&command).await {
///     Ok(terminal) => {
///         let exit = terminal.wait_for_exit().await?;
///         let output = terminal.output().await?;
///         turn.send_text(&format!("{:?}: {}", exit.code, output.text)).await;
///         terminal.release().await?;
///     }
///     Err(RequestError::Unsupported { .. }) => turn.send_text("Run `cargo test`, please.").await,
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ClientServices<'a> {
    session: &'a Session,
}

/// A command to run in a terminal of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalCommand {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    cwd: Option<PathBuf>,
    output_limit: Option<u64>,
}

/// A terminal of the client. Dropping it releases it, which ends its command.
///
/// It is used in the turn that created it: other clients do not have it.
pub struct ClientTerminal {
    session: Session,
    id: JsonStr,
    is_released: bool,
}

/// The output of a terminal so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether the beginning was dropped because of the limit.
    pub is_truncated: bool,
    /// How the command ended, if it has.
    pub exit: Option<TerminalExit>,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminalExit {
    /// Its exit code.
    pub code: Option<u32>,
    /// The signal that ended it, such as `SIGTERM`.
    pub signal: Option<String>,
}

impl<'a> ClientServices<'a> {
    pub(crate) fn new(session: &'a Session) -> Self {
        Self { session }
    }

    /// Reads a text file, with changes in the editor that are not saved.
    pub async fn read_text_file(&self, path: impl AsRef<Path>) -> Result<String, RequestError> {
        self.read(path.as_ref(), None).await
    }

    /// Reads `limit` lines of a text file from `line` on, which counts from 1.
    pub async fn read_text_lines(
        &self,
        path: impl AsRef<Path>,
        line: u32,
        limit: u32,
    ) -> Result<String, RequestError> {
        self.read(path.as_ref(), Some((line, limit))).await
    }

    async fn read(&self, path: &Path, lines: Option<(u32, u32)>) -> Result<String, RequestError> {
        let params = self.session.params().str("path", &path.to_string_lossy());
        let params = match lines {
            Some((line, limit)) => params.u64("line", line.into()).u64("limit", limit.into()),
            None => params,
        };
        let method = "fs/read_text_file";
        let result = request(self.session, method, params).await?;
        text(&result, method, "content")
    }

    /// Writes a text file.
    pub async fn write_text_file(&self, path: impl AsRef<Path>, content: &str) -> Result<(), RequestError> {
        let params = self.session.params().str("path", &path.as_ref().to_string_lossy());
        request(self.session, "fs/write_text_file", params.str("content", content)).await.map(drop)
    }

    /// Starts a command in a new terminal.
    pub async fn create_terminal(&self, command: &TerminalCommand) -> Result<ClientTerminal, RequestError> {
        let method = "terminal/create";
        let result = request(self.session, method, command.write(self.session.params())).await?;
        let id = result.get("terminalId").and_then(|id| JsonStr::from_raw(id.raw()));
        let id = id.ok_or_else(|| invalid(method, "terminalId"))?;
        Ok(ClientTerminal { session: self.session.clone(), id, is_released: false })
    }

    /// Sends any other request to the client. The id of the session is added to `params`.
    pub async fn request(&self, method: &str, params: &Object) -> Result<Object, RequestError> {
        self.session.request(method, self.session.params().members(params)).await
    }
}

impl TerminalCommand {
    /// A program, without arguments.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), args: Vec::new(), env: Vec::new(), cwd: None, output_limit: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory, an absolute path.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Limits the output that the client keeps, in bytes.
    #[must_use]
    pub fn output_limit(mut self, bytes: u64) -> Self {
        self.output_limit = Some(bytes);
        self
    }

    fn write(&self, params: ObjectWriter) -> ObjectWriter {
        let variable = |(name, value): &(String, String)| {
            ObjectWriter::new().str("name", name).str("value", value).finish()
        };
        let params = params
            .str("command", &self.program)
            .raw("args", &array(self.args.iter().map(|arg| string_literal(arg))))
            .raw("env", &array(self.env.iter().map(variable)));
        let params =
            params.optional_str("cwd", self.cwd.as_ref().map(|cwd| cwd.to_string_lossy()).as_deref());
        match self.output_limit {
            Some(limit) => params.u64("outputByteLimit", limit),
            None => params,
        }
    }
}

impl ClientTerminal {
    /// Its id at the client.
    pub fn id(&self) -> Cow<'_, str> {
        self.id.to_text()
    }

    /// Returns the output so far.
    pub async fn output(&self) -> Result<TerminalOutput, RequestError> {
        let method = "terminal/output";
        let result = self.request(method).await?;
        let exit = result.get("exitStatus").and_then(|exit| Object::parse(exit.raw()).ok());
        Ok(TerminalOutput {
            text: text(&result, method, "output")?,
            is_truncated: result.get("truncated").is_some_and(|truncated| truncated.as_str() == "true"),
            exit: exit.map(|exit| TerminalExit::read(&exit)),
        })
    }

    /// Waits until the command has ended.
    pub async fn wait_for_exit(&self) -> Result<TerminalExit, RequestError> {
        let result = self.request("terminal/wait_for_exit").await?;
        Ok(TerminalExit::read(&result))
    }

    /// Ends the command. The output is still available.
    pub async fn kill(&self) -> Result<(), RequestError> {
        self.request("terminal/kill").await.map(drop)
    }

    /// Releases the terminal and ends its command.
    pub async fn release(mut self) -> Result<(), RequestError> {
        self.is_released = true;
        self.request("terminal/release").await.map(drop)
    }

    async fn request(&self, method: &str) -> Result<Object, RequestError> {
        request(&self.session, method, self.params()).await
    }

    fn params(&self) -> ObjectWriter {
        self.session.params().raw("terminalId", self.id.as_literal())
    }
}

impl Drop for ClientTerminal {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        let (session, params) = (self.session.clone(), self.params());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Also after the turn was cancelled, which is when most terminals are dropped.
            runtime.spawn(async move {
                let method = format!("{}terminal/release", live::CLIENT_SERVICE);
                let _ = session.request_regardless(&method, params).await;
            });
        }
    }
}

impl fmt::Debug for ClientTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTerminal").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TerminalExit {
    fn read(result: &Object) -> Self {
        let code = result.get("exitCode").and_then(|code| code.as_str().parse().ok());
        let signal = result.get("signal").and_then(|signal| JsonStr::from_raw(signal.raw()));
        Self { code, signal: signal.map(|signal| signal.to_text().into_owned()) }
    }
}

/// Requests a service that only the client can provide.
async fn request(session: &Session, method: &str, params: ObjectWriter) -> Result<Object, RequestError> {
    session.request(&format!("{}{method}", live::CLIENT_SERVICE), params).await
}

fn text(result: &Object, method: &str, name: &'static str) -> Result<String, RequestError> {
    let value = result.get(name).and_then(|value| JsonStr::from_raw(value.raw()));
    value.map(|value| value.to_text().into_owned()).ok_or_else(|| invalid(method, name))
}

fn invalid(method: &str, expected: &'static str) -> RequestError {
    RequestError::InvalidResponse { method: method.to_owned(), expected }
}
