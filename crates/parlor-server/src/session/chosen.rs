//! What was chosen in a session, for an agent that begins it anew: a model, a mode, whatever it offers.

use parlor_dialect::Dialect;
use parlor_json::{Json, JsonStr, Object, Type};
use parlor_session::{SessionId, Slot, Transcript};

use crate::agent::Agent;
use crate::json;

/// What was chosen, as an agent of this dialect said it.
#[derive(Debug)]
pub(super) struct Chosen {
    dialect: Dialect,
    mode: Option<Json>,
    options: Vec<(JsonStr, Json)>,
}

impl Chosen {
    pub(super) fn of(transcript: &Transcript, dialect: Dialect) -> Self {
        let field = |slot: Slot, name: &str| transcript.slot(slot)?.fields.get(name).cloned();
        let options = field(Slot::Options, "configOptions").map(|list| values(&list)).unwrap_or_default();
        Self { dialect, mode: field(Slot::Mode, "currentModeId"), options }
    }

    /// Has the agent choose the same again. `result` is what it said of the session when it began it, and says what it
    /// is like now. What it does not want to choose stays as it is there.
    pub(super) async fn choose(&self, agent: &Agent, session: &SessionId, result: &mut Object) {
        if agent.dialect != self.dialect {
            return;
        }
        let params = |name: &str, value: &Json| {
            let mut params = Object::default();
            params.set("sessionId", session.as_json());
            params.set(name, value.clone());
            params
        };
        let refused = |what: &str, error: &Json| {
            tracing::info!(agent = agent.name, what, error = error.as_str(), "it cannot be chosen again");
        };
        if let (Some(mode), Some(mut modes)) = (&self.mode, json::member(result, "modes"))
            && modes.get("currentModeId") != Some(mode)
        {
            match agent.call("session/set_mode", &params("modeId", mode)).await {
                Ok(_) => {
                    modes.set("currentModeId", mode.clone());
                    result.set("modes", modes.to_json());
                }
                Err(error) => refused("mode", &error),
            }
        }
        for (option, value) in &self.options {
            let now = result.get("configOptions").map(values).unwrap_or_default();
            if now.iter().all(|(other, now)| other != option || now == value) {
                continue;
            }
            let mut params = params("value", value);
            params.set("configId", option);
            let is_boolean = value.type_of() == Type::Bool;
            if is_boolean || self.dialect != Dialect::V1 {
                params.set("type", json::string(if is_boolean { "boolean" } else { "id" }));
            }
            match agent.call("session/set_config_option", &params).await {
                Ok(said) => {
                    if let Some(list) = json::object(Some(said.raw())).get("configOptions") {
                        result.set("configOptions", list.clone());
                    }
                }
                Err(error) => refused(&option.to_text(), &error),
            }
        }
    }
}

/// The options of a list and what they are set to.
fn values(list: &Json) -> Vec<(JsonStr, Json)> {
    let options = parlor_json::elements(list.raw()).unwrap_or_default().into_iter();
    options
        .filter_map(|option| {
            let option = json::object(Some(option));
            let id = json::literal(&option, "configId").or_else(|| json::literal(&option, "id"))?;
            Some((id, option.get("currentValue")?.clone()))
        })
        .collect()
}
