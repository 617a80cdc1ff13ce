//! What an agent sends about a session before the session itself receives it.
//!
//! Replay is dropped, because the session has it already. Settings are kept apart until they are applied again. All else is
//! kept for the session, in order and within limits. Of the states in a replay only the last one can still be true: it is kept
//! if it says that the session is busy.

use std::sync::Arc;

use parlor_dialect::live::{self, AgentUpdate};
use parlor_dialect::settings::Settings;
use parlor_dialect::{BadUpdate, Decoded, Decoder};
use parlor_json::{Json, Object};
use parlor_session::{MessageId, MetaPatch, Slot, Target, Update};
use parlor_wire::RequestId;

use super::replay::{History, ReplayDetector, Verdict};
use crate::AgentInfo;

/// How many bytes of updates are kept for a session.
const MAX_UPDATE_BYTES: usize = 1 << 20;

/// How many requests and notifications are kept for a session.
const MAX_MESSAGES: usize = 100;

/// Something that an agent sends about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlyMessage {
    /// Lines of updates, each with its end.
    Updates(String),
    /// A request.
    Request {
        /// The agent's id for it.
        id: RequestId,
        /// The method.
        method: String,
        /// The params.
        params: Object,
    },
    /// The agent cancels its request with this id.
    RequestCancelled(RequestId),
    /// The line of a notification that is not an update.
    Notification(String),
}

/// Sifts and keeps what an agent sends about a session until the session receives it itself.
#[derive(Debug)]
pub(super) struct EarlyMessages {
    is_embedded: bool,
    decoder: Decoder,
    replay: Replay,
    kept: Vec<EarlyMessage>,
    /// How many bytes of updates are kept, and how many messages that are not updates.
    kept_bytes: usize,
    kept_messages: usize,
    /// How many lines and messages were dropped because of a limit.
    dropped: usize,
    /// The line of the last state in a replay, if it says that the session is busy.
    busy_state: Option<String>,
    /// Whether the last state that is kept says that the session is busy.
    is_busy: bool,
    /// The settings in force, as far as the agent said.
    pub(super) settings: Settings,
    /// The last settings in a replay, which need not be in force.
    replayed_settings: Settings,
}

/// Whether updates are replay.
#[derive(Debug)]
enum Replay {
    /// They are new.
    Over,
    /// They are replay.
    Running,
    /// They are replay if they start as the conversation does.
    Possible(ReplayDetector),
}

/// What is kept for a session.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) messages: Vec<EarlyMessage>,
    pub(super) dropped: usize,
    pub(super) settings: Settings,
}

impl EarlyMessages {
    pub(super) fn new(agent: &AgentInfo) -> Self {
        Self {
            is_embedded: agent.is_embedded,
            decoder: Decoder::new(agent.dialect),
            replay: Replay::Over,
            kept: Vec::new(),
            kept_bytes: 0,
            kept_messages: 0,
            dropped: 0,
            busy_state: None,
            is_busy: false,
            settings: Settings::default(),
            replayed_settings: Settings::default(),
        }
    }

    /// From here on until the agent is idle, its updates are replay.
    pub(super) fn expect_replay(&mut self) {
        self.replay = Replay::Running;
    }

    /// From here on until the agent is idle, its updates may be a replay of this history.
    pub(super) fn expect_replay_of(&mut self, history: &Arc<History>) {
        if !history.is_empty() {
            self.replay = Replay::Possible(ReplayDetector::new(Arc::clone(history), false));
        }
    }

    /// The same in a fork that nobody has prompted yet.
    pub(super) fn expect_replay_in_fork(&mut self, history: &Arc<History>) {
        self.replay = Replay::Possible(ReplayDetector::new(Arc::clone(history), true));
    }

    /// Whether updates are, or may be, replay.
    pub(super) fn is_replaying(&self) -> bool {
        !matches!(self.replay, Replay::Over)
    }

    /// Takes a message; gives a request back that cannot be kept.
    pub(super) fn on_message(&mut self, message: EarlyMessage) -> Option<RequestId> {
        if let EarlyMessage::Updates(lines) = message {
            let mut rest = String::new();
            lines.split_inclusive('\n').for_each(|line| self.sift(line, &mut rest));
            self.keep_updates(rest);
            return None;
        }
        // An agent that sends a request or a notification goes on with the session.
        self.decide_held(ReplayDetector::at_end);
        if self.kept_messages < MAX_MESSAGES {
            self.kept_messages += 1;
            self.kept.push(message);
            return None;
        }
        self.dropped += 1;
        match message {
            EarlyMessage::Request { id, .. } => Some(id),
            EarlyMessage::Updates(_) | EarlyMessage::RequestCancelled(_) | EarlyMessage::Notification(_) => {
                None
            }
        }
    }

