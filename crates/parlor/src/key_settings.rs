//! The `[keys]` tables of `config.toml`, which the server does not know.

use parlor_server::config::{Config, ConfigError};
use parlor_tui::keys::{Action, KeyContext, KeyMap};

/// The keys of the terminal client: the default ones with those of the configuration.
pub(crate) fn key_map(config: &Config) -> Result<KeyMap, ConfigError> {
    let settings = config.client.keys.iter();
    let settings = settings.map(|key| (key.place.as_str(), key.action.as_str(), key.keys.as_str()));
    KeyMap::with_settings(settings).map_err(|(index, error)| {
        let file = config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let line = config.client.keys.get(index).map_or(0, |key| key.line);
        ConfigError {
            location: format!("{file}:{line}"),
            message: error.to_string(),
            hint: Some(match config.client.keys.get(index).and_then(|key| actions_of(&key.place)) {
                Some(actions) => {
                    format!("F1 in the terminal client shows the keys; the actions are {actions}")
                }
                None => "F1 in the terminal client shows the keys".to_owned(),
            }),
        }
    })
}

/// The names of the actions of a table.
fn actions_of(place: &str) -> Option<String> {
    let context = KeyContext::ALL.into_iter().find(|context| context.name() == place)?;
    let keys = KeyMap::default();
    let actions = Action::ALL.iter().filter(|action| keys.key(context, **action).is_some());
    Some(actions.map(|action| action.name()).collect::<Vec<_>>().join(", "))
}

/// Checks the keys.
pub(crate) fn check(config: Config) -> Result<Config, ConfigError> {
    key_map(&config).map(|_| config)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("config.toml")).unwrap()
    }

    #[test]
    fn a_wrong_key_is_reported_with_its_line() {
        let error = key_map(&parse("\n[keys.messages]\nfork = \"e\"\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "config.toml:3: e is assigned twice in 'messages': to 'fork' and to 'edit'"
        );
        let error = check(parse("[keys.messages]\nfrok = \"e\"\n")).unwrap_err();
        assert!(error.to_string().starts_with("config.toml:2: 'messages' has no action 'frok'"), "{error}");
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains("edit, ") && hint.contains("fork, ") && !hint.contains("docs/"), "{hint}");
        // Two keys can be exchanged.
        assert!(check(parse("[keys.messages]\nfork = \"e\"\nedit = \"f\"\n")).is_ok());
    }
}
