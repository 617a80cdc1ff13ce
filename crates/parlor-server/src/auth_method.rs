//! The authentication methods of an agent.

use std::path::PathBuf;

use parlor_json::{Json, JsonStr, Object};
use parlor_process::Command;

/// The metadata key under which agents name the command of a login on a terminal, and clients say that they can run it.
pub(crate) const TERMINAL_AUTH: &str = "terminal-auth";

/// A way to log in to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthMethod {
    pub(crate) id: String,
    name: String,
    description: Option<String>,
    /// A page for people, such as the one that issues API keys.
    link: Option<String>,
    pub(crate) kind: AuthKind,
}

/// How a method is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthKind {
    /// The agent does it when it is sent `authenticate`.
    Agent,
    /// A program on a terminal.
    Terminal(LoginProgram),
    /// The agent reads these environment variables when it starts.
    Variables(Vec<Variable>),
}

/// The program of a login on a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginProgram {
    /// The program; that of the agent, with the agent's own arguments first, if `None`.
    program: Option<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

/// An environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    label: Option<String>,
    is_optional: bool,
}

impl AuthMethod {
    /// The methods in an agent's response to `initialize`, of any version.
    pub(crate) fn all_in(initialize: &Object) -> Vec<Self> {
        let methods = initialize.get_array("authMethods").unwrap_or_default();
        methods.into_iter().filter_map(|method| Self::parse(&method.to_object()?)).collect()
    }

    fn parse(method: &Object) -> Option<Self> {
        let id = method.get_string("methodId").or_else(|| method.get_string("id"))?;
        let program = method.get_nested("_meta", TERMINAL_AUTH).and_then(|meta| meta.to_object());
        // The command in the metadata is complete. Some agents send it also with methods of the type `terminal`.
        let kind =
            match (program.filter(|program| program.get_str("command").is_some()), method.get_str("type")) {
                (Some(program), _) => AuthKind::Terminal(LoginProgram::parse(&program)),
                (None, Some(kind)) if kind == "terminal" => AuthKind::Terminal(LoginProgram::parse(method)),
                (None, Some(kind)) if kind == "env_var" => AuthKind::Variables(Variable::all_in(method)),
                (None, _) => AuthKind::Agent,
            };
        let text = |name| method.get_string(name);
        Some(Self {
            name: text("name").unwrap_or_else(|| id.clone()),
            description: text("description"),
            link: text("link"),
            id,
            kind,
        })
    }

    /// Encodes the method for clients, with the variables that are set if `env`, the environment of the agent, is known.
    pub(crate) fn to_json(&self, env: Option<&[(String, String)]>) -> Json {
        let mut method = Object::new().with("methodId", &self.id).with("name", &self.name);
        for (name, text) in [("description", &self.description), ("link", &self.link)] {
            if let Some(text) = text {
                method.set(name, text);
            }
        }
        match &self.kind {
            AuthKind::Agent => method.set("type", "agent"),
            AuthKind::Terminal(_) => method.set("type", "terminal"),
            AuthKind::Variables(variables) => {
                method.set("type", "env_var");
                let variables = variables.iter().map(|variable| variable.to_json(env));
                method.set("variables", Json::array(variables));
            }
        }
        method.to_json()
    }

    /// Whether a required variable is not in an environment.
    pub(crate) fn lacks_variables(&self, env: &[(String, String)]) -> bool {
        match &self.kind {
            AuthKind::Variables(variables) => {
                variables.iter().any(|variable| !variable.is_optional && !variable.is_set(env))
            }
            AuthKind::Agent | AuthKind::Terminal(_) => false,
        }
    }
}

impl LoginProgram {
    fn parse(fields: &Object) -> Self {
        let args = fields.get_array("args").unwrap_or_default();
        let args = args.into_iter().filter_map(|arg| Some(arg.to_text()?.into_owned())).collect();
        // An object in version 1, a list in version 2.
        let env = match fields.get_array("env") {
            Some(list) => {
                let variables = list.into_iter().filter_map(|variable| {
                    let variable = variable.to_object()?;
                    Some((variable.get_string("name")?, variable.get_string("value")?))
                });
                variables.collect()
            }
            None => {
                let variables = fields.get_object("env").unwrap_or_default();
                let text = |(name, value): (&JsonStr, &Json)| {
                    Some((name.to_text().into_owned(), value.to_text()?.into_owned()))
                };
                variables.iter().filter_map(text).collect()
            }
        };
        Self { program: fields.get_string("command"), args, env }
    }

    /// The command to run. `agent` is the command of the agent, `env` the environment to extend.
    pub(crate) fn command(&self, agent: &[String], env: Vec<(String, String)>, cwd: PathBuf) -> Command {
        let own = self.program.is_none();
        let agents = agent.iter().filter(|_| own);
        let mut words = self.program.iter().chain(agents).chain(&self.args);
        let program = words.next().cloned().unwrap_or_default();
        let args = words.map(Into::into).collect();
        let mut variables = env;
        variables.retain(|(name, _)| self.env.iter().all(|(other, _)| other != name));
        variables.extend(self.env.iter().cloned());
        let env = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Command { program: program.into(), args, env, cwd }
    }
}

impl Variable {
    fn all_in(method: &Object) -> Vec<Self> {
        // Older agents name a single variable.
        let single = method.get_string("varName").map(|name| Self { name, label: None, is_optional: false });
        let several = method.get_array("vars").unwrap_or_default().into_iter().filter_map(|variable| {
            let variable = variable.to_object()?;
            let is_optional = variable.get_bool("optional") == Some(true);
            Some(Self {
                name: variable.get_string("name")?,
                label: variable.get_string("label"),
                is_optional,
            })
        });
        several.chain(single).collect()
    }

