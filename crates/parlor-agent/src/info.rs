use std::collections::BTreeMap;

use parlor_json::{Object, ObjectWriter};

use crate::Failure;
use crate::update::{array, update};

/// Who an agent is, what it takes, and what can be chosen.
///
/// ```
/// use parlor_agent::{Info, Setting};
///
/// let info = Info::new("baker", "1.0")
///     .title("Baker")
///     .takes("image")
///     .command("bake", "bakes a loaf", Some("which flour"))
///     .setting(Setting::new("oven", "Oven").value("gas", "Gas").value("wood", "Wood fire"));
/// ```
#[derive(Debug, Clone)]
pub struct Info {
    pub(crate) name: String,
    version: String,
    title: Option<String>,
    prompt: Object,
    mcp: Object,
    commands: Vec<String>,
    settings: Vec<Setting>,
}

/// Something that a person can choose in a session: a mode, a model, how much to think. A session begins with the first
/// of its values.
#[derive(Debug, Clone)]
pub struct Setting {
    id: String,
    name: String,
    category: Option<String>,
    values: Vec<(String, String)>,
}

/// What was chosen in a session, by the id of the setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chosen(BTreeMap<String, String>);

impl Info {
    /// A name and a version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            prompt: Object::default(),
            mcp: Object::default(),
            commands: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// What people are shown.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Prompts may have content of this kind besides text, such as `image`, `audio` or `embeddedContext`.
    #[must_use]
    pub fn takes(mut self, kind: &str) -> Self {
        self.prompt.set(kind, Object::default().to_json());
        self
    }

    /// Sessions may come with MCP servers that are reached in this way, `stdio` or `http`: they are in
    /// [`Session::mcp_servers`](crate::Session::mcp_servers).
    #[must_use]
    pub fn mcp(mut self, transport: &str) -> Self {
        self.mcp.set(transport, Object::default().to_json());
        self
    }

    /// A command that clients offer while a prompt is written, where it stands as `/name`: what it does, and what is to
    /// follow it.
    #[must_use]
    pub fn command(mut self, name: &str, about: &str, hint: Option<&str>) -> Self {
        let mut command =
            ObjectWriter::new().str("type", "command").str("name", name).str("description", about);
        if let Some(hint) = hint {
            command =
                command.raw("input", &ObjectWriter::new().str("type", "text").str("hint", hint).finish());
        }
        self.commands.push(command.finish());
        self
    }

    /// Something that can be chosen in each session.
    #[must_use]
    pub fn setting(mut self, setting: Setting) -> Self {
        self.settings.push(setting);
        self
    }

    /// The answer to `initialize`.
    pub(crate) fn initialized(&self) -> String {
        let who = ObjectWriter::new().str("name", &self.name).optional_str("title", self.title.as_deref());
        let who = who.str("version", &self.version).finish();
        let session = ObjectWriter::new()
            .raw("prompt", self.prompt.to_json().as_str())
            .raw("mcp", self.mcp.to_json().as_str())
            .raw("delete", "{}")
            .raw("fork", r#"{"atMessageId":true}"#)
            .finish();
        let capabilities = ObjectWriter::new().raw("session", &session).finish();
        ObjectWriter::new()
            .raw("protocolVersion", "2")
            .raw("info", &who)
            .raw("capabilities", &capabilities)
            .finish()
    }

    /// The update that tells of commands, if there are any.
    pub(crate) fn commands(&self) -> Option<String> {
        let commands = (!self.commands.is_empty()).then(|| array(&self.commands))?;
        Some(update("available_commands_update").raw("availableCommands", &commands).finish())
    }

    /// Adds what can be chosen, and is, to what is said of a session.
    pub(crate) fn with_settings(&self, text: ObjectWriter, chosen: &Chosen) -> ObjectWriter {
        if self.settings.is_empty() {
            return text;
        }
        let settings: Vec<_> =
            self.settings.iter().map(|setting| setting.shown(chosen.of(setting))).collect();
        text.raw("configOptions", &array(&settings))
    }

    /// What is chosen of a setting.
    pub(crate) fn value<'a>(&'a self, chosen: &'a Chosen, id: &str) -> Option<&'a str> {
        self.settings.iter().find(|setting| setting.id == id).map(|setting| chosen.of(setting))
    }

    /// Chooses a value of a setting.
    pub(crate) fn choose(&self, chosen: &mut Chosen, id: &str, value: &str) -> Result<(), Failure> {
        let setting = self.settings.iter().find(|setting| setting.id == id);
        let setting = setting.ok_or_else(|| Failure::wrong(format!("there is no setting '{id}'")))?;
        if setting.values.iter().all(|(known, _)| known != value) {
            return Err(Failure::wrong(format!("the setting '{id}' has no value '{value}'")));
        }
        chosen.0.insert(id.to_owned(), value.to_owned());
        Ok(())
    }
}

impl Setting {
    /// A setting with an id, and a name for people.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), category: None, values: Vec::new() }
    }

    /// What it is about, so that clients can show it where people look for it: `mode`, `model` or `thought_level`. The
    /// values of a `mode` are the modes of version 1.
    #[must_use]
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.category = Some(category.into());
        self
    }

    /// One value, with a name for people.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>, name: impl Into<String>) -> Self {
        self.values.push((value.into(), name.into()));
        self
    }

    fn shown(&self, current: &str) -> String {
        let values: Vec<_> = self
            .values
            .iter()
            .map(|(value, name)| ObjectWriter::new().str("value", value).str("name", name).finish())
            .collect();
        ObjectWriter::new()
            .str("configId", &self.id)
            .str("name", &self.name)
            .optional_str("category", self.category.as_deref())
            .str("type", "select")
            .str("currentValue", current)
            .raw("options", &array(&values))
            .finish()
    }
}

impl Chosen {
    /// What is chosen of a setting: its first value if nothing was.
    fn of<'a>(&'a self, setting: &'a Setting) -> &'a str {
        let first = || setting.values.first().map_or("", |(value, _)| value);
        self.0.get(&setting.id).map_or_else(first, String::as_str)
    }
}
