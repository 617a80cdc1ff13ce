//! Logs a person in to an agent, by one of the agent's authentication methods.

use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parlor_dialect::Dialect;
use parlor_engine::Frame;
use parlor_json::{Json, Object};
use parlor_process::{Command, Process, Terminal, TerminalSize};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::mpsc;

use super::{create, initialize};
use crate::agent::{Agent, CancelToken, Origin, Startup};
use crate::auth_method::{AuthKind, AuthMethod, LoginProgram};
use crate::client::Client;
use crate::config::{AgentConfig, chosen_env};
use crate::fields;
use crate::hub::{AgentChoice, HubState};
use crate::logins::{LoginGuard, LoginInput, MAX_INPUT_BYTES};
use crate::services::Utf8Decoder;

/// How long a login may take: a person has to find a password or a browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How many bytes of a terminal's output are read at once.
const BUFFER: usize = 16 << 10;

/// The terminal type for programs of clients that name none.
const TERMINAL_TYPE: &str = "xterm-256color";

/// Responds with the authentication methods of an agent, which is started if it is not running.
pub(super) async fn methods(hub: &Arc<HubState>, client: &Arc<Client>, id: &RequestId, params: &Object) {
    let listed = async {
        let (config, agent) = started_agent(hub, client, params).await?;
        let env = chosen_env(&config, &client.options.env);
        let methods = AuthMethod::all_in(&agent.info.initialize);
        let methods = methods.iter().map(|method| method.to_json(Some(&env)));
        let mut result = Object::new().with("agent", &config.name).with("methods", Json::array(methods));
        if let Some(is_logged_in) = hub.agent_pool().login_state(&config).await {
            result.set("loggedIn", is_logged_in);
        }
        Ok(result)
    };
    respond(client, id, listed.await);
}

/// Runs an authentication method, and responds when it has ended.
pub(super) async fn login(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
    cancel: CancelToken,
) {
    let result = try_login(hub, client, id, params, cancel).await;
    respond(client, id, result);
}

/// Passes typed text and the size of the client's terminal to a login that the client runs.
pub(super) fn input(
    hub: &HubState,
    client: &Client,
    id: &RequestId,
    params: &Object,
) -> Result<(), RpcError> {
    let invalid = |message: &str| RpcError::new(code::INVALID_PARAMS, message);
    let agent = params.get_string("agent").ok_or_else(|| invalid("`agent` must be a string"))?;
    let typed = params.get_string("data");
    if typed.as_ref().is_some_and(|typed| typed.len() > MAX_INPUT_BYTES) {
        return Err(invalid(&format!("`data` may have at most {MAX_INPUT_BYTES} bytes")));
    }
    let resized = size(params).map(LoginInput::Resized);
    for input in typed.map(LoginInput::Typed).into_iter().chain(resized) {
        hub.logins().send_input(&agent, client.id, input)?;
    }
    client.queue.push(Frame::response(id, &Object::default()));
    Ok(())
}

fn respond(client: &Client, id: &RequestId, result: Result<Object, RpcError>) {
    client.queue.push(match result {
        Ok(result) => Frame::response(id, &result),
        Err(error) => Frame::error(id, &error),
    });
}

async fn try_login(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
    cancel: CancelToken,
) -> Result<Object, RpcError> {
    let config = agent_config(hub, client, params).await?;
    let mut guard = hub.logins().start(&config.name, client)?;
    let gone = guard.client_gone();
    let login = run(hub, client, id, params, &config, &mut guard);
    wait(login, gone, cancel, &config).await
}

/// Waits until a login ends, its client disconnects or cancels it, or [`LOGIN_TIMEOUT`] elapses. In the last three cases the login
/// is dropped, which ends its program, or cancels the agent's call.
async fn wait<T>(
    login: impl Future<Output = Result<T, RpcError>>,
    client_gone: impl Future<Output = ()>,
    mut cancel: CancelToken,
    config: &AgentConfig,
) -> Result<T, RpcError> {
    tokio::select! {
        biased;
        () = client_gone => Err(RpcError::new(code::REQUEST_CANCELLED, "the client has disconnected")),
        () = cancel.cancelled() => Err(RpcError::new(code::REQUEST_CANCELLED, "the login was cancelled")),
        ended = tokio::time::timeout(LOGIN_TIMEOUT, login) => ended.unwrap_or_else(|_| {
            let minutes = LOGIN_TIMEOUT.as_secs() / 60;
            Err(failed(config, &format!("it did not end within {minutes} minutes")))
        }),
    }
}

