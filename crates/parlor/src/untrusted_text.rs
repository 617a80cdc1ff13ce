//! Tests that text of an agent, in any field of any entry, cannot change the terminal or hide other text.

use parlor_dialect::{Dialect, Fold};
use parlor_json::{Json, Object};
use parlor_server::stored::StoredSession;
use parlor_session::Transcript;
use parlor_store::SessionRow;

use crate::form::{Form, FormStatus};
use crate::offline_sessions::session_title;
use crate::permission_request::PermissionRequest;
use crate::table::Cell;
use crate::{html, markdown, render};

/// Terminal escape sequences, other control characters and bidirectional controls, as a JSON string.
const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";

/// A transcript with all kinds of entries and `HOSTILE` in every string.
fn hostile() -> Transcript {
    let mut fold = Fold::new(Dialect::V2);
    for line in include_str!("../tests/hostile.jsonl").lines() {
        fold.line(&line.replace('!', HOSTILE)).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    }
    fold.transcript().clone()
}

fn row() -> SessionRow {
    let text: String = serde_json::from_str(&format!("\"{HOSTILE}\"")).unwrap();
    SessionRow {
        id: format!("\"{HOSTILE}\""),
        agent: text.clone(),
        agent_session: None,
        cwd: text,
        title: Some(format!("\"{HOSTILE}\"")),
        parent: None,
        owner: None,
        created_at: 1,
        active_at: 1,
        archived: false,
        busy: false,
        data: "{}".to_owned(),
    }
}

#[track_caller]
fn assert_harmless(text: &str) {
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || render::is_bidi(c);
    let harmful: Vec<_> = text.lines().filter(|line| line.contains(is_harmful)).collect();
    assert!(harmful.is_empty(), "{harmful:?}");
}

/// Removes colours from the output, and checks that it has no other escape sequences.
#[track_caller]
fn plain(shown: &[u8]) -> String {
    let shown = std::str::from_utf8(shown).unwrap();
    // A colour is `ESC [ digits m`.
    for after in shown.split('\u{1b}').skip(1) {
        let code = after.strip_prefix('[').and_then(|code| code.split_once('m')).map(|(code, _)| code);
        assert!(code.is_some_and(|code| code.chars().all(|c| c.is_ascii_digit() || c == ';')), "{after:?}");
    }
    assert_harmless(&shown.replace('\u{1b}', ""));
    anstream::adapter::strip_str(shown).to_string()
}

#[test]
fn every_kind_of_entry_is_printed_and_exported_without_control_characters() {
    let (transcript, row) = (hostile(), row());
    let mut shown = Vec::new();
    render::transcript(&transcript, &mut shown).unwrap();
    let shown = String::from_utf8(anstream::adapter::strip_bytes(&shown).into_vec()).unwrap();
    assert_harmless(&shown);
    // Bidirectional controls are visible.
    assert!(shown.contains("‹U+202E›‹U+2066›‹U+200F›"), "{shown}");
    let name = session_title(&row);
    let opened = StoredSession::new(row);
    assert_harmless(&markdown::session(name.as_deref(), &opened, &transcript));
    assert_harmless(&html::session(name.as_deref(), &opened, &transcript));
}

#[test]
fn the_printed_transcript_has_no_escape_sequences_but_colours() {
    let mut shown = Vec::new();
    render::transcript(&hostile(), &mut shown).unwrap();
    plain(&shown);
}

#[test]
fn lines_of_a_turn_and_cells_of_tables_have_no_control_characters() {
    for entry in hostile().entries() {
        for line in [
            render::tool_line("t\u{1b}[2J", entry.body()),
            render::plan_line(entry.body()),
            render::notice_line(entry.body()),
            render::event_line(entry.body()),
        ] {
            assert_harmless(&line.text);
            assert!(!line.text.contains('\n'), "{:?}", line.text);
        }
    }
    let mut table = crate::table::Table::new(&["~NAME"]);
    table.row([Cell::from(row().cwd)]);
    let mut out = Vec::new();
    table.write(&mut out).unwrap();
    assert_harmless(anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string().as_str());
}

fn params(text: &str) -> Object {
    let text = text.replace('!', HOSTILE).replace('\n', " ");
    Object::parse(Json::parse(text).unwrap().raw()).unwrap()
}

#[test]
fn every_field_of_a_permission_request_is_printed_without_control_characters() {
    let text: String = serde_json::from_str(&format!("\"{HOSTILE}\"")).unwrap();
    let transcript = hostile();
    for request in [
        // The tool call is in the transcript.
        r#"{"subject":{"type":"tool_call","toolCall":{"toolCallId":"d!"}}}"#,
        r#"{"subject":{"type":"!","command":"!","cwd":"!"},"description":"!"}"#,
        r#"{"subject":{"type":"command","command":["!","!"]},"description":"!\n!"}"#,
        r#"{"description":"!","toolCall":{"toolCallId":"!","title":"!","name":"!","kind":"!","rawInput":{"command":"!","workdir":"!","!":"!"},
            "locations":[{"path":"!","line":1}],"content":[{"type":"content","content":{"type":"text","text":"!"}},
            {"type":"diff","path":"!","oldText":"!","newText":"!"},{"type":"diff","changes":[],"patch":{"text":"!"}},
            {"type":"terminal","terminalId":"!"},{"type":"!","x":"!"}],"_meta":{"x":{"toolName":"!"}}}}"#,
        r#"{"toolCall":{"toolCallId":"!","rawInput":"!","_meta":{"toolName":"!"}}}"#,
    ] {
        let request = PermissionRequest::new(&params(request), Some(text.clone()), &transcript, &text);
        let mut shown = Vec::new();
        request.write(&mut shown).unwrap();
        let shown = plain(&shown);
        assert_harmless(&shown);
        assert!(shown.contains("bidirectional control characters"), "{shown}");
    }
}

#[test]
fn every_field_of_a_form_is_printed_without_control_characters() {
    let fields = r#"{"message":"!\n!","requestedSchema":{"type":"object","required":["a!"],"properties":{
        "a!":{"type":"string","title":"!\n!","description":"!\n!","maxLength":1},"b!":{"type":"string","default":"!"},
        "c!":{"type":"string","enum":["!"]},"d!":{"type":"array","items":{"anyOf":[{"const":"!","title":"!\n!"}]}},
        "e!":{"type":"boolean"},"f!":{"type":"integer","minimum":1}}}}"#;
    let link = r#"{"mode":"url","message":"!","url":"!\n!","elicitationId":"!"}"#;
    for (form, lines) in
        [(fields, &["1", "", "xx", "x", "", "2", "1", "7", "1", "?", "y", "0", "1"][..]), (link, &["9"])]
    {
        let mut form = Form::parse(&params(form)).unwrap();
        let mut shown = Vec::new();
        form.show(&mut shown).unwrap();
        for line in lines {
            if form.on_line(line) == FormStatus::Incomplete {
                form.show(&mut shown).unwrap();
            }
        }
        let shown = plain(&shown);
        assert_harmless(&shown);
        assert!(shown.contains("‹U+202E›"), "{shown}");
    }
}
