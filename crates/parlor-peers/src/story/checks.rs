//! The steps of a story.

use std::fs;
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::process::{is_alive, send_signal};
use parlor_testkit::server::TestDir;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{NAME, Story, TAG, other};
use crate::model::Reply;

/// What a step returns: what was seen if it failed.
type Checked = Result<(), String>;

/// How long processes may take to end after the server has.
const EXIT: Duration = Duration::from_secs(10);

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks that a text has a part.
fn contains(text: &str, part: &str, what: &str) -> Checked {
    ensure(text.contains(part), || format!("{what} does not have {part:?}: {text}"))
}

/// Checks that a text does not have a part.
fn lacks(text: &str, part: &str, what: &str) -> Checked {
    ensure(!text.contains(part), || format!("{what} has {part:?}: {text}"))
}

/// Waits until the turn of a prompt has ended: the stop reason or the error.
fn end_of_turn(client: &mut Client, session: &str, id: u64) -> Result<String, String> {
    let answer = client.response(id).map_err(|error| format!("the prompt failed: {error}"))?;
    if client.dialect == Dialect::V1 {
        return Ok(answer["stopReason"].as_str().unwrap_or_default().to_owned());
    }
    let prompt = answer["messageId"].as_str().unwrap_or_default().to_owned();
    let idle = client.wait_for("the end of the turn", |client| {
        let updates: Vec<_> = client.updates(session, 0).collect();
        let is_prompt = |update: &&Value| update["messageId"] == prompt.as_str();
        let start = updates.iter().position(is_prompt).unwrap_or(updates.len());
        updates[start..].iter().find(|update| update["state"] == "idle").map(|update| (*update).clone())
    });
    match &idle["stopReason"] {
        reason if reason == "error" => Err(format!("the turn failed: {}", idle["error"])),
        reason => Ok(reason.as_str().unwrap_or_default().to_owned()),
    }
}

/// Waits until a client has a line of the transcript.
fn wait_for_line(client: &mut Client, session: &str, kind: &str, part: &str) -> String {
    client.wait_for(&format!("{kind} with {part:?}"), |client| {
        client.transcript(session).into_iter().rfind(|line| line.starts_with(kind) && line.contains(part))
    })
}

/// The id of a message in a line of the transcript.
fn id_of(line: &str) -> String {
    let id = line.split_once(' ').and_then(|(_, rest)| rest.split_once(": ")).map(|(id, _)| id).unwrap_or_default();
    serde_json::from_str(id).unwrap_or_default()
}

impl Story {
    /// Sends a prompt from the first client and waits for the end of its turn.
    fn turn(&mut self, text: &str) -> Checked {
        let session = self.session.clone();
        let (first, _) = self.clients();
        let id = first.prompt(&session, text);
        let stop = end_of_turn(first, &session, id)?;
        ensure(stop == "end_turn", || format!("the turn ended with {stop:?}"))
    }

    /// Checks that the next prompt works.
    fn works(&mut self, word: &str) -> Checked {
        let answer = format!("{word}-ANSWER");
        self.model.reply(word, Reply::text(&[&answer]));
        self.turn(&format!("Say {word}."))?;
        let session = self.session.clone();
        let (first, _) = self.clients();
        wait_for_line(first, &session, "agent_message", &answer);
        Ok(())
    }

    pub(super) fn prompt(&mut self) -> Checked {
        self.works("APPLE")?;
        self.works("PEAR")?;
        let prompts = self.model.requests();
        let prompts = prompts.iter().filter(|request| !request.is_auxiliary() && request.prompt.contains("APPLE")).count();
        ensure(prompts == 1, || format!("the model got the prompt {prompts} times"))?;
        contains(&self.request("PEAR")?.conversation, "APPLE-ANSWER", "the second request")
    }

