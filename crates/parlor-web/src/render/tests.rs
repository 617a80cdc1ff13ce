//! Tests that nothing an agent sends can become a script, a style or an address that a browser loads.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use parlor_dialect::{Dialect, Fold};
use parlor_session::Transcript;
use proptest::prelude::*;

use super::content_block::MediaSource;
use super::*;

/// The tags that the renderer writes.
const TAGS: &str = "a article audio blockquote br button caption circle code dd del details div dl dt em fieldset form h1 h2 h3 h4 h5 h6 header hr \
    img input kbd label legend li mark ol option p pre section select span strong summary svg table tbody td th thead time tr ul use";

/// Collects the tags and the text of a page.
#[derive(Default)]
struct Collector {
    tags: RefCell<Vec<Tag>>,
    text: RefCell<String>,
    errors: RefCell<Vec<String>>,
}

impl TokenSink for Collector {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) => self.tags.borrow_mut().push(tag),
            Token::CharacterTokens(text) => self.text.borrow_mut().push_str(&text),
            Token::CommentToken(text) => self.errors.borrow_mut().push(format!("comment {text}")),
            Token::ParseError(error) => self.errors.borrow_mut().push(error.into_owned()),
            Token::DoctypeToken(_) => self.errors.borrow_mut().push("doctype".to_owned()),
            Token::NullCharacterToken => self.errors.borrow_mut().push("null".to_owned()),
            Token::EOFToken => {}
        }
        TokenSinkResult::Continue
    }
}

/// The text of HTML, as a browser reads it.
pub(crate) fn text_of_html(html: &str) -> String {
    tokens(html).text.take()
}

/// Reads HTML as a browser does.
fn tokens(html: &str) -> Collector {
    let tokenizer = Tokenizer::new(Collector::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(html));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink
}

/// Checks that HTML has only the tags, attributes and addresses that the renderer writes, and that all tags are closed.
#[track_caller]
pub(crate) fn assert_safe(html: &str, source: &str) {
    let page = tokens(html);
    assert!(page.errors.borrow().is_empty(), "{:?} of {source}: {html}", page.errors.borrow());
    let mut open: Vec<String> = Vec::new();
    for tag in page.tags.borrow().iter() {
        let name = tag.name.to_string();
        assert!(TAGS.split_whitespace().any(|known| known == name), "<{name}> of {source}: {html}");
        for attribute in &tag.attrs {
            let (attribute, value) = (&*attribute.name.local, &*attribute.value);
            let is_safe = match attribute {
                "class" => value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" -".contains(&byte)),
                "href" if name == "use" => value.starts_with("#i-"),
                "href" => {
                    let value = value.to_lowercase();
                    ["https://", "http://", "mailto:", "#", "/s/", "/media/"]
                        .iter()
                        .any(|start| value.starts_with(start))
                }
                "src" => value.starts_with("/media/"),
                "rel" => value == "noopener noreferrer nofollow",
                "target" => value == "_blank",
                "download" | "id" | "title" | "alt" | "aria-label" | "aria-labelledby" | "datetime"
                | "value" => true,
                "data-session" | "data-request" | "data-option" => {
                    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte))
                }
                "data-end" | "data-opened" => {
                    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ,:-.".contains(&byte))
                }
                "autocomplete" | "checked" | "max" | "min" | "name" | "required" | "selected" | "step" => {
                    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
                }
                "aria-hidden" | "aria-pressed" | "colspan" | "controls" | "data-do" | "data-n" | "data-s"
                | "loading" | "open" | "preload" | "role" | "start" | "tabindex" | "type" => {
                    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                }
                _ => false,
            };
            assert!(is_safe, "{attribute}={value} in <{name}> of {source}");
        }
        match tag.kind {
            TagKind::StartTag if matches!(&*name, "br" | "hr" | "img" | "input" | "use") => {}
            TagKind::StartTag => open.push(name),
            TagKind::EndTag => assert_eq!(open.pop(), Some(name), "{source}: {html}"),
        }
    }
    assert_eq!(open, [""; 0], "{source}: {html}");
    let is_harmful = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || text::is_bidirectional(c);
    assert!(!html.contains(is_harmful), "{source}: {html:?}");
}

