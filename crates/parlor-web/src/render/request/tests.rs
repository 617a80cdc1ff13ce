//! Tests of what a person sees of a request before answering it.

use maud::Markup;
use parlor_client::{Notification, RequestsUpdate};
use parlor_json::Json;

use super::*;
use crate::render::tests::{HOSTILE, assert_safe, text_of_html};

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
    let request = Json::parse(&request).unwrap_or_else(|error| panic!("{error}: {request}"));
    let notification = Notification::new("_parlor/requests/update", Some(request));
    RequestCard::new(&RequestsUpdate::of(&notification).unwrap().opened[0])
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
        let text = text_of_html(&html);
        assert!(text.contains(url) && text.contains("I opened it"), "{text}");
    }
}

const COMMAND: &str = r#"{"toolCall":{"toolCallId":"t","title":"!","kind":"execute","rawInput":{"command":"!"}},
    "options":[{"optionId":"a b","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"Reject","kind":"reject_once"}]}"#;

#[test]
fn a_command_is_shown_in_full_with_its_directory() {
    let long = format!("echo {} && rm -rf ~\ncd  /", "x".repeat(200_000));
    let card = request_card("session/request_permission", &COMMAND.replacen("\"!\"", "\"Run\"", 1), &long);
    let html = card.html(CardPlace::Dock(&Markup::default())).into_string();
    let text = text_of_html(&html);
    assert!(text.contains(&long), "{}", text.len());
    assert!(text.contains("Command, in "), "the directory is missing");
    let card = request_card("session/request_permission", COMMAND, "ls");
    let text = text_of_html(&card.html(CardPlace::Inbox).into_string());
    assert_eq!(
        text,
        "ls asks to run a commandCommand, in lslsMore belowYes (allow once) 1Reject 2Not now Esc"
    );
    assert_eq!(card.summary(), "run ls");
    assert_eq!(card.tool_call(), Some(&"t".into()));
}

/// A permission for a command, with everything else that a request can have.
const EVERYTHING: &str = r#"{"description":"Before the tag","toolCall":{"toolCallId":"t","title":"Prepare the release","kind":"execute",
    "name":"shell","rawInput":{"command":"make dist","cwd":"/elsewhere","timeout":30},"locations":[{"path":"/w/VERSION","line":7}],"content":[
        {"type":"diff","changes":[{"operation":"move","oldPath":"/w/old.txt","path":"/w/new.txt"}]},
        {"type":"diff","path":"/w/a.txt","oldText":"a\n","newText":"b\n"},
        {"type":"diff","path":"/w/a.txt","oldText":"b\n","newText":"c\n"},
        {"type":"content","content":{"type":"text","text":"A remark!"}},
        {"type":"content","content":{"type":"resource","resource":{"uri":"file:///r.txt","text":"of a resource"}}},
        {"type":"_later","x":"of a later version"},{"type":"terminal","terminalId":"build"}]},
    "options":[{"optionId":"always","name":"Always allow","kind":"allow_always"},{"optionId":"once","name":"Allow once","kind":"allow_once"}]}"#;

/// The text of a card in the inbox.
fn card_text(method: &str, params: &str, text: &str) -> String {
    text_of_html(&request_card(method, params, text).html(CardPlace::Inbox).into_string())
}