    pub(super) fn stream(&mut self) -> Checked {
        let hold = self.model.reply_held("PLUM", Reply::text(&["PLUM-FIRST ", "and ", "PLUM-LAST"]));
        let session = self.session.clone();
        let (first, _) = self.clients();
        let id = first.prompt(&session, "Say PLUM.");
        let part = wait_for_line(first, &session, "agent_message", "PLUM-FIRST");
        lacks(&part, "PLUM-LAST", "the message")?;
        hold.release();
        let (first, _) = self.clients();
        end_of_turn(first, &session, id)?;
        let whole = wait_for_line(first, &session, "agent_message", "PLUM-LAST");
        contains(&whole, "PLUM-FIRST and PLUM-LAST", "the message")?;
        ensure(id_of(&whole) == id_of(&part), || "the message has another id at the end".to_owned())
    }

    pub(super) fn thought(&mut self) -> Checked {
        self.model.reply("FIG", Reply::text(&["FIG-ANSWER"]).thinking("FIG-THOUGHT"));
        self.turn("Say FIG.")?;
        let session = self.session.clone();
        let (first, _) = self.clients();
        let answer = wait_for_line(first, &session, "agent_message", "FIG-ANSWER");
        let lines = first.transcript(&session);
        let thought = lines.iter().position(|line| line.starts_with("agent_thought") && line.contains("FIG-THOUGHT"));
        let thought = thought.ok_or_else(|| format!("there is no thought: {:?}", lines.last()))?;
        let answer = lines.iter().position(|line| *line == answer).unwrap_or_default();
        ensure(thought < answer, || "the thought is after the answer".to_owned())
    }

    pub(super) fn join(&mut self) -> Checked {
        let hold = self.model.reply_held("LIME", Reply::text(&["LIME-FIRST ", "LIME-LAST"]));
        let (session, work) = (self.session.clone(), self.work());
        let mut joining = self.connect(other(self.cast.client));
        let (first, second) = self.clients();
        let id = first.prompt(&session, "Say LIME.");
        wait_for_line(first, &session, "agent_message", "LIME-FIRST");
        joining.load_in(&session, &work);
        wait_for_line(&mut joining, &session, "user_message", "Say LIME.");
        wait_for_line(&mut joining, &session, "agent_message", "LIME-FIRST");
        wait_for_line(&mut joining, &session, "agent_message", "APPLE-ANSWER");
        *second = joining;
        hold.release();
        let (first, second) = self.clients();
        end_of_turn(first, &session, id)?;
        let line = wait_for_line(second, &session, "agent_message", "LIME-LAST");
        contains(&line, "LIME-FIRST LIME-LAST", "the message of the second client")
    }

    /// Waits until both clients have the last tool call as completed.
    fn completed_call(&mut self, before: usize) -> Checked {
        let session = self.session.clone();
        let (first, second) = self.clients();
        for client in [first, second] {
            let calls = |client: &Client| -> Vec<_> {
                client.transcript(&session).into_iter().filter(|line| line.starts_with("tool_call")).collect()
            };
            let calls = client.wait_for("the end of a tool call", |client| {
                let calls = calls(client);
                let is_final = |call: &String| call.ends_with("(completed)") || call.ends_with("(failed)");
                (calls.len() > before && calls.iter().all(is_final)).then_some(calls)
            });
            let call = calls.last().cloned().unwrap_or_default();
            ensure(call.ends_with("(completed)"), || format!("the tool call is {call}"))?;
        }
        Ok(())
    }

    fn count_of_calls(&mut self) -> usize {
        let session = self.session.clone();
        let (first, _) = self.clients();
        first.transcript(&session).iter().filter(|line| line.starts_with("tool_call")).count()
    }

    pub(super) fn tool_call(&mut self) -> Checked {
        let tools = self.cast.agent.tools.ok_or("the agent has no model")?;
        let (name, arguments) = (tools.read)(&self.file("hello.txt"));
        self.model.reply("KIWI", Reply::tool(name, arguments, "KIWI-ANSWER"));
        let before = self.count_of_calls();
        self.turn("Say KIWI.")?;
        let offered = self.request("KIWI")?.tools;
        ensure(offered.iter().any(|tool| tool == name), || format!("the agent offers {offered:?}"))?;
        contains(&self.request("KIWI")?.conversation, "hello from a file", "the request after the call")?;
        self.completed_call(before)
    }

