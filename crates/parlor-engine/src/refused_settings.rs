//! Settings that an agent did not accept again when its session was restored.

use parlor_dialect::settings::{Setting, Settings};
use parlor_json::{Json, Object};
use parlor_wire::RpcError;

use crate::json;

/// The key by which a session remembers the settings that its agent did not accept again.
pub const REFUSED: &str = "refusedSettings";

/// An agent did not accept again what was chosen.
#[derive(Debug, Clone)]
pub struct RefusedSettings {
    /// The error for the sender of a prompt.
    pub error: RpcError,
    /// The settings.
    pub settings: Vec<Unaccepted>,
}

/// A setting that an agent did not accept again, and that nobody has chosen anew since.
#[derive(Debug, Clone)]
pub struct Unaccepted {
    /// The setting.
    pub setting: Setting,
    /// The value that the agent was asked to set.
    pub value: Json,
    /// Whether the agent does not have it any more. Then one prompt is refused; else all are until somebody chooses.
    pub is_gone: bool,
}

impl RefusedSettings {
    /// What is left when the sender of a prompt was told.
    pub fn after_told(mut self) -> Option<Self> {
        self.settings.retain(|one| !one.is_gone);
        (!self.settings.is_empty()).then_some(self)
    }

    /// What is left to keep, for the next time that the agent is restored.
    pub fn to_json(&self) -> Json {
        let settings = self.settings.iter().map(|Unaccepted { setting, value, .. }| {
            let mut one = Object::default();
            match setting {
                Setting::Mode => one.set("setting", json::string("mode")),
                Setting::Model => one.set("setting", json::string("model")),
                Setting::Option(id) => one.set("option", id.clone()),
            }
            one.set("value", value.clone());
            one.to_json()
        });
        let settings: Vec<_> = settings.map(|one| one.as_str().to_owned()).collect();
        json::json(format!("[{}]", settings.join(",")))
    }
}

/// The settings that an agent has to choose before a prompt is sent: those in force, and what it did not accept before.
pub fn wanted(data: &Object, in_force: &Settings) -> Settings {
    let mut wanted = in_force.clone();
    refused_before(data).iter().for_each(|(setting, value)| wanted.want(setting, value));
    wanted
}

/// The settings that an agent did not accept before, with the values that it was asked for.
pub fn refused_before(data: &Object) -> Vec<(Setting, Json)> {
    let list = data.get(REFUSED).and_then(|list| parlor_json::elements(list.raw())).unwrap_or_default();
    let read = |one: Object| {
        let setting = match (json::text(&one, "setting").as_deref(), one.get("option")) {
            (Some("mode"), _) => Setting::Mode,
            (Some("model"), _) => Setting::Model,
            (_, Some(id)) => Setting::Option(id.clone()),
            (_, None) => return None,
        };
        Some((setting, one.get("value")?.clone()))
    };
    list.into_iter().filter_map(|one| read(Object::parse(one).ok()?)).collect()
}
