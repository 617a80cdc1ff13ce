//! The steps of a story.

use std::fs;
use std::time::{Duration, Instant};

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::process::{is_alive, send_signal};
use parlor_testkit::server::TestDir;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{NAME, Story, TAG, other};
use crate::agents::Script;
use crate::model::{Hold, Reply};

/// What a step returns: what was seen if it failed.
type Checked = Result<(), String>;

/// How long processes may take to end after the server has.
const EXIT: Duration = Duration::from_secs(10);

/// How a conversation begins that parlor hands over with a prompt.
const CONTEXT: &str = "<conversation id=";

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

/// The lines of a transcript with this text.
fn lines_with(client: &Client, session: &str, kind: &str, part: &str) -> Vec<String> {
    let lines = client.transcript(session).into_iter();
    lines.filter(|line| line.starts_with(kind) && line.contains(part)).collect()
}

/// How many lines of a transcript have this text, when the client has received what was sent to it.
fn count_of(client: &mut Client, session: &str, kind: &str, part: &str) -> usize {
    client.call("_parlor/status", json!({})).expect("the server has a status");
    lines_with(client, session, kind, part).len()
}

/// Waits until a client has more lines with this text than before: the last one.
fn wait_for_line(client: &mut Client, session: &str, kind: &str, part: &str, before: usize) -> String {
    client.wait_for(&format!("{kind} with {part:?}"), |client| {
        let lines = lines_with(client, session, kind, part);
        (lines.len() > before).then(|| lines.last().cloned()).flatten()
    })
}

/// Waits for a permission request after a mark.
fn permission_request(client: &mut Client, mark: usize) -> Value {
    client.wait_for("a permission request", |client| {
        client.received[mark..].iter().find(|line| line["method"] == "session/request_permission").cloned()
    })
}

/// Allows what a permission request is about.
fn allow(client: &mut Client, request: &Value) -> Checked {
    let options = request["params"]["options"].as_array().cloned().unwrap_or_default();
    let option = options.iter().find(|option| option["kind"] == "allow_once");
    let option =
        option.and_then(|option| option["optionId"].as_str()).ok_or("there is no option to allow it once")?;
    client.choose(request, option);
    Ok(())
}

/// Waits until a client is sent the announcement of a subagent: the id of its session.
fn announced_subagent(client: &mut Client, owner: &str) -> String {
    let is_announcement = |update: &Value| update["sessionUpdate"] == "subagent_update";
    let update = client.wait_for_update(owner, 0, "the announcement of a subagent", is_announcement);
    update["sessionId"].as_str().unwrap_or_default().to_owned()
}

/// The parameters of a list that has the sessions of subagents too.
fn with_subagents() -> Value {
    json!({ "_meta": { "parlor/subagents": true } })
}

/// The id of a message in a line of the transcript.
fn id_of(line: &str) -> String {
    let id = line
        .split_once(' ')
        .and_then(|(_, rest)| rest.split_once(": "))
        .map(|(id, _)| id)
        .unwrap_or_default();
    serde_json::from_str(id).unwrap_or_default()
}

/// A turn that goes on when the test wants it.
struct HeldTurn {
    /// The prompt.
    prompt: String,
    /// What the answer begins with, and how many messages had that before.
    first: (String, usize),
    /// What the answer ends with.
    last: (String, usize),
    /// None if the agent waits for a permission instead.
    hold: Option<Hold>,
    /// How many messages the second client had received.
    mark: usize,
}

impl Story {
    /// Sends a prompt from the first client and waits for the end of its turn.
    fn turn(&mut self, text: &str) -> Checked {
        let session = self.session.clone();
        let asks = matches!(self.cast.agent.script, Script::Permission { .. });
        let (first, second) = self.clients();
        let mark = second.mark();
        let id = first.prompt(&session, text);
        if asks {
            let request = permission_request(second, mark);
            allow(second, &request)?;
        }
        let stop = end_of_turn(first, &session, id)?;
        ensure(stop == "end_turn", || format!("the turn ended with {stop:?}"))
    }