fn fold(updates: impl IntoIterator<Item = impl AsRef<str>>) -> Transcript {
    let mut fold = Fold::new(Dialect::V2);
    for update in updates {
        fold.line(update.as_ref()).unwrap_or_else(|problem| panic!("{problem}: {}", update.as_ref()));
    }
    fold.transcript().clone()
}

/// The elements of all entries.
fn rendered(transcript: &Transcript) -> String {
    let context = EntryContext {
        transcript,
        agent: "age\u{202e}nt <b>",
        cwd: "/w",
        media: MediaSource::Served("/media/"),
        number: Some(7),
        created_at: Some(jiff::Timestamp::UNIX_EPOCH),
        changed: None,
        is_waiting: true,
    };
    transcript
        .entries()
        .iter()
        .filter_map(|one| entry(one, &context))
        .map(maud::PreEscaped::into_string)
        .collect()
}

fn message(kind: &str, text: &str) -> String {
    let text = parlor_json::string_literal(text);
    format!(r#"{{"sessionUpdate":"{kind}","messageId":"m1","content":[{{"type":"text","text":{text}}}]}}"#)
}

pub(crate) const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "<ScRiPt src=//example.org/x.js></script >",
    "text <img src=x onerror=alert(1)> text",
    "<svg/onload=alert(1)>",
    "<svg><use href=\"data:image/svg+xml,x#y\"/></svg><svg><animate onbegin=alert(1)>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<a href=\"javascript:alert(1)\">x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](javascript&#58;alert(1))",
    "[x](java\u{9}script:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](\u{1}javascript:alert(1)) [x]( javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [x](file:///etc/passwd) [x](//example.org) [x](relative)",
    "[x](blob:https://example.org/1) [x](https:javascript:alert(1))",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    "![x](https://example.org/pixel.png)",
    "![x](javascript:alert(1))",
    "[![x](https://example.org/a)](https://example.org/b)",
    "[x](https://example.org/\"onmouseover=\"alert(1))",
    "[x](https://example.org 'a\" onclick=\"alert(1)')",
    "`<script>`\n\n```html\n<script>alert(1)</script>\n```\n\n```\"><script>alert(1)</script>\ncode\n```",
    "```html onload=alert(1)\n</code></pre></div><script>",
    "    <script>alert(1)</script>",
    "<!-- comment --><style>*{display:none}</style><iframe srcdoc=x></iframe><base href=//x>",
    "<!-- --!><script>alert(1)</script> -->",
    "<form action=https://example.org><input name=x><button formaction=javascript:alert(1)>x</button></form>",
    "<meta http-equiv=refresh content=0;url=https://example.org><link rel=stylesheet href=//x>",
    "</li></ol></main></body></html><script>alert(1)</script>",
    "# heading {#id onclick=alert(1)}\n\n|a|b|\n|-:|:-:|\n|<b>|</td><script>|",
    "<details open ontoggle=alert(1)>",
    "<div id=\"p\" class=\"composer\" style=\"position:fixed\">fake</div>",
    "\u{0}<\u{0}script>\u{1b}]0;x\u{7}",
    "\u{1b}[31m<b>\u{1b}]8;;javascript:alert(1)\u{7}link\u{1b}]8;;\u{7}",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62; &#x3c;img src=x onerror=alert(1)&#x3e;",
    "@@ -1 +1 @@\n-<script>\n+<img src=x onerror=alert(1)>",
    "- [x] <b>\n- [ ] <script>\n\n9. nine",
    "\u{202e}evil\u{2066}",
];

#[test]
fn no_message_of_the_attack_list_becomes_a_script() {
    for text in HOSTILE {
        for kind in ["user_message", "agent_message", "agent_thought"] {
            assert_safe(&rendered(&fold([message(kind, text)])), text);
        }
    }
}

/// An update of each kind, with `!` in every string.
const UPDATES: &str = include_str!("../../../parlor/tests/hostile.jsonl");

#[test]
fn no_field_of_any_entry_becomes_a_script() {
    for text in HOSTILE {
        let literal = parlor_json::string_literal(text);
        let inner = &literal[1..literal.len() - 1];
        let updates = UPDATES.lines().map(|update| update.replace('!', inner));
        // An id that is not whole JSON text is rejected by the decoder, and then has nothing to show.
        let transcript = fold(updates);
        assert!(transcript.entries().len() > 15);
        assert_safe(&rendered(&transcript), text);
    }
}

