//! Tests that nothing an agent sends can become a script, a style or an address that a browser loads.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use maud::Markup;
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
                    ["https://", "http://", "mailto:", "#", "/s/"]
                        .iter()
                        .any(|start| value.starts_with(start))
                }
                "src" => value.starts_with("/media/"),
                "rel" => value == "noopener noreferrer nofollow",
                "target" => value == "_blank",
                "id" | "title" | "alt" | "aria-label" | "aria-labelledby" | "datetime" | "value" => true,
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

/// Requests with `!` in every string.
const REQUESTS: [(&str, &str); 5] = [
    (
        "session/request_permission",
        r#"{"title":"!","description":"!","toolCall":{"toolCallId":"!","title":"!","name":"!","kind":"!","status":"!",
            "rawInput":{"command":"!","cwd":"!","other":"!"},"locations":[{"path":"!","line":3}],
            "content":[{"type":"content","content":{"type":"text","text":"!"}},{"type":"diff","path":"!","oldText":"!","newText":"!\n!"},
                {"type":"content","content":{"type":"resource","resource":{"uri":"!","text":"!"}}},{"type":"!","x":"!"},
                {"type":"diff","changes":[{"operation":"move","path":"!","oldPath":"!"}],"patch":{"text":"!"}},
                {"type":"terminal","terminalId":"!"}],"_meta":{"toolName":"!"}},
            "options":[{"optionId":"!","name":"!","kind":"!"},{"optionId":"!","name":"!","kind":"allow_once"}]}"#,
    ),
    ("session/request_permission", r#"{"subject":{"type":"!","command":["!","!"],"cwd":"!"},"options":[]}"#),
    (
        "elicitation/create",
        r#"{"mode":"form","message":"!","requestedSchema":{"type":"object","required":["a!"],"properties":{
            "a!":{"type":"string","title":"!","description":"!","default":"!","minLength":1},
            "b!":{"type":"number","default":1.5,"minimum":-1e3},"c!":{"type":"boolean","title":"!","default":true},
            "d!":{"type":"string","oneOf":[{"const":"!","title":"!"},{"const":"x"}],"default":"!"},
            "e!":{"type":"array","items":{"enum":["!"]},"default":["!"]},"f!":{"type":"string","format":"password"},
            "g!":{"type":"string","enum":["!","1","2","3","4","5","6","7","8","9","10","11","12","13"]}}}}"#,
    ),
    ("elicitation/create", r#"{"mode":"url","message":"!","url":"!"}"#),
    ("!", r#"{"!":"!"}"#),
];

fn request_card(method: &str, params: &str, text: &str) -> RequestCard {
    let literal = parlor_json::string_literal(text);
    let request = format!(
        r#"{{"opened":[{{"requestId":"r1","sessionId":"!","agent":"!","cwd":"!","title":"!","openedAt":"2026-03-04T09:41:00Z",
            "method":"{method}","params":{params}}}]}}"#
    );
    let request = request.replace('!', &literal[1..literal.len() - 1]);
    let request = parlor_json::Json::parse(&request).unwrap_or_else(|error| panic!("{error}: {request}"));
    let notification = parlor_client::Notification::new("_parlor/requests/update", Some(request));
    RequestCard::new(&parlor_client::RequestsUpdate::of(&notification).unwrap().opened[0])
}

#[test]
fn no_field_of_any_request_becomes_a_script() {
    for text in HOSTILE {
        for (method, params) in REQUESTS {
            let card = request_card(method, params, text);
            for place in [CardPlace::Dock(&Markup::default()), CardPlace::Inbox] {
                assert_safe(&card.html(place).into_string(), text);
            }
        }
    }
}

