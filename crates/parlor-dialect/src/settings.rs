//! The settings of a session: mode, model and options.
//!
//! An agent may present its mode in two views, as a mode and as an option of category `mode`, and report a change in
//! either; its model likewise. The session has one mode and one model: if one view changes, the other is updated.

use parlor_json::{Json, JsonRef, Object, Type};
use parlor_session::{MetaPatch, Slot, Target, Transcript, Update, Upsert};

use crate::values::options;
use crate::{Dialect, json_ext};

/// A setting that some agents present separately and others as an option of its category.
struct View {
    slot: Slot,
    /// The category of the option.
    category: &'static str,
    /// The member of a response that presents it separately.
    member: &'static str,
    current: &'static str,
    available: &'static str,
    /// The member that identifies a value among the available ones.
    id: &'static str,
    /// The request that sets it, and its param for the value.
    method: &'static str,
    param: &'static str,
}

const MODE: View = View {
    slot: Slot::Mode,
    category: "mode",
    member: "modes",
    current: "currentModeId",
    available: "availableModes",
    id: "id",
    method: "session/set_mode",
    param: "modeId",
};

const MODEL: View = View {
    slot: Slot::Model,
    category: "model",
    member: "models",
    current: "currentModelId",
    available: "availableModels",
    id: "modelId",
    method: "session/set_model",
    param: "modelId",
};

const OPTIONS: &str = "configOptions";

/// The request that sets an option.
const SET_OPTION: &str = "session/set_config_option";

/// The updates that make the other view of a mode or model consistent with a slot that has just changed.
pub(crate) fn linked_settings(transcript: &Transcript, slot: Slot) -> Vec<Update> {
    let list = transcript.slot(Slot::Options).and_then(|body| body.fields.get(OPTIONS));
    let Some(list) = list else { return Vec::new() };
    match slot {
        Slot::Options => {
            let follows = |view: &View| {
                let value = option_of(list, view)?.get("currentValue")?.clone();
                let shown = &transcript.slot(view.slot)?.fields;
                let offers = view.offers(shown, &value).unwrap_or(true);
                (offers && shown.get(view.current) != Some(&value)).then(|| view.chosen(&value))
            };
            [MODE, MODEL].iter().filter_map(follows).collect()
        }
        Slot::Mode | Slot::Model => {
            let view = if slot == Slot::Mode { MODE } else { MODEL };
            let value = transcript.slot(slot).and_then(|body| body.fields.get(view.current));
            let changed = value.and_then(|value| with_value(list, &view, value));
            changed.map(|list| slot_update(Slot::Options, OPTIONS, &list)).into_iter().collect()
        }
        Slot::Info | Slot::Usage | Slot::Commands => Vec::new(),
    }
}

impl View {
    /// Whether a value is available; `None` if the available values are unknown.
    fn offers(&self, shown: &Object, value: &Json) -> Option<bool> {
        let list = shown.get_array(self.available)?;
        let mut ids = list.into_iter().filter_map(|one| one.to_object()?.get(self.id).cloned());
        Some(ids.any(|id| id == *value))
    }

    /// The update after a value was set.
    fn chosen(&self, value: &Json) -> Update {
        let mut fields = Object::default();
        fields.set(self.current, value.clone());
        Update::Upsert { target: Target::Slot(self.slot), upsert: Upsert { fields, ..Upsert::default() } }
    }
}

fn slot_update(slot: Slot, name: &str, value: &Json) -> Update {
    let mut fields = Object::default();
    fields.set(name, value.clone());
    whole(slot, fields)
}

fn whole(slot: Slot, fields: Object) -> Update {
    let upsert = Upsert { whole: true, fields, meta: MetaPatch::Keep, ..Upsert::default() };
    Update::Upsert { target: Target::Slot(slot), upsert }
}

/// The option in a list that is a view of a setting.
fn option_of(list: &Json, view: &View) -> Option<Object> {
    let mut list = list.elements()?.into_iter().filter_map(JsonRef::to_object);
    list.find(|option| options::is_choice_of(option, view.category))
}

