use std::io::{self, BufRead};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt;
use parlor_client::{Agent, Client, Hello, Json, Notification, Object};
use parlor_server::data_dir::DataDir;
use parlor_session::Transcript;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::background_server;
use crate::command_error::CommandError;
use crate::output::{self, BOLD, DIM, RED};
use crate::path_options::PathOptions;
use crate::peer_requests::RequestQueue;
use crate::render::safe;
use crate::runtime;
use crate::server::{self, client_environment};
use crate::tty::{self, Tty};

/// Log in to an agent
///
/// Runs one of the agent's own login methods, which it keeps by itself: parlor stores no passwords. If the agent has several
/// methods, they are listed and asked for on a terminal. A method that needs a terminal runs on this one. Starts the local server if
/// it is not running.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Login {
    #[command(flatten)]
    paths: PathOptions,
    /// Log in to this agent, as `parlor agents` lists it
    #[arg(value_name = "AGENT")]
    agent: String,
    /// Use the method with this id
    #[arg(long, value_name = "ID")]
    method: Option<String>,
    /// Print the agent and the method as a JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  parlor login claude
  parlor login codex --method chat-gpt";

/// How many pieces of typed text wait for the server. More stays in the terminal's buffer.
const MAX_TYPED: usize = 16;

/// How long the agent may take before a notice says that it waits.
const NOTICE_DELAY: Duration = Duration::from_secs(3);

/// The result of `_parlor/login/methods`.
#[derive(Deserialize)]
struct Methods {
    methods: Vec<Method>,
}

/// A login method.
#[derive(Debug, Deserialize)]
struct Method {
    #[serde(rename = "methodId")]
    id: String,
    name: String,
    description: Option<String>,
    #[serde(rename = "type")]
    kind: String,
    link: Option<String>,
    #[serde(default)]
    variables: Vec<Variable>,
}

/// An environment variable that a method needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    name: String,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    is_set: bool,
}

/// The output with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoginOutput<'a> {
    agent: &'a str,
    method_id: Option<&'a str>,
    logged_in: bool,
}

