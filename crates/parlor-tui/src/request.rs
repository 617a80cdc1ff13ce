//! Requests that wait for a person: what a permission request would permit, and the fields of a form.

use jiff::Timestamp;
use parlor_client::{
    Content, Entry, EntryId, Json, JsonRef, Object, OpenRequest, Patch, PeerRequest, PermissionOption,
    PermissionOptionKind, SessionId, Target, ToolCallId, Transcript, Update, Upsert,
};

use crate::clean::Clean;
use crate::form::Form;

/// The names that tools use for the directory of a command.
const DIRECTORIES: [&str; 3] = ["cwd", "workdir", "directory"];

/// A request that waits for a person.
#[derive(Debug, Clone)]
pub struct Request {
    /// The id with which it is answered.
    pub id: String,
    /// Its session.
    pub session: SessionId,
    /// The title of its session.
    pub session_title: Clean,
    /// The agent that sent it.
    pub agent: Clean,
    /// The working directory of its session.
    pub cwd: String,
    /// When the agent sent it.
    pub opened: Option<Timestamp>,
    /// What it asks for.
    pub subject: Subject,
}

/// What a request asks for.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A permission.
    Permission(Box<Permission>),
    /// A form, or a link to open.
    Form(Box<Form>),
    /// Something that this client cannot show but as JSON. It can be declined.
    Unknown(Clean),
}

/// Everything that a permission request permits.
#[derive(Debug, Clone)]
pub struct Permission {
    /// The title of the request.
    pub title: Clean,
    /// The kind of tool call, such as `execute`.
    pub kind: Option<String>,
    /// The command, with its line breaks.
    pub command: Option<String>,
    /// Details by name: `directory`, `path`, `tool`, `says`, `raw input`.
    pub rows: Vec<(&'static str, String)>,
    /// The files that it works on.
    pub paths: Vec<String>,
    /// The options.
    pub options: Vec<PermissionOption>,
    /// The tool call that it is about.
    pub tool_call: Option<ToolCallId>,
    /// A transcript with the tool call alone, for its content: texts and diffs.
    pub content: Transcript,
    /// How many bidirectional control characters are in it.
    pub hidden_characters: usize,
}

impl Request {
    /// Reads a request of a server.
    pub fn of_open(open: &OpenRequest) -> Self {
        let subject = Subject::of(&open.method, &open.params, open.title(), &open.cwd, None);
        let title = open.session_title.clone().unwrap_or_else(|| open.session.to_string());
        Self {
            id: open.id.clone(),
            session: open.session.clone(),
            session_title: Clean::line(&title),
            agent: Clean::line(&open.agent),
            cwd: open.cwd.clone(),
            opened: open.opened_at.as_deref().and_then(|text| text.parse().ok()),
            subject,
        }
    }

    /// Reads a request that an agent sent directly to this client, under an id that this client assigns.
    pub fn of_peer(id: String, request: &PeerRequest, transcript: &Transcript, cwd: &str, now: Timestamp) -> Self {
        let stored = request.tool_call_id().and_then(|id| transcript.get(&EntryId::ToolCall(id)));
        let subject = Subject::of(request.method(), request.params(), request.title(), cwd, stored);
        Self {
            id,
            session: request.session().unwrap_or_else(|| SessionId::from("")),
            session_title: Clean::default(),
            agent: Clean::line("agent"),
            cwd: cwd.to_owned(),
            opened: Some(now),
            subject,
        }
    }

    /// What is asked for, in a few words: `run a command`, `edit 2 files`.
    pub fn summary(&self) -> String {
        match &self.subject {
            Subject::Permission(permission) => permission.summary(),
            Subject::Form(form) if form.url.is_some() => "open a link".to_owned(),
            Subject::Form(form) => format!("fill in {}", crate::text::count(form.fields.len(), "field")),
            Subject::Unknown(_) => "something that this client does not know".to_owned(),
        }
    }

    /// The summary for a list: with the command, the paths or the message.
    pub fn details(&self) -> Clean {
        match &self.subject {
            Subject::Permission(permission) => permission.details(),
            Subject::Form(form) if form.url.is_some() => Clean::line(&format!("link: {}", form.message)),
            Subject::Form(form) => {
                let fields = crate::text::count(form.fields.len(), "field");
                Clean::line(&format!("form with {fields}: {}", form.message))
            }
            Subject::Unknown(text) => text.clone(),
        }
    }