/// Sets the value of a setting in a list of options; `None` if it has the value already or does not offer it.
fn with_value(list: &Json, view: &View, value: &Json) -> Option<Json> {
    let option = option_of(list, view)?;
    let offered = options::values_of(&option);
    let changes = option.get("currentValue") != Some(value) && offered.iter().any(|one| one == value);
    changes.then(|| {
        json_ext::each(list, |mut option| {
            if options::is_choice_of(&option, view.category) {
                option.set("currentValue", value.clone());
            }
            Some(option)
        })
    })
}

/// The change of a mode or model that an agent was sent and does not report itself; `None` if the request sets
/// neither.
pub fn chosen_by(method: &str, params: &Object) -> Option<Update> {
    let view = [MODE, MODEL].into_iter().find(|view| view.method == method)?;
    Some(view.chosen(params.get(view.param)?))
}

/// The change of an option that an agent was sent and does not report itself; `None` if there is no such option.
pub fn option_chosen(transcript: &Transcript, params: &Object) -> Option<Update> {
    let list = transcript.slot(Slot::Options)?.fields.get(OPTIONS)?;
    let (id, value) = (params.get("configId")?, params.get("value")?);
    let is_it = |option: &Object| option_id(option).as_ref() == Some(id);
    let mut list_of = list.elements()?.into_iter().filter_map(JsonRef::to_object);
    list_of.find(is_it)?;
    let list = json_ext::each(list, |mut option| {
        if is_it(&option) {
            option.set("currentValue", value.clone());
        }
        Some(option)
    });
    Some(slot_update(Slot::Options, OPTIONS, &list))
}

fn option_id(option: &Object) -> Option<Json> {
    option.get("configId").or_else(|| option.get("id")).cloned()
}

/// The known settings of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    modes: Option<Object>,
    models: Option<Object>,
    options: Option<Json>,
    /// Options that an agent accepted without reporting its options.
    accepted: Vec<(Setting, Json)>,
    /// Settings that the agent does not have any more.
    removed: Vec<Setting>,
}

/// A setting of a session, independent of its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// The mode.
    Mode,
    /// The model.
    Model,
    /// Another option, by its id.
    Option(Json),
}

impl Setting {
    /// The setting that a request to an agent sets; `None` if it sets none.
    pub fn set_by(method: &str, params: &Object, transcript: &Transcript) -> Option<Self> {
        if let Some(view) = [MODE, MODEL].iter().find(|view| view.method == method) {
            return Some(Self::of_view(view));
        }
        let id = params.get("configId").filter(|_| method == SET_OPTION)?;
        let list = transcript.slot(Slot::Options).and_then(|body| body.fields.get(OPTIONS));
        Some(list.map_or_else(|| Self::Option(id.clone()), |list| Self::of_id(list, id.clone())))
    }

    fn of_view(view: &View) -> Self {
        if view.slot == Slot::Mode { Self::Mode } else { Self::Model }
    }

    fn view(&self) -> Option<View> {
        match self {
            Self::Mode => Some(MODE),
            Self::Model => Some(MODEL),
            Self::Option(_) => None,
        }
    }

    /// The setting of the option with this id in a list.
    fn of_id(list: &Json, id: Json) -> Self {
        let is_view =
            |view: &&View| option_of(list, view).and_then(|option| option_id(&option)).as_ref() == Some(&id);
        [MODE, MODEL].iter().find(is_view).map(Self::of_view).unwrap_or(Self::Option(id))
    }

    fn of_option(list: &Json, option: &Object) -> Option<Self> {
        option_id(option).map(|id| Self::of_id(list, id))
    }

    /// Whether an option may be this setting: the first such option of a list is.
    fn is_option(&self, option: &Object) -> bool {
        match self {
            Self::Mode => options::is_choice_of(option, MODE.category),
            Self::Model => options::is_choice_of(option, MODEL.category),
            Self::Option(id) => option_id(option).as_ref() == Some(id),
        }
    }
}

/// A request that restores a setting at an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The setting.
    pub setting: Setting,
    /// The method and its params, without the session; `None` if the agent has no request for it.
    pub request: Option<(&'static str, Object)>,
    /// Its name for people: `mode`, `model`, or the id of an option.
    pub what: String,
    /// The value.
    pub value: Json,
}