impl Login {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let data = background_server::ensure_running(&self.paths)?;
        let runtime = runtime::multi_threaded()?;
        let result = runtime.block_on(self.log_in(&data));
        // The thread that reads the terminal cannot be interrupted.
        runtime.shutdown_background();
        result
    }

    async fn log_in(&self, data: &DataDir) -> Result<ExitCode, CommandError> {
        let hello = Hello {
            agent: Some(Agent::Name(self.agent.clone())),
            env: client_environment(),
            cwd: std::env::current_dir().ok(),
            ..Hello::new()
        };
        let params = Object::new().with("agent", self.agent.as_str());
        let listed = async {
            let client = server::connect_with_forms(data, &hello).await?;
            let methods = client.call("_parlor/login/methods", &params).await?;
            Ok((client, methods))
        };
        let (client, methods) = listed.await.map_err(|error| CommandError::client(&error))?;
        let methods = parse(&methods)?.methods;
        if methods.is_empty() {
            return self.report(None);
        }
        let method = self.choose(&methods)?;
        let needs_terminal = method.kind == "terminal";
        let tty = Tty::open();
        if needs_terminal && tty.is_none() {
            let id = &method.id;
            return Err(CommandError::bad_input(format_args!("login method '{id}' needs a terminal"))
                .hint(format_args!("run `parlor login {}` on a terminal", self.agent)));
        }
        if !self.json {
            print_stderr!("{DIM}logging in to {}: {}{DIM:#}", safe(&self.agent), safe(&method.name));
        }
        let params = params.with("methodId", method.id.as_str());
        let result = match tty.filter(|_| needs_terminal) {
            Some(tty) => run_on_terminal(&client, &self.agent, params, &tty).await,
            None => {
                let result = run_by_agent(&client, &self.agent, &params).await;
                if result.as_ref().is_err_and(CommandError::is_interrupted) {
                    // Sends the cancellation of the request.
                    client.disconnect().await;
                }
                result
            }
        }?;
        match result.get_str("outcome").as_deref() {
            Some("logged_in") => self.report(Some(method)),
            _ => Err(self.variables_error(method)),
        }
    }

    /// The method of `--method`, the only one, or the one that the user chooses.
    fn choose<'a>(&self, methods: &'a [Method]) -> Result<&'a Method, CommandError> {
        let ids: Vec<_> = methods.iter().map(|method| method.id.as_str()).collect();
        let hint = format!("--method takes one of these: {}", ids.join(", "));
        if let Some(wanted) = &self.method {
            let found = methods.iter().find(|method| method.id == *wanted);
            return found.ok_or_else(|| {
                let agent = &self.agent;
                CommandError::bad_input(format_args!("agent '{agent}' has no login method '{wanted}'"))
                    .hint(hint)
            });
        }
        if let [only] = methods {
            return Ok(only);
        }
        let tty = Tty::open().ok_or_else(|| {
            let agent = &self.agent;
            CommandError::bad_input(format_args!("agent '{agent}' has several login methods")).hint(&hint)
        })?;
        ask(&tty, &self.agent, methods)
            .map_err(|error| terminal_error(&error))?
            .ok_or_else(|| CommandError::failed("no login method was selected").hint(hint))
    }

    fn report(&self, method: Option<&Method>) -> Result<ExitCode, CommandError> {
        if self.json {
            let method_id = method.map(|method| method.id.as_str());
            output::print_json(&LoginOutput { agent: &self.agent, method_id, logged_in: method.is_some() })?;
        } else {
            let agent = safe(&self.agent);
            output::print(|out| match method {
                Some(_) => writeln!(out, "logged in to {agent}"),
                None => writeln!(out, "agent '{agent}' has no login methods: it needs no login"),
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn variables_error(&self, method: &Method) -> CommandError {
        let (agent, id) = (&self.agent, &method.id);
        let missing = method.variables.iter().filter(|variable| !variable.optional && !variable.is_set);
        let names: Vec<_> = missing.map(|variable| variable.name.as_str()).collect();
        let names = names.join(", ");
        let link = method.link.as_ref().map(|link| format!(" (see {link})")).unwrap_or_default();
        CommandError::failed(format_args!(
            "login method '{id}' of agent '{agent}' needs {names} in the environment"
        ))
        .hint(format_args!(
            "set it where parlor is started, or as env in [agents.{agent}] of config.toml{link}"
        ))
    }
}

fn parse(result: &Object) -> Result<Methods, CommandError> {
    serde_json::from_str(result.to_json().as_str())
        .map_err(|error| CommandError::failed(format_args!("cannot parse the server's response: {error}")))
}

fn terminal_error(error: &io::Error) -> CommandError {
    CommandError::failed(format_args!("cannot use the terminal: {error}"))
}

/// Lists the methods and asks for one; `None` at the end of the input.
fn ask<'a>(tty: &Tty, agent: &str, methods: &'a [Method]) -> io::Result<Option<&'a Method>> {
    let width = methods.iter().map(|method| method.id.chars().count()).max().unwrap_or(0);
    tty.write(|out| {
        writeln!(out, "{BOLD}Login methods of {}{BOLD:#}", safe(agent))?;
        for (index, method) in methods.iter().enumerate() {
            let id = safe(&method.id);
            let description = method.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            writeln!(out, "  {}  {id:<width$}  {}{}", index + 1, safe(&method.name), safe(&description))?;
        }
        Ok(())
    })?;
    let mut lines = tty.reader()?.lines();
    loop {
        tty.write(|out| write!(out, "Method (1-{}): ", methods.len()))?;
        let Some(line) = lines.next().transpose()? else { return Ok(None) };
        let typed = line.trim();
        let by_number = typed.parse::<usize>().ok().and_then(|number| methods.get(number.checked_sub(1)?));
        let chosen = by_number.or_else(|| methods.iter().find(|method| method.id == typed));
        if chosen.is_some() {
            return Ok(chosen);
        }
        let ids: Vec<_> = methods.iter().map(|method| safe(&method.id)).collect();
        let problem = tty::number_problem(typed, methods.len(), &ids);
        tty.write(|out| writeln!(out, "  {RED}{problem}{RED:#}"))?;
    }
}

/// Runs a method that the agent carries out; its links and forms are shown on the terminal.
async fn run_by_agent(client: &Client, agent: &str, params: &Object) -> Result<Object, CommandError> {
    let mut requests = client.requests();
    let mut notice = pin!(tokio::time::sleep(NOTICE_DELAY));
    let mut is_quiet = true;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| terminal_error(&error))?;
    let mut queue = RequestQueue::new(false, false);
    let mut login = pin!(client.call("_parlor/login", params));
    let transcript = Transcript::default();
    loop {
        let decision = tokio::select! {
            result = &mut login => return result.map_err(|error| {
                let failure = CommandError::client(&error);
                let has_hint = failure.hint_text().is_some();
                if has_hint { failure } else { failure.hint(format_args!("`parlor logs --agent {agent}` may say more")) }
            }),
            _ = interrupts.recv() => return Err(CommandError::interrupted("the login was ended")),
            () = &mut notice, if is_quiet => {
                is_quiet = false;
                let agent = safe(agent);
                print_stderr!(
                    "{DIM}waiting for {agent}, which may have opened a page in a browser; Ctrl-C ends the login{DIM:#}"
                );
                None
            }
            Some(request) = requests.next() => {
                is_quiet = false;
                queue.on_request(request, &transcript, "").map_err(|error| terminal_error(&error))?
            }
            decision = queue.next_decision() => Some(decision.map_err(|error| terminal_error(&error))?),
        };
        if let Some(decision) = decision {
            if let Some(notice) = &decision.notice {
                print_stderr!("{DIM}{}{DIM:#}", safe(notice));
            }
            decision.send().await;
        }
    }
}

