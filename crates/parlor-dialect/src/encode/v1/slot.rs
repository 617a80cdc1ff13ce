//! Slots for a v1 peer: title, commands, options and, separately, the mode.

use parlor_json::{Json, Object};
use parlor_session::{Slot, Target, Upsert};

use super::{Features, V1PeerState};
use crate::encode::update_writer;
use crate::encode::{Context, patch_json, v2};
use crate::values::{commands, options};
use crate::{Dialect, Losses, json_ext};

/// A list of v2 options as v1 has it, and the modes from one of them. An option that was generated from v1 modes is
/// left out of the list: a v1 peer has the modes.
pub(crate) fn split_modes(list: &Json, features: Features, losses: &mut Losses) -> (Json, Option<Object>) {
    let modes = options::mode_option(list).and_then(|option| options::option_to_modes(&option));
    let own = json_ext::each(list, |option| {
        let meta = option.get_object("_meta").unwrap_or_default();
        (meta.get("parlor/modes").is_none()).then_some(option)
    });
    (options::to_v1(&own, features.booleans, losses), modes)
}

fn empty_list() -> Json {
    Json::array::<Json>([])
}

fn with_models(options: &Json, cx: &Context<'_>) -> Json {
    v2::with_models(options, cx.transcript.slot(Slot::Model).map(|body| &body.fields))
}

impl V1PeerState {
    /// A report or a patch of a slot.
    pub(super) fn upsert_slot(
        &mut self,
        slot: Slot,
        upsert: &Upsert,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let meta = cx.meta(&Target::Slot(slot), upsert, Dialect::V1);
        let is_patch = slot == Slot::Info;
        let meta = patch_json(&meta, Object::to_json);
        let meta = meta.filter(|meta| is_patch || !meta.is_null());
        let mut fields = upsert.fields.clone();
        let kind = match slot {
            Slot::Info => "session_info_update",
            Slot::Usage => "usage_update",
            Slot::Mode => {
                // The available modes are part of the response that created the session; v1 updates have only the
                // current one.
                fields.remove("availableModes");
                let current = fields.get_json_str("currentModeId");
                // v1 cannot express that a session has no mode.
                if current.is_none() || (current == self.mode && meta.is_none()) {
                    self.mode = current;
                    return Vec::new();
                }
                self.mode = current;
                "current_mode_update"
            }
            Slot::Commands => {
                if let Some(list) = fields.get("availableCommands").cloned() {
                    fields.set("availableCommands", commands::to_v1(&list, cx.losses));
                }
                "available_commands_update"
            }
            // v1 cannot express a change of the model; if the agent has no option for it, one was generated.
            Slot::Model => {
                let list = cx.slot_field(Slot::Options, "configOptions").cloned().unwrap_or_else(empty_list);
                return self.options(&with_models(&list, cx), &mut Object::default(), None, features, cx);
            }
            Slot::Options => {
                if let Some(list) = fields.get("configOptions").cloned() {
                    let list = with_models(&list, cx);
                    return self.options(&list, &mut fields, meta.as_ref(), features, cx);
                }
                "config_option_update"
            }
        };
        vec![update_writer(kind).members(&fields).optional_json("_meta", meta.as_ref()).finish()]
    }

    /// Options, and the mode among them, which v1 receives separately.
    fn options(
        &mut self,
        list: &Json,
        fields: &mut Object,
        meta: Option<&Json>,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let (own, modes) = split_modes(list, features, cx.losses);
        // A session with modes and no options gets only its mode.
        let only_modes = own.as_str() == "[]" && list.as_str() != "[]" && modes.is_some();
        let mut encoded = Vec::new();
        if !only_modes {
            fields.set("configOptions", own);
            encoded.push(
                update_writer("config_option_update").members(fields).optional_json("_meta", meta).finish(),
            );
        }
        let current = modes.and_then(|modes| modes.get_json_str("currentModeId"));
        if let Some(current) = current.filter(|current| self.mode.as_ref() != Some(current)) {
            encoded.push(update_writer("current_mode_update").json_str("currentModeId", &current).finish());
            self.mode = Some(current);
        }
        encoded
    }
}
