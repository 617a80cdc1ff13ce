//! Scripts of events and keys, and the screens that result.

use std::sync::Arc;

use expect_test::expect_file;
use jiff::SignedDuration;
use parlor_client::{DuringTurn, Json, OpenRequest, SessionId, SessionInfo, Transcript};
use parlor_dialect::{Dialect, Fold};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::*;
use crate::conversation::Replica;
use crate::event::{Failure, Hit, Opened};
use crate::keys::Key;
use crate::sessions::SessionRow;
use crate::theme::Colors;

/// The time of the screens.
fn noon() -> Timestamp {
    "2026-11-17T14:05:30Z".parse().unwrap()
}

/// A client with a clock that only the script moves.
struct Script {
    app: App,
    now: Timestamp,
}

impl Script {
    fn new(start: Start) -> Self {
        let theme = Theme { colors: Colors::Ansi, is_light: false, is_ascii: false };
        let options = TerminalOptions {
            theme,
            keys: KeyMap::default(),
            zone: TimeZone::UTC,
            home: Some("/home/dev".to_owned()),
            cwd: "/home/dev/src/parlor".to_owned(),
            agent: None,
            start,
            version: "0.2.0".to_owned(),
            login: vec!["parlor".to_owned(), "login".to_owned()],
        };
        let mut script = Self { app: App::new(options, noon()), now: noon() };
        script.event(Event::Resize(80, 24));
        script
    }

    /// A client that is connected to a server with these sessions.
    fn connected(start: Start, sessions: &[&str]) -> Self {
        let mut script = Self::new(start);
        script.event(Event::Connected { server: "/data/parlor.sock".to_owned() });
        let agent = |name: &str, is_installed, is_default| AgentInfo {
            name: name.to_owned(),
            is_installed,
            is_default,
            is_logged_in: None,
        };
        script.event(Event::Agents(vec![
            agent("claude", true, true),
            agent("codex", true, false),
            agent("gemini", false, false),
        ]));
        script.event(Event::List(rows(sessions)));
        script
    }

    /// A client with an open session.
    fn open(updates: &[&str]) -> Self {
        let mut script =
            Self::connected(Start::Session("s1".into(), "/home/dev/src/parlor".to_owned()), SESSIONS);
        script.opened("s1", updates);
        script
    }

    fn opened(&mut self, id: &str, updates: &[&str]) -> Vec<Effect> {
        let ticket = self.app.opening.as_ref().expect("a session is being opened").ticket;
        self.event(Event::Opened(Box::new(Opened {
            ticket,
            id: id.into(),
            cwd: "/home/dev/src/parlor".to_owned(),
            replica: Replica::Fixed(Arc::new(transcript(updates))),
            older: None,
            older_messages: 0,
            is_reloaded: false,
        })))
    }

    /// Replaces the transcript of the open session.
    fn changed(&mut self, updates: &[&str]) -> Vec<Effect> {
        let replica = Replica::Fixed(Arc::new(transcript(updates)));
        self.app.conversation.as_mut().unwrap().reconnect(replica);
        self.event(Event::Changed)
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        self.app.update(event, self.now)
    }

    /// Presses keys, separated by spaces, one after the other.
    fn press(&mut self, keys: &str) -> Vec<Effect> {
        let keys: Vec<Key> = keys.split(' ').map(|key| key.parse().unwrap()).collect();
        keys.into_iter().flat_map(|key| self.event(Event::Key(key))).collect()
    }

    fn type_text(&mut self, text: &str) -> Vec<Effect> {
        let key = |letter: char| {
            if letter == ' ' { "Space".parse().unwrap() } else { letter.to_string().parse().unwrap() }
        };
        text.chars().flat_map(|letter| self.event(Event::Key(key(letter)))).collect()
    }

    fn wait(&mut self, millis: i64) -> Vec<Effect> {
        self.now += SignedDuration::from_millis(millis);
        self.event(Event::Tick)
    }

    /// The screen at a size, with the cursor as `█`.
    fn screen(&mut self, width: u16, height: u16) -> String {
        self.event(Event::Resize(width, height));
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        let cursor = self.app.draw(buffer.area, &mut buffer);
        let mut screen = String::new();
        for y in 0..height {
            let mut row = String::new();
            let mut skip = 0;
            for x in 0..width {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let symbol = buffer[(x, y)].symbol();
                if cursor == Some(Position::new(x, y)) {
                    row.push('█');
                } else {
                    row.push_str(symbol);
                }
                skip = crate::text::width(symbol).saturating_sub(1);
            }
            screen.push_str(row.trim_end());
            screen.push('\n');
        }
        screen
    }
}

fn transcript(updates: &[&str]) -> Transcript {
    let mut fold = Fold::new(Dialect::V2);
    updates
        .iter()
        .for_each(|update| fold.line(update).unwrap_or_else(|problem| panic!("{problem}: {update}")));
    fold.transcript().clone()
}

