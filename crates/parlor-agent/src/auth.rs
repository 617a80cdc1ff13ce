use crate::wire_text::array;
use parlor_json::{Json, Object, ObjectWriter};

/// A way to authenticate, which clients offer to people.
///
/// A client that selects it calls [`Agent::authenticate`](crate::Agent::authenticate) with its id.
///
/// ```
/// use parlor_agent::{AuthMethod, Info};
///
/// let info = Info::new("my-agent", "1.0")
///     .auth_method(AuthMethod::new("browser", "Log in with the browser").description("Opens a page"))
///     .auth_method(AuthMethod::terminal("key", "Enter an API key").arg("--login"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthMethod {
    id: String,
    name: String,
    description: Option<String>,
    kind: AuthMethodKind,
    extra: Object,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AuthMethodKind {
    Agent,
    Terminal { args: Vec<String>, env: Vec<(String, String)> },
    Other(String),
}

impl AuthMethod {
    /// A method that the agent itself handles.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self::with_kind(id, name, AuthMethodKind::Agent)
    }

    /// A method for which the client runs the agent's program in a terminal, with the arguments and variables that are added.
    pub fn terminal(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self::with_kind(id, name, AuthMethodKind::Terminal { args: Vec::new(), env: Vec::new() })
    }

    /// A method of another type, whose members are added with [`member`](Self::member).
    pub fn other(kind: impl Into<String>, id: impl Into<String>, name: impl Into<String>) -> Self {
        Self::with_kind(id, name, AuthMethodKind::Other(kind.into()))
    }

    fn with_kind(id: impl Into<String>, name: impl Into<String>, kind: AuthMethodKind) -> Self {
        Self { id: id.into(), name: name.into(), description: None, kind, extra: Object::default() }
    }

    /// Describes the method to people.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument to the command of a terminal method. Other methods have none.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        if let AuthMethodKind::Terminal { args, .. } = &mut self.kind {
            args.push(arg.into());
        }
        self
    }

    /// Adds an environment variable to the command of a terminal method. Other methods have none.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let AuthMethodKind::Terminal { env, .. } = &mut self.kind {
            env.push((name.into(), value.into()));
        }
        self
    }

    /// Adds a member as JSON, such as `_meta`.
    #[must_use]
    pub fn member(mut self, name: &str, value: Json) -> Self {
        self.extra.set(name, value);
        self
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The method as version 2 of the protocol has it.
    pub fn to_json(&self) -> Json {
        let kind = match &self.kind {
            AuthMethodKind::Agent => "agent",
            AuthMethodKind::Terminal { .. } => "terminal",
            AuthMethodKind::Other(kind) => kind,
        };
        let mut method = ObjectWriter::new()
            .str("type", kind)
            .str("methodId", &self.id)
            .str("name", &self.name)
            .optional_str("description", self.description.as_deref());
        if let AuthMethodKind::Terminal { args, env } = &self.kind {
            if !args.is_empty() {
                method = method.raw("args", &array(args.iter().map(|arg| parlor_json::string_literal(arg))));
            }
            if !env.is_empty() {
                let variable = |(name, value): &(String, String)| {
                    ObjectWriter::new().str("name", name).str("value", value).finish()
                };
                method = method.raw("env", &array(env.iter().map(variable)));
            }
        }
        method.members(&self.extra).into_json()
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v2;

    use super::*;

    #[test]
    fn methods_are_those_of_the_protocol() {
        let meta = Json::parse(r#"{"k":1}"#).unwrap();
        for (method, text) in [
            (
                AuthMethod::new("a", "A").description("d").member("_meta", meta),
                r#"{"type":"agent","methodId":"a","name":"A","description":"d","_meta":{"k":1}}"#,
            ),
            (
                AuthMethod::terminal("t", "T").arg("login").env("K", "v"),
                r#"{"type":"terminal","methodId":"t","name":"T","args":["login"],"env":[{"name":"K","value":"v"}]}"#,
            ),
            (
                AuthMethod::other("_sso", "s", "S").arg("ignored").env("ignored", ""),
                r#"{"type":"_sso","methodId":"s","name":"S"}"#,
            ),
        ] {
            let json = method.to_json();
            assert_eq!(json.as_str(), text);
            let parsed: v2::AuthMethod = serde_json::from_str(json.as_str()).unwrap();
            assert_eq!(&*parsed.method_id().0, method.id());
            let written: serde_json::Value = serde_json::to_value(parsed).unwrap();
            assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
        }
    }
}