async fn run(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
    config: &AgentConfig,
    guard: &mut LoginGuard,
) -> Result<Object, RpcError> {
    let agent = start(hub, client, config).await?;
    let methods = AuthMethod::all_in(&agent.info.initialize);
    let wanted = params.get_string("methodId");
    let Some(method) = methods.iter().find(|method| Some(&method.id) == wanted.as_ref()) else {
        return Err(unknown_method(config, wanted.as_deref(), &methods));
    };
    let env = chosen_env(config, &client.options.env);
    let result = Object::new().with("agent", &config.name).with("method", method.to_json(Some(&env)));
    if method.lacks_variables(&env) {
        return Ok(result.with("outcome", "variables_required"));
    }
    match &method.kind {
        AuthKind::Terminal(program) => {
            let size = size(params).unwrap_or_default();
            run_program(hub, client, config, program, size, &mut guard.inputs).await?;
            // Also stops the process that listed the methods, which read its credentials before.
            hub.agent_pool().stop_logged_out(config, None).await;
        }
        AuthKind::Agent | AuthKind::Variables(_) => {
            authenticate(client, id, params, &agent, &method.id).await.map_err(|error| {
                let failure = failed(config, error.message());
                match error.data() {
                    Some(data) => failure.with_data(data.clone()),
                    None => failure,
                }
            })?;
            hub.agent_pool().stop_logged_out(config, Some(&agent)).await;
        }
    }
    if let Some(stored) = agent.set_logged_in(true) {
        let _ = stored.await;
    }
    Ok(result.with("outcome", "logged_in"))
}

/// The configuration of the agent that the params name, else of the client's agent.
async fn agent_config(hub: &HubState, client: &Client, params: &Object) -> Result<AgentConfig, RpcError> {
    match params.get_string("agent") {
        Some(name) => initialize::chosen(hub, client, Some(AgentChoice::Named(name))).await,
        None => initialize::config(hub, client).await,
    }
}

/// The agent that the params name, else the client's agent, started if it is not running.
pub(super) async fn started_agent(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    params: &Object,
) -> Result<(AgentConfig, Arc<Agent>), RpcError> {
    let config = agent_config(hub, client, params).await?;
    let agent = start(hub, client, &config).await?;
    Ok((config, agent))
}

async fn start(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    config: &AgentConfig,
) -> Result<Arc<Agent>, RpcError> {
    let cwd = client.options.cwd.clone().unwrap_or_else(|| "/".into());
    let startup = Startup::new(config.startup_timeout);
    create::agent(hub, client, config, &cwd, &SessionId::from(""), startup).await
}

/// Has the agent carry out a method. Its elicitations go to the client.
async fn authenticate(
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
    agent: &Arc<Agent>,
    method_id: &str,
) -> Result<(), RpcError> {
    agent.add_client(client);
    let method = if agent.info.dialect == Dialect::V1 { "authenticate" } else { "auth/login" };
    let mut agents_params = Object::new().with("methodId", method_id);
    let meta = fields::foreign_meta(params);
    if !meta.is_empty() {
        agents_params.set("_meta", meta.to_json());
    }
    let origin = Origin { client: Arc::clone(client), id: id.clone() };
    // Cancelled by dropping it.
    let (_sender, never) = CancelToken::new();
    agent.call_for_client(origin, method, &agents_params, never).await.map(drop)
}