fn rows(sessions: &[&str]) -> Vec<SessionRow> {
    let update = parlor_client::Notification::new(
        "_parlor/list/update",
        Some(Json::parse(format!(r#"{{"sessions":[{}]}}"#, sessions.join(","))).unwrap()),
    );
    let infos: Vec<SessionInfo> = parlor_client::ListUpdate::of(&update).unwrap().changed;
    assert_eq!(infos.len(), sessions.len());
    infos.iter().map(SessionRow::of).collect()
}

fn requests(requests: &[&str]) -> Vec<Request> {
    let update = parlor_client::Notification::new(
        "_parlor/requests/update",
        Some(Json::parse(format!(r#"{{"opened":[{}]}}"#, requests.join(","))).unwrap()),
    );
    let open: Vec<OpenRequest> = parlor_client::RequestsUpdate::of(&update).unwrap().opened;
    assert_eq!(open.len(), requests.len());
    open.iter().map(Request::of_open).collect()
}

const SESSIONS: &[&str] = &[
    r#"{"sessionId":"s1","cwd":"/home/dev/src/parlor","title":"Fix flaky port test","updatedAt":"2026-11-17T14:03:00Z","_meta":{"parlor/agent":"claude","parlor/row":{"state":"running","mode":"ask","model":"opus","lastPromptAt":"2026-11-17T14:03:32Z","usage":{"used":124000,"size":200000,"cost":{"amount":1.84,"currency":"USD"}}}}}"#,
    r#"{"sessionId":"s2","cwd":"/home/dev/src/parlor","title":"Axum upgrade","updatedAt":"2026-11-17T14:00:20Z","_meta":{"parlor/agent":"codex","parlor/row":{"state":"needs_you","openRequests":1}}}"#,
    r#"{"sessionId":"s3","cwd":"/home/dev/src/parlor","title":"Document the token","updatedAt":"2026-11-17T13:00:00Z","_meta":{"parlor/agent":"gemini","parlor/row":{"state":"idle","unread":true}}}"#,
    r#"{"sessionId":"s4","cwd":"/home/dev/src/parlor","title":"shorter","updatedAt":"2026-11-17T13:00:00Z","_meta":{"parlor/agent":"claude","parlor/parent":"s3","parlor/row":{"state":"idle"}}}"#,
    r#"{"sessionId":"s5","cwd":"/home/dev/src/parlor","title":"for operators","updatedAt":"2026-11-17T12:00:00Z","_meta":{"parlor/agent":"gemini","parlor/parent":"s3","parlor/row":{"state":"idle"}}}"#,
    r#"{"sessionId":"s6","cwd":"/home/dev/src/shop","title":"Invoice rounding","updatedAt":"2026-11-17T11:00:00Z","_meta":{"parlor/agent":"claude","parlor/row":{"state":"failed"}}}"#,
    r#"{"sessionId":"s7","cwd":"/home/dev/src/shop","title":"請求書の丸め誤差を直す","updatedAt":"2026-11-15T11:00:00Z","_meta":{"parlor/agent":"codex","parlor/row":{"state":"idle","unread":true}}}"#,
];

const RUNNING: &str = r#"{"sessionUpdate":"state_update","state":"running"}"#;
const IDLE: &str = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#;
const PROMPT: &str = r#"{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"The port test fails about once in twenty runs. Find out why and make it stable. Do not raise the timeout."}]}"#;
const ANSWER: &str = r#"{"sessionUpdate":"agent_message","messageId":"a1","content":[{"type":"text","text":"free_port() closes its listener before the server binds, so two tests can get the same port. I keep the listener open and pass it on:"}]}"#;
const TOOL: &str = r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Run cargo test -p parlor-server port","kind":"execute","status":"in_progress","rawInput":{"command":"cargo test -p parlor-server port"}}"#;
const QUEUE: &str = r#"{"sessionUpdate":"session_info_update","_meta":{"parlor/queue":[{"id":7,"text":"Then add an entry to CHANGELOG.md.","from":3}]}}"#;
const OPTIONS: &str = r#"{"sessionUpdate":"config_option_update","configOptions":[
    {"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"ask","options":[
        {"value":"ask","name":"ask","description":"asks before edits and commands"},
        {"value":"bypass","name":"bypass","description":"asks nothing"}]},
    {"configId":"model","name":"Model","category":"model","type":"select","currentValue":"opus","options":[
        {"value":"opus","name":"opus","description":"200k context"},{"value":"haiku","name":"haiku","description":"fastest"}]},
    {"configId":"thinking","name":"thinking","type":"select","currentValue":"medium","options":[
        {"value":"low","name":"low"},{"value":"medium","name":"medium"}]},
    {"configId":"web","name":"web search","type":"boolean","currentValue":false}]}"#;

const COMMAND_REQUEST: &str = r#"{"requestId":"r1","sessionId":"s1","title":"Fix flaky port test","agent":"claude","cwd":"/home/dev/src/parlor","openedAt":"2026-11-17T14:05:22Z","method":"session/request_permission","params":{"description":"Remove generated port files","options":[{"optionId":"y","name":"Allow once","kind":"allow_once"},{"optionId":"a","name":"Allow always: git clean","kind":"allow_always"},{"optionId":"n","name":"Reject","kind":"reject_once"},{"optionId":"N","name":"Reject always: git clean","kind":"reject_always"}]},"toolCall":{"toolCallId":"t9","title":"Run rm","kind":"execute","rawInput":{"command":"rm -rf target/ports &&\ngit clean -fd crates/parlor-server/tests"},"_meta":{"claudeCode":{"toolName":"Bash"}}}}"#;
const EDIT_REQUEST: &str = r#"{"requestId":"r2","sessionId":"s2","title":"Axum upgrade","agent":"codex","cwd":"/home/dev/src/parlor","openedAt":"2026-11-17T14:00:20Z","method":"session/request_permission","params":{"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]},"toolCall":{"toolCallId":"t8","title":"Edit http.rs","kind":"edit","locations":[{"path":"src/http.rs"},{"path":"src/ws.rs"}]}}"#;
const FORM_REQUEST: &str = r#"{"requestId":"r3","sessionId":"s1","title":"Postgres","agent":"opencode","cwd":"/home/dev/src/shop","openedAt":"2026-11-17T13:52:50Z","method":"elicitation/create","params":{"mode":"form","message":"How should the database be set up?","requestedSchema":{"type":"object","required":["name","schema"],"properties":{"name":{"type":"string","title":"Database name","description":"letters, digits and _","maxLength":63,"default":"shop"},"schema":{"type":"string","title":"Schema","oneOf":[{"const":"one","title":"one schema for all tenants"},{"const":"many","title":"one schema per tenant"}]},"pool":{"type":"integer","title":"Pool size","minimum":1,"maximum":100,"default":20},"extensions":{"type":"array","title":"Extensions","items":{"enum":["pg_trgm","postgis","citext"]}}}}}}"#;

fn call(effects: &[Effect]) -> Vec<&Call> {
    effects
        .iter()
        .filter_map(|effect| if let Effect::Send(call) = effect { Some(call) } else { None })
        // The agents are listed again whenever one can be chosen.
        .filter(|call| **call != Call::Agents)
        .collect()
}

/// The requests about the open session, which is `s1`.
fn session_calls(effects: &[Effect]) -> Vec<&SessionCall> {
    let mut calls = Vec::new();
    for call in call(effects) {
        if let Call::InSession(id, call) = call
            && *id == SessionId::from("s1")
        {
            calls.push(call);
        }
    }
    calls
}

fn answers(effects: &[Effect]) -> Vec<String> {
    let answer = |call: &&Call| {
        let Call::Answer { id, result } = call else { return None };
        Some(format!("{id} {}", result.to_json().as_str()))
    };
    call(effects).iter().filter_map(answer).collect()
}

fn failure(reason: &str) -> Failure {
    Failure { reason: reason.to_owned(), needs_login: false }
}

macro_rules! screen {
    ($script:expr, $width:literal x $height:literal, $name:literal) => {
        let screen = $script.screen($width, $height);
        for (number, row) in screen.lines().enumerate() {
            assert!(crate::text::width(row) <= $width, "row {number} is too wide: {row}");
        }
        assert_eq!(screen.lines().count(), $height);
        expect_file![concat!("screens/", $name, ".txt")].assert_eq(&screen);
    };
}

/// The requests, list and conversation of the first screen.
fn busy() -> Script {
    let mut script = Script::open(&[PROMPT, ANSWER, TOOL, OPTIONS, QUEUE, RUNNING]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST]), Vec::new()));
    script
}