    /// The options of a permission request.
    pub fn options(&self) -> &[PermissionOption] {
        match &self.subject {
            Subject::Permission(permission) => &permission.options,
            Subject::Form(_) | Subject::Unknown(_) => &[],
        }
    }

    /// Everything that it says, as plain text for a pager.
    pub fn full_text(&self) -> String {
        match &self.subject {
            Subject::Permission(permission) => permission.full_text(),
            Subject::Form(form) => form.message.clone(),
            Subject::Unknown(text) => text.to_string(),
        }
    }
}

impl Subject {
    fn of(method: &str, params: &Object, title: Option<String>, cwd: &str, stored: Option<&Entry>) -> Self {
        if method == "session/request_permission" {
            return Self::Permission(Box::new(Permission::of(params, title, cwd, stored)));
        }
        match Form::of(params) {
            Some(form) => Self::Form(Box::new(form)),
            None => Self::Unknown(Clean::line(params.to_json().as_str())),
        }
    }
}

impl Permission {
    fn of(params: &Object, title: Option<String>, cwd: &str, stored: Option<&Entry>) -> Self {
        let subject = params.get_object("subject").unwrap_or_default();
        let call =
            params.get_object("toolCall").or_else(|| subject.get_object("toolCall")).unwrap_or_default();
        let id = call.get_json_str("toolCallId").or_else(|| subject.get_json_str("toolCallId"));
        let stored = stored.map(Entry::body);
        // Fields of the request take precedence over those of the transcript.
        let field = |name: &str| {
            let named = call.get(name).filter(|value| !value.is_null());
            named.or_else(|| stored.and_then(|body| body.fields.get(name))).cloned()
        };
        let text = |name: &str| field(name).and_then(|value| Some(value.to_text()?.into_owned()));
        let input = field("rawInput").filter(|input| !input.is_null());
        let fields = input.as_ref().and_then(Json::to_object).unwrap_or_default();
        let is_blank = |text: &String| text.trim().is_empty();
        let commands = [subject.get("command"), fields.get("command")];
        let shown_command =
            commands.into_iter().flatten().find_map(|value| command(value).filter(|text| !is_blank(text)));
        let directories = DIRECTORIES.into_iter().map(|name| fields.get_string(name));
        let directory = [subject.get_string("cwd")].into_iter().chain(directories).flatten();
        let directory = directory.filter(|text| !is_blank(text)).next().unwrap_or_else(|| cwd.to_owned());
        let mut rows = Vec::new();
        let mut row = |name: &'static str, value: Option<String>| {
            rows.extend(value.filter(|value| !value.trim().is_empty()).map(|value| (name, value)));
        };
        let paths = paths(field("locations").as_ref());
        row("directory", Some(directory.clone()));
        paths.iter().for_each(|path| row("path", Some(path.clone())));
        let metas = [call.get_object("_meta"), stored.and_then(|body| body.meta.clone())];
        row("tool", text("name").or_else(|| metas.iter().flatten().find_map(tool_name)));
        let kind = text("kind").or_else(|| subject.get_string("type").filter(|kind| kind != "tool_call"));
        row("says", params.get_string("description"));
        let is_shown = |input: &Json| {
            shown_command.as_ref().is_some_and(|command| has_only(input, command, &directory))
        };
        row("raw input", input.filter(|input| !is_shown(input)).map(|input| input.as_str().to_owned()));
        let content = call
            .get("content")
            .and_then(|content| Content::parse(content.raw()).ok())
            .or_else(|| stored.map(|body| body.content.clone()))
            .unwrap_or_default();
        let all = rows.iter().map(|(_, value)| value.as_str());
        let all = all.chain(shown_command.as_deref()).map(hidden_in).sum::<usize>();
        let hidden_characters = all + content.iter().map(|item| hidden_in(&decoded(item.json))).sum::<usize>();
        let tool_call = id.map(ToolCallId::from);
        let title = title.map_or_else(|| "Permission".to_owned(), |title| title);
        Self {
            title: Clean::line(&title),
            kind,
            command: shown_command,
            rows,
            paths,
            options: PermissionOption::all_in(params),
            content: only_content(content, tool_call.clone()),
            tool_call,
            hidden_characters,
        }
    }