impl Settings {
    /// The settings of a session.
    pub fn of(transcript: &Transcript) -> Self {
        let fields = |slot: Slot| transcript.slot(slot).map(|body| body.fields.clone());
        Self {
            modes: fields(Slot::Mode),
            models: fields(Slot::Model),
            options: fields(Slot::Options).and_then(|fields| fields.get(OPTIONS).cloned()),
            ..Self::default()
        }
    }

    /// Removes the settings from a response and takes them over. Settings that it does not have are unchanged.
    pub fn take_from(&mut self, result: &mut Object) {
        self.store_slot(result);
        [MODE.member, MODEL.member, OPTIONS].into_iter().for_each(|name| drop(result.remove(name)));
    }

    fn store_slot(&mut self, result: &Object) {
        if let Some(modes) = result.get_object(MODE.member) {
            self.modes = Some(modes);
        }
        if let Some(models) = result.get_object(MODEL.member) {
            self.models = Some(models);
        }
        if let Some(list) = result.get(OPTIONS).filter(|list| list.type_of() == Type::Array) {
            self.set_options(list.clone());
        }
    }

    /// Takes over the settings of an update; `false` if it has none.
    pub fn report(&mut self, update: &Update) -> bool {
        let Update::Upsert { target: Target::Slot(slot), upsert } = update else { return false };
        match slot {
            Slot::Options => {
                if let Some(list) = upsert.fields.get(OPTIONS) {
                    self.set_options(list.clone());
                }
            }
            Slot::Mode | Slot::Model => {
                let view = if *slot == Slot::Mode { MODE } else { MODEL };
                if let Some(value) = upsert.fields.get(view.current) {
                    self.set(&view, value);
                }
            }
            Slot::Info | Slot::Usage | Slot::Commands => return false,
        }
        true
    }

    fn view(&mut self, view: &View) -> &mut Option<Object> {
        if view.slot == Slot::Mode { &mut self.modes } else { &mut self.models }
    }

    fn set(&mut self, view: &View, value: &Json) {
        self.view(view).get_or_insert_default().set(view.current, value.clone());
        if let Some(list) = self.options.as_ref().and_then(|list| with_value(list, view, value)) {
            self.options = Some(list);
        }
    }

    fn set_options(&mut self, list: Json) {
        for view in [MODE, MODEL] {
            let value = option_of(&list, &view).and_then(|option| option.get("currentValue").cloned());
            if let (Some(value), Some(shown)) = (value, self.view(&view))
                && view.offers(shown, &value).unwrap_or(true)
            {
                shown.set(view.current, value);
            }
        }
        self.options = Some(list);
    }

    /// The value of a mode or model, if known.
    fn value(&self, view: &View) -> Option<&Json> {
        let shown = if view.slot == Slot::Mode { &self.modes } else { &self.models };
        shown.as_ref().and_then(|shown| shown.get(view.current))
    }

    /// The value of the option that is a view of a mode or model, if known.
    fn option_value(&self, view: &View) -> Option<Json> {
        option_of(self.options.as_ref()?, view)?.get("currentValue").cloned()
    }

    /// The settings with a value, in the order in which they are restored: the model first, which others may depend
    /// on, and the mode last.
    pub fn chosen(&self) -> Vec<Setting> {
        let mut settings = vec![Setting::Model];
        if let Some(list) = &self.options {
            let options = self.list().into_iter().filter_map(|option| Setting::of_option(list, &option));
            settings.extend(options.filter(|setting| setting.view().is_none()));
        }
        settings.push(Setting::Mode);
        settings.retain(|setting| self.get(setting).is_some());
        settings
    }