    /// The agent has been idle: its replay is over.
    pub(super) fn on_replay_idle(&mut self) {
        self.decide_held(ReplayDetector::at_idle);
        self.replay = Replay::Over;
    }

    /// Uses the settings of the replay where no other value is known.
    pub(super) fn use_replayed_settings(&mut self) {
        self.settings.add_missing(std::mem::take(&mut self.replayed_settings));
    }

    /// Hands over to the session.
    pub(super) fn finish(mut self) -> Kept {
        self.decide_held(ReplayDetector::at_idle);
        Kept { messages: self.kept, dropped: self.dropped, settings: self.settings }
    }

    /// The requests that are kept, when no session comes that could answer them.
    pub(super) fn abandon(self) -> impl Iterator<Item = RequestId> {
        self.kept.into_iter().filter_map(|message| match message {
            EarlyMessage::Request { id, .. } => Some(id),
            EarlyMessage::Updates(_) | EarlyMessage::RequestCancelled(_) | EarlyMessage::Notification(_) => {
                None
            }
        })
    }

    /// Removes the lines with which the agent reports the end of its replay, and returns whether there were any.
    pub(super) fn remove_replay_end(&self, lines: &mut String) -> bool {
        // A replay can be long, and this member is rare.
        if !lines.contains(REPLAY_END) {
            return false;
        }
        let is_end = |line: &str| match self.decode(line.trim_end_matches('\n')) {
            Some(Ok(decoded)) => is_replay_end(&decoded.update),
            Some(Err(_)) | None => false,
        };
        let rest: String = lines.split_inclusive('\n').filter(|line| !is_end(line)).collect();
        let has_end = rest.len() < lines.len();
        *lines = rest;
        has_end
    }

    fn keep_updates(&mut self, lines: String) {
        if self.kept_bytes + lines.len() > MAX_UPDATE_BYTES {
            self.dropped += lines.lines().count();
        } else if !lines.is_empty() {
            self.kept_bytes += lines.len();
            self.kept.push(EarlyMessage::Updates(lines));
        }
    }

    fn decode(&self, line: &str) -> Option<Result<Decoded, BadUpdate>> {
        // Nobody sees this id: the session decodes again what it gets.
        let mut no_id = || MessageId::from("");
        if let Some(read) = AgentUpdate::read(line) {
            return Some(read.decode(&self.decoder, &mut no_id));
        }
        let message = Json::parse(line).ok()?;
        let params = message.to_object().unwrap_or_default().get("params").cloned();
        let (_, update) = live::update_of(params.as_ref().map(Json::raw)).ok()?;
        Some(self.decoder.decode(update, &mut no_id))
    }

    /// Adds to `rest` what of a line is for the session.
    fn sift(&mut self, line: &str, rest: &mut String) {
        let Some(decoded) = self.decode(line.trim_end_matches('\n')) else { return };
        let Ok(decoded) = decoded else {
            // The session reports it.
            if !matches!(self.replay, Replay::Running) {
                rest.push_str(line);
            }
            return;
        };
        // An embedded agent has no history to replay: what it reports is in force.
        let is_replayed = self.is_replaying() && !self.is_embedded;
        let settings = if is_replayed { &mut self.replayed_settings } else { &mut self.settings };
        if settings.report(&decoded.update) {
            return;
        }
        if is_replay_end(&decoded.update) {
            return self.on_replay_idle();
        }
        if let Update::Upsert { target: Target::Slot(_), .. } = &decoded.update {
            rest.push_str(line);
            return;
        }
        match &mut self.replay {
            Replay::Over => rest.push_str(line),
            Replay::Running => {
                if let Update::State(state) = &decoded.update {
                    self.sift_state(line, state.activity.is_busy(), rest);
                }
            }
            Replay::Possible(detector) => {
                detector.hold(line, &decoded.update);
                let verdict = match detector.on_update(&decoded) {
                    Verdict::Unknown if detector.held_bytes > MAX_UPDATE_BYTES => detector.at_idle(),
                    verdict @ (Verdict::Unknown | Verdict::Replay | Verdict::New) => verdict,
                };
                self.decide(verdict, rest);
            }
        }
    }