    /// What is asked for, in a few words.
    pub fn summary(&self) -> String {
        let files = || match self.paths.len() {
            0 => "a file".to_owned(),
            1 => Clean::line(&self.paths[0]).to_string(),
            number => format!("{number} files"),
        };
        match (self.command.is_some(), self.kind.as_deref()) {
            (true, _) | (_, Some("execute" | "command")) => "run a command".to_owned(),
            (_, Some("edit")) => format!("edit {}", files()),
            (_, Some("delete")) => format!("delete {}", files()),
            (_, Some("move")) => format!("move {}", files()),
            (_, Some("read")) => format!("read {}", files()),
            (_, Some("fetch")) => "fetch data".to_owned(),
            _ => self.title.to_string(),
        }
    }

    /// The summary with the command or the title.
    fn details(&self) -> Clean {
        match &self.command {
            Some(command) => Clean::line(&format!("run {command}")),
            None if self.summary() == self.title.as_str() => self.title.clone(),
            None => Clean::line(&format!("{}: {}", self.summary(), self.title)),
        }
    }

    /// The option of a kind, if there is exactly one: a key never chooses between several.
    pub fn only_option(&self, kind: &PermissionOptionKind) -> Option<&PermissionOption> {
        let mut of_kind = self.options.iter().filter(|option| option.kind == *kind);
        of_kind.next().filter(|_| of_kind.next().is_none())
    }

    fn full_text(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        if let Some(command) = &self.command {
            text.push_str(&format!("command    {command}\n"));
        }
        for (name, value) in &self.rows {
            text.push_str(&format!("{name:<10} {value}\n"));
        }
        for entry in self.content.entries() {
            for item in entry.body().content.iter() {
                text.push_str(&format!("\n{}\n", decoded(item.json)));
            }
        }
        text
    }
}

/// The result that selects an option.
pub fn selection(option: &PermissionOption) -> Object {
    let outcome = Object::new().with("outcome", "selected").with("optionId", &option.id);
    Object::new().with("outcome", outcome.to_json())
}

/// A transcript with the content of a tool call and nothing else of it.
fn only_content(content: Content, id: Option<ToolCallId>) -> Transcript {
    let mut transcript = Transcript::default();
    if !content.is_empty() {
        let entry = EntryId::ToolCall(id.unwrap_or_else(|| "request".into()));
        let upsert = Upsert { content: Patch::Value(content), ..Upsert::default() };
        // Content that exceeds a limit of transcripts is not shown; the raw input is.
        let _ = transcript.push(Update::Upsert { target: Target::Entry(entry), upsert });
    }
    transcript
}

/// The strings of a JSON text with their escapes decoded, for people.
fn decoded(json: &str) -> String {
    fn collect(value: JsonRef<'_>, into: &mut Vec<String>) {
        if let Some(text) = value.to_text() {
            into.push(text.into_owned());
        } else if let Some(object) = value.to_object() {
            object.iter().for_each(|(_, value)| collect(value.raw(), into));
        } else if let Some(elements) = value.elements() {
            elements.into_iter().for_each(|value| collect(value, into));
        }
    }
    let mut texts = Vec::new();
    if let Ok(value) = Json::parse(json) {
        collect(value.raw(), &mut texts);
    }
    texts.join("\n")
}

fn hidden_in(text: &str) -> usize {
    text.chars().filter(|letter| crate::clean::is_bidirectional(*letter)).count()
}

/// A command as text: a string, or a list of arguments.
fn command(value: &Json) -> Option<String> {
    if let Some(arguments) = value.elements() {
        let arguments = arguments.into_iter().map(|argument| Some(quoted(&argument.to_text()?)));
        return Some(arguments.collect::<Option<Vec<_>>>()?.join(" "));
    }
    Some(value.to_text()?.into_owned())
}

/// Whether the raw input has only the command and the directory that are shown.
fn has_only(input: &Json, shown_command: &str, shown_directory: &str) -> bool {
    let Some(members) = input.to_object() else { return false };
    // A name that occurs several times has other values than the one that is shown.
    let is_unique = |name: &str| input.as_str().matches(&format!("\"{name}\"")).count() == 1;
    let mut directories = 0;
    members.iter().all(|(name, value)| match name.inner() {
        "command" => is_unique("command") && command(value).as_deref() == Some(shown_command),
        name if DIRECTORIES.contains(&name) => {
            directories += 1;
            let is_shown = value.to_text().as_deref() == Some(shown_directory);
            directories == 1 && is_unique(name) && is_shown
        }
        _ => false,
    })
}

