//! The clients of other projects, and parlor's own: how they are started, and what they cannot do.

use std::path::PathBuf;
use std::process::Command;

use parlor_testkit::browser::Key;

use crate::client_process::ClientProcess;
use crate::install::{self, Peers};
use crate::step::{ClientStep, Expectation};

/// A client.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its name.
    pub name: &'static str,
    /// Its name as the heading of a column.
    pub column: &'static str,
    /// Its package and version.
    pub package: fn() -> String,
    /// The protocol version that it speaks.
    pub version: u8,
    /// Starts it so that it sends a prompt; some send always the same.
    pub start: fn(&ClientEnvironment<'_>, &str) -> Result<ClientProcess, String>,
    /// The prompt that it sends, if it is always the same.
    pub fixed_prompt: Option<&'static str>,
    /// How it answers a permission request, in its own way.
    pub answer: Answer,
    /// Whether it ends after its prompt.
    pub is_one_shot: bool,
    /// What it shows of a turn that failed, if it goes on.
    pub failure: Option<&'static str>,
    /// What else a person can do with it, if anything.
    pub commands: Option<Commands>,
    /// The steps that do not simply work.
    pub exceptions: &'static [(ClientStep, Expectation)],
}

/// How a client answers a permission request.
#[derive(Debug, Clone, Copy)]
pub enum Answer {
    /// It allows it without a person.
    Allows,
    /// It rejects it without a person.
    Rejects,
    /// It shows a text, and a person allows it.
    Asks(&'static str, fn(&mut ClientProcess) -> Result<(), String>),
    /// It has no way to answer.
    Cannot,
}

/// What a person does with the open session of a client that has commands for it.
#[derive(Debug, Clone, Copy)]
pub struct Commands {
    /// Changes the title.
    pub title: fn(&mut ClientProcess, &str) -> Result<(), String>,
    /// Forks at the first answer and opens the fork.
    pub fork: fn(&mut ClientProcess) -> Result<(), String>,
    /// Replaces the second prompt and opens the fork.
    pub edit: fn(&mut ClientProcess, &str) -> Result<(), String>,
    /// Deletes it.
    pub delete: fn(&mut ClientProcess) -> Result<(), String>,
}

/// Where a client runs.
#[derive(Debug)]
pub struct ClientEnvironment<'a> {
    /// The installed peers.
    pub peers: &'a Peers,
    /// A script that runs `parlor acp`.
    pub command: String,
    /// The name of the agent at the server.
    pub agent: &'a str,
    /// A directory with the same script as `npx`.
    pub bin: PathBuf,
    /// The program parlor with its environment.
    pub parlor: Command,
    /// The working directory.
    pub work: PathBuf,
    /// The home directory.
    pub home: PathBuf,
}

impl Client {
    /// What a step must end with.
    pub fn expectation(&self, step: ClientStep) -> Expectation {
        let needs_command =
            matches!(step, ClientStep::Title | ClientStep::Fork | ClientStep::Edit | ClientStep::Delete);
        if needs_command && self.commands.is_none() {
            return Expectation::NotTried { why: "it has no such command" };
        }
        let found = self.exceptions.iter().find(|(of, _)| *of == step);
        found.map_or(Expectation::Works, |(_, expectation)| *expectation)
    }
}

impl ClientEnvironment<'_> {
    /// The program parlor, to run a command of it.
    fn parlor(&self) -> Command {
        let mut command = Command::new(self.parlor.get_program());
        for (name, value) in self.parlor.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", self.bin.display(), self.peers.node_dir().display());
        command.env("HOME", &self.home).env("PATH", path).current_dir(&self.work);
        command
    }
}

fn acpx(place: &ClientEnvironment<'_>, prompt: &str) -> Result<ClientProcess, String> {
    let mut command = place.command(place.peers.npm("acpx"));
    command.args(["--agent", &place.command, "--cwd"]).arg(&place.work);
    command.args(["--approve-all", "exec", prompt]);
    ClientProcess::on_pipes(command)
}

fn typescript(place: &ClientEnvironment<'_>, _: &str) -> Result<ClientProcess, String> {
    let mut command = place.command(place.peers.node());
    // It runs its agent with `npx`, which is a script here.
    command.arg(place.peers.npm_file("@agentclientprotocol/sdk/dist/examples/client.js"));
    ClientProcess::on_pipes(command)
}

fn python(place: &ClientEnvironment<'_>, prompt: &str) -> Result<ClientProcess, String> {
    let mut command = place.command(place.peers.python());
    command.arg("-u").arg(place.peers.python_example("client.py")).arg(&place.command);
    let mut client = ClientProcess::on_pipes(command)?;
    client.write(&format!("{prompt}\n"))?;
    Ok(client)
}

fn rust(place: &ClientEnvironment<'_>, example: &str, prompt: &str) -> Result<ClientProcess, String> {
    let mut command = place.command(place.peers.rust_example(example));
    command.args(["--command", &place.command, prompt]);
    ClientProcess::on_pipes(command)
}