#[test]
fn the_conversation_is_drawn_at_every_width() {
    let mut script = busy();
    script.type_text("Also check the Windows job");
    screen!(script, 120 x 36, "conversation-120");
    screen!(script, 80 x 24, "conversation-80");
    screen!(script, 44 x 20, "conversation-44");
}

#[test]
fn the_same_screen_is_drawn_in_ascii() {
    let mut script = busy();
    script.app.look.theme.is_ascii = true;
    let screen = script.screen(120, 36);
    // The titles of sessions are foreign text.
    let frame: String = screen.replace("請求書の丸め誤差を直す", "").replace('█', "");
    assert!(frame.lines().filter(|line| !line.contains("codex")).all(str::is_ascii), "{screen}");
}

#[test]
fn the_list_of_sessions_takes_a_narrow_screen() {
    let mut script = busy();
    script.press("Tab Tab");
    screen!(script, 44 x 20, "sessions-44");
    screen!(script, 80 x 24, "sessions-80");
}

#[test]
fn a_permission_request_shows_everything_that_it_permits() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    screen!(script, 80 x 24, "request-80");
    screen!(script, 44 x 20, "request-44");
}

#[test]
fn a_form_is_filled_in_on_the_screen() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
    script.wait(600);
    script.type_text("-db");
    screen!(script, 80 x 24, "form-80");
    // Enter goes from field to field; Submit rejects what is missing and shows where.
    let effects = script.press("Enter Enter Enter Enter Enter");
    assert_eq!(answers(&effects), [""; 0]);
    screen!(script, 80 x 24, "form-problem-80");
    let effects = script.press("Space Tab 5 Tab Space Right Right Space Tab Enter");
    let content = r#"{"name":"shop-db","schema":"one","pool":205,"extensions":["pg_trgm","citext"]}"#;
    assert_eq!(answers(&effects), [""; 0], "{content}");
    let effects = script.press("Backspace Tab Tab Enter");
    let content = content.replace("205", "20");
    assert_eq!(answers(&effects), [format!(r#"r3 {{"action":"accept","content":{content}}}"#)]);
}

#[test]
fn a_form_can_be_declined() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[FORM_REQUEST]), Vec::new()));
    script.wait(600);
    let effects = script.press("Tab Tab Tab Tab Tab Enter");
    assert_eq!(answers(&effects), [r#"r3 {"action":"decline"}"#]);
}

#[test]
fn the_inbox_shows_and_answers_requests_of_all_sessions() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.event(Event::Requests(requests(&[EDIT_REQUEST, COMMAND_REQUEST]), Vec::new()));
    script.press("Esc Ctrl-T");
    screen!(script, 80 x 24, "inbox-80");
    let effects = script.press("j y");
    assert_eq!(answers(&effects), [r#"r2 {"outcome":{"outcome":"selected","optionId":"y"}}"#]);
    let effects = script.press("k 4");
    assert_eq!(answers(&effects), [r#"r1 {"outcome":{"outcome":"selected","optionId":"N"}}"#]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned(), "r2".to_owned()]));
    screen!(script, 80 x 24, "inbox-answered-80");
}

#[test]
fn the_start_screen_offers_agents() {
    let mut script = Script::connected(Start::Latest, &[]);
    screen!(script, 80 x 24, "start-80");
    let effects = script.type_text("fix the test");
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Send(_))).count(), 0);
    let effects = script.press("Enter");
    let Some(Call::New { agent: None, cwd, prompt, .. }) = call(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!((cwd.as_str(), prompt.as_str()), ("/home/dev/src/parlor", "fix the test"));
}

#[test]
fn an_agent_is_chosen_for_the_new_session() {
    let mut script = Script::connected(Start::New, SESSIONS);
    script.press("Tab");
    script.type_text("cod");
    script.press("Enter");
    script.type_text("hello");
    let effects = script.press("Enter");
    let Some(Call::New { agent: Some(agent), .. }) = call(&effects).first() else { panic!("{effects:?}") };
    assert_eq!(agent, "codex");
}

#[test]
fn a_lost_connection_is_shown_and_keeps_what_is_written() {
    let mut script = Script::open(&[PROMPT, ANSWER, TOOL, RUNNING]);
    script.type_text("Also check");
    let retry_at = script.now + SignedDuration::from_secs(4);
    let lost = || Event::Disconnected {
        server: "ws://build-box:7667".to_owned(),
        reason: "connection refused".to_owned(),
        retry_at,
    };
    script.event(lost());
    screen!(script, 80 x 24, "offline-80");
    // Enter retries at once, and nothing is sent by itself.
    assert_eq!(script.press("Enter"), [Effect::Reconnect]);
    script.wait(38_000);
    script.event(lost());
    let effects = script.event(Event::Connected { server: String::new() });
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]), "{effects:?}");
    script.opened("s1", &[PROMPT, ANSWER, TOOL, RUNNING]);
    let screen = script.screen(80, 24);
    assert!(screen.contains("Connected again after 0:38.") && screen.contains("› Also check█"), "{screen}");
}

