//! Shows a permission request with everything that it would permit.

use std::io::{self, Write};

use parlor_client::PeerRequest;
use parlor_json::{Json, JsonRef, Members, Object, Type};
use parlor_session::{Body, EntryId, Transcript};

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::render::{members_of, safe, tool_text};

/// How many bytes of one part are printed. The number of omitted bytes is printed as well.
const MAX_PART: usize = 64 << 10;

/// The names that tools use for the directory of a command.
const DIRECTORIES: [&str; 3] = ["cwd", "workdir", "directory"];

/// The contents of a permission request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PermissionRequest {
    pub(crate) title: String,
    /// Details by name: `command`, `directory`, `path`, `tool`, `kind`, `says`, `raw input`.
    pub(crate) rows: Vec<(&'static str, String)>,
    /// The content of the tool call with its language: texts and diffs.
    pub(crate) content: Vec<(String, &'static str)>,
}

impl PermissionRequest {
    /// Combines the request with the tool call in the transcript. `cwd` is the working directory of the session.
    pub(crate) fn of(request: &PeerRequest, transcript: &Transcript, cwd: &str) -> Self {
        Self::new(request.params(), request.title(), transcript, cwd)
    }

    pub(crate) fn new(params: &Object, title: Option<String>, transcript: &Transcript, cwd: &str) -> Self {
        let subject = params.get_object("subject").unwrap_or_default();
        let call =
            params.get_object("toolCall").or_else(|| subject.get_object("toolCall")).unwrap_or_default();
        let id = call.get_string("toolCallId").or_else(|| subject.get_string("toolCallId"));
        let stored = id.and_then(|id| transcript.get(&EntryId::ToolCall(id.as_str().into())));
        let stored = stored.map(parlor_session::Entry::body);
        // Fields of the request take precedence over those of the transcript.
        let field = |name: &str| {
            let named = call.get(name).filter(|value| !value.is_null());
            named.or_else(|| stored.and_then(|body| body.fields.get(name))).cloned()
        };
        let text = |name: &str| field(name).and_then(|value| plain(&value));
        let input = field("rawInput").filter(|input| !input.is_null());
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
        let named = DIRECTORIES.into_iter().map(|name| fields.get_string(name));
        let named =
            [subject.get_string("cwd")].into_iter().chain(named).flatten().find(|text| !is_blank(text));
        let directory = named.unwrap_or_else(|| cwd.to_owned());
        row("directory", Some(directory.clone()));
        paths(field("locations").as_ref()).into_iter().for_each(|path| row("path", Some(path)));
        row("tool", text("name").or_else(|| tool_name(&call, stored)));
        row("kind", text("kind").or_else(|| subject.get_string("type").filter(|kind| kind != "tool_call")));
        row("says", params.get_string("description"));
        let is_shown =
            |input: &Json| shown_command.as_ref().is_some_and(|command| has_only(input, command, &directory));
        row("raw input", input.filter(|input| !is_shown(input)).map(|input| input.as_str().to_owned()));
        let items = call.get("content").filter(|content| content.type_of() == Type::Array);
        let items = items.and_then(Json::elements).map_or_else(
            || stored.map(|body| body.content.iter().map(|item| item.json.to_owned()).collect()),
            |items| {
                Some(items.into_iter().map(|item: JsonRef<'_>| item.as_str().to_owned()).collect::<Vec<_>>())
            },
        );
        let content = items.unwrap_or_default().iter().map(|item| tool_text(item)).collect();
        Self { title: title.unwrap_or_else(|| "Permission".to_owned()), rows, content }
    }

    /// A summary in one line, with the command if there is one.
    pub(crate) fn summary(&self) -> String {
        let command = self.rows.iter().find(|(name, _)| *name == "command").map(|(_, command)| command);
        match command.filter(|command| !self.title.contains(command.as_str())) {
            Some(command) => format!("{}: {}", self.title, command.replace('\n', " ")),
            None => self.title.clone(),
        }
    }

    /// Prints the request.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{BOLD}? {}{BOLD:#}", safe(&self.title.replace('\n', " ")))?;
        for (name, value) in &self.rows {
            let style = if *name == "command" { BOLD } else { crate::output::PLAIN };
            let (shown, omitted) = truncate(value);
            for (location, line) in shown.lines().enumerate() {
                let name = if location == 0 { *name } else { "" };
                writeln!(out, "  {DIM}{name:<10}{DIM:#} {style}{}{style:#}", safe(line))?;
            }
            write_omitted(omitted, out)?;
        }
        for (text, language) in &self.content {
            let (shown, omitted) = truncate(text);
            for line in shown.lines() {
                let style = match line.as_bytes().first() {
                    Some(b'+') if *language == "diff" => GREEN,
                    Some(b'-') if *language == "diff" => RED,
                    Some(_) | None => crate::output::PLAIN,
                };
                writeln!(out, "    {style}{}{style:#}", safe(line))?;
            }
            write_omitted(omitted, out)?;
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

fn write_omitted(omitted: usize, out: &mut impl Write) -> io::Result<()> {
    if omitted > 0 {
        writeln!(out, "  {YELLOW}… {omitted} more bytes{YELLOW:#}")?;
    }
    Ok(())
}

/// The printed part of a text, and the number of omitted bytes.
fn truncate(text: &str) -> (&str, usize) {
    let end = (0..=MAX_PART.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], text.len() - end)
}

fn plain(value: &Json) -> Option<String> {
    value.to_text().map(std::borrow::Cow::into_owned)
}

/// A command as text: a string, or a list of arguments.
fn command(value: &Json) -> Option<String> {
    if let Some(args) = value.elements() {
        let args = args.into_iter().map(|arg| Some(arg.to_text()?.into_owned()));
        let args: Vec<_> = args.collect::<Option<_>>()?;
        return Some(args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "));
    }
    plain(value)
}

/// Whether the raw input has only the command and the directory that are printed. A name may occur several times.
fn has_only(input: &Json, shown_command: &str, shown_directory: &str) -> bool {
    let Some(members) = Members::parse(input.as_str()) else { return false };
    let mut directories = 0;
    members.iter().all(|(name, value)| match name.inner() {
        "command" => command(&Json::from(value)).as_deref() == Some(shown_command),
        name if DIRECTORIES.contains(&name) => {
            directories += 1;
            directories == 1 && value.to_text().as_deref() == Some(shown_directory)
        }
        _ => false,
    })
}

/// Quotes an argument for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The paths of a tool call, with line numbers.
fn paths(locations: Option<&Json>) -> Vec<String> {
    let locations = locations.and_then(Json::elements).unwrap_or_default();
    let location = |location: JsonRef<'_>| {
        let location = members_of(location.as_str());
        let path = location.get_str("path")?.into_owned();
        let line = location.get("line").filter(|line| line.type_of() == Type::Number);
        Some(line.map_or_else(|| path.clone(), |line| format!("{path}:{}", line.as_str())))
    };
    locations.into_iter().filter_map(location).collect()
}

/// The name of the tool, which agents put into their metadata under their own key.
fn tool_name(call: &Object, stored: Option<&Body>) -> Option<String> {
    let metas = [call.get_object("_meta"), stored.and_then(|body| body.meta.clone())];
    metas.into_iter().flatten().find_map(|meta| {
        let own = meta.get_string("toolName").or_else(|| meta.get_string("tool_name"));
        own.or_else(|| {
            meta.iter().find_map(|(_, value)| {
                let inner = Object::parse(value.raw()).ok()?;
                inner.get_string("toolName").or_else(|| inner.get_string("tool_name"))
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
    fn everything_that_a_request_permits_is_printed() {
        let printed = shown(
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
            assert!(printed.contains(wanted), "{wanted}: {printed}");
        }
    }

    #[test]
    fn fields_that_a_request_omits_are_those_of_the_tool_call_in_the_transcript() {
        let printed = shown(
            r#"{"subject":{"type":"tool_call","toolCall":{"toolCallId":"t"}}}"#,
            &[
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","kind":"edit","rawInput":{"file_path":"/etc/passwd"},
                "content":[{"type":"diff","changes":[],"patch":{"text":"@@\n-a\n+b"}}]}"#,
            ],
        );
        for wanted in
            ["kind       edit", r#"raw input  {"file_path":"/etc/passwd"}"#, "    +b", "directory  /work"]
        {
            assert!(printed.contains(wanted), "{wanted}: {printed}");
        }
        let printed = shown(r#"{"subject":{"type":"command","command":"make\nclean","cwd":"/src"}}"#, &[]);
        assert!(printed.contains("command    make\n") && printed.contains("           clean"), "{printed}");
        assert!(printed.contains("directory  /src") && !printed.contains("raw input"), "{printed}");
    }

    #[test]
    fn a_printed_command_or_directory_does_not_hide_another_one() {
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
        for (printed, hidden) in [
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
            assert!(printed.contains("raw input") && printed.contains(hidden), "{hidden}: {printed}");
        }
        for printed in [
            subject(r#"{"command":"ls","cwd":"/safe"}"#),
            subject(r#"{"command":["ls"]}"#),
            call(r#"{"command":"ls","workdir":"/safe"}"#),
        ] {
            assert!(printed.contains("command    ls\n") && printed.contains("directory  /safe"), "{printed}");
            assert!(!printed.contains("raw input"), "{printed}");
        }
    }

    #[test]
    fn control_characters_in_a_request_cannot_change_the_terminal() {
        let printed = shown(
            r#"{"description":"d\u001b[2J\u202e","toolCall":{"toolCallId":"t","kind":"k\u001b]0;x\u0007",
                "rawInput":{"command":"echo \u202egnp.sh\u2066 \u009b1m","note":"\u2067x"},
                "locations":[{"path":"/a\r\u001b[1A\u200e"}],
                "content":[{"type":"diff","path":"p\u2069","oldText":"\u001b[8m","newText":"\u061c"}]}}"#,
            &[],
        );
        let hidden = |c: char| (c.is_control() && c != '\n') || crate::render::is_bidi(c);
        assert!(!printed.contains(hidden), "{printed:?}");
        assert!(printed.contains("echo ‹U+202E›gnp.sh‹U+2066›"), "{printed}");
        assert!(printed.contains("bidirectional control characters"), "{printed}");
    }

    #[test]
    fn a_long_part_is_truncated_with_the_number_of_omitted_bytes() {
        let long = "x".repeat(MAX_PART + 9);
        let printed =
            shown(&format!(r#"{{"toolCall":{{"toolCallId":"t","rawInput":{{"command":"{long}"}}}}}}"#), &[]);
        assert!(printed.contains("… 9 more bytes"), "{}", printed.len());
    }
}