#[test]
fn a_permission_shows_everything_that_it_permits() {
    let card = request_card("session/request_permission", EVERYTHING, "");
    let html = card.html(CardPlace::Inbox).into_string();
    let parts = [
        "The agent asks to run a command and change 2 files",
        "Command, in /elsewhere",
        "make dist",
        "/w/old.txt → /w/new.txtmoveSide by side+0 −0/w/new.txt, old line, new line, text",
        "/w/a.txtSide by side+1 −1/w/a.txt, old line, new line, textLine 1ab",
        "/w/a.txtSide by side+1 −1/w/a.txt, old line, new line, textLine 1bc",
        "Path/w/VERSION:7",
        "Toolshell",
        "Prepare the release\nBefore the tag",
        r#"Input{"command":"make dist","cwd":"/elsewhere","timeout":30}"#,
        "A remark",
        "[file file:///r.txt 1 line]of a resource",
        r#"{"type":"_later","x":"of a later version"}"#,
        "Terminal build",
        "More below",
        "Always allow 1Allow once 2Not now Esc",
    ];
    assert_eq!(text_of_html(&html), parts.concat());
    assert!(html.contains("data-end=\"End of the request: 1 command, 2 files\""), "{html}");
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
        let text = text_of_html(&html);
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
fn a_diff_is_shown_whole_unless_it_is_very_long() {
    let permission = |lines: usize| {
        let text = "zzz\\n".repeat(lines);
        let params = format!(
            r#"{{"toolCall":{{"toolCallId":"t","content":[{{"type":"diff","path":"a","oldText":null,"newText":"{text}"}}]}},"options":[]}}"#
        );
        card_text("session/request_permission", &params, "")
    };
    let text = permission(10_000);
    assert_eq!((text.matches("zzz").count(), text.contains("more lines")), (10_000, false));
    assert!(permission(10_007).contains("7 more lines"));
}

#[test]
fn hidden_characters_are_shown_and_counted_wherever_they_are() {
    let permission = "session/request_permission";
    let call = |call: &str| format!(r#"{{"toolCall":{{"toolCallId":"t",{call}}},"options":[]}}"#);
    let content = |content: &str| call(&format!(r#""content":[{content}]"#));
    let form = |form: &str| format!(r#"{{"mode":"form","message":"x",{form}}}"#);
    let field = |field: &str| {
        form(&format!(r#""requestedSchema":{{"type":"object","properties":{{"a":{{{field}}}}}}}"#))
    };
    for (method, params) in [
        (permission, r#"{"options":[{"optionId":"o","name":"Re!ject","kind":"allow_once"}]}"#.to_owned()),
        (permission, r#"{"description":"a!b","options":[]}"#.to_owned()),
        (permission, r#"{"subject":{"type":"command","command":"a","cwd":"/w!"},"options":[]}"#.to_owned()),
        (permission, call(r#""title":"a!b""#)),
        (permission, call(r#""name":"a!b","title":"x""#)),
        (permission, call(r#""kind":"execute","title":"x","rawInput":{"command":"make !"}"#)),
        (permission, call(r#""kind":"execute","title":"x","rawInput":{"command":["make","!"]}"#)),
        (permission, call(r#""title":"x","rawInput":{"other":"!"}"#)),
        (permission, call(r#""title":"x","rawInput":{"!":1}"#)),
        (permission, call(r#""title":"x","locations":[{"path":"a!"}]"#)),
        (permission, content(r#"{"type":"diff","path":"a","oldText":"x","newText":"!"}"#)),
        (permission, content(r#"{"type":"diff","path":"a","oldText":"!","newText":"x"}"#)),
        (
            permission,
            content(r#"{"type":"diff","changes":[{"operation":"move","oldPath":"a!","path":"b"}]}"#),
        ),
        (permission, content(r#"{"type":"content","content":{"type":"text","text":"!"}}"#)),
        (
            permission,
            content(r#"{"type":"content","content":{"type":"resource","resource":{"uri":"x","text":"!"}}}"#),
        ),
        (permission, content(r#"{"type":"_later","x":"!"}"#)),
        (permission, content(r#"{"type":"terminal","terminalId":"!"}"#)),
        (
            "elicitation/create",
            r#"{"mode":"form","message":"!","requestedSchema":{"type":"object","properties":{}}}"#.to_owned(),
        ),
        ("elicitation/create", r#"{"mode":"url","message":"x","url":"https://a.example/!"}"#.to_owned()),
        ("elicitation/create", field(r#""type":"string","title":"!""#)),
        ("elicitation/create", field(r#""type":"string","description":"!""#)),
        ("elicitation/create", field(r#""type":"string","oneOf":[{"const":"x","title":"!"}]"#)),
        ("_later/ask", r#"{"x":"!"}"#.to_owned()),
    ] {
        let params = params.replace('!', "\u{202e}");
        let text = card_text(method, &params, "");
        assert!(text.contains("1 bidirectional control character is shown as ‹U+…›"), "{params}: {text}");
        assert!(text.contains("‹U+202E›"), "{params}: {text}");
    }
    let escaped = call(r#""title":"a\u202eb\u2066""#);
    let text = card_text(permission, &escaped, "");
    assert!(text.contains("2 bidirectional control characters are shown as ‹U+…›"), "{text}");
    // An array that is too long to be read is counted as it is written.
    let numbers = "0,".repeat(parlor_json::MAX_ELEMENTS);
    let hidden = '\u{202e}';
    let long = call(&format!(r#""title":"x","rawInput":{{"other":[{numbers}"{hidden}"]}}"#));
    assert!(card_text(permission, &long, "").contains("1 bidirectional"));
    assert!(!card_text(permission, r#"{"options":[]}"#, "").contains("bidirectional"));
}

#[test]
fn headlines_say_who_asks_for_what() {
    let headline = |method: &str, params: &str| {
        let card = request_card(method, params, "claude");
        (card.headline(), card.summary())
    };
    let call = |fields: &str| {
        let params = format!(r#"{{"toolCall":{{"toolCallId":"t",{fields}}},"options":[]}}"#);
        headline("session/request_permission", &params)
    };
    let text = |one: &str, other: &str| (format!("claude asks {one}"), other.to_owned());
    let diff = |path: &str| format!(r#"{{"type":"diff","path":"{path}","oldText":"a","newText":"b"}}"#);
    let edit = |diffs: &str| call(&format!(r#""title":"Edit","kind":"edit","content":[{diffs}]"#));
    assert_eq!(edit(&diff("a.rs")), text("to change 1 file", "edit a.rs"));
    let twice = [diff("a.rs"), diff("a.rs"), diff("b.rs")].join(",");
    assert_eq!(edit(&twice), text("to change 2 files", "edit 2 files: a.rs, b.rs"));
    assert_eq!(
        call(r#""title":"x","kind":"read","locations":[{"path":"/etc/hosts"}]"#),
        text("to read /etc/hosts", "read /etc/hosts")
    );
    assert_eq!(
        call(r#""title":"x","kind":"fetch","rawInput":{"url":"https://a.example"}"#),
        text("to fetch https://a.example", "fetch https://a.example")
    );
    assert_eq!(call(r#""title":"Think hard""#), text("for permission: Think hard", "Think hard"));
    assert_eq!(
        headline("elicitation/create", r#"{"mode":"url","message":"Sign in","url":"https://a.example"}"#),
        text("you to open a link", "Sign in")
    );
    let form =
        r#"{"mode":"form","message":"Which one?","requestedSchema":{"type":"object","properties":{}}}"#;
    assert_eq!(headline("elicitation/create", form), text("for an answer", "Which one?"));
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
fn the_first_nine_options_have_a_key() {
    let options: Vec<_> =
        (1..=10).map(|n| format!(r#"{{"optionId":"{n}","name":"Option","kind":"_other"}}"#)).collect();
    let params = format!(r#"{{"options":[{}]}}"#, options.join(","));
    let html = request_card("session/request_permission", &params, "").html(CardPlace::Inbox).into_string();
    assert_eq!((html.matches("data-option=").count(), html.matches("Option <kbd>").count()), (10, 9));
}

#[test]
fn an_option_whose_name_hides_its_effect_says_it() {
    let shown = |name: &str, kind: &str| {
        let params = format!(r#"{{"options":[{{"optionId":"o","name":"{name}","kind":"{kind}"}}]}}"#);
        let html = request_card("session/request_permission", &params, "")
            .html(CardPlace::Dock(&Markup::default()))
            .into_string();
        let text = text_of_html(&html);
        text.split_once("More below").unwrap().1.split_once(" 1").unwrap().0.to_owned()
    };
    for (name, kind, text) in [
        ("Allow once", "allow_once", "Allow once"),
        ("Reject", "allow_always", "Reject (always allow)"),
        ("Always allow edits here", "allow_always", "Always allow edits here"),
        ("Allow", "allow_always", "Allow (always allow)"),
        ("Always allow", "allow_once", "Always allow (allow once)"),
        ("Do not allow", "allow_once", "Do not allow (allow once)"),
        ("Always reject, never allow", "allow_always", "Always reject, never allow (always allow)"),
        ("No", "reject_once", "No (reject once)"),
        ("Always reject", "reject_once", "Always reject (reject once)"),
        ("Reject", "reject_always", "Reject (always reject)"),
        ("New", "_new", "New"),
    ] {
        assert_eq!(shown(name, kind), text);
    }
}

#[test]
fn a_form_has_a_field_of_its_kind_for_each_value() {
    let html = |fields: &str| {
        let form = format!(
            r#"{{"mode":"form","message":"","requestedSchema":{{"type":"object","required":["b"],"properties":{{{fields}}}}}}}"#
        );
        let html = request_card("elicitation/create", &form, "").html(CardPlace::Inbox).into_string();
        let form = html.split_once("<div class=\"form\">").unwrap().1;
        form.split_once("</div><p class=\"rest\"").unwrap().0.to_owned()
    };
    for (field, expected) in [
        (
            r#""a":{"type":"string","title":"Name","description":"as in the passport","maxLength":9,"default":"Ada"}"#,
            r#"<label class="col"><span>Name <span class="muted">(optional)</span> <span class="muted">as in the passport</span> <span class="muted">(at most 9 characters)</span></span><input class="field" id="r1.0" type="text" name="r1.0" value="Ada" autocomplete="off"></label>"#,
        ),
        (
            r#""b":{"type":"string","format":"password"}"#,
            r#"<label class="col"><span>b</span><input class="field" id="r1.0" type="password" name="r1.0" required autocomplete="off"></label>"#,
        ),
        (
            r#""b":{"type":"integer","minimum":1,"maximum":3,"default":2}"#,
            r#"<label class="col"><span>b <span class="muted">(1 to 3)</span></span><input class="field" id="r1.0" type="number" name="r1.0" step="1" min="1" max="3" value="2" required></label>"#,
        ),
        (
            r#""b":{"type":"boolean","default":true}"#,
            r#"<label><input id="r1.0" type="checkbox" name="r1.0" value="true" checked><span>b</span></label>"#,
        ),
        (
            r#""b":{"type":"string","enum":["s","l"],"default":"l"}"#,
            r#"<fieldset><legend>b</legend><label><input id="r1.0.0" type="radio" name="r1.0" value="0" required><span>s</span></label><label><input id="r1.0.1" type="radio" name="r1.0" value="1" checked required><span>l</span></label></fieldset>"#,
        ),
        (
            r#""b":{"type":"array","items":{"enum":["s","l"]},"default":["s"]}"#,
            r#"<fieldset><legend>b</legend><label><input id="r1.0.0" type="checkbox" name="r1.0" value="0" checked><span>s</span></label><label><input id="r1.0.1" type="checkbox" name="r1.0" value="1"><span>l</span></label></fieldset>"#,
        ),
    ] {
        assert_eq!(html(field), expected, "{field}");
    }
    // Many choices are a list that opens.
    let choices: Vec<_> = (0..13).map(|choice| format!("\"{choice}\"")).collect();
    let list = html(&format!(r#""b":{{"type":"string","enum":[{}],"default":"7"}}"#, choices.join(",")));
    assert!(list.contains("<select") && list.contains(r#"<option value="7" selected>7</option>"#), "{list}");
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
