//! A conversation as a text for an agent that was not there.
//!
//! It says who said what, which tools were used on which files and what they brought. When it is too long, what tools
//! brought is shortened first, the oldest first; then what lies between the first message and the latest is left out.

use std::fmt::Write as _;

use parlor_json::{Json, Object};
use parlor_session::{Content, Entry, EntryId, Role, Transcript};

use crate::json;

/// How much of a conversation is handed over.
const MOST: usize = 200 << 10;

/// What is left of something that is shortened.
const SHORT: usize = 400;

const INTRODUCTION: &str =
    "The conversation so far, from before you joined it. Go on from here; do not answer it again.\n\n";

/// One thing that was said or done.
#[derive(Debug, Default)]
struct Part {
    /// What was said.
    said: String,
    /// What a tool brought, or what was attached.
    brought: String,
}

/// The first entries of a conversation as a text, which is empty if there is nothing to say.
pub(crate) fn of(transcript: &Transcript, entries: &[Entry]) -> String {
    bounded(entries.iter().filter_map(|entry| part(transcript, entry)).collect(), MOST)
}

/// A prompt with a text in front of it: as a resource, for an agent that takes one, else as words.
pub(crate) fn in_front_of(prompt: &Json, text: &str, embedded: bool) -> Json {
    if text.is_empty() {
        return prompt.clone();
    }
    let mut block = Object::default();
    if embedded {
        let mut resource = Object::default();
        resource.set("uri", json::string("parlor:conversation"));
        resource.set("mimeType", json::string("text/markdown"));
        resource.set("text", json::string(text));
        block.set("type", json::string("resource"));
        block.set("resource", resource.to_json());
    } else {
        block.set("type", json::string("text"));
        block.set("text", json::string(text));
    }
    let mut blocks = vec![block.to_json().as_str().to_owned()];
    let said = parlor_json::elements(prompt.raw()).unwrap_or_default();
    blocks.extend(said.into_iter().map(|block| block.get().to_owned()));
    json::json(format!("[{}]", blocks.join(",")))
}

fn bounded(mut parts: Vec<Part>, most: usize) -> String {
    if parts.is_empty() {
        return String::new();
    }
    let mut length: usize = parts.iter().map(Part::len).sum();
    for part in &mut parts {
        if length <= most {
            break;
        }
        length -= part.brought.len();
        shorten(&mut part.brought, SHORT);
        length += part.brought.len();
    }
    // The first message says what all of it is about, and stays.
    let mut left_out = 0;
    while length > most && parts.len() - left_out > 2 {
        left_out += 1;
        length -= parts[left_out].len();
    }
    if length > most {
        let share = most / 2;
        let last = parts.len() - 1;
        shorten(&mut parts[0].said, share);
        shorten(&mut parts[last].said, share);
    }
    let mut text = String::from(INTRODUCTION);
    for (place, part) in parts.into_iter().enumerate() {
        if place == 1 && left_out > 0 {
            let _ = write!(text, "({left_out} parts are left out here)\n\n");
        }
        if place == 0 || place > left_out {
            text.push_str(&part.said);
            text.push_str(&part.brought);
        }
    }
    text
}

impl Part {
    fn len(&self) -> usize {
        self.said.len() + self.brought.len()
    }
}

/// Leaves out the middle of a text that is longer than `most` and says so.
fn shorten(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let half = most / 2;
    let begins = (0..=half).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
    let ends = (text.len() - half..=text.len()).find(|place| text.is_char_boundary(*place));
    let ends = ends.unwrap_or(text.len());
    let left_out = ends - begins;
    text.replace_range(begins..ends, &format!("\n… {left_out} bytes are left out …\n"));
}