    /// Checks that the next prompt works.
    fn works(&mut self, word: &str) -> Checked {
        let prompt = format!("Say {word}.");
        let answer = match self.cast.agent.script {
            Script::Model(_) => {
                let answer = format!("{word}-ANSWER");
                self.model.reply(word, Reply::text(&[&answer]));
                answer
            }
            Script::Echo => prompt.clone(),
            Script::Fixed(answer) | Script::Permission { last: answer, .. } => answer.to_owned(),
        };
        let session = self.session.clone();
        let (first, _) = self.clients();
        let before = count_of(first, &session, "agent_message", &answer);
        self.turn(&prompt)?;
        let (first, _) = self.clients();
        wait_for_line(first, &session, "agent_message", &answer, before);
        Ok(())
    }

    /// Prepares a turn that stops after the first part of its answer.
    fn held_turn(&mut self, word: &str) -> Result<HeldTurn, String> {
        let (first, last, hold) = match self.cast.agent.script {
            Script::Model(_) => {
                let (first, last) = (format!("{word}-FIRST"), format!("{word}-LAST"));
                let hold = self.model.reply_held(word, Reply::text(&[&format!("{first} "), &last]));
                (first, last, Some(hold))
            }
            Script::Permission { first, last } => (first.to_owned(), last.to_owned(), None),
            Script::Echo | Script::Fixed(_) => return Err("the agent answers at once".to_owned()),
        };
        let session = self.session.clone();
        let (client, second) = self.clients();
        let before = count_of(client, &session, "agent_message", &first);
        let before_last = count_of(client, &session, "agent_message", &last);
        count_of(second, &session, "agent_message", &first);
        let mark = second.mark();
        Ok(HeldTurn {
            prompt: format!("Say {word}."),
            first: (first, before),
            last: (last, before_last),
            hold,
            mark,
        })
    }

    /// Lets a turn go on.
    fn release(&mut self, turn: &HeldTurn) -> Checked {
        match &turn.hold {
            Some(hold) => hold.release(),
            None => {
                let (_, second) = self.clients();
                let request = permission_request(second, turn.mark);
                allow(second, &request)?;
            }
        }
        Ok(())
    }

    /// Whether the model's requests show what the agent knows.
    fn has_model(&self) -> bool {
        self.cast.agent.has_model()
    }

    pub(super) fn prompt(&mut self) -> Checked {
        self.works("APPLE")?;
        self.works("PEAR")?;
        if !self.has_model() {
            return Ok(());
        }
        let prompts = self.model.requests();
        let prompts = prompts
            .iter()
            .filter(|request| !request.is_auxiliary() && request.prompt.contains("APPLE"))
            .count();
        ensure(prompts == 1, || format!("the model got the prompt {prompts} times"))?;
        contains(&self.request("PEAR")?.conversation, "APPLE-ANSWER", "the second request")
    }

    pub(super) fn stream(&mut self) -> Checked {
        let turn = self.held_turn("PLUM")?;
        let session = self.session.clone();
        let (first, _) = self.clients();
        let id = first.prompt(&session, &turn.prompt);
        let part = wait_for_line(first, &session, "agent_message", &turn.first.0, turn.first.1);
        lacks(&part, &turn.last.0, "the message")?;
        self.release(&turn)?;
        let (first, _) = self.clients();
        end_of_turn(first, &session, id)?;
        let whole = wait_for_line(first, &session, "agent_message", &turn.last.0, turn.last.1);
        if self.has_model() {
            contains(&whole, &format!("{} {}", turn.first.0, turn.last.0), "the message")?;
            ensure(id_of(&whole) == id_of(&part), || "the message has another id at the end".to_owned())?;
        }
        Ok(())
    }

    pub(super) fn thought(&mut self) -> Checked {
        if self.has_model() {
            self.model.reply("FIG", Reply::text(&["FIG-ANSWER"]).thinking("FIG-THOUGHT"));
        }
        self.turn("Say FIG.")?;
        let session = self.session.clone();
        let (first, _) = self.clients();
        let lines = first.transcript(&session);
        let thought =
            lines.iter().position(|line| line.starts_with("agent_thought") && line.contains("FIG-THOUGHT"));
        let thought = thought.ok_or_else(|| format!("there is no thought: {:?}", lines.last()))?;
        let answer = lines.iter().position(|line| line.contains("FIG-ANSWER"));
        ensure(Some(thought) < answer, || "the thought is not before the answer".to_owned())
    }