    pub(super) fn permission(&mut self) -> Checked {
        let tools = self.cast.agent.tools.ok_or("the agent has no model")?;
        let file = self.file("written.txt");
        let (name, arguments) = (tools.write)(&file);
        self.model.reply("MANGO", Reply::tool(name, arguments, "MANGO-ANSWER"));
        let session = self.session.clone();
        let before = self.count_of_calls();
        let (first, second) = self.clients();
        let id = first.prompt(&session, "Say MANGO.");
        let is_asked = first.wait_for("a permission request or the end of the turn", |first| {
            let asked = first.received.iter().any(|line| line["method"] == "session/request_permission");
            let has_ended = first.transcript(&session).iter().any(|line| line.contains("MANGO-ANSWER"));
            let has_failed = first.dialect == Dialect::V1 && first.has_response(id);
            (asked || has_ended || has_failed).then_some(asked)
        });
        if !is_asked {
            let given = self.request("MANGO").map(|request| request.conversation).unwrap_or_default();
            let end = given.lines().rev().take(5).collect::<Vec<_>>();
            return Err(format!("the turn ended without a permission request: {end:?}"));
        }
        let shown = first.peer_request("session/request_permission");
        let request = second.peer_request("session/request_permission");
        ensure(!file.exists(), || "the file was written without a permission".to_owned())?;
        let options = request["params"]["options"].as_array().cloned().unwrap_or_default();
        let allow = options.iter().find(|option| option["kind"] == "allow_once");
        let allow = allow.and_then(|option| option["optionId"].as_str()).ok_or("there is no option to allow it once")?;
        second.choose(&request, allow);
        first.wait_for_cancel(&shown);
        end_of_turn(first, &session, id)?;
        let written = fs::read_to_string(&file).map_err(|error| format!("the file was not written: {error}"))?;
        contains(&written, "written", "the file")?;
        self.completed_call(before)
    }

    pub(super) fn queue(&mut self) -> Checked {
        let hold = self.model.reply_held("GRAPE", Reply::text(&["GRAPE-FIRST ", "GRAPE-LAST"]));
        self.model.reply("MELON", Reply::text(&["MELON-ANSWER"]));
        let session = self.session.clone();
        let (first, second) = self.clients();
        let running = first.prompt(&session, "Say GRAPE.");
        wait_for_line(second, &session, "agent_message", "GRAPE-FIRST");
        let queued = second.prompt(&session, "Say MELON.");
        first.wait_for_queue(&session, &["Say MELON."]);
        hold.release();
        let (first, second) = self.clients();
        end_of_turn(first, &session, running)?;
        end_of_turn(second, &session, queued)?;
        wait_for_line(first, &session, "agent_message", "MELON-ANSWER");
        let lines = first.transcript(&session);
        let place = |part: &str| lines.iter().position(|line| line.contains(part));
        ensure(place("GRAPE-LAST") < place("MELON-ANSWER"), || format!("the answers are in another order: {lines:?}"))
    }

    pub(super) fn cancel(&mut self) -> Checked {
        let _hold = self.model.reply_held("PEACH", Reply::text(&["PEACH-FIRST ", "PEACH-LAST"]));
        let session = self.session.clone();
        let (first, second) = self.clients();
        let id = first.prompt(&session, "Say PEACH.");
        wait_for_line(second, &session, "agent_message", "PEACH-FIRST");
        second.cancel(&session);
        let stop = end_of_turn(first, &session, id)?;
        ensure(stop == "cancelled", || format!("the turn ended with {stop:?}"))?;
        self.works("CHERRY")?;
        let (first, _) = self.clients();
        let lines = first.transcript(&session).join("\n");
        lacks(&lines, "PEACH-LAST", "the session")
    }