fn part(transcript: &Transcript, entry: &Entry) -> Option<Part> {
    let body = entry.body();
    if body.removed {
        return None;
    }
    match entry.id() {
        EntryId::Message(role @ (Role::User | Role::Agent), _) => {
            let mut part = Part::default();
            blocks(&body.content, &mut part);
            if part.len() == 0 {
                return None;
            }
            let who = if *role == Role::User { "User" } else { "Assistant" };
            part.said = format!("## {who}\n\n{}\n\n", part.said);
            Some(part)
        }
        EntryId::ToolCall(_) => {
            let field = |name: &str| json::text(&body.fields, name);
            let title = field("title").unwrap_or_else(|| "tool call".to_owned());
            let mut part = Part { said: format!("## Tool: {title}"), brought: String::new() };
            if let Some(status) = field("status") {
                let _ = write!(part.said, " ({status})");
            }
            part.said.push_str("\n\n");
            for file in files(&body.fields) {
                let _ = writeln!(part.said, "- {file}");
            }
            if let Some(input) = body.fields.get("rawInput").filter(|input| !input.is_null()) {
                let mut input = input.as_str().to_owned();
                shorten(&mut input, SHORT);
                let _ = write!(part.said, "Input: {input}\n\n");
            }
            for item in body.content.iter() {
                outcome(transcript, item.json, &mut part);
            }
            if !part.brought.is_empty() {
                part.brought.push_str("\n\n");
            }
            Some(part)
        }
        EntryId::Message(Role::Thought, _)
        | EntryId::Plan(_)
        | EntryId::Terminal(_)
        | EntryId::Compaction(_)
        | EntryId::Subagent(_)
        | EntryId::SessionMessage(_)
        | EntryId::Note(_) => None,
    }
}

/// The files that a tool call is about.
fn files(fields: &Object) -> Vec<String> {
    let places = fields.get("locations").and_then(|list| parlor_json::elements(list.raw()));
    let places = places.unwrap_or_default().into_iter().filter_map(|place| {
        let place = json::object(Some(place));
        let path = json::text(&place, "path")?;
        Some(match place.get("line") {
            Some(line) if !line.is_null() => format!("{path}:{}", line.as_str()),
            Some(_) | None => path,
        })
    });
    places.collect()
}

/// What the blocks of a message say.
fn blocks(content: &Content, part: &mut Part) {
    for item in content.iter() {
        block(item.json, part);
    }
}

/// What one block says; what is attached to it counts as brought.
fn block(text: &str, part: &mut Part) {
    if let Some(text) = parlor_session::text_of(text) {
        part.said.push_str(&text);
        return;
    }
    let Ok(block) = Json::parse(text) else { return };
    let block = json::object(Some(block.raw()));
    let field = |name: &str| json::text(&block, name);
    match field("type").as_deref() {
        Some("resource_link") => {
            let uri = field("uri").unwrap_or_default();
            let name = field("name").unwrap_or_else(|| uri.clone());
            let _ = write!(part.said, "[{name}]({uri})");
        }
        Some("resource") => {
            let resource = json::member(&block, "resource").unwrap_or_default();
            let uri = json::text(&resource, "uri").unwrap_or_default();
            let _ = write!(part.said, "[attached: {uri}]");
            if let Some(text) = json::text(&resource, "text") {
                let _ = write!(part.brought, "{uri}:\n```\n{text}\n```\n\n");
            }
        }
        Some(other) => {
            let kind = field("mimeType").unwrap_or_default();
            let _ = write!(part.said, "[{other} {kind}]");
        }
        None => {}
    }
}