fn terminal(place: &ClientEnvironment<'_>, prompt: &str) -> Result<ClientProcess, String> {
    let mut command = place.parlor();
    command.args(["new", "--agent", place.agent, "--cwd"]).arg(&place.work).current_dir(&place.work);
    let mut client = ClientProcess::on_terminal(&command);
    client.wait_for("Enter start")?;
    client.write(prompt)?;
    client.wait_for(&format!("› {prompt}"))?;
    client.write("\r")?;
    Ok(client)
}

/// Starts a session on the page.
fn page(place: &ClientEnvironment<'_>, prompt: &str) -> Result<ClientProcess, String> {
    let opened = place.parlor().args(["open", "--print"]).output().map_err(|error| error.to_string())?;
    let link = String::from_utf8_lossy(&opened.stdout).trim().to_owned();
    let client = ClientProcess::in_browser(&link);
    let tab = client.tab().ok_or("it runs in a browser")?;
    // Without sessions, the first page has the form of a new one; with some, a narrow window shows the list.
    tab.resize(1280, 800);
    tab.wait_for("location.pathname === '/' && socket?.readyState === 1");
    tab.click(&format!("form.start input[value=\"{}\"]", place.agent));
    tab.click("#dir");
    tab.eval("document.getElementById('dir').select()");
    tab.enter(place.work.to_str().ok_or("the path is text")?);
    tab.click("#fp");
    tab.enter(prompt);
    tab.press_key(Key::Enter, 0);
    tab.wait_for("location.pathname.startsWith('/s/') && socket?.readyState === 1");
    Ok(client)
}

/// A request takes no answer in its first half second.
fn allow_on_page(client: &mut ClientProcess) -> Result<(), String> {
    let tab = client.tab().ok_or("it runs in a browser")?;
    tab.wait_for("document.querySelector('#request .req') && performance.now() - requestSince > 500");
    tab.click("#request .opts .btn.main");
    Ok(())
}

/// Answers the request with `y`. A request takes no letter in the half second after it took the focus by itself: the letter is then in
/// the input, from where it is deleted. After Tab, a request takes letters at once.
fn allow_on_terminal(client: &mut ClientProcess) -> Result<(), String> {
    const HAS_FOCUS: &str = "1 y";
    const INPUT_HAS_FOCUS: &str = "Tab answers";

    let shown = client.wait_until("show the request", |shown| {
        shown.contains(HAS_FOCUS) || shown.contains(INPUT_HAS_FOCUS)
    })?;
    if shown.contains(HAS_FOCUS) {
        client.write("y")?;
        let shown = client.wait_until("take the letter", |shown| !shown.contains(HAS_FOCUS))?;
        if !shown.contains(INPUT_HAS_FOCUS) {
            return Ok(());
        }
        client.write("\x7f")?;
    }
    client.write("\t")?;
    client.wait_for(HAS_FOCUS)?;
    client.write("y")
}

const TERMINAL_COMMANDS: Commands = Commands {
    title: |client, title| {
        on_list_of_terminal(client)?;
        client.write("t")?;
        client.wait_for("Title: ")?;
        client.write(&format!("\x15{title}"))?;
        client.wait_for(&format!("Title: {title}"))?;
        client.write("\r")
    },
    fork: |client| {
        on_messages_of_terminal(client)?;
        // The first prompt, its answer.
        client.write("gjf")?;
        client.wait_for("Forked at")?;
        client.wait_until("open the fork", |shown| !shown.contains(ON_MESSAGES)).map(drop)
    },
    edit: |client, text| {
        on_messages_of_terminal(client)?;
        client.write("[e")?;
        client.wait_for("Editing a prompt")?;
        client.write(&format!("\x15{text}"))?;
        client.wait_for(&format!("› {text}"))?;
        client.write("\r")?;
        client.wait_for("Forked with the edited prompt")
    },
    delete: |client| {
        on_list_of_terminal(client)?;
        client.write("D")?;
        client.wait_for("u undo")?;
        // Detaching ends the time in which it can be undone.
        client.write("q")?;
        client.wait().map(drop)
    },
};

/// What the terminal client shows when its messages have the focus, and when its list has.
const ON_MESSAGES: &str = "f fork here";
const ON_LIST: &str = "x archive";

fn on_messages_of_terminal(client: &mut ClientProcess) -> Result<(), String> {
    client.write("\t")?;
    client.wait_for(ON_MESSAGES)
}

fn on_list_of_terminal(client: &mut ClientProcess) -> Result<(), String> {
    on_messages_of_terminal(client)?;
    client.write("\t")?;
    client.wait_for(ON_LIST)
}

