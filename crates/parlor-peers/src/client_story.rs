//! One story with a client of another project: a server with an agent, the client, and a witness of each version.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_testkit::client::Client as Witness;
use parlor_testkit::process::send_signal;
use parlor_testkit::server::{Server, TestDir};
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agents::{self, Agent};
use crate::client_process::ClientProcess;
use crate::clients::{Answer, Client, ClientEnvironment, Commands};
use crate::install::Peers;
use crate::model::{Model, Reply};
use crate::step::{ClientStep, Expectation, Outcome};
use crate::story::{MAX_UNEXPECTED, NAME, Report, caught, config};

/// A running story.
struct ClientStory<'a> {
    client: &'static Client,
    agent: &'static Agent,
    model: Model,
    server: Server,
    dir: TestDir,
    peers: &'a Peers,
    /// The sessions of earlier steps.
    known: HashSet<String>,
}

type Checked = Result<(), String>;

/// Plays a story to its end.
pub fn play(
    client: &'static Client,
    agent: &'static Agent,
    peers: &Peers,
    parlor: &str,
    only: &[ClientStep],
) -> Vec<Report<ClientStep>> {
    let mut reports = Vec::new();
    let start = Instant::now();
    let mut story = match caught(|| ClientStory::open(client, agent, peers, parlor)) {
        Ok(story) => story,
        Err(error) => {
            return vec![Report {
                step: ClientStep::Prompt,
                outcome: Outcome::Fails(error),
                took: start.elapsed(),
            }];
        }
    };
    let mut unexpected = 0;
    for &step in ClientStep::ALL.iter().filter(|step| only.is_empty() || only.contains(step)) {
        let since = Instant::now();
        let outcome = match client.expectation(step) {
            Expectation::NotTried { why } => Outcome::NotTried(why.to_owned()),
            Expectation::Works | Expectation::Fails { .. } => {
                caught(|| story.step(step)).map_or_else(Outcome::Fails, |()| Outcome::Works(None))
            }
        };
        unexpected += usize::from(client.expectation(step).check(&outcome).is_err());
        reports.push(Report { step, outcome, took: since.elapsed() });
        if unexpected == MAX_UNEXPECTED {
            break;
        }
    }
    reports
}

/// Writes a script that runs `parlor acp`.
pub(crate) fn write_script(path: &Path, command: &Command) -> Result<(), String> {
    let mut script = "#!/bin/sh\n".to_owned();
    for (name, value) in command.get_envs() {
        let name = name.display();
        let _ = match value {
            Some(value) => writeln!(script, "export {name}='{}'", value.display()),
            None => writeln!(script, "unset {name}"),
        };
    }
    let words: Vec<_> = command.get_args().map(|word| format!("'{}'", word.display())).collect();
    let _ = writeln!(script, "exec '{}' {}", command.get_program().display(), words.join(" "));
    let written =
        fs::write(path, script).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| error.to_string())
}

/// Where a client runs, with the script in `bin`.
pub(crate) fn place<'a>(
    peers: &'a Peers,
    dir: &TestDir,
    bin: PathBuf,
    agent: &'a str,
) -> Result<ClientEnvironment<'a>, String> {
    Ok(ClientEnvironment {
        peers,
        command: bin.join("npx").to_str().ok_or("the path is text")?.to_owned(),
        bin,
        agent,
        parlor: dir.command(&[]),
        work: dir.work(),
        home: dir.path().join("home"),
    })
}

