//! Applies changes of the configuration while the server runs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use parlor_json::{Json, Object};

use super::{Agents, ConfigError, NotifyTarget};
use crate::lock;

/// A configuration that may change while a server runs.
pub trait ConfigSource: Send + Sync {
    /// The path of the file, for people.
    fn path(&self) -> &Path;

    /// Reads the text of the file; `None` if it does not exist and need not exist. This blocks.
    fn read(&self) -> Result<Option<String>, ConfigError>;

    /// Parses a text that was read.
    fn parse(&self, text: Option<&str>) -> Result<LoadedConfig, ConfigError>;
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

/// The text of the file, or why it cannot be read.
type Seen = Result<Option<String>, ConfigError>;

/// What the server's status says about the configuration.
#[derive(Debug, Default)]
struct Report {
    /// Whether there is no file.
    is_missing: bool,
    error: Option<ConfigError>,
    needs_restart: Vec<String>,
}

impl ConfigWatch {
    /// Watches a configuration whose present text is in force.
    pub(crate) fn new(source: Box<dyn ConfigSource>, text: Option<String>) -> Self {
        let report = Report { is_missing: text.is_none(), ..Report::default() };
        let seen = Arc::new(tokio::sync::Mutex::new(Ok(text)));
        Self { source, seen, report: Mutex::new(report) }
    }

    /// Excludes other checks until the guard is dropped.
    pub(crate) async fn begin_check(&self) -> CheckGuard {
        CheckGuard(Arc::clone(&self.seen).lock_owned().await)
    }

    /// Reads the file. Returns its content if it has changed and is valid; if it is invalid, the status reports why. This
    /// blocks.
    pub(crate) fn check(&self, mut guard: CheckGuard) -> Option<LoadedConfig> {
        let seen = self.source.read();
        if *guard.0 == seen {
            return None;
        }
        let path = self.source.path().display();
        let loaded = seen.as_ref().map_err(Clone::clone).and_then(|text| self.source.parse(text.as_deref()));
        let is_missing = matches!(seen, Ok(None));
        *guard.0 = seen;
        match loaded {
            Ok(loaded) => {
                tracing::info!(%path, "the configuration has changed and is in force");
                for setting in &loaded.needs_restart {
                    tracing::info!(%path, "{setting} takes effect after `parlor restart`");
                }
                let needs_restart = loaded.needs_restart.clone();
                *lock(&self.report) = Report { is_missing, error: None, needs_restart };
                Some(loaded)
            }
            Err(error) => {
                tracing::error!(%path, "the configuration has changed and is invalid, the one before stays in force: {error}");
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
    struct TestSource(Arc<Mutex<Seen>>);

    impl ConfigSource for TestSource {
        fn path(&self) -> &Path {
            Path::new("config.toml")
        }

        fn read(&self) -> Seen {
            lock(&self.0).clone()
        }

        fn parse(&self, text: Option<&str>) -> Result<LoadedConfig, ConfigError> {
            let name = text.unwrap_or("none");
            if name.contains(' ') {
                return Err(invalid(name));
            }
            let agent = AgentConfig::new(name, vec![name.to_owned()]);
            let agents = Agents::new(vec![agent], &Config::default())?;
            Ok(LoadedConfig { agents, notify: Vec::new(), needs_restart: vec![name.to_owned()] })
        }
    }

    fn invalid(message: &str) -> ConfigError {
        ConfigError { location: "config.toml:3".to_owned(), message: message.to_owned(), hint: None }
    }

    #[tokio::test]
    async fn an_invalid_configuration_is_reported_until_it_is_valid_again() {
        let text = Arc::new(Mutex::new(Ok(Some("first".to_owned()))));
        let watch = ConfigWatch::new(Box::new(TestSource(Arc::clone(&text))), Some("first".to_owned()));
        let set = |to: Seen| *lock(&text) = to;
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
}