/// Quotes an argument for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The paths of a tool call, with line numbers.
fn paths(locations: Option<&Json>) -> Vec<String> {
    let locations = locations.and_then(Json::elements).unwrap_or_default();
    let location = |location: JsonRef<'_>| {
        let location = location.to_object()?;
        let path = location.get_string("path")?;
        Some(location.get_u64("line").map_or_else(|| path.clone(), |line| format!("{path}:{line}")))
    };
    locations.into_iter().filter_map(location).collect()
}

/// The name of the tool, which agents put into their metadata under their own key.
fn tool_name(meta: &Object) -> Option<String> {
    let own = |meta: &Object| meta.get_string("toolName").or_else(|| meta.get_string("tool_name"));
    own(meta).or_else(|| meta.iter().find_map(|(_, value)| own(&value.to_object()?)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn object(text: &str) -> Object {
        Json::parse(text).unwrap().to_object().unwrap()
    }

    pub(crate) fn permission(params: &str) -> Permission {
        Permission::of(&object(params), Some("Clean up".to_owned()), "/work", None)
    }

    fn row<'a>(permission: &'a Permission, name: &str) -> Option<&'a str> {
        permission.rows.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn everything_that_a_request_permits_is_read() {
        let read = permission(
            r#"{"description":"Remove old files","toolCall":{"toolCallId":"t","kind":"execute",
                "rawInput":{"command":["rm","-rf","a b"],"cwd":"/tmp","timeout":5},
                "locations":[{"path":"/tmp/a","line":3},{"path":"/tmp/b"}],
                "content":[{"type":"diff","path":"/tmp/a","oldText":"old","newText":"new"}],
                "_meta":{"claudeCode":{"toolName":"Bash"}}},
                "options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}"#,
        );
        assert_eq!(read.command.as_deref(), Some("rm -rf 'a b'"));
        assert_eq!(row(&read, "directory"), Some("/tmp"));
        assert_eq!(read.paths, ["/tmp/a:3", "/tmp/b"]);
        assert_eq!(row(&read, "tool"), Some("Bash"));
        assert_eq!(row(&read, "says"), Some("Remove old files"));
        assert!(row(&read, "raw input").unwrap().contains("timeout"));
        assert_eq!(read.content.entries().len(), 1);
        assert_eq!(read.summary(), "run a command");
        assert_eq!(read.only_option(&PermissionOptionKind::AllowOnce).unwrap().name, "Yes");
        assert!(read.only_option(&PermissionOptionKind::AllowAlways).is_none());
        assert!(read.full_text().contains("rm -rf 'a b'") && read.full_text().contains("new"));
    }

    #[test]
    fn a_shown_command_or_directory_does_not_hide_another_one() {
        let call = |input: &str| permission(&format!(r#"{{"toolCall":{{"toolCallId":"t","rawInput":{input}}}}}"#));
        for (input, hidden) in [
            (r#"{"command":"ls","cwd":"/safe","workdir":"/etc"}"#, "/etc"),
            (r#"{"command":"ls","command":"rm -rf ~"}"#, "rm -rf ~"),
            (r#"{"command":"ls","cwd":["/etc"]}"#, "/etc"),
            (r#"{"command":{"run":"rm -rf ~"}}"#, "rm -rf ~"),
        ] {
            let read = call(input);
            assert!(row(&read, "raw input").is_some_and(|raw| raw.contains(hidden)), "{input}");
        }
        assert_eq!(row(&call(r#"{"command":"ls","cwd":"/safe"}"#), "raw input"), None);
    }

    #[test]
    fn bidirectional_characters_are_counted_also_in_diffs() {
        let read = permission(
            r#"{"toolCall":{"toolCallId":"t","rawInput":{"command":"echo \u202egnp.sh"},
                "content":[{"type":"diff","path":"p","newText":"a\u2066b"}]}}"#,
        );
        assert_eq!(read.hidden_characters, 2);
    }

    #[test]
    fn a_key_does_not_choose_between_two_options_of_its_kind() {
        let read = permission(
            r#"{"options":[{"optionId":"a","name":"A","kind":"allow_once"},{"optionId":"b","name":"B","kind":"allow_once"}]}"#,
        );
        assert!(read.only_option(&PermissionOptionKind::AllowOnce).is_none());
    }
}