    pub(super) fn model_error(&mut self) -> Checked {
        self.model.reply("SLOE", Reply::error(400, "the stand-in model refuses SLOE"));
        let session = self.session.clone();
        let (first, _) = self.clients();
        let id = first.prompt(&session, "Say SLOE.");
        // Agents report it as an error or as their answer.
        let _ = end_of_turn(first, &session, id);
        self.works("OLIVE")
    }

    pub(super) fn client_killed(&mut self) -> Checked {
        let hold = self.model.reply_held("DATE", Reply::text(&["DATE-FIRST ", "DATE-LAST"]));
        let (session, work) = (self.session.clone(), self.work());
        let (first, second) = self.clients();
        first.prompt(&session, "Say DATE.");
        wait_for_line(second, &session, "agent_message", "DATE-FIRST");
        let (first, mut second) = self.clients.take().ok_or("the clients are there")?;
        // It runs `parlor acp`, which is killed.
        drop(first);
        hold.release();
        let line = wait_for_line(&mut second, &session, "agent_message", "DATE-LAST");
        contains(&line, "DATE-FIRST DATE-LAST", "the message of the second client")?;
        let mut again = self.connect(self.cast.client);
        again.load_in(&session, &work);
        wait_for_line(&mut again, &session, "agent_message", "DATE-LAST");
        self.clients = Some((again, second));
        self.works("QUINCE")
    }