    /// The request that restores one of the [chosen](Self::chosen) settings at an agent with these settings.
    pub fn choice(&self, setting: &Setting, dialect: Dialect, agents: &Self) -> Option<Choice> {
        let value = self.get(setting)?;
        let view = match setting {
            Setting::Option(id) => return Some(option_choice(id, &value, dialect)),
            Setting::Mode => MODE,
            Setting::Model => MODEL,
        };
        let agents_view = if view.slot == Slot::Mode { &agents.modes } else { &agents.models };
        let option = [agents, self]
            .into_iter()
            .find_map(|settings| option_of(settings.options.as_ref()?, &view))
            .and_then(|option| option_id(&option));
        // An agent that presents it separately gets its own request; one that presents nothing gets the request of
        // the view that it presented before.
        let shows_nothing = agents_view.is_none() && agents.options.is_none();
        let by_itself = dialect == Dialect::V1
            && (agents_view.is_some() || (shows_nothing && self.value(&view).is_some()) || option.is_none());
        if by_itself {
            let mut params = Object::default();
            params.set(view.param, value.clone());
            let request = Some((view.method, params));
            return Some(Choice { setting: setting.clone(), request, what: view.category.to_owned(), value });
        }
        // The two views may have different values for the same: a model with and without its effort.
        let value = self.option_value(&view).unwrap_or(value);
        let request = option.and_then(|id| option_choice(&id, &value, dialect).request);
        Some(Choice { setting: setting.clone(), request, what: view.category.to_owned(), value })
    }

    /// Whether a choice must be restored at an agent with these settings. A setting that it does not present may be
    /// missing; an option that it does not have cannot be, except for the mode: no mode in force is not a chosen
    /// mode.
    pub fn is_missing(&self, choice: &Choice) -> bool {
        let Some((method, params)) = &choice.request else { return true };
        if let Some(view) = [MODE, MODEL].iter().find(|view| view.method == *method) {
            return self.value(view) != Some(&choice.value);
        }
        if self.options.is_none() {
            return true;
        }
        let list = self.list();
        let option = list.iter().find(|option| option_id(option).as_ref() == params.get("configId"));
        option.map_or(choice.setting == Setting::Mode, |option| {
            option.get("currentValue") != Some(&choice.value)
        })
    }

    /// The options, if known.
    fn list(&self) -> Vec<Object> {
        let list = self.options.as_ref().and_then(Json::elements).unwrap_or_default();
        list.into_iter().filter_map(JsonRef::to_object).collect()
    }

    /// Whether an agent with these settings offers the value of a choice; `None` if it does not present what it
    /// offers.
    pub fn offers(&self, choice: &Choice) -> Option<bool> {
        let shown = match choice.setting {
            Setting::Mode => self.modes.as_ref().and_then(|shown| MODE.offers(shown, &choice.value)),
            Setting::Model => self.models.as_ref().and_then(|shown| MODEL.offers(shown, &choice.value)),
            Setting::Option(_) => None,
        };
        if shown.is_some() {
            return shown;
        }
        self.options.as_ref()?;
        match self.list().into_iter().find(|option| choice.setting.is_option(option)) {
            Some(option) if option.get_str("type").as_deref() == Some("select") => {
                Some(options::values_of(&option).contains(&choice.value))
            }
            Some(_) => Some(true),
            // An agent with separate modes may have them although it presents only options.
            None => match &choice.request {
                Some((method, _)) if *method != SET_OPTION => None,
                Some(_) | None => Some(false),
            },
        }
    }

    /// Removes a setting that the agent does not have any more. If the agent presents nothing instead, the session
    /// drops it.
    pub fn forget(&mut self, setting: &Setting) {
        self.removed.push(setting.clone());
    }

    /// Takes over settings that are unknown here.
    pub fn add_missing(&mut self, others: Self) {
        let Self { modes, models, options, .. } = others;
        self.modes = self.modes.take().or(modes);
        self.models = self.models.take().or(models);
        self.options = self.options.take().or(options);
    }

    /// Sets a wanted value that differs from the one in force.
    pub fn want(&mut self, setting: &Setting, value: &Json) {
        let list = self.options.take().map(|list| {
            json_ext::each(&list, |mut option| {
                if Setting::of_option(&list, &option).as_ref() == Some(setting) {
                    option.set("currentValue", value.clone());
                }
                Some(option)
            })
        });
        if let Some(view) = setting.view() {
            let is_option = list.as_ref().is_some_and(|list| option_of(list, &view).is_some());
            match self.view(&view) {
                Some(shown) => shown.set(view.current, value.clone()),
                None if is_option => {}
                shown @ None => shown.get_or_insert_default().set(view.current, value.clone()),
            }
        }
        self.options = list;
    }

