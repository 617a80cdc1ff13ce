//! Recordings of real agents, folded.

mod common;

use std::fmt::Write;

use common::{recordings, testdata};
use expect_test::expect_file;
use parlor_dialect::{Fold, Recorded, Side, view};
use parlor_session::{Content, Entry, EntryId, Slot, Transcript};

#[test]
fn every_recording_folds_and_no_agent_line_is_refused() {
    for (name, dialect, text) in recordings() {
        let mut all = Fold::new(dialect);
        for line in text.lines() {
            let from_agent = Recorded::read(line).is_some_and(|line| line.from == Some(Side::Agent));
            let taken = all.line(line);
            assert!(taken.is_ok() || !from_agent, "{name}: {line}: {taken:?}");
        }
        let mut shown = String::new();
        for session in all.sessions() {
            let mut fold = Fold::of_session(dialect, session.clone());
            text.lines().for_each(|line| drop(fold.line(line)));
            writeln!(shown, "session {session}").unwrap();
            show(fold.transcript(), &mut shown);
            assert!(
                serde_json::from_str::<serde_json::Value>(view::transcript(fold.transcript()).as_str())
                    .is_ok()
            );
        }
        expect_file![testdata("folded").join(format!("{name}.txt"))].assert_eq(&shown);
    }
}

/// A transcript in few lines: every entry, its blocks counted, its text cut.
fn show(transcript: &Transcript, out: &mut String) {
    for entry in transcript.entries() {
        show_entry(entry, out);
    }
    for (name, slot) in [
        ("info", Slot::Info),
        ("usage", Slot::Usage),
        ("commands", Slot::Commands),
        ("options", Slot::Options),
        ("mode", Slot::Mode),
    ] {
        if let Some(body) = transcript.slot(slot) {
            let meta = body.meta.as_ref().map(|meta| format!(" _meta {meta:?}")).unwrap_or_default();
            writeln!(out, "  {name}: {}", cut(&format!("{:?}{meta}", body.fields))).unwrap();
        }
    }
    if let Some(state) = transcript.state() {
        let reason = state.stop_reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default();
        writeln!(
            out,
            "  state: {}{reason} {}",
            view::activity_name(&state.activity),
            cut(&format!("{:?}", state.fields))
        )
        .unwrap();
    }
}

fn show_entry(entry: &Entry, out: &mut String) {
    let body = entry.body();
    let fields = if body.fields.is_empty() {
        String::new()
    } else {
        format!(" {}", cut(&format!("{:?}", body.fields)))
    };
    let meta =
        body.meta.as_ref().map(|meta| format!(" _meta {}", cut(&format!("{meta:?}")))).unwrap_or_default();
    let content = match entry.id() {
        EntryId::Message(..) | EntryId::SessionMessage(_) | EntryId::Compaction(_) => {
            format!(" {} {:?}", blocks(&body.content), cut(&body.content.to_text()))
        }
        EntryId::ToolCall(_) => {
            format!(" {} {}", blocks(&body.content), cut(body.content.to_json().as_str()))
        }
        EntryId::Terminal(_) => format!(" output {:?}", cut(&String::from_utf8_lossy(&body.output))),
        EntryId::Plan(_) | EntryId::Subagent(_) | EntryId::Event(_) | EntryId::Note(_) => String::new(),
    };
    let id = match entry.id() {
        EntryId::Message(_, id) | EntryId::SessionMessage(id) => id.to_string(),
        EntryId::ToolCall(id) => id.to_string(),
        EntryId::Plan(id) => id.to_string(),
        EntryId::Terminal(id) => id.to_string(),
        EntryId::Compaction(id) => id.to_string(),
        EntryId::Subagent(id) => id.to_string(),
        EntryId::Event(id) => id.to_string(),
        EntryId::Note(seq) => seq.to_string(),
    };
    writeln!(out, "  {} {id}{content}{fields}{meta}", view::kind_name(entry)).unwrap();
}

fn blocks(content: &Content) -> String {
    let extras = content.iter().filter(|item| item.extra.is_some()).count();
    let extras = if extras > 0 { format!(" ({extras} said more)") } else { String::new() };
    format!("[{}]{extras}", content.len())
}

fn cut(text: &str) -> String {
    if text.chars().count() <= 160 {
        return text.to_owned();
    }
    format!("{}... {} bytes", text.chars().take(120).collect::<String>(), text.len())
}