#[test]
fn a_link_of_a_form_is_shown_in_full_and_opens_only_web_pages() {
    for (url, is_link) in [
        ("https://example.org/a?b=c", true),
        ("javascript:alert(1)", false),
        ("data:text/html,x", false),
        ("file:///etc/passwd", false),
    ] {
        let card = request_card("elicitation/create", r#"{"mode":"url","message":"x","url":"!"}"#, url);
        let html = card.html(CardPlace::Dock(&Markup::default())).into_string();
        assert_eq!(html.contains(&format!("href=\"{url}\"")), is_link, "{html}");
        assert!(tokens(&html).text.borrow().contains(url), "{html}");
    }
}

const COMMAND: &str = r#"{"toolCall":{"toolCallId":"t","title":"!","kind":"execute","rawInput":{"command":"!"}},
    "options":[{"optionId":"a b","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"Reject","kind":"reject_once"}]}"#;

#[test]
fn a_command_is_shown_in_full_with_its_directory() {
    let long = format!("echo {} && rm -rf ~\ncd  /", "x".repeat(200_000));
    let card = request_card("session/request_permission", &COMMAND.replacen("\"!\"", "\"Run\"", 1), &long);
    let html = card.html(CardPlace::Dock(&Markup::default())).into_string();
    let text = tokens(&html).text.borrow().clone();
    assert!(text.contains(&long), "{}", text.len());
    assert!(text.contains("Command, in "), "the directory is missing");
    let card = request_card("session/request_permission", COMMAND, "ls");
    let text = tokens(&card.html(CardPlace::Inbox).into_string()).text.borrow().clone();
    assert_eq!(
        text,
        "ls asks to run a commandCommand, in lslsEnd of the request: 1 commandYes (allow once) 1Reject 2Not now Esc"
    );
    assert_eq!(card.summary(), "run ls");
    assert_eq!(card.tool_call(), Some(&"t".into()));
}

/// A permission for a command, with everything else that a request can have.
const EVERYTHING: &str = r#"{"description":"Before the tag","toolCall":{"toolCallId":"t","title":"Prepare the release","kind":"execute",
    "name":"shell","rawInput":{"command":"make dist","timeout":30},"locations":[{"path":"/w/VERSION","line":7}],"content":[
        {"type":"diff","changes":[{"operation":"move","oldPath":"/w/old.txt","path":"/w/new.txt"}]},
        {"type":"diff","path":"/w/a.txt","oldText":"a\n","newText":"b\n"},
        {"type":"diff","path":"/w/a.txt","oldText":"b\n","newText":"c\n"},
        {"type":"content","content":{"type":"text","text":"A remark!"}},
        {"type":"content","content":{"type":"resource","resource":{"uri":"file:///r.txt","text":"of a resource"}}},
        {"type":"_later","x":"of a later version"}]},
    "options":[{"optionId":"always","name":"Always allow","kind":"allow_always"},{"optionId":"once","name":"Allow once","kind":"allow_once"}]}"#;

#[test]
fn a_permission_shows_everything_that_it_permits() {
    let card = request_card("session/request_permission", EVERYTHING, "");
    let html = card.html(CardPlace::Inbox).into_string();
    let text = tokens(&html).text.borrow().clone();
    for part in [
        "asks to run a command and change 2 files",
        "make dist",
        "/w/old.txt → /w/new.txt",
        "/w/VERSION:7",
        "shell",
        "Prepare the release",
        "Before the tag",
        "timeout",
        "A remark",
        "of a resource",
        "of a later version",
        "End of the request: 1 command, 2 files",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // What permits it once is the main option; each names the request as it was opened.
    let button = |option: &str| {
        let at = html.find(&format!("data-option=\"{option}\"")).unwrap();
        html[..at].rsplit_once("<button").unwrap().1.to_owned()
    };
    assert!(button("once").contains("btn main") && !button("always").contains("btn main"), "{html}");
    for option in ["once", "always"] {
        assert!(button(option).contains("data-opened=\"2026-03-04T09:41:00Z\""), "{html}");
    }
    let long = request_card("session/request_permission", EVERYTHING, &"x".repeat(70_000));
    assert!(long.html(CardPlace::Inbox).into_string().contains(" more bytes are not shown"));
}

#[test]
fn the_directory_of_a_command_is_that_of_the_session_unless_the_agent_names_one() {
    for (input, shown) in
        [(r#"{"command":"ls"}"#, "in /w"), (r#"{"command":"ls","cwd":"/elsewhere"}"#, "in /elsewhere")]
    {
        let params = format!(
            r#"{{"toolCall":{{"toolCallId":"t","title":"ls","kind":"execute","rawInput":{input}}},"options":[]}}"#
        );
        let html =
            request_card("session/request_permission", &params, "/w").html(CardPlace::Inbox).into_string();
        let text = tokens(&html).text.borrow().clone();
        assert!(text.contains(&format!("Command, {shown}ls")), "{text}");
        assert!(text.contains("Decline"), "without options it can only be declined: {text}");
    }
}

#[test]
fn a_permission_that_names_nothing_says_so() {
    let params = r#"{"toolCall":{"toolCallId":"t","title":"Do it"},"options":[]}"#;
    let html = request_card("session/request_permission", params, "").html(CardPlace::Inbox).into_string();
    assert!(html.contains("The agent gave no command, no files and no input."), "{html}");
}

#[test]
fn hidden_characters_are_counted_wherever_they_are() {
    let warning = |params: &str| {
        let html =
            request_card("session/request_permission", params, "").html(CardPlace::Inbox).into_string();
        let text = tokens(&html).text.borrow().clone();
        text.split_once(" bidirectional").map(|(before, _)| before.chars().last())
    };
    let hidden = '\u{202e}';
    for params in [
        format!(r#"{{"options":[{{"optionId":"o","name":"Re{hidden}ject","kind":"allow_once"}}]}}"#),
        format!(
            r#"{{"toolCall":{{"toolCallId":"t","content":[{{"type":"diff","path":"a","oldText":"x","newText":"{hidden}"}}]}},"options":[]}}"#
        ),
        format!(r#"{{"description":"a{hidden}b","options":[]}}"#),
        format!(r#"{{"toolCall":{{"toolCallId":"t","locations":[{{"path":"a{hidden}"}}]}},"options":[]}}"#),
    ] {
        assert_eq!(warning(&params), Some(Some('1')), "{params}");
    }
    assert_eq!(warning(r#"{"options":[]}"#), None);
}

#[test]
fn a_request_of_an_unknown_method_can_only_be_declined() {
    let form = r#"{"mode":"form","message":"x","requestedSchema":{"type":"object","properties":{}}}"#;
    let card = request_card("_other/ask", form, "");
    assert!(card.headline().ends_with("sends a request that can only be declined"), "{}", card.headline());
    assert_eq!(card.answer(None, &|_| Vec::new()), Err(AnswerError::NotAnswerable));
    let html = request_card(
        "elicitation/create",
        r#"{"mode":"form","message":"x","requestedSchema":{"type":"object","properties":{"p":{"type":"string","format":"password"}}}}"#,
        "",
    );
    assert!(html.html(CardPlace::Inbox).into_string().contains("type=\"password\""));
}

#[test]
fn an_option_is_selected_by_its_id() {
    let card = request_card("session/request_permission", COMMAND, "ls");
    assert!(card.html(CardPlace::Dock(&Markup::default())).into_string().contains("data-option=\"a%20b\""));
    let answer = |option: Option<&str>| card.answer(option, &|_| Vec::new());
    let selected = r#"{"outcome":{"outcome":"selected","optionId":"a b"}}"#;
    assert_eq!(answer(Some("a%20b")).unwrap().to_json().as_str(), selected);
    assert_eq!(answer(Some("x")), Err(AnswerError::UnknownOption));
    assert_eq!(answer(None), Err(AnswerError::UnknownOption));
    assert_eq!(card.decline().to_json().as_str(), r#"{"outcome":{"outcome":"cancelled"}}"#);
    assert!(
        card.is("r1", "2026-03-04T09:41:00Z") && !card.is("r1", "2026-03-04T09:42:00Z") && !card.is("r2", "")
    );
}

#[test]
fn an_option_whose_name_hides_its_effect_says_it() {
    let shown = |name: &str, kind: &str| {
        let params = format!(r#"{{"options":[{{"optionId":"o","name":"{name}","kind":"{kind}"}}]}}"#);
        let html = request_card("session/request_permission", &params, "")
            .html(CardPlace::Dock(&Markup::default()))
            .into_string();
        let text = tokens(&html).text.borrow().clone();
        text.split_once("End of the request").unwrap().1.split_once(" 1").unwrap().0.to_owned()
    };
    for (name, kind, text) in [
        ("Allow once", "allow_once", "Allow once"),
        ("Reject", "allow_always", "Reject (always allow)"),
        ("Always allow edits here", "allow_always", "Always allow edits here"),
        ("Allow", "allow_always", "Allow (always allow)"),
        ("No", "reject_once", "No (reject once)"),
        ("New", "_new", "New"),
    ] {
        assert_eq!(shown(name, kind), text);
    }
}

#[test]
fn the_values_of_a_form_are_checked() {
    let form = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["name","size"],
        "properties":{"name":{"type":"string","title":"Your name","maxLength":5},"cups":{"type":"integer","maximum":3},
            "sugar":{"type":"boolean"},"size":{"type":"string","enum":["s","l"]},
            "milk":{"type":"array","items":{"anyOf":[{"const":"o","title":"Oat"},{"const":"c","title":"Cow"}]}}}}}"#;
    let card = request_card("elicitation/create", form, "");
    let answer = |fields: &[(&str, &str)]| {
        let values = |name: &str| {
            let named = fields.iter().filter(|(field, _)| *field == name);
            named.map(|(_, value)| (*value).to_owned()).collect()
        };
        let result = card.answer(None, &values);
        result.map(|result| result.to_json().as_str().to_owned()).map_err(|error| error.to_string())
    };
    assert_eq!(answer(&[]).unwrap_err(), "Your name: a value is required");
    assert_eq!(answer(&[("r1.0", "Adalbert")]).unwrap_err(), "Your name: the length has to be at most 5");
    assert_eq!(
        answer(&[("r1.0", "Ada"), ("r1.1", "9")]).unwrap_err(),
        "cups: the number has to be at most 3"
    );
    assert_eq!(answer(&[("r1.0", "Ada"), ("r1.3", "2")]).unwrap_err(), "size: there is no such choice");
    assert_eq!(answer(&[("r1.0", "Ada"), ("r1.3", "-1")]).unwrap_err(), "size: there is no such choice");
    let all = [("r1.0", "Ada"), ("r1.1", "2"), ("r1.2", "true"), ("r1.3", "1"), ("r1.4", "0"), ("r1.4", "1")];
    let content = r#"{"name":"Ada","cups":2,"sugar":true,"size":"l","milk":["o","c"]}"#;
    assert_eq!(answer(&all).unwrap(), format!(r#"{{"action":"accept","content":{content}}}"#));
    assert_eq!(card.decline().to_json().as_str(), r#"{"action":"decline"}"#);
}

#[test]
fn kinds_of_tool_calls_show_what_they_do() {
    let call = |fields: &str| {
        let update = format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"t",{fields}}}"#);
        let html = rendered(&fold([update]));
        assert_safe(&html, fields);
        let summary = html.split_once("<summary>").unwrap().1.split_once("</summary>").unwrap().0;
        // The time at which it was created.
        let text = tokens(summary).text.borrow().replace("00:00", "");
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
        r#"{"sessionUpdate":"_new","x":1}"#,
    ]);
    let html = rendered(&transcript);
    assert_safe(&html, "events");
    let text = tokens(&html).text.borrow().clone();
    for part in ["1 of 2 done", "Turn failed", "overloaded", "2026-03-04 09:29 UTC", "_new", r#""x":1"#] {
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