/// What a tool call brought.
fn outcome(transcript: &Transcript, text: &str, part: &mut Part) {
    let Ok(item) = Json::parse(text) else { return };
    let item = json::object(Some(item.raw()));
    match json::text(&item, "type").as_deref() {
        Some("content") => {
            let mut inner = Part::default();
            if let Some(content) = item.get("content") {
                block(content.as_str(), &mut inner);
            }
            part.brought.push_str(&inner.said);
            part.brought.push_str(&inner.brought);
        }
        Some("diff") => {
            let path = json::text(&item, "path").unwrap_or_default();
            let new = json::text(&item, "newText").or_else(|| json::text(&item, "diff")).unwrap_or_default();
            let _ = writeln!(part.said, "- changed {path}");
            let _ = write!(part.brought, "{path} is now:\n```\n{new}\n```\n");
        }
        Some("terminal") => {
            let id = json::literal(&item, "terminalId");
            let terminal = id.and_then(|id| transcript.get(&EntryId::Terminal(id.into())));
            if let Some(terminal) = terminal {
                let _ =
                    write!(part.brought, "```\n{}\n```\n", String::from_utf8_lossy(&terminal.body().output));
            }
        }
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use parlor_session::{Patch, Target, Update, Upsert};

    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    fn upsert(entry: EntryId, fields: &str, content: &str) -> Update {
        let content = Patch::Value(Content::parse(serde_json::from_str(content).unwrap()).unwrap());
        let upsert = Upsert { fields: object(fields), content, ..Upsert::default() };
        Update::Upsert { target: Target::Entry(entry), upsert }
    }

    fn message(role: Role, id: &str, content: &str) -> Update {
        upsert(EntryId::Message(role, id.into()), "{}", content)
    }

    #[test]
    fn it_says_who_said_what_and_what_tools_brought() {
        let mut transcript = Transcript::default();
        for update in [
            message(
                Role::User,
                "u",
                r#"[{"type":"text","text":"Fix "},{"type":"resource_link","name":"a.rs","uri":"file:///a.rs"},
                    {"type":"resource","resource":{"uri":"file:///b.rs","text":"fn b() {}"}},
                    {"type":"image","mimeType":"image/png","data":"AAAA"}]"#,
            ),
            message(Role::Thought, "t", r#"[{"type":"text","text":"hidden"}]"#),
            Update::Output { terminal: "x".into(), bytes: b"ok\n".to_vec(), extra: None },
            upsert(
                EntryId::ToolCall("c".into()),
                r#"{"title":"Edit a.rs","status":"completed","locations":[{"path":"/a.rs","line":3}],"rawInput":{"n":1}}"#,
                r#"[{"type":"content","content":{"type":"text","text":"done"}},
                    {"type":"diff","path":"/a.rs","oldText":"x","newText":"y"},{"type":"terminal","terminalId":"x"}]"#,
            ),
            message(Role::Agent, "a", r#"[{"type":"text","text":"Fixed."}]"#),
            message(Role::Agent, "empty", "[]"),
        ] {
            transcript.push(update).unwrap();
        }
        expect![[r#"
            The conversation so far, from before you joined it. Go on from here; do not answer it again.

            ## User

            Fix [a.rs](file:///a.rs)[attached: file:///b.rs][image image/png]

            file:///b.rs:
            ```
            fn b() {}
            ```

            ## Tool: Edit a.rs (completed)

            - /a.rs:3
            Input: {"n":1}

            - changed /a.rs
            done/a.rs is now:
            ```
            y
            ```
            ```
            ok

            ```


            ## Assistant

            Fixed.

        "#]]
        .assert_eq(&of(&transcript, transcript.entries()));
        assert_eq!(of(&transcript, &[]), "");
    }

    #[test]
    fn it_comes_as_a_resource_or_as_words() {
        let prompt = json::json(r#"[{"type":"text","text":"hi"}]"#);
        let with = |embedded| in_front_of(&prompt, "so far", embedded).as_str().to_owned();
        assert_eq!(
            with(true),
            r#"[{"type":"resource","resource":{"uri":"parlor:conversation","mimeType":"text/markdown","text":"so far"}},{"type":"text","text":"hi"}]"#
        );
        assert_eq!(with(false), r#"[{"type":"text","text":"so far"},{"type":"text","text":"hi"}]"#);
        assert_eq!(in_front_of(&prompt, "", true), prompt);
    }

    fn parts(sizes: &[(usize, usize)]) -> Vec<Part> {
        let part = |(place, (said, brought)): (usize, &(usize, usize))| Part {
            said: format!("{place}{}", "s".repeat(*said)),
            brought: "b".repeat(*brought),
        };
        sizes.iter().enumerate().map(part).collect()
    }

    #[test]
    fn the_oldest_that_tools_brought_is_shortened_first() {
        let text = bounded(parts(&[(5, 5000), (5, 5000), (5, 5000)]), 11_000);
        let kept: Vec<_> = text.split("sssss").skip(1).map(|part| part.matches('b').count()).collect();
        // The words for what is left out have one of these letters themselves.
        assert_eq!(kept, [SHORT + 1, 5000, 5000]);
        assert!(text.contains("… 4600 bytes are left out …"));
    }

    #[test]
    fn the_first_and_the_latest_stay() {
        let text = bounded(parts(&[(100, 0), (100, 0), (100, 0), (100, 0)]), 250);
        let begins: Vec<_> = ["0s", "1s", "2s", "3s"].iter().map(|part| text.contains(part)).collect();
        assert_eq!(begins, [true, false, false, true]);
        assert!(text.contains("(2 parts are left out here)"));
    }

    #[test]
    fn it_is_never_much_longer_than_it_may_be() {
        for sizes in
            [&[(100_000, 0)][..], &[(50_000, 50_000), (3, 90_000)], &[(9_000, 9), (9_000, 9), (9_000, 9)]]
        {
            let text = bounded(parts(sizes), 1000);
            assert!(text.len() < 1000 + 2 * SHORT + INTRODUCTION.len() + 200, "{}", text.len());
        }
        let mut text = "é".repeat(1000);
        shorten(&mut text, 101);
        assert!(text.starts_with("éé") && text.ends_with("éé") && text.len() < 160);
    }
}