    pub(super) fn agent_killed(&mut self) -> Checked {
        let _hold = self.model.reply_held("GUAVA", Reply::text(&["GUAVA-FIRST ", "GUAVA-LAST"]));
        let session = self.session.clone();
        let (first, _) = self.clients();
        let id = first.prompt(&session, "Say GUAVA.");
        wait_for_line(first, &session, "agent_message", "GUAVA-FIRST");
        let status = first.call("_parlor/status", json!({})).map_err(|error| error.to_string())?;
        let pid = status["agents"].as_array().and_then(|agents| agents.first()?["pid"].as_u64());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).ok_or("no agent runs")?;
        send_signal(pid, Signal::KILL);
        let ended = end_of_turn(first, &session, id);
        ensure(ended.is_err(), || format!("the turn did not fail: {ended:?}"))?;
        ensure(!is_alive(pid), || "the agent runs".to_owned())?;
        self.knows_the_conversation("PAPAYA")
    }

    /// Sends a prompt and checks that the model is given the first turn.
    fn knows_the_conversation(&mut self, word: &str) -> Checked {
        self.works(word)?;
        let request = self.request(word)?;
        contains(&request.conversation, "APPLE-ANSWER", "the request after the restart")
    }

    /// The transcript as a client gets it that has not been there before.
    fn stored_transcript(&self) -> Vec<String> {
        let mut client = self.connect(other(self.cast.client));
        client.load_in(&self.session, &self.work());
        client.transcript(&self.session)
    }

    pub(super) fn server_killed(&mut self) -> Checked {
        let before = self.stored_transcript();
        self.clients = None;
        let mut server = self.server.take().ok_or("the server runs")?;
        server.crash();
        self.server = Some(server);
        let after = self.stored_transcript();
        ensure(before == after, || format!("before: {before:?}\nafter: {after:?}"))?;
        self.knows_the_conversation("LEMON")
    }

    /// The session in the list of a client.
    fn listed(client: &mut Client, session: &str) -> Result<Option<Value>, String> {
        let list = client.call("session/list", json!({})).map_err(|error| format!("session/list: {error}"))?;
        let sessions = list["sessions"].as_array().cloned().unwrap_or_default();
        Ok(sessions.into_iter().find(|listed| listed["sessionId"] == session))
    }

    pub(super) fn title(&mut self) -> Checked {
        let session = self.session.clone();
        let (first, second) = self.clients();
        let listed = Self::listed(first, &session)?.ok_or("the session is not listed")?;
        ensure(listed["title"].as_str().is_some_and(|title| !title.is_empty()), || format!("no title: {listed}"))?;
        let mark = second.mark();
        let set = first.call("session/set_title", json!({ "sessionId": session, "title": "Fruit basket" }));
        set.map_err(|error| format!("session/set_title: {error}"))?;
        second.wait_for_update(&session, mark, "the title", |update| update["title"] == "Fruit basket");
        Ok(())
    }

    pub(super) fn list(&mut self) -> Checked {
        let (session, work) = (self.session.clone(), self.work());
        let (first, second) = self.clients();
        for client in [first, second] {
            let listed = Self::listed(client, &session)?.ok_or("the session is not listed")?;
            ensure(listed["cwd"] == work.as_str(), || format!("the directory is {}", listed["cwd"]))?;
            ensure(listed["title"] == "Fruit basket", || format!("the title is {}", listed["title"]))?;
        }
        Ok(())
    }

    pub(super) fn load(&mut self) -> Checked {
        let (session, work) = (self.session.clone(), self.work());
        let [one, two] = [Dialect::V1, Dialect::V2].map(|dialect| {
            let mut client = self.connect(dialect);
            client.load_in(&session, &work);
            client.transcript(&session)
        });
        ensure(one == two, || format!("version 1: {one:#?}\nversion 2: {two:#?}"))?;
        contains(&one.join("\n"), "APPLE-ANSWER", "the session")
    }

    pub(super) fn adopt(&mut self) -> Checked {
        // An agent may keep a session for itself that it has open.
        self.clients = None;
        let mut server = self.server.take().ok_or("the server runs")?;
        server.stop();
        let adopted = self.adopt_elsewhere();
        self.server = Some(self.dir.serve());
        adopted
    }

    fn adopt_elsewhere(&self) -> Checked {
        let dir = TestDir::new(&self.parlor).with_config(&self.config);
        let work = self.work();
        let server = dir.serve();
        let mut client = server.client(parlor_testkit::transport::TransportKind::Unix, self.cast.client, NAME);
        let list = client.call("_parlor/agent_sessions", json!({ "agent": NAME }));
        let list = list.map_err(|error| format!("the agent's sessions cannot be listed: {error}"))?;
        let sessions = list["sessions"].as_array().cloned().unwrap_or_default();
        let ids: Vec<_> = sessions.iter().filter_map(|session| session["sessionId"].as_str()).collect();
        ensure(!ids.is_empty(), || "the agent lists no sessions".to_owned())?;
        let mut seen = Vec::new();
        for id in ids {
            match client.try_load_in(id, &work) {
                Ok(_) => seen = client.transcript(id),
                Err(error) => return Err(format!("the agent's session cannot be loaded: {error}")),
            }
            if seen.iter().any(|line| line.starts_with("agent_message") && line.contains("APPLE-ANSWER")) {
                return Ok(());
            }
        }
        Err(format!("no session of the agent has the answer: {seen:#?}"))
    }

    /// The ids of the first answer and of the second prompt.
    fn points(&mut self) -> (String, String) {
        let (session, work) = (self.session.clone(), self.work());
        let mut client = self.connect(other(self.cast.client));
        client.load_in(&session, &work);
        let answer = wait_for_line(&mut client, &session, "agent_message", "APPLE-ANSWER");
        let prompt = wait_for_line(&mut client, &session, "user_message", "Say PEAR.");
        (id_of(&answer), id_of(&prompt))
    }

    /// Calls a method that makes a fork: its id, and how the agent gets its context.
    fn new_fork(&mut self, method: &str, params: Value) -> Result<(String, String), String> {
        let (first, _) = self.clients();
        let forked = first.call(method, params).map_err(|error| format!("{method}: {error}"))?;
        self.forks += 1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let failed = &forked["_meta"]["parlor/forkFailed"];
        ensure(failed.is_null(), || format!("the agent did not fork: {failed}"))?;
        Ok((text(&forked["sessionId"]), text(&forked["_meta"]["parlor/fork"])))
    }

    pub(super) fn fork(&mut self) -> Result<String, String> {
        let (answer, _) = self.points();
        let (session, work) = (self.session.clone(), self.work());
        let params = json!({ "sessionId": session, "messageId": answer, "cwd": work, "mcpServers": [] });
        let (fork, how) = self.new_fork("session/fork", params)?;
        self.model.reply("RAISIN", Reply::text(&["RAISIN-ANSWER"]));
        let (first, _) = self.clients();
        let id = first.prompt(&fork, "Say RAISIN.");
        end_of_turn(first, &fork, id)?;
        wait_for_line(first, &fork, "agent_message", "RAISIN-ANSWER");
        let known = self.request("RAISIN")?.conversation;
        contains(&known, "Say APPLE.", "the request of the fork")?;
        contains(&known, "APPLE-ANSWER", "the request of the fork")?;
        lacks(&known, "PEAR", "the request of the fork")?;
        // The parent knows nothing of the fork.
        self.works("WALNUT")?;
        lacks(&self.request("WALNUT")?.conversation, "RAISIN", "the request of the parent")?;
        Ok(how)
    }

    pub(super) fn edit(&mut self) -> Result<String, String> {
        let (_, prompt) = self.points();
        self.model.reply("ALMOND", Reply::text(&["ALMOND-ANSWER"]));
        let text = json!([{ "type": "text", "text": "Say ALMOND." }]);
        let params = json!({ "sessionId": self.session, "messageId": prompt, "prompt": text });
        let (fork, how) = self.new_fork("_parlor/edit", params)?;
        let (first, _) = self.clients();
        wait_for_line(first, &fork, "agent_message", "ALMOND-ANSWER");
        let known = self.request("ALMOND")?.conversation;
        contains(&known, "APPLE-ANSWER", "the request of the edited prompt")?;
        lacks(&known, "PEAR", "the request of the edited prompt")?;
        Ok(how)
    }

    pub(super) fn regenerate(&mut self) -> Result<String, String> {
        let (_, prompt) = self.points();
        self.model.reply("PEAR", Reply::text(&["PEAR-AGAIN"]));
        let params = json!({ "sessionId": self.session, "messageId": prompt });
        let (fork, how) = self.new_fork("_parlor/regenerate", params)?;
        let (first, _) = self.clients();
        wait_for_line(first, &fork, "agent_message", "PEAR-AGAIN");
        let known = self.request("Say PEAR.")?.conversation;
        contains(&known, "APPLE-ANSWER", "the request of the repeated prompt")?;
        lacks(&known, "PEAR-ANSWER", "the request of the repeated prompt")?;
        Ok(how)
    }

    pub(super) fn delete(&mut self) -> Checked {
        let (session, work) = (self.session.clone(), self.work());
        let (first, second) = self.clients();
        first.call("session/delete", json!({ "sessionId": session })).map_err(|error| format!("session/delete: {error}"))?;
        for client in [first, second] {
            ensure(Self::listed(client, &session)?.is_none(), || "the deleted session is listed".to_owned())?;
            let loaded = client.try_load_in(&session, &work);
            ensure(loaded.is_err(), || "the deleted session can be loaded".to_owned())?;
        }
        Ok(())
    }

    pub(super) fn no_orphans(&mut self) -> Checked {
        self.clients = None;
        let mut server = self.server.take().ok_or("the server runs")?;
        let status = server.stop();
        ensure(status.success(), || format!("the server ended with {status}"))?;
        let deadline = Instant::now() + EXIT;
        loop {
            let left = tagged_processes(&self.tag);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("processes of the agent run: {left:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The commands of processes whose environment has the tag of a story.
fn tagged_processes(tag: &str) -> Vec<String> {
    let wanted = format!("{TAG}={tag}");
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let tagged = processes.filter_map(|process| {
        let environment = fs::read(process.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()).then_some(())?;
        let command = fs::read_to_string(process.path().join("cmdline")).ok()?;
        Some(format!("{} {}", process.file_name().display(), command.replace('\0', " ")))
    });
    tagged.collect()
}
