//! One story: a server with one agent, a stand-in model, and two clients of different versions.

mod checks;

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::agents::{Agent, AgentEnvironment, Launch};
use crate::install::Peers;
use crate::model::{Model, ModelRequest};
use crate::step::{Expectation, Outcome, Step};

/// The name of the agent in the configuration.
pub(crate) const NAME: &str = "peer";

/// The file with what an agent without a model is given.
const INPUT: &str = "input";

/// After how many unexpected outcomes a story is not continued: each may have taken a minute.
pub(crate) const MAX_UNEXPECTED: usize = 3;

/// The variable that all processes of a story's agents have.
const TAG: &str = "PARLOR_PEERS_STORY";

/// Which agent, in which version, with a first client of which version.
#[derive(Debug, Clone, Copy)]
pub struct Cast {
    /// The agent.
    pub agent: &'static Agent,
    /// The protocol version that parlor speaks with the agent.
    pub version: u8,
    /// The version of the first client; the second one has the other.
    pub client: Dialect,
}

/// A step with its outcome and how long it took.
#[derive(Debug)]
pub struct Report<S> {
    /// The step.
    pub step: S,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

impl std::fmt::Display for Cast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let client = if self.client == Dialect::V1 { 1 } else { 2 };
        write!(f, "{} v{}, client v{client}", self.agent.name, self.version)
    }
}

/// A running story.
struct Story {
    cast: Cast,
    model: Model,
    server: Option<Server>,
    dir: TestDir,
    /// The configuration, also for another server.
    config: String,
    tag: String,
    parlor: String,
    session: String,
    /// The client that creates the session, and the one that joins. A failed step drops both.
    clients: Option<(Client, Client)>,
}

/// Plays a story to its end.
pub fn play(cast: Cast, peers: &Peers, parlor: &str, only: &[Step]) -> Vec<Report<Step>> {
    let mut reports = Vec::new();
    let mut report = |step: Step, outcome: Outcome, since: Instant| {
        reports.push(Report { step, outcome, took: since.elapsed() });
    };
    let start = Instant::now();
    let mut story = match caught(|| Story::open(cast, peers, parlor)) {
        Ok(story) => story,
        Err(error) => {
            report(Step::Start, Outcome::Fails(error), start);
            for &step in &Step::ALL[1..] {
                if let Expectation::NotTried { why } = cast.agent.expectation(step, cast.version) {
                    report(step, Outcome::NotTried(why.to_owned()), Instant::now());
                }
            }
            return reports;
        }
    };
    report(Step::Start, Outcome::Works(None), start);
    let mut unexpected = 0;
    for &step in &Step::ALL[1..] {
        let since = Instant::now();
        let is_wanted = only.is_empty() || only.contains(&step);
        if let Expectation::NotTried { why } = cast.agent.expectation(step, cast.version) {
            report(step, Outcome::NotTried(why.to_owned()), since);
            continue;
        }
        if !is_wanted && step != Step::Prompt && step != Step::NoOrphans {
            continue;
        }
        let outcome = caught(|| story.step(step)).map_or_else(Outcome::Fails, Outcome::Works);
        if matches!(outcome, Outcome::Fails(_)) {
            story.clients = None;
        }
        unexpected += usize::from(cast.agent.expectation(step, cast.version).check(&outcome).is_err());
        report(step, outcome, since);
        if unexpected == MAX_UNEXPECTED {
            break;
        }
    }
    reports
}

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a step. Clients of the testkit panic if something does not come; the message becomes the error.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    IS_CAUGHT.set(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    IS_CAUGHT.set(false);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default())
    })
}

/// Has panics printed, except those in steps, which are reported as their outcomes.
pub(crate) fn print_other_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IS_CAUGHT.get() {
            print(panic);
        }
    }));
}

impl Story {
    fn open(cast: Cast, peers: &Peers, parlor: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let tag = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let model = Model::start().map_err(|error| error.to_string())?;
        let dir = TestDir::new(parlor);
        let home = dir.path().join("home");
        fs::write(dir.work().join("hello.txt"), "hello from a file\n").map_err(|error| error.to_string())?;
        let environment = AgentEnvironment { peers, home: &home, model: &model.url() };
        let launch = cast.agent.launch_in(&environment, &dir.path().join(INPUT));
        let config = config(Some(cast.version), peers, &launch, &home, &tag);
        let dir = dir.with_config(&config);
        let server = dir.serve();
        let mut story = Self {
            cast,
            model,
            server: Some(server),
            dir,
            config,
            tag,
            parlor: parlor.to_owned(),
            session: String::new(),
            clients: None,
        };
        let mut first = story.connect(cast.client);
        let opened = first.call("session/new", json!({ "cwd": story.dir.work(), "mcpServers": [] }));
        let opened = opened.map_err(|error| format!("session/new: {error}"))?;
        opened["sessionId"].as_str().unwrap_or_default().clone_into(&mut story.session);
        if let Some(mode) = cast.agent.mode {
            let session = &story.session;
            let (method, params) = match cast.client {
                Dialect::V1 => ("session/set_mode", json!({ "sessionId": session, "modeId": mode })),
                Dialect::V2 | Dialect::Draft => (
                    "session/set_config_option",
                    json!({ "sessionId": session, "configId": "mode", "type": "id", "value": mode }),
                ),
            };
            first.call(method, params).map_err(|error| format!("{method}: {error}"))?;
        }
        let mut second = story.connect(other(cast.client));
        second.load_in(&story.session, &story.work());
        story.clients = Some((first, second));
        Ok(story)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("the server runs")
    }