const PAGE_COMMANDS: Commands = Commands {
    title: |client, title| {
        let tab = client.tab().ok_or("it runs in a browser")?;
        tab.click("#session-menu > summary");
        tab.click("#new-title");
        tab.eval("document.getElementById('new-title').select()");
        tab.enter(title);
        tab.press_key(Key::Enter, 0);
        Ok(())
    },
    fork: |client| {
        let tab = client.tab().ok_or("it runs in a browser")?;
        let session = tab.eval("location.pathname");
        tab.eval("document.activeElement.blur()");
        tab.eval("select(document.querySelectorAll('#log > .agent')[0])");
        tab.press("f");
        tab.wait_for(&format!("location.pathname !== {session} && socket?.readyState === 1"));
        Ok(())
    },
    edit: |client, text| {
        let tab = client.tab().ok_or("it runs in a browser")?;
        let session = tab.eval("location.pathname");
        tab.eval("document.activeElement.blur()");
        tab.eval("select(document.querySelectorAll('#log > .user')[1])");
        tab.press("e");
        tab.wait_for("document.querySelector('.edit-form textarea')");
        tab.eval("document.querySelector('.edit-form textarea').select()");
        tab.enter(text);
        tab.press_key(Key::Enter, 0);
        tab.wait_for(&format!("location.pathname !== {session} && socket?.readyState === 1"));
        Ok(())
    },
    delete: |client| {
        let tab = client.tab().ok_or("it runs in a browser")?;
        tab.click("#session-menu > summary");
        tab.click("#session-menu [data-do=delete]");
        Ok(())
    },
};

const ANSWERS_AT_ONCE: Expectation = Expectation::NotTried { why: "it answers requests at once" };
const PRINTS_AT_END: Expectation = Expectation::NotTried { why: "it prints the answer when it is complete" };

/// All clients.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "acpx",
        column: "acpx",
        package: || format!("npm `acpx` {}", install::npm_version("acpx")),
        version: 1,
        start: acpx,
        fixed_prompt: None,
        answer: Answer::Allows,
        is_one_shot: true,
        failure: None,
        commands: None,
        exceptions: &[(ClientStep::OtherAnswer, ANSWERS_AT_ONCE)],
    },
    Client {
        name: "TypeScript SDK, client.js",
        column: "TS",
        package: || {
            format!("npm `@agentclientprotocol/sdk` {}", install::npm_version("@agentclientprotocol/sdk"))
        },
        version: 1,
        start: typescript,
        fixed_prompt: Some("Hello, agent!"),
        answer: Answer::Asks("Choose an option", |client| client.write("1\n")),
        is_one_shot: true,
        failure: None,
        commands: None,
        exceptions: &[],
    },
    Client {
        name: "Python SDK, client.py",
        column: "Py",
        package: || format!("PyPI `agent-client-protocol` {}", install::PYTHON_SDK),
        version: 1,
        start: python,
        fixed_prompt: None,
        answer: Answer::Cannot,
        is_one_shot: false,
        failure: None,
        commands: None,
        exceptions: &[(
            ClientStep::Answer,
            Expectation::NotTried { why: "it answers permission requests with \"method not found\"" },
        )],
    },
    Client {
        name: "Rust SDK, yolo_one_shot_client",
        column: "Rust v1",
        package: || format!("crate `agent-client-protocol` {}", install::RUST_SDK),
        version: 1,
        start: |place, prompt| rust(place, "yolo_one_shot_client", prompt),
        fixed_prompt: None,
        answer: Answer::Allows,
        is_one_shot: true,
        failure: None,
        commands: None,
        exceptions: &[(ClientStep::OtherAnswer, ANSWERS_AT_ONCE)],
    },
    Client {
        name: "Rust SDK, v2_one_shot_client",
        column: "Rust v2",
        package: || format!("crate `agent-client-protocol` {}", install::RUST_SDK),
        version: 2,
        start: |place, prompt| rust(place, "v2_one_shot_client", prompt),
        fixed_prompt: None,
        answer: Answer::Rejects,
        is_one_shot: true,
        failure: None,
        commands: None,
        exceptions: &[(ClientStep::Stream, PRINTS_AT_END), (ClientStep::OtherAnswer, ANSWERS_AT_ONCE)],
    },
    Client {
        name: "parlor's terminal client",
        column: "terminal",
        package: || "`parlor new`".to_owned(),
        version: 2,
        start: terminal,
        fixed_prompt: None,
        answer: Answer::Asks("peer asks", allow_on_terminal),
        is_one_shot: false,
        failure: Some("Turn failed"),
        commands: Some(TERMINAL_COMMANDS),
        exceptions: &[],
    },
    Client {
        name: "parlor's page",
        column: "page",
        package: || "`parlor open`, in Chromium".to_owned(),
        version: 2,
        start: page,
        fixed_prompt: None,
        answer: Answer::Asks("peer asks", allow_on_page),
        is_one_shot: false,
        failure: Some("Turn failed"),
        commands: Some(PAGE_COMMANDS),
        exceptions: &[],
    },
];