#[test]
fn pickers_are_filtered_as_one_types() {
    let mut script = Script::open(&[PROMPT, ANSWER, OPTIONS, IDLE]);
    script.press("Ctrl-O");
    script.type_text("ax");
    screen!(script, 80 x 10, "open-session-80");
    let effects = script.press("Enter");
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s2")),
        "{effects:?}"
    );
    script.opened("s2", &[PROMPT, OPTIONS]);
    script.press("Shift-Tab");
    screen!(script, 80 x 24, "options-80");
}

#[test]
fn a_mode_that_asks_nothing_needs_a_second_enter() {
    let mut script = Script::open(&[PROMPT, OPTIONS, IDLE]);
    script.press("Shift-Tab Down");
    assert_eq!(script.press("Enter"), []);
    let effects = script.press("Enter");
    let Some(SessionCall::SetOption { value, .. }) = session_calls(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!(value.as_str(), "\"bypass\"");
    // The arrows change the value of an option at once.
    script.press("Shift-Tab");
    script.type_text("thinking");
    let effects = script.press("Left");
    let Some(SessionCall::SetOption { value, note, .. }) = session_calls(&effects).first() else {
        panic!("{effects:?}")
    };
    assert_eq!((value.as_str(), note.as_str()), ("\"low\"", "thinking: low"));
}

#[test]
fn the_help_lists_all_keys() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("F1");
    screen!(script, 120 x 36, "help-120");
    screen!(script, 80 x 24, "help-80");
    script.press("/");
    script.type_text("fork here");
    let screen = script.screen(80, 24);
    assert!(screen.contains("fork here") && !screen.contains("half a page"), "{screen}");
}

#[test]
fn a_search_is_sent_after_a_pause_and_opens_at_the_message() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Ctrl-F");
    assert_eq!(call(&script.type_text("flaky port")), [&Call::Agents; 0]);
    let effects = script.wait(60);
    assert!(
        matches!(call(&effects)[..], [Call::Search { generation: 1, query, .. }] if query == "flaky port"),
        "{effects:?}"
    );
    let hit = |session: &str, message: &str, snippet: &str| Hit {
        session: session.into(),
        title: Clean::line("Fix flaky port test"),
        agent: Clean::line("claude"),
        cwd: "/home/dev/src/parlor".to_owned(),
        message: Some(message.into()),
        tool_call: None,
        role: Clean::line("agent"),
        at: Some(noon() - SignedDuration::from_mins(2)),
        snippet: Clean::line(snippet),
        matches: vec![(0, 5)],
    };
    let hits =
        vec![hit("s1", "a1", "flaky when two tests get the same port"), hit("s6", "x", "flaky numbers")];
    script.event(Event::Hits { generation: 1, hits: Ok(hits), millis: 6 });
    screen!(script, 80 x 24, "search-80");
    script.press("Enter");
    let screen = script.screen(80, 24);
    assert!(screen.contains("▌") && screen.contains("#2"), "{screen}");
    // Esc returns to the results.
    script.wait(1000);
    script.press("Esc");
    assert!(script.screen(80, 24).contains("2 hits in 2 sessions"));
    // The answer to an earlier search is ignored.
    script.event(Event::Hits { generation: 0, hits: Ok(Vec::new()), millis: 1 });
    assert!(script.screen(80, 24).contains("2 hits in 2 sessions"));
}

#[test]
fn the_fork_tree_is_drawn() {
    let mut script =
        Script::connected(Start::Session("s4".into(), "/home/dev/src/parlor".to_owned()), SESSIONS);
    script.opened("s4", &[PROMPT, ANSWER, IDLE]);
    script.press("Tab F");
    screen!(script, 80 x 24, "forks-80");
}

