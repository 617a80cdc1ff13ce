//! What a session has once, for a v1 peer: its title, its commands, its options and, by itself, its mode.

use parlor_json::{Json, JsonStr, Object};
use parlor_session::{Slot, Target, Upsert};

use super::{Features, Heard};
use crate::encode::{Context, patch_text, v2};
use crate::text::ObjectText;
use crate::values::{commands, options};
use crate::{Dialect, Losses, shape};

/// A list of v2 options as v1 has it, and the modes that one of them stands for. An option that was made of
/// v1 modes is left out of the list: a v1 peer has the modes.
pub(crate) fn split_modes(list: &Json, features: Features, losses: &mut Losses) -> (Json, Option<Object>) {
    let modes = options::mode_option(list).and_then(|option| options::option_to_modes(&option));
    let own = shape::each(list, |option| {
        let meta = option.get_object("_meta").unwrap_or_default();
        (meta.get("parlor/modes").is_none()).then_some(option)
    });
    (options::to_v1(&own, features.booleans, losses), modes)
}

fn empty_list() -> Json {
    Json::array(&[])
}

fn with_models(options: &Json, cx: &Context<'_>) -> Json {
    v2::with_models(options, cx.transcript.slot(Slot::Model).map(|body| &body.fields))
}

impl Heard {
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
        let meta = patch_text(&meta, |meta| meta.to_json().as_str().to_owned());
        let meta = meta.filter(|meta| is_patch || meta != "null");
        let mut fields = upsert.fields.clone();
        let kind = match slot {
            Slot::Info => "session_info_update",
            Slot::Usage => "usage_update",
            Slot::Mode => {
                // Which modes there are is said with the session; v1 hears only which one it is in.
                fields.remove("availableModes");
                let current = fields.get("currentModeId").and_then(|mode| JsonStr::from_raw(mode.raw()));
                // v1 has no word for a session that has no mode any more.
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
            // v1 has no word for another model; where the agent has no option for it, one was made.
            Slot::Model => {
                let list = cx.slot_field(Slot::Options, "configOptions").cloned().unwrap_or_else(empty_list);
                return self.options(&with_models(&list, cx), &mut Object::default(), None, features, cx);
            }
            Slot::Options => {
                if let Some(list) = fields.get("configOptions").cloned() {
                    let list = with_models(&list, cx);
                    return self.options(&list, &mut fields, meta.as_deref(), features, cx);
                }
                "config_option_update"
            }
        };
        vec![ObjectText::update(kind).members(&fields).maybe("_meta", meta.as_deref()).finish()]
    }

    /// Options, and the mode among them, which v1 hears of by itself.
    fn options(
        &mut self,
        list: &Json,
        fields: &mut Object,
        meta: Option<&str>,
        features: Features,
        cx: &mut Context<'_>,
    ) -> Vec<String> {
        let (own, modes) = split_modes(list, features, cx.losses);
        // A session that has modes and no options hears of its mode alone.
        let only_modes = own.as_str() == "[]" && list.as_str() != "[]" && modes.is_some();
        let mut said = Vec::new();
        if !only_modes {
            fields.set("configOptions", own);
            said.push(
                ObjectText::update("config_option_update").members(fields).maybe("_meta", meta).finish(),
            );
        }
        let current = modes.and_then(|modes| JsonStr::from_raw(modes.get("currentModeId")?.raw()));
        if let Some(current) = current.filter(|current| self.mode.as_ref() != Some(current)) {
            said.push(ObjectText::update("current_mode_update").string("currentModeId", &current).finish());
            self.mode = Some(current);
        }
        said
    }
}
