//! A permission request as a person has to see it: all that would be permitted.

use std::io::{self, Write};

use parlor_client::PeerRequest;
use parlor_json::{Json, Members, Object, Type, elements};
use parlor_session::{Body, EntryId, Transcript};
use serde_json::value::RawValue;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::render::{members_of, safe, tool_text};

/// How much of one part is shown, in bytes. How much more there is, is said.
const MAX_PART: usize = 64 << 10;

/// What tools call the directory of their command.
const DIRECTORIES: [&str; 3] = ["cwd", "workdir", "directory"];

/// What a permission request is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PermissionRequest {
    pub(crate) title: String,
    /// What is known of it, by name: `command`, `directory`, `path`, `tool`, `kind`, `says`, `raw input`.
    pub(crate) rows: Vec<(&'static str, String)>,
    /// What the tool call shows: texts and diffs.
    pub(crate) content: Vec<(String, &'static str)>,
}

impl PermissionRequest {
    /// What a question says, with what the transcript knows of its tool call. `cwd` is where the session works.
    pub(crate) fn of(question: &PeerRequest, transcript: &Transcript, cwd: &str) -> Self {
        Self::new(question.params(), question.title(), transcript, cwd)
    }

    pub(crate) fn new(params: &Object, title: Option<String>, transcript: &Transcript, cwd: &str) -> Self {
        let subject = member(params, "subject").unwrap_or_default();
        let call = member(params, "toolCall").or_else(|| member(&subject, "toolCall")).unwrap_or_default();
        let id = string(&call, "toolCallId").or_else(|| string(&subject, "toolCallId"));
        let known = id.and_then(|id| transcript.get(&EntryId::ToolCall(id.as_str().into())));
        let known = known.map(parlor_session::Entry::body);
        // What the request says counts; what it leaves out was said before.
        let said = |name: &str| {
            let named = call.get(name).filter(|value| !value.is_null());
            named.or_else(|| known.and_then(|body| body.fields.get(name))).cloned()
        };
        let text = |name: &str| said(name).and_then(|value| plain(&value));
        let input = said("rawInput").filter(|input| !input.is_null());
        let fields = input.as_ref().and_then(|input| Object::parse(input.raw()).ok()).unwrap_or_default();
        let mut rows = Vec::new();
        let mut row = |name: &'static str, value: Option<String>| {
            rows.extend(value.filter(|value| !value.trim().is_empty()).map(|value| (name, value)));
        };
        let is_blank = |text: &String| text.trim().is_empty();
        let named = [subject.get("command"), fields.get("command")];
        let shown_command =
            named.into_iter().flatten().find_map(|value| command(value).filter(|text| !is_blank(text)));
        row("command", shown_command.clone());
        let named = DIRECTORIES.into_iter().map(|name| string(&fields, name));
        let named = [string(&subject, "cwd")].into_iter().chain(named).flatten().find(|text| !is_blank(text));
        let directory = named.unwrap_or_else(|| cwd.to_owned());
        row("directory", Some(directory.clone()));
        paths(said("locations").as_ref()).into_iter().for_each(|path| row("path", Some(path)));
        row("tool", text("name").or_else(|| tool_name(&call, known)));
        row("kind", text("kind").or_else(|| string(&subject, "type").filter(|kind| kind != "tool_call")));
        row("says", string(params, "description"));
        let is_shown = |input: &Json| {
            shown_command.as_ref().is_some_and(|command| says_only(input, command, &directory))
        };
        row("raw input", input.filter(|input| !is_shown(input)).map(|input| input.as_str().to_owned()));
        let items = call.get("content").filter(|content| content.type_of() == Type::Array);
        let items = items.and_then(|items| elements(items.raw())).map_or_else(
            || known.map(|body| body.content.iter().map(|item| item.json.to_owned()).collect()),
            |items| Some(items.into_iter().map(|item: &RawValue| item.get().to_owned()).collect::<Vec<_>>()),
        );
        let content = items.unwrap_or_default().iter().map(|item| tool_text(item)).collect();
        Self { title: title.unwrap_or_else(|| "Permission".to_owned()), rows, content }
    }

    /// What it is about in one line, with the command if there is one.
    pub(crate) fn summary(&self) -> String {
        let command = self.rows.iter().find(|(name, _)| *name == "command").map(|(_, command)| command);
        match command.filter(|command| !self.title.contains(command.as_str())) {
            Some(command) => format!("{}: {}", self.title, command.replace('\n', " ")),
            None => self.title.clone(),
        }
    }

    /// Writes all of it.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{BOLD}? {}{BOLD:#}", safe(&self.title.replace('\n', " ")))?;
        for (name, value) in &self.rows {
            let style = if *name == "command" { BOLD } else { crate::output::PLAIN };
            let (shown, left) = cut(value);
            for (location, line) in shown.lines().enumerate() {
                let name = if location == 0 { *name } else { "" };
                writeln!(out, "  {DIM}{name:<10}{DIM:#} {style}{}{style:#}", safe(line))?;
            }
            rest(left, out)?;
        }
        for (text, language) in &self.content {
            let (shown, left) = cut(text);
            for line in shown.lines() {
                let style = match line.as_bytes().first() {
                    Some(b'+') if *language == "diff" => GREEN,
                    Some(b'-') if *language == "diff" => RED,
                    Some(_) | None => crate::output::PLAIN,
                };
                writeln!(out, "    {style}{}{style:#}", safe(line))?;
            }
            rest(left, out)?;
        }
        let hidden =
            self.rows.iter().map(|(_, value)| value).chain(self.content.iter().map(|(text, _)| text));
        let hidden: usize =
            hidden.map(|text| text.chars().filter(|c| crate::render::is_bidi(*c)).count()).sum();
        if hidden > 0 {
            let line = format!("{hidden} bidirectional control characters are shown as ‹U+…›");
            writeln!(out, "  {YELLOW}! {line}{YELLOW:#}")?;
        }
        Ok(())
    }
}