    pub(super) fn join(&mut self) -> Checked {
        let turn = self.held_turn("LIME")?;
        let (session, work) = (self.session.clone(), self.work());
        let mut joining = self.connect(other(self.cast.client));
        let (first, second) = self.clients();
        let id = first.prompt(&session, &turn.prompt);
        wait_for_line(first, &session, "agent_message", &turn.first.0, turn.first.1);
        joining.load_in(&session, &work);
        for prompt in ["Say APPLE.", &turn.prompt] {
            wait_for_line(&mut joining, &session, "user_message", prompt, 0);
        }
        wait_for_line(&mut joining, &session, "agent_message", &turn.first.0, turn.first.1);
        *second = joining;
        self.release(&HeldTurn { mark: 0, ..turn })?;
        let (first, second) = self.clients();
        end_of_turn(first, &session, id)?;
        let end = first.transcript(&session).into_iter().rfind(|line| line.starts_with("agent_message"));
        let end = end.ok_or("there is no answer")?;
        second.wait_for("the end of the turn", |second| {
            second.transcript(&session).contains(&end).then_some(())
        });
        Ok(())
    }

    /// Waits until both clients have the last tool call as completed.
    fn completed_call(&mut self, before: usize) -> Checked {
        let session = self.session.clone();
        ensure(self.count_of_calls() > before, || "there is no tool call".to_owned())?;
        let (first, second) = self.clients();
        for client in [first, second] {
            let calls = client.wait_for("the end of a tool call", |client| {
                let calls = lines_with(client, &session, "tool_call", "");
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
        count_of(first, &session, "tool_call", "")
    }

    pub(super) fn tool_call(&mut self) -> Checked {
        let before = self.count_of_calls();
        if let Some(tools) = self.cast.agent.tools() {
            let (name, arguments) = (tools.read)(&self.file("hello.txt"));
            self.model.reply("KIWI", Reply::tool(name, arguments, "KIWI-ANSWER"));
            self.turn("Say KIWI.")?;
            let request = self.request("KIWI")?;
            let offered = request.tools;
            ensure(offered.iter().any(|tool| tool == name), || format!("the agent offers {offered:?}"))?;
            contains(&request.conversation, "hello from a file", "the request after the call")?;
        } else {
            self.turn("Say KIWI.")?;
        }
        self.completed_call(before)
    }

    pub(super) fn permission(&mut self) -> Checked {
        let file = self.file("written.txt");
        if let Some(tools) = self.cast.agent.tools() {
            let (name, arguments) = (tools.write)(&file);
            self.model.reply("MANGO", Reply::tool(name, arguments, "MANGO-ANSWER"));
        }
        let session = self.session.clone();
        let before = self.count_of_calls();
        let (first, second) = self.clients();
        let (mark, second_mark) = (first.mark(), second.mark());
        let id = first.prompt(&session, "Say MANGO.");
        let is_asked = first.wait_for("a permission request or the end of the turn", |first| {
            let new = &first.received[mark..];
            let asked = new.iter().any(|line| line["method"] == "session/request_permission");
            let has_response = first.dialect == Dialect::V1 && first.has_response(id);
            let is_idle = first.updates(&session, mark).any(|update| update["state"] == "idle");
            (asked || has_response || is_idle).then_some(asked)
        });
        if !is_asked {
            let given = self.request("MANGO").map(|request| request.conversation).unwrap_or_default();
            let end = given.lines().rev().take(5).collect::<Vec<_>>();
            return Err(format!("the turn ended without a permission request: {end:?}"));
        }
        let shown = permission_request(first, mark);
        let request = permission_request(second, second_mark);
        ensure(!file.exists(), || "the file was written without a permission".to_owned())?;
        allow(second, &request)?;
        first.wait_for_cancel(&shown);
        end_of_turn(first, &session, id)?;
        if self.has_model() {
            let written =
                fs::read_to_string(&file).map_err(|error| format!("the file was not written: {error}"))?;
            contains(&written, "written", "the file")?;
        }
        self.completed_call(before)
    }

    pub(super) fn queue(&mut self) -> Checked {
        let turn = self.held_turn("GRAPE")?;
        if self.has_model() {
            self.model.reply("MELON", Reply::text(&["MELON-ANSWER"]));
        }
        let session = self.session.clone();
        let (first, second) = self.clients();
        let running = first.prompt(&session, &turn.prompt);
        wait_for_line(second, &session, "agent_message", &turn.first.0, turn.first.1);
        let queued = second.prompt(&session, "Say MELON.");
        first.wait_for_queue(&session, &["Say MELON."]);
        self.release(&turn)?;
        let (first, second) = self.clients();
        end_of_turn(first, &session, running)?;
        if turn.hold.is_none() {
            // The turn of the queued prompt waits for a permission too.
            let request = second.wait_for("a second permission request", |second| {
                let is_request = |line: &&Value| line["method"] == "session/request_permission";
                second.received[turn.mark..].iter().filter(is_request).nth(1).cloned()
            });
            allow(second, &request)?;
        }
        end_of_turn(second, &session, queued)?;
        let lines = self.stored_transcript();
        let place = |kind: &str, part: &str| {
            lines.iter().rposition(|line| line.starts_with(kind) && line.contains(part))
        };
        let order = [place("user_message", "Say GRAPE."), place("user_message", "Say MELON.")];
        let answer = if self.has_model() { "MELON-ANSWER" } else { turn.last.0.as_str() };
        let answer = place("agent_message", answer);
        let is_ordered = order[0].is_some() && order[0] < order[1] && order[1] < answer;
        ensure(is_ordered, || format!("the messages are in another order: {lines:#?}"))
    }

    pub(super) fn cancel(&mut self) -> Checked {
        let turn = self.held_turn("PEACH")?;
        let session = self.session.clone();
        let (first, second) = self.clients();
        let id = first.prompt(&session, &turn.prompt);
        wait_for_line(second, &session, "agent_message", &turn.first.0, turn.first.1);
        second.cancel(&session);
        let stop = end_of_turn(first, &session, id)?;
        ensure(stop == "cancelled", || format!("the turn ended with {stop:?}"))?;
        let ends = lines_with(first, &session, "agent_message", &turn.last.0);
        ensure(ends.len() == turn.last.1, || format!("the cancelled turn went on: {ends:?}"))?;
        self.works("CHERRY")
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
        let turn = self.held_turn("DATE")?;
        let (session, work) = (self.session.clone(), self.work());
        let (first, second) = self.clients();
        first.prompt(&session, &turn.prompt);
        wait_for_line(second, &session, "agent_message", &turn.first.0, turn.first.1);
        let (first, second) = self.clients.take().ok_or("the clients are there")?;
        // It runs `parlor acp`, which is killed.
        drop(first);
        let mut again = self.connect(self.cast.client);
        again.load_in(&session, &work);
        self.clients = Some((again, second));
        self.release(&turn)?;
        let (again, second) = self.clients();
        for client in [again, second] {
            wait_for_line(client, &session, "agent_message", &turn.last.0, turn.last.1);
        }
        self.works("QUINCE")
    }

    /// The first part of an answer is on the screen when a prompt is sent into the turn.
    pub(super) fn steer(&mut self) -> Checked {
        let turn = self.held_turn("LYCHEE")?;
        if self.has_model() {
            self.model.reply("SORREL", Reply::text(&["SORREL-ANSWER"]));
        }
        let session = self.session.clone();
        let (first, second) = self.clients();
        let running = first.prompt(&session, &turn.prompt);
        wait_for_line(second, &session, "agent_message", &turn.first.0, turn.first.1);
        let steered = second.prompt_with(&session, "Say SORREL.", json!({ "parlor/steer": true }));
        let is_refused = second.wait_for("the prompt of the turn or its error", |second| {
            let is_error = |line: &Value| line["id"] == steered && line.get("error").is_some();
            let refused = second.received.iter().any(is_error);
            let is_there = !lines_with(second, &session, "user_message", "Say SORREL.").is_empty();
            (refused || is_there || second.has_response(steered)).then_some(refused)
        });
        self.release(&turn)?;
        let (first, second) = self.clients();
        end_of_turn(first, &session, running)?;
        if is_refused {
            return second.response(steered).map(drop).map_err(|error| error.to_string());
        }
        second.response(steered).map_err(|error| format!("the prompt failed: {error}"))?;
        // Nothing of the turn comes after its end.
        let answers = count_of(first, &session, "agent_message", "SORREL-ANSWER");
        ensure(answers == 1, || format!("{answers} answers at the end of the turn"))?;
        contains(&self.request("SORREL")?.conversation, "Say LYCHEE.", "the request")?;
        let lines = self.stored_transcript();
        let prompts = lines.iter().filter(|line| line.starts_with("user_message"));
        let last: Vec<_> = prompts.rev().take(2).collect();
        let is_ordered = last[0].contains("Say SORREL.") && last[1].contains("Say LYCHEE.");
        ensure(is_ordered, || format!("the prompts are in another order: {last:?}"))
    }

    pub(super) fn agent_killed(&mut self) -> Result<Option<String>, String> {
        let answers_at_once = matches!(self.cast.agent.script, Script::Echo | Script::Fixed(_));
        let turn = if answers_at_once { None } else { Some(self.held_turn("GUAVA")?) };
        let session = self.session.clone();
        let (first, _) = self.clients();
        let prompt = turn.as_ref().map(|turn| {
            let id = first.prompt(&session, &turn.prompt);
            wait_for_line(first, &session, "agent_message", &turn.first.0, turn.first.1);
            id
        });
        let status = first.call("_parlor/status", json!({})).map_err(|error| error.to_string())?;
        let pid = status["agents"].as_array().and_then(|agents| agents.first()?["pid"].as_u64());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).ok_or("no agent runs")?;
        send_signal(pid, Signal::KILL);
        if let Some(prompt) = prompt {
            let ended = end_of_turn(first, &session, prompt);
            ensure(ended.is_err(), || format!("the turn did not fail: {ended:?}"))?;
        }
        wait_until("the agent has ended", || !is_alive(pid));
        // A prompt that the agent may have got is not sent again.
        wait_until("the server has seen it", || {
            let status = first.call("_parlor/status", json!({})).expect("the server has a status");
            !status["agents"].as_array().into_iter().flatten().any(|agent| agent["pid"] == pid)
        });
        let how = self.knows_the_conversation("PAPAYA")?;
        Ok(Some(if answers_at_once { format!("{how}, while idle") } else { how }))
    }

    /// Sends a prompt and checks that the model is given the first turn: whether the agent restored it or parlor sent it. An agent
    /// without a model restores nothing.
    fn knows_the_conversation(&mut self, word: &str) -> Result<String, String> {
        self.works(word)?;
        let (known, prompt) = self.given(word)?;
        contains(&known, "Say APPLE.", "what was given after the restart")?;
        if self.has_model() {
            contains(&known, "APPLE-ANSWER", "what was given after the restart")?;
        }
        let how = if prompt.contains(CONTEXT) { "transcript" } else { "restored" };
        let expected = self.cast.agent.comes_back;
        ensure(expected.split(" or ").any(|expected| how == expected), || {
            format!("the conversation came back as {how}")
        })?;
        Ok(expected.to_owned())
    }

    /// The conversation and the prompt that the model was given, or else the agent, with the last prompt that has a word.
    fn given(&self, word: &str) -> Result<(String, String), String> {
        if self.has_model() {
            let request = self.request(word)?;
            return Ok((request.conversation, request.prompt));
        }
        let prompt = self.given_prompt(word)?;
        Ok((prompt.clone(), prompt))
    }

    /// The transcript as a client gets it that has not been there before.
    fn stored_transcript(&self) -> Vec<String> {
        self.stored_transcript_of(&self.session)
    }

    /// The same of another session.
    fn stored_transcript_of(&self, session: &str) -> Vec<String> {
        let mut client = self.connect(other(self.cast.client));
        client.load_in(session, &self.work());
        client.transcript(session)
    }

    pub(super) fn server_killed(&mut self) -> Result<Option<String>, String> {
        let before = self.stored_transcript();
        self.clients = None;
        let mut server = self.server.take().ok_or("the server runs")?;
        server.crash();
        self.server = Some(server);
        let after = self.stored_transcript();
        ensure(before == after, || format!("before: {before:?}\nafter: {after:?}"))?;
        self.knows_the_conversation("LEMON").map(Some)
    }

    /// The session in the list of a client.
    fn listed(client: &mut Client, session: &str) -> Result<Option<Value>, String> {
        Self::listed_with(client, session, json!({}))
    }

    /// The session in the list that a client gets with these parameters.
    fn listed_with(client: &mut Client, session: &str, params: Value) -> Result<Option<Value>, String> {
        let list = client.call("session/list", params).map_err(|error| format!("session/list: {error}"))?;
        let sessions = list["sessions"].as_array().cloned().unwrap_or_default();
        Ok(sessions.into_iter().find(|listed| listed["sessionId"] == session))
    }

    pub(super) fn title(&mut self) -> Checked {
        let session = self.session.clone();
        let (first, second) = self.clients();
        let listed = Self::listed(first, &session)?.ok_or("the session is not listed")?;
        ensure(listed["title"].as_str().is_some_and(|title| !title.is_empty()), || {
            format!("no title: {listed}")
        })?;
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
        contains(&one.join("\n"), "Say APPLE.", "the session")
    }

    /// A client that knows subagents.
    fn connect_with_subagents(&self, dialect: Dialect) -> Client {
        let client = ClientBuilder::new(TransportKind::Unix, dialect, NAME);
        client.with_capabilities(json!({ "subagents": {} })).connect(self.server())
    }

    pub(super) fn subagent(&mut self) -> Checked {
        let spawn = self.cast.agent.tools().and_then(|tools| tools.spawn);
        let spawn = spawn.ok_or("the agent announces no subagents")?;
        let (name, arguments) = (spawn.call)("Say SESAME.");
        self.model.reply("COCONUT", Reply::tool(name, arguments, "COCONUT-ANSWER"));
        let hold = self.model.reply_held("SESAME", Reply::text(&["SESAME-FIRST ", "SESAME-LAST"]));
        let work = self.work();
        let mut first = self.connect_with_subagents(self.cast.client);
        let mut second = self.connect_with_subagents(other(self.cast.client));
        // A session of its own, so that it can be deleted.
        let owner = first.new_session_in(&work);
        second.load_in(&owner, &work);
        let prompt = first.prompt(&owner, "Say COCONUT.");
        let [subagent, same] = [&mut first, &mut second].map(|client| announced_subagent(client, &owner));
        ensure(subagent == same, || format!("the clients have other ids: {subagent} and {same}"))?;
        // The end of a subagent during the turn would be one more prompt of this turn.
        if !spawn.is_awaited {
            end_of_turn(&mut first, &owner, prompt)?;
        }
        hold.release();
        if spawn.is_awaited {
            end_of_turn(&mut first, &owner, prompt)?;
        }
        for client in [&mut first, &mut second] {
            wait_for_line(client, &owner, "agent_message", "COCONUT-ANSWER", 0);
            wait_for_line(client, &subagent, "agent_message", "SESAME-FIRST SESAME-LAST", 0);
            client.wait_for_update(&owner, 0, "the end of the subagent", |update| {
                update["sessionUpdate"] == "subagent_update" && update["state"]["state"] == "idle"
            });
            let answers = lines_with(client, &owner, "agent_message", "SESAME");
            ensure(answers.is_empty(), || format!("the owner has the subagent's answer: {answers:?}"))?;
        }
        let [one, two] = [Dialect::V1, Dialect::V2].map(|dialect| {
            let mut client = self.connect(dialect);
            client.load_in(&subagent, &work);
            client.transcript(&subagent)
        });
        ensure(one == two, || format!("version 1: {one:#?}\nversion 2: {two:#?}"))?;
        contains(&one.join("\n"), "SESAME-FIRST SESAME-LAST", "the subagent's session")?;
        for client in [&mut first, &mut second] {
            let listed = Self::listed(client, &subagent)?;
            ensure(listed.is_none(), || format!("the subagent's session is listed: {listed:?}"))?;
            let listed = Self::listed_with(client, &subagent, with_subagents())?;
            let listed = listed.ok_or("the subagent's session is not listed on demand")?;
            let listed_owner = &listed["_meta"]["parlor/owner"];
            ensure(*listed_owner == owner.as_str(), || format!("its owner is {listed_owner}"))?;
        }
        first
            .call("session/delete", json!({ "sessionId": owner }))
            .map_err(|error| format!("session/delete: {error}"))?;
        for client in [&mut first, &mut second] {
            let listed = Self::listed_with(client, &subagent, with_subagents())?;
            ensure(listed.is_none(), || format!("the deleted subagent's session is listed: {listed:?}"))?;
            let loaded = client.try_load_in(&subagent, &work);
            ensure(loaded.is_err(), || "the deleted subagent's session can be loaded".to_owned())?;
        }
        Ok(())
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
        let mut client = server.client(TransportKind::Unix, self.cast.client, NAME);
        let ids = agent_sessions(&mut client)?;
        ensure(!ids.is_empty(), || "the agent lists no sessions".to_owned())?;
        let mut seen = Vec::new();
        for id in &ids {
            match client.try_load_in(id, &work) {
                Ok(_) => seen = client.transcript(id),
                Err(error) => return Err(format!("the agent's session cannot be loaded: {error}")),
            }
            if seen.iter().any(|line| line.starts_with("user_message") && line.contains("Say APPLE.")) {
                return Ok(());
            }
        }
        Err(format!("no session of the agent has the prompt: {seen:#?}"))
    }

    /// The ids of the first answer and of the second prompt.
    fn points(&self) -> Result<(String, String), String> {
        let lines = self.stored_transcript();
        let prompt = |text: &str| {
            lines.iter().position(|line| line.starts_with("user_message") && line.contains(text))
        };
        let (one, two) =
            prompt("Say APPLE.").zip(prompt("Say PEAR.")).ok_or("the session has no such prompts")?;
        let answer = lines[one..two]
            .iter()
            .rfind(|line| line.starts_with("agent_message"))
            .ok_or("there is no answer")?;
        Ok((id_of(answer), id_of(&lines[two])))
    }

    /// Checks that the model was given the first turn in a fork, and not the second one; the same of the fork's messages. The
    /// remark for the table.
    fn knows_first_turn(
        &mut self,
        fork: &str,
        (word, unknown): (&str, &str),
        (how, expected): (String, &str),
    ) -> Result<String, String> {
        ensure(how == expected, || format!("the agent's fork is {how}"))?;
        let (given, prompt) = self.given(word)?;
        let is_handed_over = prompt.contains(CONTEXT);
        ensure(is_handed_over == (how == "transcript"), || {
            format!("the fork is {how}, the prompt: {prompt}")
        })?;
        if self.has_model() {
            contains(&given, "APPLE-ANSWER", "what was given in the fork")?;
        }
        let messages = self.stored_transcript_of(fork).join("\n");
        for known in [given, messages] {
            contains(&known, "Say APPLE.", "the fork")?;
            lacks(&known, unknown, "the fork")?;
        }
        Ok(how)
    }

    /// Answers the permission request of a fork's turn, if its agent always asks.
    fn allow_in_fork(&mut self, mark: usize) -> Checked {
        if matches!(self.cast.agent.script, Script::Permission { .. }) {
            let (first, _) = self.clients();
            let request = permission_request(first, mark);
            allow(first, &request)?;
        }
        Ok(())
    }

    /// Calls a method that makes a fork: its id, and how the agent gets its context.
    fn new_fork(&mut self, method: &str, params: Value) -> Result<(String, String), String> {
        let (first, _) = self.clients();
        let forked = first.call(method, params).map_err(|error| format!("{method}: {error}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let failed = &forked["_meta"]["parlor/forkFailed"];
        ensure(failed.is_null(), || format!("the agent did not fork: {failed}"))?;
        Ok((text(&forked["sessionId"]), text(&forked["_meta"]["parlor/fork"])))
    }

    pub(super) fn fork(&mut self) -> Result<String, String> {
        let (answer, _) = self.points()?;
        let (session, work) = (self.session.clone(), self.work());
        let params = json!({ "sessionId": session, "messageId": answer, "cwd": work, "mcpServers": [] });
        let (fork, how) = self.new_fork("session/fork", params)?;
        self.model.reply("RAISIN", Reply::text(&["RAISIN-ANSWER"]));
        let (first, _) = self.clients();
        let mark = first.mark();
        let id = first.prompt(&fork, "Say RAISIN.");
        self.allow_in_fork(mark)?;
        let (first, _) = self.clients();
        end_of_turn(first, &fork, id)?;
        let how = self.knows_first_turn(&fork, ("RAISIN", "PEAR"), (how, self.cast.agent.forks))?;
        // The parent knows nothing of the fork.
        self.works("WALNUT")?;
        if self.has_model() {
            lacks(&self.request("WALNUT")?.conversation, "RAISIN", "the request of the parent")?;
        }
        Ok(how)
    }

    pub(super) fn fork_end(&mut self) -> Result<String, String> {
        let (session, work) = (self.session.clone(), self.work());
        let params = json!({ "sessionId": session, "cwd": work, "mcpServers": [] });
        let (fork, how) = self.new_fork("session/fork", params)?;
        self.model.reply("CASHEW", Reply::text(&["CASHEW-ANSWER"]));
        let (first, _) = self.clients();
        let mark = first.mark();
        let id = first.prompt(&fork, "Say CASHEW.");
        self.allow_in_fork(mark)?;
        let (first, _) = self.clients();
        end_of_turn(first, &fork, id)?;
        let how = self.knows_first_turn(&fork, ("CASHEW", "RAISIN"), (how, self.cast.agent.forks_at_end))?;
        if self.has_model() {
            contains(&self.request("CASHEW")?.conversation, "PEAR-ANSWER", "the fork")?;
        }
        Ok(how)
    }

    /// Waits until the turn has ended that a fork started with: its answer.
    fn first_turn_of_fork(&mut self, fork: &str, answer: &str, mark: usize) -> Checked {
        self.allow_in_fork(mark)?;
        let answer = match self.cast.agent.script {
            Script::Model(_) => format!("{answer}-ANSWER"),
            Script::Echo => format!("Say {answer}."),
            Script::Fixed(answer) | Script::Permission { last: answer, .. } => answer.to_owned(),
        };
        let (first, _) = self.clients();
        wait_for_line(first, fork, "agent_message", &answer, 0);
        Ok(())
    }

    pub(super) fn edit(&mut self) -> Result<String, String> {
        let (_, prompt) = self.points()?;
        self.model.reply("ALMOND", Reply::text(&["ALMOND-ANSWER"]));
        let text = json!([{ "type": "text", "text": "Say ALMOND." }]);
        let params = json!({ "sessionId": self.session, "messageId": prompt, "prompt": text });
        let mark = self.clients().0.mark();
        let (fork, how) = self.new_fork("_parlor/edit", params)?;
        self.first_turn_of_fork(&fork, "ALMOND", mark)?;
        self.knows_first_turn(&fork, ("ALMOND", "PEAR"), (how, self.cast.agent.forks))
    }

    pub(super) fn regenerate(&mut self) -> Result<String, String> {
        let (_, prompt) = self.points()?;
        self.model.reply("PEAR", Reply::text(&["AGAIN-ANSWER"]));
        let params = json!({ "sessionId": self.session, "messageId": prompt });
        let mark = self.clients().0.mark();
        let (fork, how) = self.new_fork("_parlor/regenerate", params)?;
        let answer = if self.has_model() { "AGAIN" } else { "PEAR" };
        self.first_turn_of_fork(&fork, answer, mark)?;
        self.knows_first_turn(&fork, ("Say PEAR.", "PEAR-ANSWER"), (how, self.cast.agent.forks))
    }

    pub(super) fn delete(&mut self) -> Checked {
        let (session, work) = (self.session.clone(), self.work());
        // A server that has no sessions of its own lists those of the agent.
        let dir = TestDir::new(&self.parlor).with_config(&self.config);
        let elsewhere = self.cast.agent.deletes.then(|| dir.serve());
        let mut elsewhere =
            elsewhere.as_ref().map(|server| server.client(TransportKind::Unix, self.cast.client, NAME));
        let before = elsewhere.as_mut().map(agent_sessions).transpose()?;
        let (first, second) = self.clients();
        first
            .call("session/delete", json!({ "sessionId": session }))
            .map_err(|error| format!("session/delete: {error}"))?;
        for client in [first, second] {
            ensure(Self::listed(client, &session)?.is_none(), || "the deleted session is listed".to_owned())?;
            let loaded = client.try_load_in(&session, &work);
            ensure(loaded.is_err(), || "the deleted session can be loaded".to_owned())?;
        }
        let (Some(client), Some(before)) = (&mut elsewhere, before) else { return Ok(()) };
        // The agent may delete it after the response to the client.
        wait_until("the agent has deleted its session", || {
            agent_sessions(client).is_ok_and(|after| after.len() + 1 == before.len())
        });
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

/// The ids of the sessions that the agent lists, at a server that has none of them.
fn agent_sessions(client: &mut Client) -> Result<Vec<String>, String> {
    let list = client.call("_parlor/agent_sessions", json!({ "agent": NAME }));
    let list = list.map_err(|error| format!("the agent's sessions cannot be listed: {error}"))?;
    let sessions = list["sessions"].as_array().into_iter().flatten();
    Ok(sessions.filter_map(|session| session["sessionId"].as_str()).map(str::to_owned).collect())
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