    fn is_set(&self, env: &[(String, String)]) -> bool {
        env.iter().any(|(name, value)| *name == self.name && !value.is_empty())
    }

    fn to_json(&self, env: Option<&[(String, String)]>) -> Json {
        let mut variable = Object::new().with("name", &self.name);
        if let Some(label) = &self.label {
            variable.set("label", label);
        }
        variable.set("optional", self.is_optional);
        if let Some(env) = env {
            variable.set("isSet", self.is_set(env));
        }
        variable.to_json()
    }
}

/// Removes what a client cannot use from the methods of an agent: the command of a `terminal` method would be added to
/// `parlor acp`, which is what the client runs as its agent. A client on this machine that runs the commands in the metadata
/// (`runs_commands`) gets these.
pub(crate) fn for_client(methods: &Json, runs_commands: bool) -> Json {
    let Some(methods) = methods.elements() else { return methods.clone() };
    let usable = methods.into_iter().filter_map(|method| {
        let Some(mut fields) = method.to_object() else { return Some(Json::from(method)) };
        let has_command = fields.get_nested("_meta", TERMINAL_AUTH).is_some();
        let is_terminal = fields.get_str("type").as_deref() == Some("terminal");
        if !is_terminal && (runs_commands || !has_command) {
            return Some(Json::from(method));
        }
        if is_terminal {
            if !(runs_commands && has_command) {
                return None;
            }
            fields.set("type", "agent");
            fields.remove("args");
            fields.remove("env");
        } else {
            fields.remove_nested("_meta", TERMINAL_AUTH);
        }
        Some(fields.to_json())
    });
    Json::array(usable.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(list: &str) -> Vec<AuthMethod> {
        let initialize = Json::parse(format!(r#"{{"authMethods":{list}}}"#)).unwrap();
        AuthMethod::all_in(&initialize.to_object().unwrap())
    }

    fn words(program: &AuthMethod) -> Vec<String> {
        let AuthKind::Terminal(program) = &program.kind else { panic!("{program:?}") };
        let env = vec![("A".to_owned(), "0".to_owned()), ("B".to_owned(), "2".to_owned())];
        let command = program.command(&["agent".to_owned(), "acp".to_owned()], env, "/".into());
        let env = command.env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
        let args = command.args.iter().map(|arg| arg.display().to_string());
        std::iter::once(command.program.display().to_string()).chain(args).chain(env).collect()
    }

    #[test]
    fn methods_of_both_versions_are_read() {
        let all = methods(
            r#"[{"id":"a","name":"A"},
                {"type":"agent","methodId":"b","name":"B","description":"d"},
                {"type":"terminal","id":"c","name":"C","args":["login"],"env":{"A":"1"}},
                {"type":"terminal","methodId":"d","name":"D","args":["login"],"env":[{"name":"A","value":"1"}]},
                {"id":"e","name":"E","_meta":{"terminal-auth":{"command":"node","args":["cli","/login"],"label":"L"}}},
                {"type":"env_var","id":"f","name":"F","vars":[{"name":"K","label":"Key"},{"name":"O","optional":true}]},
                {"type":"terminal","id":"g","name":"G","_meta":{"terminal-auth":{"command":"g"}}},
                {"name":"no id"}, 7]"#,
        );
        let ids: Vec<_> = all.iter().map(|method| method.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "d", "e", "f", "g"]);
        assert_eq!((&all[0].kind, &all[1].kind), (&AuthKind::Agent, &AuthKind::Agent));
        for typed in [&all[2], &all[3]] {
            assert_eq!(words(typed), ["agent", "acp", "login", "B=2", "A=1"]);
        }
        assert_eq!(words(&all[4]), ["node", "cli", "/login", "A=0", "B=2"]);
        assert_eq!(words(&all[6]), ["g", "A=0", "B=2"]);
        let env = [("K".to_owned(), "secret".to_owned())];
        assert!(all[5].lacks_variables(&[]));
        assert!(!all[5].lacks_variables(&env), "the other one is optional");
        assert_eq!(
            all[5].to_json(Some(&env)).as_str(),
            r#"{"methodId":"f","name":"F","type":"env_var","variables":[{"name":"K","label":"Key","optional":false,"isSet":true},{"name":"O","optional":true,"isSet":false}]}"#
        );
    }

    #[test]
    fn clients_get_only_the_methods_that_they_can_use() {
        let all = r#"[{"id":"a","name":"A"},
            {"type":"terminal","id":"b","name":"B","args":["x"]},
            {"id":"c","name":"C","_meta":{"terminal-auth":{"command":"c"},"k":1}},
            {"type":"terminal","id":"d","name":"D","args":["x"],"_meta":{"terminal-auth":{"command":"d"}}}]"#;
        let all = Json::parse(all).unwrap();
        assert_eq!(
            for_client(&all, false).as_str(),
            r#"[{"id":"a","name":"A"},{"id":"c","name":"C","_meta":{"k":1}}]"#
        );
        assert_eq!(
            for_client(&all, true).as_str(),
            r#"[{"id":"a","name":"A"},{"id":"c","name":"C","_meta":{"terminal-auth":{"command":"c"},"k":1}},{"type":"agent","id":"d","name":"D","_meta":{"terminal-auth":{"command":"d"}}}]"#
        );
        assert_eq!(for_client(&Json::parse("7").unwrap(), false).as_str(), "7");
    }
}