fn rest(left: usize, out: &mut impl Write) -> io::Result<()> {
    if left > 0 {
        writeln!(out, "  {YELLOW}… {left} more bytes{YELLOW:#}")?;
    }
    Ok(())
}

/// As much of a text as is shown, and how many bytes are left.
fn cut(text: &str) -> (&str, usize) {
    let end = (0..=MAX_PART.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], text.len() - end)
}

fn member(holder: &Object, name: &str) -> Option<Object> {
    Object::parse(holder.get(name)?.raw()).ok()
}

fn plain(value: &Json) -> Option<String> {
    parlor_json::text(value.raw()).map(std::borrow::Cow::into_owned)
}

fn string(holder: &Object, name: &str) -> Option<String> {
    plain(holder.get(name)?)
}

/// A command as text: a string, or a list of words.
fn command(value: &Json) -> Option<String> {
    if let Some(words) = elements(value.raw()) {
        let words = words.into_iter().map(|word| Some(parlor_json::text(word)?.into_owned()));
        let words: Vec<_> = words.collect::<Option<_>>()?;
        return Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    }
    plain(value)
}

/// Whether raw input says no more than the command and the directory that are shown, also where a name stands twice.
fn says_only(input: &Json, shown_command: &str, shown_directory: &str) -> bool {
    let Some(members) = Members::parse(input.as_str()) else { return false };
    let mut directories = 0;
    members.iter().all(|(name, value)| match name.inner() {
        "command" => command(&Json::from(value)).as_deref() == Some(shown_command),
        name if DIRECTORIES.contains(&name) => {
            directories += 1;
            directories == 1 && parlor_json::text(value).as_deref() == Some(shown_directory)
        }
        _ => false,
    })
}

/// A word as a shell would have to be given it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The paths of a tool call, with their lines.
fn paths(locations: Option<&Json>) -> Vec<String> {
    let locations = locations.and_then(|list| elements(list.raw())).unwrap_or_default();
    let location = |location: &RawValue| {
        let location = members_of(location.get());
        let path = location.get("path").and_then(parlor_json::text)?.into_owned();
        let line = location.get("line").filter(|line| parlor_json::type_of(line) == Type::Number);
        Some(line.map_or_else(|| path.clone(), |line| format!("{path}:{}", line.get())))
    };
    locations.into_iter().filter_map(location).collect()
}