    /// The value of a setting, if known.
    pub fn get(&self, setting: &Setting) -> Option<Json> {
        if let Some(value) = setting.view().and_then(|view| self.value(&view).cloned()) {
            return Some(value);
        }
        if self.options.is_none() {
            return self.accepted(setting).cloned();
        }
        self.list().into_iter().find(|option| setting.is_option(option))?.get("currentValue").cloned()
    }

    fn accepted(&self, setting: &Setting) -> Option<&Json> {
        self.accepted.iter().find(|(accepted, _)| accepted == setting).map(|(_, value)| value)
    }

    /// Takes over the agent's response to a choice.
    pub fn chose(&mut self, choice: &Choice, result: &Object) {
        let Some((method, params)) = &choice.request else { return };
        let view = [MODE, MODEL].into_iter().find(|view| view.method == *method);
        if let Some(view) = view {
            self.set(&view, &choice.value);
        } else if let Some(list) = &self.options {
            let id = params.get("configId");
            let list = json_ext::each(list, |mut option| {
                if option_id(&option).as_ref() == id {
                    option.set("currentValue", choice.value.clone());
                }
                Some(option)
            });
            self.set_options(list);
        } else {
            self.accepted.push((choice.setting.clone(), choice.value.clone()));
        }
        self.store_slot(result);
    }

    /// The updates for a session with other settings, without those that change nothing.
    pub fn updates(&self, transcript: &Transcript) -> Vec<Update> {
        let mut updates = Vec::new();
        for (view, shown) in [(MODE, &self.modes), (MODEL, &self.models)] {
            let is_gone = self.value(&view).is_none() && self.removed.contains(&Setting::of_view(&view));
            let nothing = Object::default();
            let Some(shown) = (if is_gone { Some(&nothing) } else { shown.as_ref() }) else { continue };
            let known = transcript.slot(view.slot).map(|body| &body.fields);
            let is_whole = shown.get(view.available).is_some() || shown.is_empty();
            let is_known = match known {
                Some(known) if is_whole => known == shown,
                Some(known) => known.get(view.current) == shown.get(view.current),
                None => shown.is_empty(),
            };
            if !is_known {
                let upsert = Upsert { whole: is_whole, fields: shown.clone(), ..Upsert::default() };
                updates.push(Update::Upsert { target: Target::Slot(view.slot), upsert });
            }
        }
        let known = transcript.slot(Slot::Options).and_then(|body| body.fields.get(OPTIONS));
        let list = self.options.clone().or_else(|| known.map(|known| self.applied_to(known)));
        if let Some(list) = list.filter(|list| known != Some(list)) {
            updates.push(slot_update(Slot::Options, OPTIONS, &list));
        }
        updates
    }

    /// A session's options for an agent that does not present its own, with the values that it accepted.
    fn applied_to(&self, known: &Json) -> Json {
        json_ext::each(known, |mut option| {
            let setting = Setting::of_option(known, &option);
            if setting.as_ref().is_some_and(|setting| self.removed.contains(setting)) {
                return None;
            }
            if let Some(value) = setting.and_then(|setting| self.accepted(&setting)) {
                option.set("currentValue", value.clone());
            }
            Some(option)
        })
    }
}

fn option_choice(id: &Json, value: &Json, dialect: Dialect) -> Choice {
    let mut params = Object::default();
    params.set("configId", id.clone());
    params.set("value", value.clone());
    let is_boolean = value.type_of() == Type::Bool;
    if is_boolean || dialect != Dialect::V1 {
        params.set("type", if is_boolean { "boolean" } else { "id" });
    }
    let what = id.to_json_str().map_or_else(|| id.as_str().to_owned(), |id| id.to_text().into_owned());
    let (setting, value) = (Setting::Option(id.clone()), value.clone());
    Choice { setting, request: Some((SET_OPTION, params)), what, value }
}