impl<'a> ClientStory<'a> {
    fn open(
        client: &'static Client,
        agent: &'static Agent,
        peers: &'a Peers,
        parlor: &str,
    ) -> Result<Self, String> {
        let model = Model::start().map_err(|error| error.to_string())?;
        // A page connects to the same port after a restart of the server.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| error.to_string())?;
        let dir = TestDir::new(parlor).argument("--listen").argument(&port.to_string());
        let home = dir.path().join("home");
        let launch = (agent.launch)(&agents::AgentEnvironment { peers, home: &home, model: &model.url() });
        let dir = dir.with_config(&config(None, peers, &launch, &home, client.name));
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).map_err(|error| error.to_string())?;
        write_script(&bin.join("npx"), &dir.acp())?;
        let server = dir.serve();
        Ok(Self { client, agent, model, server, dir, peers, known: HashSet::new() })
    }

    /// A word that the prompt of the client has.
    fn word(&self, word: &str) -> String {
        self.client.fixed_prompt.unwrap_or(word).to_owned()
    }

    fn start(&self, word: &str) -> Result<ClientProcess, String> {
        let place = place(self.peers, &self.dir, self.dir.path().join("bin"), NAME)?;
        (self.client.start)(&place, &format!("Say {word}."))
    }

    /// A client of a version.
    fn witness(&self, dialect: Dialect) -> Witness {
        self.server.client(TransportKind::Unix, dialect, NAME)
    }

    /// Waits for the session that the client has created: its id.
    fn new_session(&mut self) -> String {
        let mut witness = self.witness(Dialect::V2);
        let mut found = None;
        wait_until("the client creates a session", || {
            let list = witness.call("session/list", json!({})).expect("sessions can be listed");
            let ids = list["sessions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|listed| listed["sessionId"].as_str());
            found = ids.map(str::to_owned).find(|id| !self.known.contains(id));
            found.is_some()
        });
        let found = found.expect("it was found");
        self.known.insert(found.clone());
        found
    }

    /// A witness of a version that is attached to a session.
    fn attached(&self, session: &str, dialect: Dialect) -> Result<Witness, String> {
        let mut witness = self.witness(dialect);
        let work = self.dir.work();
        witness.load_in(session, work.to_str().ok_or("the path is text")?);
        Ok(witness)
    }

    /// The version that the client does not speak.
    fn other(&self) -> Dialect {
        if self.client.version == 1 { Dialect::V2 } else { Dialect::V1 }
    }

    /// Starts the client with a turn that stops after the first part of its answer.
    fn held(&mut self, word: &str) -> Result<(ClientProcess, String, crate::model::Hold), String> {
        let reply = Reply::text(&[&format!("{word}-FIRST "), &format!("{word}-LAST")]);
        let hold = self.model.reply_held(&self.word(word), reply);
        let client = self.start(word)?;
        let session = self.new_session();
        let mut witness = self.attached(&session, self.other())?;
        wait_for_message(&mut witness, &session, &format!("{word}-FIRST"));
        Ok((client, session, hold))
    }

    /// Waits until the client has shown the end of its turn, and ended if it does.
    fn finish(&self, mut client: ClientProcess, text: &str) -> Checked {
        client.wait_for(text)?;
        if !self.client.is_one_shot {
            return Ok(());
        }
        match client.wait()? {
            0 => Ok(()),
            code => Err(format!("it ended with the exit code {code}:\n{}", client.text())),
        }
    }

    fn step(&mut self, step: ClientStep) -> Checked {
        match step {
            ClientStep::Prompt => self.prompt(),
            ClientStep::Stream => self.stream(),
            ClientStep::Join => self.join(),
            ClientStep::Answer => self.answer(),
            ClientStep::OtherAnswer => self.other_answer(),
            ClientStep::Queue => self.queue(),
            ClientStep::Cancel => self.cancel(),
            ClientStep::Killed => self.killed(),
            ClientStep::AgentKilled => self.agent_killed(),
            ClientStep::ServerKilled => self.server_killed(),
            ClientStep::Title => self.title(),
            ClientStep::Fork => self.fork(),
            ClientStep::Edit => self.edit(),
            ClientStep::Delete => self.delete(),
        }
    }

    fn prompt(&mut self) -> Checked {
        self.model.reply(&self.word("APPLE"), Reply::text(&["APPLE-", "ANSWER"]));
        let client = self.start("APPLE")?;
        self.new_session();
        // Some write each part on a line of its own.
        client.wait_for("APPLE-")?;
        self.finish(client, "ANSWER")
    }

    fn stream(&mut self) -> Checked {
        let (client, _, hold) = self.held("PLUM")?;
        client.wait_for("PLUM-FIRST")?;
        hold.release();
        self.finish(client, "PLUM-LAST")
    }

    fn join(&mut self) -> Checked {
        let (client, session, hold) = self.held("LIME")?;
        let mut witnesses = [Dialect::V1, Dialect::V2].map(|dialect| self.attached(&session, dialect));
        for witness in &mut witnesses {
            wait_for_message(witness.as_mut().map_err(|error| error.clone())?, &session, "LIME-FIRST");
        }
        hold.release();
        self.finish(client, "LIME-LAST")?;
        for witness in &mut witnesses {
            wait_for_message(
                witness.as_mut().map_err(|error| error.clone())?,
                &session,
                "LIME-FIRST LIME-LAST",
            );
        }
        Ok(())
    }

    /// Starts the client with a turn in which the agent asks for a permission.
    fn asking(&mut self, word: &str, file: &Path) -> Result<ClientProcess, String> {
        let tools = self.agent.tools().ok_or("the agent has no model")?;
        let (name, arguments) = (tools.write)(file);
        self.model.reply(&self.word(word), Reply::tool(name, arguments, &format!("{word}-ANSWER")));
        self.start(word)
    }

    fn answer(&mut self) -> Checked {
        let file = self.dir.work().join("written.txt");
        let mut client = self.asking("MANGO", &file)?;
        self.new_session();
        if let Answer::Asks(question, allow) = self.client.answer {
            client.wait_for(question)?;
            allow(&mut client)?;
        }
        self.finish(client, "MANGO-ANSWER")?;
        let is_expected = file.exists() != matches!(self.client.answer, Answer::Rejects);
        if is_expected { Ok(()) } else { Err(format!("the file exists: {}", file.exists())) }
    }

    fn other_answer(&mut self) -> Checked {
        let file = self.dir.work().join("other.txt");
        let client = self.asking("GUAVA", &file)?;
        let session = self.new_session();
        if let Answer::Asks(question, _) = self.client.answer {
            client.wait_for(question)?;
        }
        let mut witness = self.attached(&session, self.other())?;
        let request = witness.peer_request("session/request_permission");
        let options = request["params"]["options"].as_array().cloned().unwrap_or_default();
        let allow = options.iter().find(|option| option["kind"] == "allow_once");
        witness.choose(
            &request,
            allow.and_then(|option| option["optionId"].as_str()).ok_or("nothing allows it once")?,
        );
        self.finish(client, "GUAVA-ANSWER")?;
        if file.exists() { Ok(()) } else { Err("the file was not written".to_owned()) }
    }

    fn queue(&mut self) -> Checked {
        let (client, session, hold) = self.held("GRAPE")?;
        self.model.reply("MELON", Reply::text(&["MELON-ANSWER"]));
        let mut witness = self.attached(&session, self.other())?;
        witness.prompt(&session, "Say MELON.");
        witness.wait_for_queue(&session, &["Say MELON."]);
        hold.release();
        self.finish(client, "GRAPE-LAST")?;
        wait_for_message(&mut witness, &session, "MELON-ANSWER");
        Ok(())
    }

    fn cancel(&mut self) -> Checked {
        let (mut client, session, _hold) = self.held("PEACH")?;
        let mut witness = self.attached(&session, self.other())?;
        witness.cancel(&session);
        wait_until("the turn has ended", || !is_busy(&mut witness, &session));
        if self.client.is_one_shot {
            // Some take it for a failure.
            return client.wait().map(drop);
        }
        self.prompts(&mut client, "CHERRY")
    }

    fn killed(&mut self) -> Checked {
        let (client, session, hold) = self.held("DATE")?;
        let mut witness = self.attached(&session, self.other())?;
        drop(client);
        hold.release();
        wait_for_message(&mut witness, &session, "DATE-FIRST DATE-LAST");
        wait_until("the turn has ended", || !is_busy(&mut witness, &session));
        Ok(())
    }

    /// Sends a prompt with the client and waits until it shows the answer.
    fn prompts(&self, client: &mut ClientProcess, word: &str) -> Checked {
        self.model.reply(word, Reply::text(&[&format!("{word}-ANSWER")]));
        client.prompt(&format!("Say {word}."))?;
        client.wait_for(&format!("{word}-ANSWER"))
    }

    /// The conversation that the model was given with the last prompt that has a word.
    fn conversation(&self, word: &str) -> Result<String, String> {
        let requests = self.model.requests();
        let found = requests.iter().rfind(|request| !request.is_auxiliary() && request.prompt.contains(word));
        let found = found.ok_or_else(|| format!("the model got no request with {word}"))?;
        Ok(found.conversation.clone())
    }

    fn agent_killed(&mut self) -> Checked {
        let (client, session, _hold) = self.held("DAMSON")?;
        let mut witness = self.witness(Dialect::V2);
        let status = witness.call("_parlor/status", json!({})).map_err(|error| error.to_string())?;
        let pid = status["agents"].as_array().and_then(|agents| agents.first()?["pid"].as_u64());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).ok_or("no agent runs")?;
        send_signal(pid, Signal::KILL);
        self.goes_on(client, &session, ("DAMSON", "PAPAYA"))
    }

    fn server_killed(&mut self) -> Checked {
        let (client, session, _hold) = self.held("SALAK")?;
        self.server.crash();
        self.goes_on(client, &session, ("SALAK", "LEMON"))
    }

    /// After a failed turn, the client has ended, or its next prompt works. The model is given the prompt of the failed turn, too.
    fn goes_on(&self, mut client: ClientProcess, session: &str, (word, next): (&str, &str)) -> Checked {
        let mut witness = self.attached(session, self.other())?;
        wait_until("the turn has ended", || !is_busy(&mut witness, session));
        if self.client.is_one_shot {
            client.wait()?;
            self.model.reply(next, Reply::text(&[&format!("{next}-ANSWER")]));
            witness.prompt(session, &format!("Say {next}."));
            wait_for_message(&mut witness, session, &format!("{next}-ANSWER"));
        } else {
            // The terminal client sends nothing while it is offline.
            self.client.failure.map_or(Ok(()), |failure| client.wait_for(failure))?;
            self.prompts(&mut client, next)?;
        }
        contains(&self.conversation(next)?, &self.word(word))
    }

    fn commands(&self) -> Result<Commands, String> {
        self.client.commands.ok_or_else(|| "it has no commands".to_owned())
    }

    /// Starts the client with two turns.
    fn two_turns(&mut self) -> Result<(ClientProcess, String), String> {
        self.model.reply("BANANA", Reply::text(&["BANANA-ANSWER"]));
        let mut client = self.start("BANANA")?;
        let session = self.new_session();
        client.wait_for("BANANA-ANSWER")?;
        self.prompts(&mut client, "OKRA")?;
        let mut witness = self.witness(Dialect::V2);
        wait_until("the turn has ended", || !is_busy(&mut witness, &session));
        Ok((client, session))
    }

    fn title(&mut self) -> Checked {
        let (mut client, session) = self.two_turns()?;
        let mut witnesses = [Dialect::V1, Dialect::V2].map(|dialect| self.attached(&session, dialect));
        (self.commands()?.title)(&mut client, "Fruit salad")?;
        for witness in &mut witnesses {
            let witness = witness.as_mut().map_err(|error| error.clone())?;
            witness.wait_for_update(&session, 0, "the title", |update| update["title"] == "Fruit salad");
        }
        client.wait_for("Fruit salad")
    }

    fn fork(&mut self) -> Checked {
        let (mut client, session) = self.two_turns()?;
        (self.commands()?.fork)(&mut client)?;
        self.prompts(&mut client, "RAISIN")?;
        self.is_first_turn_only(&session, "RAISIN")
    }

    fn edit(&mut self) -> Checked {
        let (mut client, session) = self.two_turns()?;
        self.model.reply("ALMOND", Reply::text(&["ALMOND-ANSWER"]));
        (self.commands()?.edit)(&mut client, "Say ALMOND.")?;
        client.wait_for("ALMOND-ANSWER")?;
        self.is_first_turn_only(&session, "ALMOND")
    }

    /// Checks that the model was given the first turn with a prompt in a fork, and not the second one, and that the parent has both.
    fn is_first_turn_only(&mut self, parent: &str, word: &str) -> Checked {
        let given = self.conversation(word)?;
        contains(&given, "BANANA-ANSWER")?;
        lacks(&given, "OKRA")?;
        let fork = self.new_session();
        let [parent, fork] = [parent, &fork].map(|session| {
            self.attached(session, self.other()).map(|witness| witness.transcript(session).join("\n"))
        });
        let (parent, fork) = (parent?, fork?);
        contains(&parent, "OKRA-ANSWER")?;
        lacks(&parent, word)?;
        contains(&fork, word)?;
        lacks(&fork, "OKRA")
    }

    fn delete(&mut self) -> Checked {
        let (mut client, session) = self.two_turns()?;
        (self.commands()?.delete)(&mut client)?;
        for dialect in [Dialect::V1, Dialect::V2] {
            let mut witness = self.witness(dialect);
            wait_until("the session is not listed", || listed(&mut witness, &session).is_none());
            let work = self.dir.work();
            let loaded = witness.try_load_in(&session, work.to_str().ok_or("the path is text")?);
            if loaded.is_ok() {
                return Err("the deleted session can be loaded".to_owned());
            }
        }
        Ok(())
    }
}

/// Checks that a text has a part.
fn contains(text: &str, part: &str) -> Checked {
    if text.contains(part) { Ok(()) } else { Err(format!("there is no {part:?}: {text}")) }
}

/// Checks that a text does not have a part.
fn lacks(text: &str, part: &str) -> Checked {
    if text.contains(part) { Err(format!("there is {part:?}: {text}")) } else { Ok(()) }
}

fn wait_for_message(witness: &mut Witness, session: &str, part: &str) {
    witness.wait_for(&format!("a message with {part:?}"), |witness| {
        witness
            .transcript(session)
            .iter()
            .any(|line| line.starts_with("agent_message") && line.contains(part))
            .then_some(())
    });
}

/// The session in the list of a client.
fn listed(witness: &mut Witness, session: &str) -> Option<Value> {
    let list = witness.call("session/list", json!({})).expect("sessions can be listed");
    list["sessions"].as_array().into_iter().flatten().find(|listed| listed["sessionId"] == session).cloned()
}

/// Whether a turn of a session is running.
fn is_busy(witness: &mut Witness, session: &str) -> bool {
    listed(witness, session).is_some_and(|listed| listed["_meta"]["parlor/busy"] == Value::Bool(true))
}
