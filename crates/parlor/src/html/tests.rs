use parlor_dialect::{Dialect, Fold};
use parlor_session::SessionId;
use parlor_store::SessionRow;

use super::*;

fn opened() -> StoredSession {
    StoredSession::new(SessionRow {
        id: "\"s<1>\"".to_owned(),
        agent: "agent <b>".to_owned(),
        agent_session: None,
        cwd: "/a & b".to_owned(),
        title: Some(r#""A \"title\" </title><script>alert(1)</script>""#.to_owned()),
        parent: None,
        owner: None,
        created_at: 0,
        active_at: 0,
        archived: false,
        busy: false,
        data: String::new(),
    })
}

/// The page of a session with these updates.
fn page(updates: &[&str]) -> String {
    let id = SessionId::from("s");
    let mut fold = Fold::of_session(Dialect::V2, id.clone());
    for update in updates {
        fold.line(parlor_dialect::live::update_line(&id, update, None).trim_end()).unwrap();
    }
    let opened = opened();
    let name = crate::offline_sessions::session_title(&opened.row);
    session(name.as_deref(), &opened, fold.transcript())
}

fn message(kind: &str, text: &str) -> String {
    let text = parlor_json::string_literal(text);
    format!(r#"{{"sessionUpdate":"{kind}","messageId":"m1","content":[{{"type":"text","text":{text}}}]}}"#)
}

/// Messages that would load or run something. parlor-web tests its renderer with many more.
const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "text <img src=x onerror=alert(1)> text",
    "![x](https://example.org/pixel.png)",
    "<!-- comment --><style>*{display:none}</style><iframe srcdoc=x></iframe><base href=//x>",
    "</main></body></html><script>alert(1)</script>",
];

#[test]
fn the_page_loads_nothing_and_runs_no_scripts() {
    let all: Vec<_> = HOSTILE.iter().map(|text| message("agent_message", text)).collect();
    let page = page(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let policy =
        "http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ";
    assert!(page.contains(policy));
    for loads in ["<script", "<link", "<img", "src=", "url(", "@import", "<iframe", "<base"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("A &quot;title&quot; &lt;/title&gt;&lt;script&gt;"), "{}", &page[..900]);
    assert!(page.contains("s&lt;1&gt;") && page.contains("/a &amp; b"));
}

#[test]
fn only_images_of_safe_types_are_embedded() {
    let image = |mime: &str, data: &str| {
        let block = format!(r#"{{"type":"image","mimeType":"{mime}","data":"{data}"}}"#);
        page(&[&format!(r#"{{"sessionUpdate":"agent_message","messageId":"m","content":[{block}]}}"#)])
    };
    assert!(image("image/png", "iVBORw0KGgo=").contains(r#"src="data:image/png;base64,iVBORw0KGgo=""#));
    for page in
        [image("image/svg+xml", "PHN2Zz4="), image("image/png", "x' onerror='"), image("text/html", "PHA+")]
    {
        assert!(!page.contains("<img"), "{page}");
    }
}

#[test]
fn a_page_has_the_rendered_messages_and_tool_calls() {
    let page = page(&[
        &message("user_message", "Please *look*\n  at this"),
        r#"{"sessionUpdate":"agent_thought","messageId":"t1","content":[{"type":"text","text":"Hm."}]}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"c1","title":"Edit","kind":"edit","status":"completed","content":[{"type":"content","content":{"type":"text","text":"done"}}]}"#,
        r#"{"sessionUpdate":"agent_message","messageId":"m2","content":[{"type":"text","text":"A **bold** [link](https://example.org/?a=1&b=2) and\n\n```rust\nfn main() {}\n```"}]}"#,
    ]);
    for part in [
        r##"<li class="entry user" id="m-m1"><div class="who"><h2>You</h2><a class="muted" href="#m-m1">#1</a>"##,
        "<p class=\"written\">Please *look*\n  at this</p>",
        r#"<li class="entry" id="m-t1"><details class="thought">"#,
        r#"<li class="entry call" id="t-c1"><details class="tool" data-s="ok">"#,
        r#"<strong>bold</strong> <a href="https://example.org/?a=1&amp;b=2""#,
        r#"<code><span class="k">fn</span> <span class="f">main</span>() {}</code>"#,
        "<h2>agent &lt;b&gt;</h2>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
