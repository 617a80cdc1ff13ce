//! Applies changes of the configuration while the server runs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use parlor_json::{Json, Object};

use super::{Agents, ConfigError, InstalledAgent, NotifyTarget};
use crate::lock;

/// Where the server reads its configuration, at startup and after each change: `config.toml` and the installed agents, or the files of a test.
pub trait ConfigSource: Send + Sync {
    /// The path of the file, for people.
    fn path(&self) -> &Path;

    /// Reads the text of the file; `None` if it does not exist and need not exist. This blocks.
    fn read(&self) -> Result<Option<String>, ConfigError>;

    /// Reads the installed agents, which may change without the file. This blocks.
    fn installed(&self) -> Vec<InstalledAgent> {
        Vec::new()
    }

    /// Parses a text that was read.
    fn parse(&self, text: Option<&str>, installed: Vec<InstalledAgent>) -> Result<LoadedConfig, ConfigError>;
}

/// The part of a configuration that applies to a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedConfig {
    /// The agents that clients can choose.
    pub agents: Agents,
    /// The targets of notifications.
    pub notify: Vec<NotifyTarget>,
    /// The settings that differ from those in force and take effect after a restart.
    pub needs_restart: Vec<String>,
}

/// Compares the configuration with the one in force.
pub(crate) struct ConfigWatch {
    source: Box<dyn ConfigSource>,
    /// What was read last, also if it is invalid.
    seen: Arc<tokio::sync::Mutex<Seen>>,
    report: Mutex<Report>,
}

/// What a configuration was parsed from.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    text: FileText,
    installed: Vec<InstalledAgent>,
}

/// The text of the file, or why it cannot be read.
type FileText = Result<Option<String>, ConfigError>;

/// What the server's status says about the configuration.
#[derive(Debug, Default)]
struct Report {
    /// Whether there is no file.
    is_missing: bool,
    error: Option<ConfigError>,
    needs_restart: Vec<String>,
}

impl ConfigWatch {
    /// Watches a configuration whose present text is in force. This blocks.
    pub(crate) fn new(source: Box<dyn ConfigSource>, text: Option<String>) -> Self {
        let report = Report { is_missing: text.is_none(), ..Report::default() };
        let installed = source.installed();
        let seen = Arc::new(tokio::sync::Mutex::new(Seen { text: Ok(text), installed }));
        Self { source, seen, report: Mutex::new(report) }
    }

    /// Excludes other checks until the guard is dropped.
    pub(crate) async fn begin_check(&self) -> CheckGuard {
        CheckGuard(Arc::clone(&self.seen).lock_owned().await)
    }

    /// Reads the file and the installed agents. Returns the configuration if one of them has changed and it is valid; if it is
    /// invalid, the status reports why. This blocks.
    pub(crate) fn check(&self, mut guard: CheckGuard) -> Option<LoadedConfig> {
        let seen = Seen { text: self.source.read(), installed: self.source.installed() };
        if *guard.0 == seen {
            return None;
        }
        let path = self.source.path().display();
        let parse = |text: &Option<String>| self.source.parse(text.as_deref(), seen.installed.clone());
        let loaded = seen.text.as_ref().map_err(Clone::clone).and_then(parse);
        let is_missing = matches!(seen.text, Ok(None));
        let changed =
            if guard.0.text == seen.text { "the list of installed agents" } else { "the configuration" };
        *guard.0 = seen;
        match loaded {
            Ok(loaded) => {
                tracing::info!(%path, "{changed} has changed and is in force");
                for setting in &loaded.needs_restart {
                    tracing::info!(%path, "{setting} takes effect after `parlor restart`");
                }
                let needs_restart = loaded.needs_restart.clone();
                *lock(&self.report) = Report { is_missing, error: None, needs_restart };
                Some(loaded)
            }
            Err(error) => {
                tracing::error!(%path, "the configuration has changed and is invalid, the one before it stays in force: {error}");
                let mut report = lock(&self.report);
                (report.is_missing, report.error) = (is_missing, Some(error));
                None
            }
        }
    }

    /// What the server's status says about the configuration.
    pub(crate) fn status(&self) -> Object {
        let report = lock(&self.report);
        let mut status = Object::new().with("path", self.source.path().to_string_lossy().as_ref());
        if report.is_missing {
            status.set("missing", true);
        }
        if let Some(ConfigError { location, message, hint }) = &report.error {
            let mut error = Object::new().with("location", location).with("message", message);
            if let Some(hint) = hint {
                error.set("hint", hint);
            }
            status.set("error", error.to_json());
        }
        if !report.needs_restart.is_empty() {
            status.set("needsRestart", Json::array(&report.needs_restart));
        }
        status
    }
}