    /// Takes a state that is part of a replay. An idle one matters only after a busy one that is kept.
    fn sift_state(&mut self, line: &str, is_busy: bool, rest: &mut String) {
        self.busy_state = is_busy.then(|| line.to_owned());
        if !is_busy && std::mem::take(&mut self.is_busy) {
            rest.push_str(line);
        }
    }

    /// Adds to `rest` what of the held lines is for the session, now that there is a verdict.
    fn decide(&mut self, verdict: Verdict, rest: &mut String) {
        let next = match verdict {
            Verdict::Unknown => return,
            Verdict::Replay => Replay::Running,
            Verdict::New => Replay::Over,
        };
        let Replay::Possible(detector) = std::mem::replace(&mut self.replay, next) else { return };
        for held in detector.held {
            match (verdict, held.is_busy) {
                (Verdict::New, _) => rest.push_str(&held.line),
                (Verdict::Replay | Verdict::Unknown, Some(is_busy)) => {
                    self.sift_state(&held.line, is_busy, rest);
                }
                (Verdict::Replay | Verdict::Unknown, None) => {}
            }
        }
    }

    /// Decides about the held lines although nothing decided it yet: what may be new is new.
    fn decide_held(&mut self, verdict: impl FnOnce(&ReplayDetector) -> Verdict) {
        let mut rest = String::new();
        if let Replay::Possible(detector) = &self.replay
            && !detector.held.is_empty()
        {
            let is_replay = verdict(detector) == Verdict::Replay;
            self.decide(if is_replay { Verdict::Replay } else { Verdict::New }, &mut rest);
        }
        if let Some(state) = self.busy_state.take() {
            rest.push_str(&state);
            self.is_busy = true;
        }
        self.keep_updates(rest);
    }
}

/// The member of `_meta.jetbrains.air` in a `session_info_update` with which an agent reports that it has replayed everything.
const REPLAY_END: &str = "loadReplayEnd";

