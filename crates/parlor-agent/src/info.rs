use std::collections::BTreeMap;

use parlor_json::{Json, Object, ObjectWriter};

use crate::wire_text::{array, update};
use crate::{AuthMethod, PromptCapability, SettingCategory, TurnError};

/// The description of an agent: its name, what prompts may contain, its commands, settings and authentication methods.
///
/// ```
/// use parlor_agent::{Info, PromptCapability, Setting, SettingCategory};
///
/// let model = Setting::new("model", "Model").category(SettingCategory::Model);
/// let info = Info::new("my-agent", "1.0")
///     .title("My agent")
///     .accepts(PromptCapability::Image)
///     .command("test", "Runs the tests", Some("which tests"))
///     .setting(model.value("small", "Small").value("large", "Large"));
/// ```
#[derive(Debug, Clone)]
pub struct Info {
    name: String,
    version: String,
    title: Option<String>,
    prompt: Object,
    mcp: Object,
    auth_methods: Vec<AuthMethod>,
    commands: Vec<String>,
    settings: Vec<Setting>,
}

/// Something that people select in each session: a mode, a model, how much to think. A session starts with the first value.
#[derive(Debug, Clone)]
pub struct Setting {
    id: String,
    name: String,
    category: Option<SettingCategory>,
    values: Vec<(String, String)>,
}

/// The values of the settings of a session, by the id of the setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingValues(BTreeMap<String, String>);

impl Info {
    /// An agent of this name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            title: None,
            prompt: Object::default(),
            mcp: Object::default(),
            auth_methods: Vec::new(),
            commands: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// Sets the name that people are shown.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Declares that prompts may have this content.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers have variants, not references")]
    pub fn accepts(mut self, content: PromptCapability) -> Self {
        self.prompt.set(content.as_str().as_ref(), empty());
        self
    }

    /// Declares that sessions may come with MCP servers of this transport, `stdio` or `http`.
    /// [`Session::mcp_servers`](crate::Session::mcp_servers) returns them.
    #[must_use]
    pub fn mcp_transport(mut self, transport: &str) -> Self {
        self.mcp.set(transport, empty());
        self
    }

    /// Adds a way to authenticate.
    #[must_use]
    pub fn auth_method(mut self, method: AuthMethod) -> Self {
        self.auth_methods.push(method);
        self
    }

    /// Adds a command that clients offer while a prompt is written as `/name`; `hint` describes its input.
    #[must_use]
    pub fn command(mut self, name: &str, description: &str, hint: Option<&str>) -> Self {
        let mut command =
            ObjectWriter::new().str("type", "command").str("name", name).str("description", description);
        if let Some(hint) = hint {
            command =
                command.raw("input", &ObjectWriter::new().str("type", "text").str("hint", hint).finish());
        }
        self.commands.push(command.finish());
        self
    }

    /// Adds a setting.
    #[must_use]
    pub fn setting(mut self, setting: Setting) -> Self {
        self.settings.push(setting);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_auth_method(&self, id: &str) -> bool {
        self.auth_methods.iter().any(|method| method.id() == id)
    }

    /// The result of `initialize`.
    pub(crate) fn initialize_result(&self) -> String {
        let info = ObjectWriter::new().str("name", &self.name).optional_str("title", self.title.as_deref());
        let info = info.str("version", &self.version).finish();
        let session = ObjectWriter::new()
            .raw("prompt", self.prompt.to_json().as_str())
            .raw("mcp", self.mcp.to_json().as_str())
            .raw("delete", "{}")
            .raw("fork", r#"{"atMessageId":true}"#)
            .finish();
        let capabilities = ObjectWriter::new().raw("session", &session).finish();
        let result = ObjectWriter::new()
            .raw("protocolVersion", "2")
            .raw("info", &info)
            .raw("capabilities", &capabilities);
        if self.auth_methods.is_empty() {
            return result.finish();
        }
        let methods = array(self.auth_methods.iter().map(|method| method.to_json().as_str().to_owned()));
        result.raw("authMethods", &methods).finish()
    }

    /// The update with the commands, if there are any.
    pub(crate) fn commands_update(&self) -> Option<String> {
        let commands = (!self.commands.is_empty()).then(|| array(&self.commands))?;
        Some(update("available_commands_update").raw("availableCommands", &commands).finish())
    }

    /// Adds the settings with their values to an object.
    pub(crate) fn write_settings(&self, object: ObjectWriter, values: &SettingValues) -> ObjectWriter {
        if self.settings.is_empty() {
            return object;
        }
        let settings = self.settings.iter().map(|setting| setting.write(values.get(setting)));
        object.raw("configOptions", &array(settings))
    }

    /// The value of a setting.
    pub(crate) fn setting_value<'a>(&'a self, values: &'a SettingValues, id: &str) -> Option<&'a str> {
        self.settings.iter().find(|setting| setting.id == id).map(|setting| values.get(setting))
    }

    /// Sets the value of a setting.
    pub(crate) fn set_setting(
        &self,
        values: &mut SettingValues,
        id: &str,
        value: &str,
    ) -> Result<(), TurnError> {
        let setting = self.settings.iter().find(|setting| setting.id == id);
        let setting =
            setting.ok_or_else(|| TurnError::InvalidParams(format!("the agent has no setting '{id}'")))?;
        if setting.values.iter().all(|(known, _)| known != value) {
            return Err(TurnError::InvalidParams(format!("the setting '{id}' has no value '{value}'")));
        }
        values.0.insert(id.to_owned(), value.to_owned());
        Ok(())
    }
}

impl Setting {
    /// A setting with an id, and a name for people.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), category: None, values: Vec::new() }
    }

    /// Sets the category.
    #[must_use]
    pub fn category(mut self, category: SettingCategory) -> Self {
        self.category = Some(category);
        self
    }

    /// Adds a value, with a name for people.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>, name: impl Into<String>) -> Self {
        self.values.push((value.into(), name.into()));
        self
    }

    fn write(&self, current: &str) -> String {
        let value = |(value, name): &(String, String)| {
            ObjectWriter::new().str("value", value).str("name", name).finish()
        };
        ObjectWriter::new()
            .str("configId", &self.id)
            .str("name", &self.name)
            .optional_str("category", self.category.as_ref().map(SettingCategory::as_str).as_deref())
            .str("type", "select")
            .str("currentValue", current)
            .raw("options", &array(self.values.iter().map(value)))
            .finish()
    }
}

impl SettingValues {
    /// The value of a setting: the first one if none was selected.
    fn get<'a>(&'a self, setting: &'a Setting) -> &'a str {
        let first = || setting.values.first().map_or("", |(value, _)| value);
        self.0.get(&setting.id).map_or_else(first, String::as_str)
    }
}

fn empty() -> Json {
    Object::default().to_json()
}