/// The right to check the configuration: one check runs at a time, so that they are applied in order.
pub(crate) struct CheckGuard(tokio::sync::OwnedMutexGuard<Seen>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AgentConfig, Config};

    /// A source whose text the test sets.
    struct TestSource(Arc<Mutex<FileText>>, Arc<Mutex<Vec<InstalledAgent>>>);

    impl ConfigSource for TestSource {
        fn path(&self) -> &Path {
            Path::new("config.toml")
        }

        fn read(&self) -> FileText {
            lock(&self.0).clone()
        }

        fn installed(&self) -> Vec<InstalledAgent> {
            lock(&self.1).clone()
        }

        fn parse(
            &self,
            text: Option<&str>,
            installed: Vec<InstalledAgent>,
        ) -> Result<LoadedConfig, ConfigError> {
            let name = text.unwrap_or("none");
            if name.contains(' ') {
                return Err(invalid(name));
            }
            let agent = AgentConfig::new(name, vec![name.to_owned()]);
            let agents = Agents::new(vec![agent], &Config { installed, ..Config::default() })?;
            Ok(LoadedConfig { agents, notify: Vec::new(), needs_restart: vec![name.to_owned()] })
        }
    }

    fn invalid(message: &str) -> ConfigError {
        ConfigError { location: "config.toml:3".to_owned(), message: message.to_owned(), hint: None }
    }

    #[tokio::test]
    async fn an_invalid_configuration_is_reported_until_it_is_valid_again() {
        let text = Arc::new(Mutex::new(Ok(Some("first".to_owned()))));
        let source = TestSource(Arc::clone(&text), Arc::default());
        let watch = ConfigWatch::new(Box::new(source), Some("first".to_owned()));
        let set = |to: FileText| *lock(&text) = to;
        let check = async || {
            let loaded = watch.check(watch.begin_check().await)?;
            Some(loaded.agents.all()[0].name.clone())
        };
        let status = || watch.status().to_json().as_str().to_owned();
        assert_eq!(check().await, None, "it is in force");

        set(Ok(Some("second".to_owned())));
        assert_eq!(check().await.as_deref(), Some("second"));
        assert_eq!(check().await, None, "nothing has changed since");
        assert_eq!(status(), r#"{"path":"config.toml","needsRestart":["second"]}"#);

        set(Ok(Some("not valid".to_owned())));
        assert_eq!(check().await, None);
        let error = r#""error":{"location":"config.toml:3","message":"not valid"}"#;
        assert!(status().contains(error) && status().contains("second"), "{}", status());
        set(Err(invalid("cannot be read")));
        assert_eq!(check().await, None);
        assert!(status().contains("cannot be read"), "{}", status());

        set(Ok(Some("second".to_owned())));
        assert_eq!(check().await.as_deref(), Some("second"), "valid again");
        assert!(!status().contains("error"), "{}", status());
        set(Ok(None));
        assert_eq!(check().await.as_deref(), Some("none"), "the file was removed");
        assert!(status().starts_with(r#"{"path":"config.toml","missing":true"#), "{}", status());
    }

    #[tokio::test]
    async fn an_agent_that_is_installed_while_the_server_runs_is_known_without_a_change_of_the_file() {
        let installed = Arc::new(Mutex::new(Vec::new()));
        let source = TestSource(Arc::new(Mutex::new(Ok(None))), Arc::clone(&installed));
        let watch = ConfigWatch::new(Box::new(source), None);
        assert!(watch.check(watch.begin_check().await).is_none(), "nothing has changed");
        lock(&installed).push(InstalledAgent {
            name: "qwen".to_owned(),
            id: "qwen".to_owned(),
            version: "1.0.0".to_owned(),
            distribution: "npx".to_owned(),
            package: "qwen@1.0.0".to_owned(),
            program: vec!["bin/qwen".to_owned()],
            args: vec!["--acp".to_owned()],
            env: std::collections::BTreeMap::new(),
            directory: "/agents/qwen/1.0.0".into(),
        });
        let loaded = watch.check(watch.begin_check().await).unwrap();
        assert_eq!(loaded.agents.get("qwen").unwrap().command, ["/agents/qwen/1.0.0/bin/qwen", "--acp"]);
        lock(&installed).clear();
        let loaded = watch.check(watch.begin_check().await).unwrap();
        assert_eq!(loaded.agents.get("qwen"), None);
    }
}