#[test]
fn prompts_are_sent_queued_and_withdrawn() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.press("Enter"), [], "an empty prompt is not sent");
    script.type_text("go on");
    let effects = script.press("Enter");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Prompt { text, .. }] if text == "go on"),
        "{effects:?}"
    );
    assert!(script.app.input.is_empty());
    // A prompt that was not accepted comes back.
    script.event(Event::PromptFailed {
        session: "s1".into(),
        text: "go on".to_owned(),
        failure: failure("the queue is full"),
    });
    let screen = script.screen(80, 24);
    assert!(screen.contains("› go on█") && screen.contains("the queue is full"), "{screen}");
    // Up selects the queued prompt, and its keys work.
    script.app.input.set("");
    script.changed(&[PROMPT, ANSWER, QUEUE, RUNNING]);
    script.press("Up");
    assert!(script.screen(80, 24).contains("e edit  w withdraw  s send now"));
    let effects = script.press("w");
    assert_eq!(session_calls(&effects), [&SessionCall::Withdraw(Json::parse("7").unwrap())]);
    script.press("Up");
    let effects = script.press("e");
    assert_eq!(session_calls(&effects), [&SessionCall::Withdraw(Json::parse("7").unwrap())]);
    assert_eq!(script.app.input.text(), "Then add an entry to CHANGELOG.md.");
}

#[test]
fn a_prompt_is_sent_into_the_running_turn() {
    let mut script = Script::open(&[PROMPT, ANSWER, QUEUE, RUNNING]);
    script.type_text("use port 81");
    let effects = script.press("Ctrl-X");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Prompt { text, during_turn: DuringTurn::Steer, .. }] if text == "use port 81"),
        "{effects:?}"
    );
    // A queued prompt is withdrawn first; a person who sends it now accepts that the turn is cancelled.
    script.press("Up");
    let effects = script.press("s");
    assert!(
        matches!(
            session_calls(&effects)[..],
            [SessionCall::Withdraw(_), SessionCall::Prompt { during_turn: DuringTurn::SteerOrCancel, .. }]
        ),
        "{effects:?}"
    );
}

#[test]
fn up_goes_through_the_history_and_down_comes_back_to_the_draft() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.type_text("draft");
    script.press("Up");
    assert!(script.app.input.text().starts_with("The port test"));
    script.press("Down");
    assert_eq!(script.app.input.text(), "draft");
}

#[test]
fn escape_cancels_the_turn_but_not_right_after_it_closed_something() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.press("Ctrl-T");
    assert_eq!(script.press("Esc"), []);
    script.wait(300);
    assert_eq!(script.press("Esc"), [], "too soon");
    script.wait(600);
    assert_eq!(session_calls(&script.press("Esc")), [&SessionCall::Cancel]);
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.press("Esc"), [], "nothing runs");
}

#[test]
fn the_second_interrupt_detaches_and_the_first_one_keeps_the_draft() {
    let mut script = Script::open(&[PROMPT, ANSWER, RUNNING]);
    script.type_text("draft");
    assert_eq!(script.press("Ctrl-C"), []);
    assert!(script.screen(80, 24).contains("Ctrl-C again detaches; the turn goes on"));
    script.wait(2100);
    assert_eq!(script.press("Ctrl-C"), [], "too late");
    assert_eq!(script.press("Ctrl-C"), [Effect::Quit]);
    assert_eq!(script.app.input.text(), "draft");
    let detached = script.app.detached().unwrap();
    assert!(detached.is_busy && Some(detached.session) == script.app.open_id(), "the session continues");
}

#[test]
fn a_request_never_takes_keys_that_were_meant_for_the_input() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.type_text("yes");
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(answers(&script.type_text(" y1")), [""; 0]);
    assert_eq!(script.app.input.text(), "yes y1");
    assert!(script.screen(80, 24).contains("Tab answers"));
    // With Tab they are for the request; the draft is kept.
    let effects = script.press("Tab y");
    assert_eq!(answers(&effects), [r#"r1 {"outcome":{"outcome":"selected","optionId":"y"}}"#]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned()]));
    // A key right after the request vanished is ignored.
    script.press("n");
    assert_eq!(script.app.input.text(), "yes y1");
    script.wait(600);
    script.press("z");
    assert_eq!(script.app.input.text(), "yes y1z");
}

#[test]
fn a_request_gets_the_focus_when_the_person_has_stopped_typing() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.type_text("x");
    script.press("Backspace");
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(script.app.focus, Focus::Input);
    script.wait(1100);
    assert_eq!(script.app.focus, Focus::Request);
    // Tab was announced, and is pressed just after the focus has moved.
    script.press("Tab");
    assert_eq!(script.app.focus, Focus::Request);
    // A person who leaves it is left alone.
    script.press("Tab");
    script.wait(5000);
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn escape_puts_a_request_off_and_never_rejects_it() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert_eq!(script.app.focus, Focus::Request);
    assert_eq!(script.press("Esc"), []);
    assert_eq!(script.app.focus, Focus::Input);
    script.event(Event::Changed);
    assert_eq!(script.app.focus, Focus::Input, "it stays put off");
    script.press("Tab");
    assert_eq!(script.app.focus, Focus::Request);
}

#[test]
fn an_answer_of_another_client_is_noted() {
    let decision = r#"{"sessionUpdate":"_parlor_event","eventId":"e1","type":"decision","at":"2026-11-17T14:05:28Z","request":"session/request_permission","toolCallId":"t9","outcome":"selected","option":{"optionId":"y","name":"Allow once","kind":"allow_once"},"by":{"client":9,"name":"zed"}}"#;
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.wait(5000);
    script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    script.changed(&[PROMPT, RUNNING, decision]);
    script.event(Event::Requests(Vec::new(), vec!["r1".to_owned()]));
    let screen = script.screen(80, 24);
    assert!(screen.contains("Request answered: Allow once by zed"), "{screen}");
    assert_eq!(script.app.focus, Focus::Input);
}