    /// A client that is killed when it is dropped if it is the first one: it runs `parlor acp`, as editors do.
    fn connect(&self, dialect: Dialect) -> Client {
        let transport = if dialect == self.cast.client { TransportKind::Stdio } else { TransportKind::Unix };
        ClientBuilder::new(transport, dialect, NAME).connect(self.server())
    }

    /// The two clients, both attached to the session.
    fn clients(&mut self) -> (&mut Client, &mut Client) {
        if self.clients.is_none() {
            let (mut first, mut second) =
                (self.connect(self.cast.client), self.connect(other(self.cast.client)));
            first.load_in(&self.session, &self.work());
            second.load_in(&self.session, &self.work());
            self.clients = Some((first, second));
        }
        let (first, second) = self.clients.as_mut().expect("they are there");
        (first, second)
    }

    fn work(&self) -> String {
        self.dir.work().to_str().expect("the path is text").to_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.work().join(name)
    }

    /// The last request with this word in its prompt that the agent made for a turn.
    fn request(&self, word: &str) -> Result<ModelRequest, String> {
        let requests = self.model.requests();
        let found = requests.iter().rfind(|request| !request.is_auxiliary() && request.prompt.contains(word));
        found.cloned().ok_or_else(|| format!("the model got no request with {word}"))
    }

    /// The text of the last prompt with this word that the agent was given.
    fn given_prompt(&self, word: &str) -> Result<String, String> {
        let input = fs::read_to_string(self.dir.path().join(INPUT)).map_err(|error| error.to_string())?;
        let lines = input.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut prompts = lines.filter(|line| line["method"] == "session/prompt").map(|line| {
            let blocks = line["params"]["prompt"].as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        });
        let found = prompts.rfind(|prompt| prompt.contains(word));
        found.ok_or_else(|| format!("the agent was given no prompt with {word}"))
    }

    fn step(&mut self, step: Step) -> Result<Option<String>, String> {
        match step {
            Step::Start => Ok(()),
            Step::Prompt => self.prompt(),
            Step::Stream => self.stream(),
            Step::Thought => self.thought(),
            Step::Join => self.join(),
            Step::ToolCall => self.tool_call(),
            Step::Permission => self.permission(),
            Step::Queue => self.queue(),
            Step::Cancel => self.cancel(),
            Step::Steer => self.steer(),
            Step::ModelError => self.model_error(),
            Step::ClientKilled => self.client_killed(),
            Step::AgentKilled => return self.agent_killed(),
            Step::ServerKilled => return self.server_killed(),
            Step::Title => self.title(),
            Step::List => self.list(),
            Step::Load => self.load(),
            Step::Subagent => self.subagent(),
            Step::Adopt => self.adopt(),
            Step::Fork => return self.fork().map(Some),
            Step::ForkEnd => return self.fork_end().map(Some),
            Step::Edit => return self.edit().map(Some),
            Step::Regenerate => return self.regenerate().map(Some),
            Step::Delete => self.delete(),
            Step::NoOrphans => self.no_orphans(),
        }
        .map(|()| None)
    }
}

/// The other version.
fn other(dialect: Dialect) -> Dialect {
    if dialect == Dialect::V1 { Dialect::V2 } else { Dialect::V1 }
}

/// The configuration of a server with one agent, which speaks a version.
pub(crate) fn config(
    version: Option<u8>,
    peers: &Peers,
    launch: &Launch,
    home: &std::path::Path,
    tag: &str,
) -> String {
    format!("default_agent = \"{NAME}\"\n{}", agent_section(NAME, version, peers, launch, home, tag))
}

/// The section of an agent in a configuration.
pub(crate) fn agent_section(
    name: &str,
    version: Option<u8>,
    peers: &Peers,
    launch: &Launch,
    home: &std::path::Path,
    tag: &str,
) -> String {
    let quote = |text: &str| Value::from(text).to_string();
    let command: Vec<_> = launch.command.iter().map(|word| quote(word)).collect();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut env = vec![
        (TAG.to_owned(), tag.to_owned()),
        ("HOME".to_owned(), home.to_str().expect("the path is text").to_owned()),
        ("PATH".to_owned(), format!("{}:{path}", peers.node_dir().display())),
    ];
    env.extend(launch.env.iter().cloned());
    let env: Vec<_> = env.iter().map(|(name, value)| format!("{name} = {}", quote(value))).collect();
    let version = version.map(|version| format!("version = {version}\n")).unwrap_or_default();
    format!(
        "[agents.{name}]\ncommand = [{}]\n{version}pass_env = []\nenv = {{ {} }}\n",
        command.join(", "),
        env.join(", ")
    )
}