/// Runs a method whose program the server starts on a terminal, and connects that terminal with this one.
async fn run_on_terminal(
    client: &Client,
    agent: &str,
    params: Object,
    tty: &Tty,
) -> Result<Object, CommandError> {
    let failed = |error: io::Error| terminal_error(&error);
    let mut output = client.notifications();
    let mut resizes = signal(SignalKind::window_change()).map_err(failed)?;
    // Restores the terminal when it is dropped.
    let _raw = tty.set_raw().map_err(failed)?;
    let mut typed = read_typed(tty).map_err(failed)?;
    let with_size = |params: Object| match tty.size() {
        Some((columns, rows)) => params.with("columns", u64::from(columns)).with("rows", u64::from(rows)),
        None => params,
    };
    let input = || Object::new().with("agent", agent);
    let params = with_size(params);
    let mut login = pin!(client.call("_parlor/login", &params));
    let result = loop {
        let sent = tokio::select! {
            result = &mut login => break result,
            Some(notification) = output.next() => {
                print_output(tty, &notification).map_err(failed)?;
                continue;
            }
            Some(text) = typed.recv() => client.call("_parlor/login/input", &input().with("data", text)).await,
            Some(()) = resizes.recv() => client.call("_parlor/login/input", &with_size(input())).await,
        };
        // The program may have ended meanwhile, which the response to the login reports.
        drop(sent);
    };
    while let Some(Some(notification)) = output.next().now_or_never() {
        print_output(tty, &notification).map_err(failed)?;
    }
    result.map_err(|error| CommandError::client(&error))
}

/// Prints the output of the program as it is: it is a program that the person runs on this terminal.
fn print_output(tty: &Tty, notification: &Notification) -> io::Result<()> {
    if notification.method != "_parlor/login/output" {
        return Ok(());
    }
    let params = notification.params.as_ref().and_then(Json::to_object).unwrap_or_default();
    tty.write_raw(params.get_str("data").unwrap_or_default().as_bytes())
}

/// Reads what is typed in a thread that ends with the process.
fn read_typed(tty: &Tty) -> io::Result<mpsc::Receiver<String>> {
    let (sender, typed) = mpsc::channel(MAX_TYPED);
    let mut reader = tty.reader()?;
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        while let Ok(read) = reader.fill_buf().map(<[u8]>::to_vec) {
            reader.consume(read.len());
            bytes.extend_from_slice(&read);
            // A character that is typed in several parts is sent as a whole.
            let complete = match std::str::from_utf8(&bytes) {
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                Ok(_) | Err(_) => bytes.len(),
            };
            let text = String::from_utf8_lossy(&bytes[..complete]).into_owned();
            bytes.drain(..complete);
            if read.is_empty() || sender.blocking_send(text).is_err() {
                return;
            }
        }
    });
    Ok(typed)
}