#[test]
fn a_request_without_focus_of_the_window_notifies() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    script.event(Event::Focus(false));
    let effects = script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    let text = "claude asks: run a command (Fix flaky port test)";
    assert!(effects.contains(&Effect::Notify(text.to_owned())), "{effects:?}");
    script.wait(10_000);
    let effects = script.changed(&[PROMPT, ANSWER, IDLE]);
    assert!(
        matches!(&effects[..], [Effect::Notify(text), ..] if text.starts_with("Turn ended after")),
        "{effects:?}"
    );
}

#[test]
fn the_title_of_the_window_says_what_waits() {
    let mut script = Script::open(&[PROMPT, RUNNING]);
    let effects = script.event(Event::Requests(requests(&[COMMAND_REQUEST]), Vec::new()));
    assert!(
        effects.contains(&Effect::WindowTitle("! 1 ● Fix flaky port test - parlor".to_owned())),
        "{effects:?}"
    );
}

#[test]
fn the_header_says_how_many_clients_are_attached() {
    let clients = |list: &str| {
        format!(r#"{{"sessionUpdate":"session_info_update","_meta":{{"parlor/clients":{list}}}}}"#)
    };
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.changed(&[&clients(r#"[{"client":1,"role":"driver"}]"#)]);
    assert!(!script.screen(120, 24).contains("client"));
    script.changed(&[&clients(
        r#"[{"client":1,"role":"driver"},{"client":2,"role":"observer","name":"zed"}]"#,
    )]);
    let screen = script.screen(120, 24);
    assert!(screen.lines().next().unwrap().trim_end().ends_with("2 clients"), "{screen}");
    assert!(!script.screen(40, 24).contains("clients"));
}

#[test]
fn a_session_is_deleted_after_ten_seconds_unless_it_is_taken_back() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.press("Tab Tab j");
    let effects = script.press("D");
    assert_eq!(call(&effects), [&Call::Agents; 0]);
    let screen = script.screen(80, 24);
    assert!(
        screen.contains("Deleted \"Axum upgrade\".  u undo") && !screen.contains("! Axum upgrade"),
        "{screen}"
    );
    script.wait(9000);
    script.press("u");
    assert!(script.screen(80, 24).contains("Axum upgrade"));
    assert_eq!(call(&script.wait(20_000)), [&Call::Agents; 0]);
    script.press("D");
    let effects = script.wait(10_000);
    assert_eq!(call(&effects), [&Call::Delete("s2".into())]);
    // Detaching sends what waits.
    script.press("x");
    let effects = script.press("q");
    assert!(matches!(&effects[..], [Effect::Send(Call::Archive(_)), Effect::Quit]), "{effects:?}");
}

#[test]
fn drafts_are_kept_for_each_session() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("first draft");
    script.press("Ctrl-O");
    script.type_text("ax");
    script.press("Enter");
    script.opened("s2", &[PROMPT]);
    assert!(script.app.input.is_empty());
    script.type_text("second");
    script.press("Ctrl-O");
    script.type_text("fix");
    script.press("Enter");
    script.opened("s1", &[PROMPT, IDLE]);
    assert_eq!(script.app.input.text(), "first draft");
}

#[test]
fn messages_are_forked_edited_and_regenerated() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    let effects = script.press("Tab f");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Fork { at: Some(at), .. }] if at.to_string() == "a1"),
        "{effects:?}"
    );
    let effects = script.press("r");
    assert!(
        matches!(session_calls(&effects)[..], [SessionCall::Regenerate { message, .. }] if message.to_string() == "a1"),
        "{effects:?}"
    );
    script.press("k e");
    assert!(script.app.input.text().starts_with("The port test"));
    script.type_text(" Now.");
    let effects = script.press("Enter");
    let [SessionCall::EditPrompt { message, text, .. }] = session_calls(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert!(message.to_string() == "u1" && text.ends_with("timeout. Now."));
    // The fork is opened, and Esc returns to the parent.
    let effects = script.event(Event::Forked {
        parent: "s1".into(),
        id: "s9".into(),
        cwd: "/".to_owned(),
        note: "Forked".to_owned(),
    });
    assert!(matches!(call(&effects)[..], [Call::Open { .. }]));
    // While it is being opened, keys are those of the parent, and nothing says otherwise.
    assert!(!script.screen(80, 24).contains("Forked"));
    script.opened("s9", &[PROMPT]);
    assert!(script.screen(80, 24).contains("Forked"));
    let effects = script.press("Esc");
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s1")),
        "{effects:?}"
    );
}

#[test]
fn a_message_is_copied_and_viewed() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    script.press("Tab");
    let effects = script.press("y");
    assert!(matches!(&effects[..], [Effect::Copy(text)] if text.starts_with("free_port()")), "{effects:?}");
    assert!(matches!(&script.press("v")[..], [Effect::Page(_)]));
}

/// A conversation of many messages.
fn long(messages: usize) -> Vec<String> {
    let message = |number: usize| {
        let (kind, role) =
            if number.is_multiple_of(2) { ("user_message", "u") } else { ("agent_message", "a") };
        format!(
            r#"{{"sessionUpdate":"{kind}","messageId":"{role}{number}","content":[{{"type":"text","text":"message {number}"}}]}}"#
        )
    };
    (1..=messages).map(message).collect()
}

fn refs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