/// Whether the agent reports that it has replayed everything.
fn is_replay_end(update: &Update) -> bool {
    let Update::Upsert { target: Target::Slot(Slot::Info), upsert } = update else { return false };
    let (MetaPatch::Replace(meta) | MetaPatch::MergeKeys(meta) | MetaPatch::MergeDeep(meta)) = &upsert.meta
    else {
        return false;
    };
    let air = meta.get_object("jetbrains").and_then(|jetbrains| jetbrains.get_object("air"));
    air.is_some_and(|air| air.get_bool(REPLAY_END) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::super::script::{mode, restore, script, v1, v2};
    use super::*;

    fn request(id: u64) -> EarlyMessage {
        EarlyMessage::Request { id: RequestId::from(id), method: "m".to_owned(), params: Object::default() }
    }

    #[test]
    fn updates_that_are_too_long_to_be_kept_take_no_room() {
        let mut early = EarlyMessages::new(&v1(&[]));
        for lines in [
            "x".repeat(MAX_UPDATE_BYTES + 1),
            "y".repeat(MAX_UPDATE_BYTES - 1),
            "zz".to_owned(),
            "z".to_owned(),
        ] {
            early.keep_updates(lines);
        }
        let kept = early.finish();
        assert_eq!((kept.messages.len(), kept.dropped), (2, 2));
    }

    #[test]
    fn requests_beyond_the_limit_are_rejected_and_updates_do_not_count() {
        let mut early = EarlyMessages::new(&v1(&[]));
        for n in 0..MAX_MESSAGES as u64 {
            early.keep_updates("\n".to_owned());
            assert_eq!(early.on_message(request(n)), None);
        }
        assert_eq!(early.on_message(request(1000)), Some(RequestId::from(1000)));
        assert_eq!(early.on_message(EarlyMessage::RequestCancelled(RequestId::from(1))), None);
        let kept = early.finish();
        assert_eq!((kept.messages.len(), kept.dropped), (2 * MAX_MESSAGES, 2));
    }

    #[test]
    fn the_agent_is_told_of_a_request_that_cannot_be_kept() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        let mut events = vec!["0 closed".to_owned(), "0 routed".to_owned()];
        events.extend((0..=MAX_MESSAGES).map(|n| format!("5 request {n}")));
        events.extend(["10 result {}".to_owned(), "210 timeout".to_owned()]);
        let printed = script(agent, plan).run(events);
        let rejected: Vec<_> = printed.lines().filter(|line| line.contains("reject")).collect();
        assert_eq!(rejected, ["    reject 100: -32603 too many requests before the session is open"]);
        assert_eq!(printed.matches("early: request").count(), MAX_MESSAGES);
    }

    #[test]
    fn requests_and_notifications_are_kept_in_order_and_end_what_may_be_replay() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 thought Hm
            20 request 7
            30 agent Hello.
            40 note {}
            50 unrequest 7
            60 result {}
                done s {}
                    early: agent_thought_chunk Hm
                    early: request 7
                    early: agent_message_chunk Hello.
                    early: note {}
                    early: unrequest 7
        ",
        );
    }

    #[test]
    fn of_the_states_in_a_replay_only_the_last_counts_if_it_is_busy() {
        let agent = v1(&["load"]);
        let restore = || restore(&agent, &Settings::default());
        script(agent.clone(), restore()).check(
            "
            0 closed
            0 routed
            ...
            10 state running
                until 30010
            20 state idle
                until 30020
            30 state running
                until 30030
            40 result {}
                until 240
            240 timeout
                done s {}
                    early: state_update running
        ",
        );
        script(agent.clone(), restore()).check(
            "
            0 closed
            0 routed
            ...
            10 state running
                until 30010
            20 request 7
                until 30020
            30 state idle
                until 30030
            40 result {}
                until 240
            240 timeout
                done s {}
                    early: state_update running
                    early: request 7
                    early: state_update idle
        ",
        );
        script(agent.clone(), restore()).check(
            "
            0 closed
            0 routed
            ...
            10 state idle
                until 30010
            40 result {}
                until 240
            240 timeout
                done s {}
        ",
        );
    }

    #[test]
    fn an_agent_that_reports_the_end_of_its_replay_need_not_be_idle() {
        let agent = v1(&["load"]);
        let restore = || restore(&agent, &Settings::default());
        script(agent.clone(), restore()).check(
            "
            0 closed
            0 routed
            ...
            10 agent Hello.
                until 30010
            20 replayed
                until 30000
            30 agent New.
            40 result {}
                done s {}
                    early: agent_message_chunk New.
        ",
        );
        script(agent.clone(), restore()).check(
            "
            0 closed
            0 routed
            ...
            10 result {}
                until 210
            20 agent Hello.
                until 220
            30 replayed
                done s {}
        ",
        );
    }

    #[test]
    fn a_title_and_commands_are_kept_and_bad_updates_are_left_to_the_session() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        script(agent, plan).check(
            "
            0 closed
            0 routed
            ...
            10 user hi there
                until 30010
            20 title T
                until 30020
            30 commands
                until 30030
            40 bad
                until 30040
            50 agent Hello.
                until 30050
            60 bad
                until 30060
            70 result {}
                until 270
            270 timeout
                done s {}
                    early: session_info_update T
                    early: available_commands_update
                    early: agent_message_chunk
        ",
        );
    }

    #[test]
    fn a_replayed_mode_counts_only_if_the_session_knows_of_none() {
        let agent = v1(&["load"]);
        let plan = restore(&agent, &Settings::default());
        script(agent.clone(), plan).check(
            r#"
            0 closed
            0 routed
            ...
            10 mode plan
                until 30010
            20 result {}
                until 220
            220 timeout
                done s {}
                    mode "plan"
            230 result {}
        "#,
        );
        let plan = restore(&agent, &mode("code"));
        script(agent, plan).check(
            r#"
            0 closed
            0 routed
            ...
            10 mode plan
                until 30010
            20 result {}
                until 220
            220 timeout
                call session/set_mode {"modeId":"code","sessionId":"s"}
                until 30220
            230 result {}
                done s {}
                    mode "code"
        "#,
        );
    }

    #[test]
    fn no_more_is_held_than_may_be_kept() {
        let agent = v2();
        let plan = restore(&agent, &Settings::default());
        let long = "x".repeat(MAX_UPDATE_BYTES / 2);
        let prompt = format!("10 user {long}");
        let events =
            ["0 closed", "0 routed", &prompt, &prompt, "30 agent new", "40 result {}", "...", "240 timeout"];
        // Prompts that nothing follows are replay, and so is all that comes after them.
        assert_eq!(script(agent, plan).run(events), "240 timeout\n    done s {}\n");
    }
}
