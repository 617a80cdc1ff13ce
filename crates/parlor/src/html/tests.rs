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
    session(&opened(), fold.transcript())
}

fn message(kind: &str, text: &str) -> String {
    let text = parlor_json::string_literal(text);
    format!(r#"{{"sessionUpdate":"{kind}","messageId":"m1","content":[{{"type":"text","text":{text}}}]}}"#)
}

/// The tags of a page without its head, with their attributes.
fn tags(page: &str) -> Vec<&str> {
    let body = page.split_once("<main>").unwrap().1;
    body.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0).collect()
}

/// The attributes of a tag, which are all quoted.
fn attributes(tag: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = tag.split_once(' ').map_or("", |(_, rest)| rest);
    while let Some((name, value)) = rest.split_once('=') {
        let (value, after) =
            value.strip_prefix('"').and_then(|value| value.split_once('"')).unwrap_or((value, ""));
        found.push((name.trim(), value));
        rest = after;
    }
    found
}

const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "<ScRiPt src=//example.org/x.js></script >",
    "text <img src=x onerror=alert(1)> text",
    "<svg/onload=alert(1)>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](javascript&#58;alert(1))",
    "[x](java\u{9}script:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x) [x](file:///etc/passwd) [x](//example.org) [x](relative)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    "![x](https://example.org/pixel.png)",
    "![x](javascript:alert(1))",
    "[x](https://example.org/\"onmouseover=\"alert(1))",
    "[x](https://example.org 'a\" onclick=\"alert(1)')",
    "`<script>`\n\n```html\n<script>alert(1)</script>\n```\n\n```\"><script>alert(1)</script>\ncode\n```",
    "    <script>alert(1)</script>",
    "<!-- comment --><style>*{display:none}</style><iframe srcdoc=x></iframe><base href=//x>",
    "</main></body></html><script>alert(1)</script>",
    "# heading {#id onclick=alert(1)}\n\n|a|b|\n|-|-|\n|<b>|</td><script>|",
    "<details open ontoggle=alert(1)>",
    "\u{0}<\u{0}script>\u{1b}]0;x\u{7}",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
];

#[test]
fn html_of_agents_is_escaped() {
    for text in HOSTILE {
        for kind in ["user_message", "agent_message", "agent_thought"] {
            let page = page(&[&message(kind, text)]);
            for tag in tags(&page) {
                let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
                let known = "section details summary h1 h2 a p div pre code table thead tbody tr th td strong em br ul li main body html";
                assert!(known.split(' ').any(|known| known == name), "<{tag}> of {text}");
                for (name, value) in attributes(tag) {
                    let value = value.to_lowercase();
                    let fine = match name {
                        "class" | "id" | "title" | "style" => true,
                        "href" => value.starts_with("https://") || value.starts_with("#m1"),
                        _ => false,
                    };
                    assert!(fine, "{name}={value} in <{tag}> of {text}");
                }
            }
            assert!(page.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{text}");
        }
    }
}

#[test]
fn the_page_loads_nothing_and_runs_no_scripts() {
    let all: Vec<_> = HOSTILE.iter().map(|text| message("agent_message", text)).collect();
    let page = page(&all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        page.contains(&format!("content=\"{}\"", POLICY.replace('\'', "&#39;"))) || page.contains(POLICY)
    );
    for loads in ["<script", "<link", "<img", "src=", "url(", "@import", "<iframe", "<base"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("A &quot;title&quot; &lt;/title&gt;&lt;script&gt;"), "{}", &page[..900]);
    assert!(page.contains("s&lt;1&gt;") && page.contains("/a &amp; b"));
}

#[test]
fn control_characters_and_invalid_ids_are_escaped() {
    let page = page(&[
        r#"{"sessionUpdate":"agent_message","messageId":"a b\"<\ud83d\u0000","content":[{"type":"text","text":"\ud83d and \ude00\ud83d \u0000"}]}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"\"><script>","title":"\ud800<b>","status":"\" onclick=","content":[{"type":"content","content":{"type":"text","text":"</code></pre><script>"}}]}"#,
    ]);
    assert!(page.contains("\u{fffd} and \u{fffd}\u{fffd} \u{fffd}"), "{page}");
    assert!(
        page.contains(r##"id="a b&quot;&lt;"##) && page.contains(r##"href="#a%20b%22%3C%EF%BF%BD"##),
        "{page}"
    );
    assert!(page.contains("tool-&quot;&gt;&lt;script&gt;") && !page.contains("<script>"), "{page}");
    assert!(!page.contains("onclick=\"") && page.contains("&quot; onclick="), "{page}");
}

#[test]
fn only_images_of_safe_types_are_embedded() {
    let image = |mime: &str, data: &str| {
        let block = format!(r#"{{"type":"image","mimeType":"{mime}","data":"{data}"}}"#);
        page(&[&format!(r#"{{"sessionUpdate":"agent_message","messageId":"m","content":[{block}]}}"#)])
    };
    assert!(image("image/png", "iVBORw0KGgo=").contains(r#"<img src="data:image/png;base64,iVBORw0KGgo=""#));
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
        r#"<section class="message user" id="m1">"#,
        "<p class=\"written\">Please *look*\n  at this</p>",
        r#"<details class="thought" id="t1">"#,
        r#"<details class="tool completed" id="tool-c1"><summary><span class="mark">✓</span> <strong>Edit</strong>"#,
        r#"<strong>bold</strong> <a href="https://example.org/?a=1&amp;b=2">link</a>"#,
        "<pre><code class=\"language-rust\">fn main() {}\n</code></pre>",
        r##"<a class="anchor" href="#m2""##,
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn images_links_and_colours_of_tools_are_shown_and_local_addresses_are_no_links() {
    let call = |content: &str| {
        let call = r#"{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"T","rawInput":{"command":"make"},"content":[CONTENT]}"#;
        page(&[&call.replace("CONTENT", content)])
    };
    let block = |block: &str| call(&format!(r#"{{"type":"content","content":{block}}}"#));
    assert!(call("").contains("{&quot;command&quot;:&quot;make&quot;}"));
    assert!(
        block(r#"{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}"#)
            .contains(r#"<img src="data:image/png;base64,iVBORw0KGgo=" alt="image">"#)
    );
    assert!(
        block(r#"{"type":"resource_link","uri":"https://example.org/?a&b","name":"N<"}"#)
            .contains(r#"<a href="https://example.org/?a&amp;b">N&lt;</a>"#)
    );
    for uri in ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x"] {
        let page = block(&format!(r#"{{"type":"resource_link","uri":"{uri}","name":"n"}}"#));
        assert!(page.contains(uri) && !page.contains("<a href"), "{page}");
    }
    let page =
        block(r#"{"type":"text","text":"\u001b[1;31mred\u001b[0m \u001b[38;2;1;2;3m<b>\u001b[0m plain"}"#);
    assert!(
        page.contains(r#"<span class="fg1 bold">red</span> <span class="" style="color:rgb(1,2,3)">&lt;b&gt;</span> plain"#),
        "{page}"
    );
}