#[test]
fn new_output_never_moves_what_is_read() {
    let mut lines = long(100);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    assert!(script.screen(80, 24).contains("message 100"));
    script.press("PgUp");
    let before = script.screen(80, 24);
    assert!(!before.contains("message 100") && before.contains("message 8"), "{before}");
    lines.extend(long(140).split_off(100));
    script.changed(&refs(&lines));
    let after = script.screen(80, 24);
    let body = |screen: &str| screen.lines().skip(2).take(17).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&before), body(&after));
    assert!(after.contains("40 new messages below"), "{after}");
    // A resize keeps the first entry.
    let first = |screen: &str| {
        let row = body(screen).into_iter().find(|row| row.contains("message")).unwrap();
        row.split_whitespace().skip_while(|word| *word != "message").take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(first(&script.screen(60, 20)), first(&after));
    script.press("Tab G");
    assert!(script.screen(80, 24).contains("message 140"));
}

#[test]
fn scrolling_down_to_the_end_follows_again() {
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    script.press("PgUp PgUp");
    assert!(!script.app.conversation.as_ref().unwrap().is_following);
    script.press("PgDn PgDn PgDn");
    assert!(script.app.conversation.as_ref().unwrap().is_following);
    // Scrolling up stops at the first entry.
    script.press(&["PgUp"; 30].join(" "));
    let screen = script.screen(80, 24);
    assert!(screen.contains("message 1\n") || screen.contains("message 1 "), "{screen}");
}

#[test]
fn earlier_messages_are_loaded_when_the_view_comes_near() {
    let all = long(40);
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), SESSIONS);
    let ticket = script.app.opening.as_ref().unwrap().ticket;
    let cursor = Json::parse("20").unwrap();
    script.event(Event::Opened(Box::new(Opened {
        ticket,
        id: "s1".into(),
        cwd: "/".to_owned(),
        replica: Replica::Fixed(Arc::new(transcript(&refs(&all[20..])))),
        older: Some(cursor.clone()),
        older_messages: 20,
        is_reloaded: false,
    })));
    script.screen(80, 24);
    let effects = script.press("PgUp PgUp PgUp");
    assert_eq!(session_calls(&effects), [&SessionCall::Older(cursor)], "requested once");
    let before = script.screen(80, 24);
    assert!(before.contains("#21"), "the 20 messages that are not loaded count: {before}");
    let page = Box::new(transcript(&refs(&all[..20])));
    script.event(Event::Older { session: "s1".into(), page, before: None });
    let after = script.screen(80, 24);
    let first = |screen: &str| screen.lines().skip(2).find(|row| row.contains("message")).unwrap().to_owned();
    assert_eq!(
        first(&before).split_whitespace().take(2).collect::<Vec<_>>(),
        first(&after).split_whitespace().take(2).collect::<Vec<_>>()
    );
    script.press("PgUp PgUp PgUp PgUp");
    assert!(script.screen(80, 24).contains("message 1"));
}

#[test]
fn find_marks_words_and_goes_from_hit_to_hit() {
    let lines = long(60);
    let mut script = Script::open(&refs(&lines));
    script.screen(80, 24);
    script.press("Tab /");
    script.type_text("message 1");
    script.press("Enter");
    let screen = script.screen(80, 24);
    assert!(screen.contains("message 51"), "the hit before the last entry: {screen}");
    script.press("N");
    let selected = |script: &Script| script.app.conversation.as_ref().unwrap().selected_number();
    assert_eq!(selected(&script), Some(41));
    script.press("n");
    assert_eq!(selected(&script), Some(51));
}

#[test]
fn files_and_commands_are_completed() {
    let commands = r#"{"sessionUpdate":"available_commands_update","availableCommands":[
        {"name":"review","description":"review the changes of a branch","input":{"hint":"branch"}},
        {"name":"release","description":"prepare a release"},{"name":"help","description":""}]}"#;
    let mut script = Script::open(&[PROMPT, commands, IDLE]);
    script.type_text("/re");
    screen!(script, 80 x 12, "commands-80");
    script.press("Down Tab");
    assert_eq!(script.app.input.text(), "/review ");
    script.app.input.set("");
    let effects = script.type_text("see @ma");
    assert!(effects.contains(&Effect::ListFiles("/home/dev/src/parlor".to_owned())), "{effects:?}");
    script.event(Event::Files(vec!["src/lib.rs".to_owned(), "src/main.rs".to_owned()]));
    assert!(script.screen(80, 24).contains("src/main.rs"));
    script.press("Enter");
    assert_eq!(script.app.input.text(), "see @src/main.rs ");
    // Esc closes the list for this word.
    script.type_text("@li");
    script.press("Esc");
    assert!(!script.screen(80, 24).contains("src/lib.rs"));
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    let mut script = Script::open(&[PROMPT, ANSWER, IDLE]);
    assert_eq!(script.screen(39, 10).lines().next(), Some("40x10 at least"));
    assert_eq!(script.screen(20, 3).lines().next(), Some("40x10 at least"));
    assert!(script.screen(80, 24).contains("Fix flaky port test"));
}

#[test]
fn every_screen_fits_every_size() {
    let mut script = busy();
    script.event(Event::Requests(requests(&[COMMAND_REQUEST, FORM_REQUEST]), Vec::new()));
    for keys in [
        "Esc",
        "Tab",
        "Esc",
        "Tab Tab",
        "Esc",
        "Ctrl-T",
        "Esc",
        "Ctrl-O",
        "Esc",
        "Ctrl-F",
        "Esc",
        "Shift-Tab",
        "Esc",
        "F1",
        "Esc",
        "Ctrl-P",
    ] {
        script.wait(1000);
        script.press(keys);
        for (width, height) in
            [(40, 10), (41, 11), (59, 12), (60, 20), (80, 24), (99, 30), (100, 30), (200, 60)]
        {
            let screen = script.screen(width, height);
            assert_eq!(screen.lines().count(), usize::from(height));
        }
    }
}

