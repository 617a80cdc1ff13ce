//! The key map: which key does what where. The help, the hints and the configuration are generated from it.

mod action;
mod context;
mod defaults;
mod help;
mod key;

pub use self::action::Action;
pub use self::context::KeyContext;
use self::defaults::DEFAULTS;
pub use self::help::HelpRow;
pub use self::key::{Key, UnknownKey};

/// The keys of one action in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    context: KeyContext,
    action: Action,
    keys: Vec<Key>,
}

/// The keys of all actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMap {
    bindings: Vec<Binding>,
}

/// Why a key map was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyMapError {
    /// No context has this name.
    #[error(
        "there is no key context '{0}': choose anywhere, panes, input, messages, sessions, inbox, request, form or list"
    )]
    UnknownContext(String),
    /// The context has no action of this name.
    #[error("'{0}' has no action '{1}'")]
    UnknownAction(&'static str, String),
    /// A text names no key.
    #[error("{0}")]
    UnknownKey(#[from] UnknownKey),
    /// Two actions of one context have the same key.
    #[error("{key} is assigned twice in '{context}': to '{first}' and to '{second}'")]
    Twice {
        /// The context.
        context: &'static str,
        /// The key.
        key: String,
        /// The name of the first action.
        first: &'static str,
        /// The name of the second action.
        second: &'static str,
    },
}

impl Default for KeyMap {
    fn default() -> Self {
        let parse = |keys: &str| {
            keys.split(' ').map(|key| key.parse().expect("the default keys are valid")).collect()
        };
        let binding = |(context, action, keys): &(KeyContext, Action, &str)| Binding {
            context: *context,
            action: *action,
            keys: parse(keys),
        };
        Self { bindings: DEFAULTS.iter().map(binding).collect() }
    }
}

impl KeyMap {
    /// The default keys with settings: context, action, keys. An error has the index of its setting.
    pub fn with_settings<'a>(
        settings: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    ) -> Result<Self, (usize, KeyMapError)> {
        let mut map = Self::default();
        let mut last = 0;
        for (index, (context, action, keys)) in settings.into_iter().enumerate() {
            map.set(context, action, keys).map_err(|error| (index, error))?;
            last = index;
        }
        // Checked at the end, so that two keys can be exchanged.
        map.check().map_err(|error| (last, error))?;
        Ok(map)
    }

    /// Replaces the keys of an action; several keys are separated by spaces.
    fn set(&mut self, context: &str, action: &str, keys: &str) -> Result<(), KeyMapError> {
        let known = KeyContext::ALL.into_iter().find(|known| known.name() == context);
        let context = known.ok_or_else(|| KeyMapError::UnknownContext(context.to_owned()))?;
        let is_it = |binding: &&mut Binding| binding.context == context && binding.action.name() == action;
        let binding = self.bindings.iter_mut().find(is_it);
        let binding = binding.ok_or_else(|| KeyMapError::UnknownAction(context.name(), action.to_owned()))?;
        binding.keys = keys.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Rejects a key that two actions of one context have.
    fn check(&self) -> Result<(), KeyMapError> {
        for (index, binding) in self.bindings.iter().enumerate() {
            for other in self.bindings[index + 1..].iter().filter(|other| other.context == binding.context) {
                if let Some(key) = binding.keys.iter().find(|key| other.keys.contains(key)) {
                    return Err(KeyMapError::Twice {
                        context: binding.context.name(),
                        key: key.to_string(),
                        first: binding.action.name(),
                        second: other.action.name(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The action of a key: that of the context, else that of all panes, else that of everywhere.
    pub fn action(&self, context: KeyContext, key: Key) -> Option<Action> {
        let at = |context: KeyContext| {
            let found = self
                .bindings
                .iter()
                .find(|binding| binding.context == context && binding.keys.contains(&key));
            found.map(|binding| binding.action)
        };
        at(context)
            .or_else(|| at(KeyContext::Panes).filter(|_| context.is_pane()))
            .or_else(|| at(KeyContext::Anywhere))
    }

    /// The first key of an action, for hints; `None` if it has none.
    pub fn key(&self, context: KeyContext, action: Action) -> Option<Key> {
        let at = |context: KeyContext| {
            let found =
                self.bindings.iter().find(|binding| binding.context == context && binding.action == action);
            found.and_then(|binding| binding.keys.first().copied())
        };
        at(context)
            .or_else(|| at(KeyContext::Panes).filter(|_| context.is_pane()))
            .or_else(|| at(KeyContext::Anywhere))
    }

    /// The first key of an action as text.
    pub fn label(&self, context: KeyContext, action: Action) -> String {
        self.key(context, action).map(|key| key.to_string()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_a_context_comes_before_one_of_everywhere() {
        let map = KeyMap::default();
        let key = |text: &str| text.parse::<Key>().unwrap();
        assert_eq!(map.action(KeyContext::Messages, key("Enter")), Some(Action::Toggle));
        assert_eq!(map.action(KeyContext::Input, key("Enter")), Some(Action::Send));
        assert_eq!(map.action(KeyContext::Input, key("Tab")), Some(Action::NextPane));
        assert_eq!(map.action(KeyContext::List, key("Tab")), Some(Action::Scope));
        assert_eq!(map.action(KeyContext::Form, key("Ctrl-C")), Some(Action::Interrupt));
        assert_eq!(map.action(KeyContext::Input, key("j")), None);
    }

    #[test]
    fn the_default_keys_have_no_conflicts_and_need_no_flow_control_keys() {
        let map = KeyMap::default();
        map.check().unwrap();
        for key in ["Ctrl-B", "Ctrl-S", "Ctrl-Q"] {
            let key: Key = key.parse().unwrap();
            assert!(KeyContext::ALL.into_iter().all(|context| map.action(context, key).is_none()), "{key}");
        }
    }

    #[test]
    fn a_configured_key_replaces_the_default_and_a_conflict_is_an_error() {
        let map = KeyMap::with_settings([("messages", "fork", "Ctrl-K")]).unwrap();
        assert_eq!(map.action(KeyContext::Messages, "Ctrl-K".parse().unwrap()), Some(Action::Fork));
        assert_eq!(map.action(KeyContext::Messages, "f".parse().unwrap()), None);
        let exchanged =
            KeyMap::with_settings([("messages", "fork", "e"), ("messages", "edit", "f")]).unwrap();
        assert_eq!(exchanged.action(KeyContext::Messages, "e".parse().unwrap()), Some(Action::Fork));
        let error = |context, action, keys| {
            KeyMap::with_settings([(context, action, keys)]).unwrap_err().1.to_string()
        };
        assert_eq!(
            error("messages", "fork", "e"),
            "e is assigned twice in 'messages': to 'fork' and to 'edit'"
        );
        assert!(error("nowhere", "fork", "f").contains("no key context 'nowhere'"));
        assert!(error("input", "fork", "f").contains("no action 'fork'"));
        assert!(error("messages", "fork", "Hyper-f").contains("'Hyper-f' is not a key"));
    }
}