#[test]
fn kinds_of_tool_calls_show_what_they_do() {
    let call = |fields: &str| {
        let update = format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t",{fields}}}"#);
        let html = rendered(&fold([update]));
        assert_safe(&html, fields);
        let summary = html.split_once("<summary>").unwrap().1.split_once("</summary>").unwrap().0;
        // The time at which it was created.
        let text = text_of_html(summary).replace("00:00", "");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (fields, summary) in [
        (r#""title":"x","kind":"execute","rawInput":{"command":["ls","-l"]}"#, "Runls -lwaits for you"),
        (r#""title":"`ls`","kind":"execute","status":"completed""#, "Runls"),
        (
            r#""title":"x","kind":"read","status":"completed","locations":[{"path":"/w/a.rs","line":3}]"#,
            "Reada.rs",
        ),
        (r#""title":"Reading","kind":"read","status":"completed""#, "Reading"),
        (
            r#""title":"x","kind":"search","status":"completed","rawInput":{"pattern":"a|b"}"#,
            r#"Search"a|b""#,
        ),
        (
            r#""title":"x","kind":"edit","status":"completed","content":[{"type":"diff","changes":[],"patch":{"text":"--- /w/a\n+++ /w/a\n@@ -1 +1,2 @@\n-a\n+b\n+c\n"}}]"#,
            "Edita+2 −1",
        ),
        (r#""title":"Something new","kind":"_other","status":"completed""#, "Something new"),
        (r#""status":"completed""#, "t"),
    ] {
        assert_eq!(call(fields), summary, "{fields}");
    }
}

#[test]
fn a_terminal_is_shown_once_by_its_tool_call() {
    let transcript = fold([
        r#"{"sessionUpdate":"terminal_update","terminalId":"x","command":"make","cwd":"/w","exitStatus":{"exitCode":2}}"#,
        r#"{"sessionUpdate":"terminal_output_chunk","terminalId":"x","data":"G1szMW1yZWQ="}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"execute","status":"failed","title":"make","content":[{"type":"terminal","terminalId":"x"}]}"#,
    ]);
    let html = rendered(&transcript);
    assert_safe(&html, "a terminal");
    assert_eq!(html.matches("<span class=\"a1\">red</span>").count(), 1, "{html}");
    assert!(html.contains("exit 2") && html.contains("data-s=\"bad\" open"), "{html}");
}

#[test]
fn plans_events_and_unknown_updates_are_shown() {
    let transcript = fold([
        r#"{"sessionUpdate":"plan_update","plan":{"type":"items","planId":"p","entries":[{"content":"a","status":"completed"},{"content":"b","status":"in_progress"}]}}"#,
        r#"{"sessionUpdate":"_parlor_event","eventId":"e","type":"turn_failed","at":"2026-03-04T09:29:00Z","error":{"message":"overloaded"}}"#,
        r#"{"sessionUpdate":"_parlor_event","eventId":"f","type":"turn_cancelled","at":"2026-03-04T09:29:00Z"}"#,
        r#"{"sessionUpdate":"_parlor_event","eventId":"g","type":"turn_refused","at":"2026-03-04T09:29:00Z"}"#,
        r#"{"sessionUpdate":"_new","x":1}"#,
    ]);
    let html = rendered(&transcript);
    assert_safe(&html, "events");
    let text = text_of_html(&html);
    for part in [
        "1 of 2 done",
        "Turn failed",
        "overloaded",
        "2026-03-04 09:29 UTC",
        "Turn cancelled",
        "Turn refused by the agent",
        "_new",
        r#""x":1"#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

proptest! {
    #[test]
    fn no_text_becomes_a_script(
        text in "(<|>|/|&|\"|'|=|`|\\[|\\]|\\(|\\)|!|#|:|-|\\||\n|\n\n| |\t|\u{0}|\u{1b}|script|style|img src=x|onerror=a|javascript:|data:|https://|x|&#60;|<!--|-->|```){0,40}"
    ) {
        for kind in ["user_message", "agent_message"] {
            assert_safe(&rendered(&fold([message(kind, &text)])), &text);
        }
        let literal = parlor_json::string_literal(&text);
        let inner = &literal[1..literal.len() - 1];
        assert_safe(&rendered(&fold(UPDATES.lines().map(|update| update.replace('!', inner)))), &text);
    }
}