#[test]
fn hostile_text_of_every_kind_draws_no_control_characters() {
    const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";
    let updates: Vec<String> = [PROMPT, ANSWER, TOOL, OPTIONS, QUEUE, RUNNING]
        .iter()
        .map(|update| {
            update
                .replace("the", HOSTILE)
                .replace("parlor-server", HOSTILE)
                .replace("asks", HOSTILE)
                .replace("entry", HOSTILE)
        })
        .collect();
    let sessions: Vec<String> = SESSIONS
        .iter()
        .map(|row| row.replace("port", HOSTILE).replace("claude", HOSTILE).replace("opus", HOSTILE))
        .collect();
    let mut script =
        Script::connected(Start::Session("s1".into(), "/home/dev/src/parlor".to_owned()), &refs(&sessions));
    script.opened("s1", &refs(&updates));
    let hostile: Vec<String> = [COMMAND_REQUEST, EDIT_REQUEST, FORM_REQUEST]
        .iter()
        .map(|request| {
            request
                .replace("rm -rf", HOSTILE)
                .replace("git", HOSTILE)
                .replace("Database", HOSTILE)
                .replace("codex", HOSTILE)
                .replace("schema for", HOSTILE)
                .replace("Bash", HOSTILE)
        })
        .collect();
    script.event(Event::Requests(requests(&refs(&hostile)), Vec::new()));
    script.event(Event::Paste("\u{1b}[31mred\u{202e}\u{9b}1m".to_owned()));
    for keys in ["Tab", "Esc", "Tab", "j", "Ctrl-T", "Esc", "Ctrl-O", "Esc", "Shift-Tab", "Esc", "F1"] {
        script.wait(1000);
        script.press(keys);
        for (width, height) in [(40, 10), (80, 24), (120, 40)] {
            let screen = script.screen(width, height);
            let is_harmful = |letter: char| {
                (letter.is_control() && letter != '\n') || crate::clean::is_bidirectional(letter)
            };
            assert!(!screen.contains(is_harmful), "after {keys}: {screen:?}");
        }
    }
    let effects = script.event(Event::Focus(false));
    assert_eq!(effects, []);
}

#[test]
fn a_session_that_is_deleted_elsewhere_keeps_the_draft() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.type_text("draft");
    script.event(Event::ListChanged(Vec::new(), vec!["s1".into()]));
    let screen = script.screen(80, 24);
    assert!(
        screen.contains("deleted or archived by another client") && screen.contains("› draft█"),
        "{screen}"
    );
}

#[test]
fn the_latest_session_of_the_directory_is_opened() {
    let mut script = Script::new(Start::Latest);
    script.event(Event::Connected { server: String::new() });
    let effects = script.event(Event::List(rows(SESSIONS)));
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s1")),
        "{effects:?}"
    );
    let mut script = Script::new(Start::Named("axum".to_owned()));
    script.event(Event::Connected { server: String::new() });
    let effects = script.event(Event::List(rows(SESSIONS)));
    assert!(
        matches!(call(&effects)[..], [Call::Open { id, .. }] if *id == SessionId::from("s2")),
        "{effects:?}"
    );
}

#[test]
fn a_prompt_that_is_sent_too_early_waits_for_the_connection() {
    let mut script = Script::new(Start::New);
    script.type_text("hello");
    assert_eq!(script.press("Enter"), []);
    script.event(Event::Connected { server: String::new() });
    let effects = script.event(Event::List(Vec::new()));
    assert!(matches!(call(&effects)[..], [Call::New { prompt, .. }] if prompt == "hello"), "{effects:?}");
}

#[test]
fn a_session_is_marked_as_seen_when_a_person_looks_at_it() {
    let unread = SESSIONS[0].replace(r#""state":"running""#, r#""state":"idle","unread":true"#);
    let mut script = Script::connected(Start::Session("s1".into(), "/".to_owned()), &[unread.as_str()]);
    script.event(Event::Focus(false));
    assert_eq!(call(&script.opened("s1", &[PROMPT, IDLE])), [&Call::Agents; 0]);
    assert_eq!(call(&script.event(Event::Focus(true))), [&Call::Seen("s1".into())]);
}

#[test]
fn the_client_ticks_each_second_only_while_something_counts() {
    let mut script = Script::open(&[PROMPT, IDLE]);
    script.wait(10_000);
    assert!(script.app.next_tick().unwrap() >= script.now + SignedDuration::from_secs(20));
    script.changed(&[PROMPT, RUNNING]);
    assert!(script.app.next_tick().unwrap() <= script.now + SignedDuration::from_secs(1));
}

#[test]
fn a_message_that_arrives_in_chunks_is_shown() {
    let chunk = |text: &str| {
        format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"c1","content":{{"type":"text","text":"{text}"}}}}"#
        )
    };
    let mut lines = vec![PROMPT.to_owned(), RUNNING.to_owned(), chunk("Hel")];
    let mut script = Script::open(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hel"), "{}", script.screen(80, 24));
    lines.push(chunk("lo."));
    script.changed(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hello."), "{}", script.screen(80, 24));
    lines.push(IDLE.to_owned());
    script.changed(&refs(&lines));
    assert!(script.screen(80, 24).contains("  Hello."), "{}", script.screen(80, 24));
}

mod races;