/// The name of the tool, which agents put into their metadata under a key of their own.
fn tool_name(call: &Object, known: Option<&Body>) -> Option<String> {
    let metas = [member(call, "_meta"), known.and_then(|body| body.meta.clone())];
    metas.into_iter().flatten().find_map(|meta| {
        let own = string(&meta, "toolName").or_else(|| string(&meta, "tool_name"));
        own.or_else(|| {
            meta.iter().find_map(|(_, value)| {
                let inner = Object::parse(value.raw()).ok()?;
                string(&inner, "toolName").or_else(|| string(&inner, "tool_name"))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use parlor_dialect::{Dialect, Fold};

    use super::*;

    fn object(text: &str) -> Object {
        Object::parse(Json::parse(text).unwrap().raw()).unwrap()
    }

    fn shown(params: &str, updates: &[&str]) -> String {
        let mut fold = Fold::new(Dialect::V2);
        updates.iter().for_each(|update| fold.line(update).unwrap());
        let request =
            PermissionRequest::new(&object(params), Some("Clean up".to_owned()), fold.transcript(), "/work");
        let mut out = Vec::new();
        request.write(&mut out).unwrap();
        anstream::adapter::strip_bytes(&out).into_vec().try_into().unwrap()
    }

    #[test]
    fn everything_that_is_permitted_is_shown() {
        let seen = shown(
            r#"{"description":"Remove old files","toolCall":{"toolCallId":"t","kind":"execute",
                "rawInput":{"command":["rm","-rf","a b"],"cwd":"/tmp","timeout":5},
                "locations":[{"path":"/tmp/a","line":3},{"path":"/tmp/b"}],
                "content":[{"type":"content","content":{"type":"text","text":"Really"}},
                    {"type":"diff","path":"/tmp/a","oldText":"old","newText":"new"}],
                "_meta":{"claudeCode":{"toolName":"Bash"}}}}"#,
            &[],
        );
        for wanted in [
            "? Clean up",
            "command    rm -rf 'a b'",
            "directory  /tmp",
            "path       /tmp/a:3",
            "path       /tmp/b",
            "tool       Bash",
            "kind       execute",
            "says       Remove old files",
            r#""timeout":5"#,
            "    Really",
            "    -old",
            "    +new",
        ] {
            assert!(seen.contains(wanted), "{wanted}: {seen}");
        }
    }

    #[test]
    fn what_the_request_leaves_out_is_taken_from_what_was_said_of_the_tool_call() {
        let seen = shown(
            r#"{"subject":{"type":"tool_call","toolCall":{"toolCallId":"t"}}}"#,
            &[
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"edit","rawInput":{"file_path":"/etc/passwd"},
                "content":[{"type":"diff","changes":[],"patch":{"text":"@@\n-a\n+b"}}]}"#,
            ],
        );
        for wanted in
            ["kind       edit", r#"raw input  {"file_path":"/etc/passwd"}"#, "    +b", "directory  /work"]
        {
            assert!(seen.contains(wanted), "{wanted}: {seen}");
        }
        let seen = shown(r#"{"subject":{"type":"command","command":"make\nclean","cwd":"/src"}}"#, &[]);
        assert!(seen.contains("command    make\n") && seen.contains("           clean"), "{seen}");
        assert!(seen.contains("directory  /src") && !seen.contains("raw input"), "{seen}");
    }

    #[test]
    fn no_command_or_directory_hides_another() {
        let subject = |input: &str| {
            shown(
                &format!(
                    r#"{{"subject":{{"type":"command","command":"ls","cwd":"/safe","toolCall":{{"toolCallId":"t","rawInput":{input}}}}}}}"#
                ),
                &[],
            )
        };
        let call =
            |input: &str| shown(&format!(r#"{{"toolCall":{{"toolCallId":"t","rawInput":{input}}}}}"#), &[]);
        for (seen, hidden) in [
            (subject(r#"{"command":"rm -rf ~"}"#), "rm -rf ~"),
            (subject(r#"{"command":"ls","cwd":"/etc"}"#), "/etc"),
            (subject(r#""rm -rf ~""#), "rm -rf ~"),
            (call(r#"{"command":"ls","cwd":"/safe","workdir":"/etc"}"#), "/etc"),
            (call(r#"{"command":"ls","cwd":"/safe","directory":"/safe"}"#), r#""directory""#),
            (call(r#"{"command":"ls","cwd":["/etc"]}"#), "/etc"),
            (call(r#"{"command":"ls","command":"rm -rf ~"}"#), "rm -rf ~"),
            (call(r#"{"command":"  ","cwd":"/safe"}"#), r#""command""#),
            (call(r#"{"command":{"run":"rm -rf ~"}}"#), "rm -rf ~"),
        ] {
            assert!(seen.contains("raw input") && seen.contains(hidden), "{hidden}: {seen}");
        }
        for seen in [
            subject(r#"{"command":"ls","cwd":"/safe"}"#),
            subject(r#"{"command":["ls"]}"#),
            call(r#"{"command":"ls","workdir":"/safe"}"#),
        ] {
            assert!(seen.contains("command    ls\n") && seen.contains("directory  /safe"), "{seen}");
            assert!(!seen.contains("raw input"), "{seen}");
        }
    }

    #[test]
    fn nothing_in_it_can_hide_or_reorder_what_is_shown() {
        let seen = shown(
            r#"{"description":"d\u001b[2J\u202e","toolCall":{"toolCallId":"t","kind":"k\u001b]0;x\u0007",
                "rawInput":{"command":"echo \u202egnp.sh\u2066 \u009b1m","note":"\u2067x"},
                "locations":[{"path":"/a\r\u001b[1A\u200e"}],
                "content":[{"type":"diff","path":"p\u2069","oldText":"\u001b[8m","newText":"\u061c"}]}}"#,
            &[],
        );
        let hidden = |c: char| (c.is_control() && c != '\n') || crate::render::is_bidi(c);
        assert!(!seen.contains(hidden), "{seen:?}");
        assert!(seen.contains("echo ‹U+202E›gnp.sh‹U+2066›"), "{seen}");
        assert!(seen.contains("bidirectional control characters"), "{seen}");
    }

    #[test]
    fn what_is_too_long_is_cut_and_said_to_be() {
        let long = "x".repeat(MAX_PART + 9);
        let seen =
            shown(&format!(r#"{{"toolCall":{{"toolCallId":"t","rawInput":{{"command":"{long}"}}}}}}"#), &[]);
        assert!(seen.contains("… 9 more bytes"), "{}", seen.len());
    }
}