/// Runs the program of a login on a terminal whose output and input are relayed, and checks that it succeeds.
async fn run_program(
    hub: &HubState,
    client: &Arc<Client>,
    config: &AgentConfig,
    program: &LoginProgram,
    size: TerminalSize,
    inputs: &mut mpsc::Receiver<LoginInput>,
) -> Result<(), RpcError> {
    let command = login_command(client, config, program).await;
    let (process, terminal) = Process::start_on_terminal(&command, size, hub.reaper())
        .map_err(|error| failed(config, &error.to_string()))?;
    let output = ProgramOutput { client, agent: &config.name };
    let status = relay(&process, &terminal, output, inputs)
        .await
        .map_err(|error| failed(config, &format!("cannot relay its terminal: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let error = failed(config, &format!("its program ended with {status}"));
    Err(match status.code() {
        Some(code) => error.with_data(Object::new().with("exitCode", i64::from(code)).to_json()),
        None => error,
    })
}

/// The program with its environment: all variables of the client, because a person runs it, and those that the agent has.
async fn login_command(client: &Client, config: &AgentConfig, program: &LoginProgram) -> Command {
    let own = &client.options.env;
    let mut env = if own.is_empty() {
        chosen_env(config, own)
    } else {
        chosen_env(&AgentConfig { pass_env: vec!["*".to_owned()], ..config.clone() }, own)
    };
    if env.iter().all(|(name, _)| name != "TERM") {
        env.push(("TERM".to_owned(), TERMINAL_TYPE.to_owned()));
    }
    let cwd = match &client.options.cwd {
        Some(cwd) if tokio::fs::metadata(cwd).await.is_ok_and(|found| found.is_dir()) => cwd.clone(),
        Some(_) | None => std::env::var_os("HOME").map_or_else(|| "/".into(), Into::into),
    };
    let mut command = program.command(&config.command, env, cwd);
    config.sandbox.wrap(&mut command);
    command
}

/// Sends the output of a program to a client.
struct ProgramOutput<'a> {
    client: &'a Client,
    agent: &'a str,
}

impl ProgramOutput<'_> {
    fn send(&self, text: &str) {
        if !text.is_empty() {
            let params = Object::new().with("agent", self.agent).with("data", text);
            self.client.queue.push(Frame::notification("_parlor/login/output", &params));
        }
    }
}

/// Relays the terminal of a program until the program has ended. While the client does not keep up, no output is read, and the
/// program waits.
async fn relay(
    process: &Process,
    terminal: &Terminal,
    output: ProgramOutput<'_>,
    inputs: &mut mpsc::Receiver<LoginInput>,
) -> std::io::Result<ExitStatus> {
    let mut decoder = Utf8Decoder::default();
    let mut buffer = vec![0; BUFFER];
    let mut typed = Vec::new();
    let mut ended = pin!(process.wait());
    let status = loop {
        let has_room = output.client.queue.has_room();
        tokio::select! {
            status = &mut ended => break status,
            count = terminal.read(&mut buffer), if has_room => {
                output.send(&decoder.decode(&buffer[..count?]));
            }
            () = output.client.queue.drained(), if !has_room => {}
            count = terminal.write(&typed), if !typed.is_empty() => drop(typed.drain(..count?)),
            input = inputs.recv(), if typed.len() < MAX_INPUT_BYTES => match input {
                Some(LoginInput::Typed(text)) => typed.extend_from_slice(text.as_bytes()),
                Some(LoginInput::Resized(size)) => terminal.resize(size)?,
                // The sender exists as long as the login.
                None => std::future::pending().await,
            },
        }
    };
    // The last output.
    loop {
        match terminal.try_read(&mut buffer) {
            0 => break,
            count => output.send(&decoder.decode(&buffer[..count])),
        }
    }
    output.send(&decoder.finish());
    Ok(status)
}

/// The size of the client's terminal.
fn size(params: &Object) -> Option<TerminalSize> {
    let number = |name| params.get_u64(name).and_then(|number| u16::try_from(number).ok()).filter(|n| *n > 0);
    Some(TerminalSize { columns: number("columns")?, rows: number("rows")? })
}

fn unknown_method(config: &AgentConfig, wanted: Option<&str>, methods: &[AuthMethod]) -> RpcError {
    let name = &config.name;
    let ids: Vec<_> = methods.iter().map(|method| method.id.as_str()).collect();
    let message = match (wanted, &ids[..]) {
        (_, []) => format!("agent '{name}' has no login methods"),
        (Some(wanted), _) => {
            format!("agent '{name}' has no login method '{wanted}' (it has: {})", ids.join(", "))
        }
        (None, _) => format!("`methodId` must be one of: {}", ids.join(", ")),
    };
    RpcError::new(code::INVALID_PARAMS, message)
}

fn failed(config: &AgentConfig, reason: &str) -> RpcError {
    let message = format!("the login to agent '{}' failed: {reason}", config.label());
    RpcError::new(code::INTERNAL_ERROR, message)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_login_that_does_not_end_is_dropped_after_15_minutes() {
        let config = AgentConfig::new("mine", vec!["mine".to_owned()]);
        let (_sender, cancel) = CancelToken::new();
        let started = tokio::time::Instant::now();
        let error = wait(pending::<Result<(), _>>(), pending(), cancel, &config).await.unwrap_err();
        assert_eq!(error.message(), "the login to agent 'mine' failed: it did not end within 15 minutes");
        assert_eq!(started.elapsed().as_secs(), 15 * 60);

        let (_sender, cancel) = CancelToken::new();
        let error = wait(pending::<Result<(), _>>(), ready(()), cancel, &config).await.unwrap_err();
        assert_eq!(error.code(), code::REQUEST_CANCELLED);
    }
}
