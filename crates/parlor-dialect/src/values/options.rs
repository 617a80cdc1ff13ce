//! Session options, the values they are set to, and v1 modes and models, which are options in v2.

use parlor_json::{Json, JsonRef, Object, Type};

use crate::json_ext;
use crate::{LossKind, Losses};

/// The metadata key that marks a select option that was converted from a boolean one.
const BOOLEAN: &str = "parlor/boolean";

/// The metadata key that marks an option that was generated from the modes of a v1 agent.
const MODES: &str = "parlor/modes";

/// The metadata key that marks an option that was generated from the models of a v1 agent.
const MODELS: &str = "parlor/models";

/// The id and the category of the model option.
pub(crate) const MODEL: &str = "model";

/// Converts a list of v1 options to v2.
pub(crate) fn to_v2(options: &Json, losses: &mut Losses) -> Json {
    json_ext::each(options, |option| {
        let option = with_filled_groups(option, losses);
        if option.get("options").is_some_and(|options| options.as_str() == "[]") {
            losses.add(LossKind::EmptyList);
            return None;
        }
        let mut option = json_ext::renamed(&option, "id", "configId");
        if option.remove_nested("_meta", BOOLEAN).is_some() {
            let on = option.get_str("currentValue").as_deref() == Some("true");
            option.set("type", "boolean");
            option.set("currentValue", on);
            option.remove("options");
        }
        rename_groups(&mut option, "group", "groupId");
        Some(option)
    })
}

/// Removes empty groups, which v2 does not allow.
fn with_filled_groups(mut option: Object, losses: &mut Losses) -> Object {
    json_ext::each_in(&mut option, "options", |group| {
        let is_empty = group.get("options").is_some_and(|options| options.as_str() == "[]");
        if is_empty {
            losses.add(LossKind::EmptyList);
        }
        (!is_empty).then_some(group)
    });
    option
}

/// Converts a list of v2 options to v1. A client that did not advertise `booleans` gets each boolean option as a
/// choice between on and off.
pub(crate) fn to_v1(options: &Json, booleans: bool, losses: &mut Losses) -> Json {
    json_ext::each(options, |option| {
        let mut option = json_ext::renamed(&option, "configId", "id");
        match option.get_string("type").as_deref() {
            Some("boolean") if !booleans => {
                if let Some(on) = option.get("currentValue").and_then(Json::as_bool) {
                    option.set("type", "select");
                    option.set("currentValue", if on { "true" } else { "false" });
                    let choice =
                        |value: &str, name: &str| Object::new().with("value", value).with("name", name);
                    let choices = [choice("true", "On"), choice("false", "Off")];
                    option.set("options", Json::array(choices.map(Json::from)));
                    option.set_nested("_meta", BOOLEAN, true);
                }
            }
            Some("select" | "boolean") | None => (),
            Some(_) => {
                losses.add(LossKind::OptionType);
                return None;
            }
        }
        rename_groups(&mut option, "groupId", "group");
        Some(option)
    })
}

/// Converts a v1 client's value for an option to v2. `is_boolean`: the option is boolean, which the client may have
/// as a choice between on and off.
pub(crate) fn set_to_v2(params: &Object, is_boolean: bool) -> Object {
    if params.get("type").is_some() && !json_ext::is(params, "type", Type::Null) {
        return params.clone();
    }
    let Some(value) = params.get_string("value") else { return params.clone() };
    match value.as_str() {
        "true" | "false" if is_boolean => {
            let mut params = json_ext::in_front(params, "type", "boolean");
            params.set("value", value == "true");
            params
        }
        _ => json_ext::in_front(params, "type", "id"),
    }
}

/// Converts a v2 client's value for an option to v1.
///
/// Values of other types keep their type: v1 treats a string of any unknown type as a choice.
///
/// `None` if v1 cannot parse the value.
pub(crate) fn set_to_v1(params: &Object, losses: &mut Losses) -> Option<Object> {
    let mut params = params.clone();
    match params.get_string("type").as_deref() {
        Some("id") => drop(params.remove("type")),
        Some("boolean") | None => (),
        Some(_) => {
            losses.add(LossKind::OptionValue);
            if !json_ext::is(&params, "value", Type::String) {
                return None;
            }
        }
    }
    Some(params)
}

/// The v2 option for a v1 agent's modes; `None` if there are none, since an option must have values.
pub(crate) fn modes_to_option(modes: &Object) -> Option<Object> {
    let available = modes.get("availableModes")?;
    available.elements().filter(|modes| !modes.is_empty())?;
    let values = json_ext::each(available, |mode| Some(json_ext::renamed(&mode, "id", "value")));

    let mut option = Object::default();
    for (name, value) in [("configId", "mode"), ("name", "Mode"), ("category", "mode"), ("type", "select")] {
        option.set(name, value);
    }
    option.set("currentValue", modes.get("currentModeId")?.clone());
    option.set("options", values);
    for (name, value) in modes.iter() {
        if *name != *"currentModeId" && *name != *"availableModes" && option.get_key(name).is_none() {
            option.set(name.clone(), value.clone());
        }
    }
    option.set_nested("_meta", MODES, true);
    Some(option)
}

/// The v2 option for a v1 agent's models; `None` if there are none.
pub(crate) fn models_to_option(models: &Object) -> Option<Object> {
    let available = models.get("availableModels")?;
    available.elements().filter(|models| !models.is_empty())?;
    let values = json_ext::each(available, |model| Some(json_ext::renamed(&model, "modelId", "value")));

    let mut option = Object::default();
    for (name, value) in [("configId", MODEL), ("name", "Model"), ("category", MODEL), ("type", "select")] {
        option.set(name, value);
    }
    option.set("currentValue", models.get("currentModelId")?.clone());
    option.set("options", values);
    option.set_nested("_meta", MODELS, true);
    Some(option)
}

/// The v1 modes for an option of category `mode` of either version.
pub(crate) fn option_to_modes(option: &Object) -> Option<Object> {
    if !is_mode(option) {
        return None;
    }
    let mut available = Vec::new();
    for element in option.get_array("options")? {
        let Ok(value) = Object::parse(element) else { continue };
        match value.get("options").filter(|_| value.get("value").is_none()) {
            Some(group) => {
                available.extend(group.elements().unwrap_or_default().into_iter().map(Json::from));
            }
            None => available.push(Json::from(element)),
        }
    }

    let mut modes = Object::default();
    modes.set("currentModeId", option.get("currentValue")?.clone());
    modes.set(
        "availableModes",
        json_ext::each(&Json::array(&available), |value| Some(json_ext::renamed(&value, "value", "id"))),
    );
    for (name, value) in option.iter() {
        if !OF_OPTIONS.iter().any(|known| *name == **known) && modes.get_key(name).is_none() {
            modes.set(name.clone(), value.clone());
        }
    }
    modes.remove_nested("_meta", MODES);
    Some(modes)
}

/// The members of an option that modes do not have.
const OF_OPTIONS: &[&str] =
    &["configId", "id", "name", "description", "category", "type", "currentValue", "options"];

/// The option of category `mode` in a list of either version.
pub(crate) fn mode_option(options: &Json) -> Option<Object> {
    options.elements()?.into_iter().filter_map(JsonRef::to_object).find(is_mode)
}

/// Whether a list has a select option of this category.
pub(crate) fn has_choice_of(options: &Json, category: &str) -> bool {
    let options = options.elements().unwrap_or_default().into_iter();
    options.filter_map(JsonRef::to_object).any(|option| is_choice_of(&option, category))
}

/// Sets the mode in a list of options; `None` if no option is for modes.
pub(crate) fn with_mode(options: &Json, mode: &Json) -> Option<Json> {
    mode_option(options)?;
    Some(json_ext::each(options, |mut option| {
        if is_mode(&option) {
            option.set("currentValue", mode.clone());
        }
        Some(option)
    }))
}

fn is_mode(option: &Object) -> bool {
    is_choice_of(option, "mode")
}

/// Whether an option is a select option of this category.
pub(crate) fn is_choice_of(option: &Object, category: &str) -> bool {
    option.get_str("category").as_deref() == Some(category)
        && option.get_str("type").as_deref() == Some("select")
}

/// The values of a select option, including those in groups.
pub(crate) fn values_of(option: &Object) -> Vec<Json> {
    let list = |holder: &Object| -> Vec<Object> {
        let list = holder.get_array("options").unwrap_or_default();
        list.into_iter().filter_map(JsonRef::to_object).collect()
    };
    let each = list(option).into_iter().flat_map(|value| match value.get("value") {
        Some(_) => vec![value],
        None => list(&value),
    });
    each.filter_map(|value| value.get("value").cloned()).collect()
}

/// Renames a member of the groups, which are the elements of a select option that have options of their own.
fn rename_groups(option: &mut Object, from: &str, to: &str) {
    json_ext::each_in(option, "options", |group| {
        Some(if group.get("options").is_some() { json_ext::renamed(&group, from, to) } else { group })
    });
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    fn v1_parses(options: &Json) {
        check::parses::<Vec<v1::SessionConfigOption>>(options, &[]);
    }

    fn v2_parses(options: &Json) {
        check::parses::<Vec<v2::SessionConfigOption>>(options, &[]);
    }

    #[test]
    fn options_go_both_ways() {
        for (v1_text, v2_text) in [
            ("[]", "[]"),
            (
                r#"[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"a",
                    "options":[{"value":"a","name":"A"},{"value":"b","name":"B","_meta":{"k":1}}]}]"#,
                r#"[{"configId":"model","name":"Model","category":"model","type":"select","currentValue":"a",
                    "options":[{"value":"a","name":"A"},{"value":"b","name":"B","_meta":{"k":1}}]}]"#,
            ),
            (
                r#"[{"id":"m","name":"M","type":"select","currentValue":"a","options":[
                    {"group":"g","name":"G","options":[{"value":"a","name":"A"}]}]}]"#,
                r#"[{"configId":"m","name":"M","type":"select","currentValue":"a","options":[
                    {"groupId":"g","name":"G","options":[{"value":"a","name":"A"}]}]}]"#,
            ),
            (
                r#"[{"id":"b","name":"B","type":"boolean","currentValue":true}]"#,
                r#"[{"configId":"b","name":"B","type":"boolean","currentValue":true}]"#,
            ),
        ] {
            let (v1_list, v2_list) = (check::json(v1_text), check::json(v2_text));
            v1_parses(&v1_list);
            v2_parses(&v2_list);
            let mut losses = Losses::default();
            check::same(&to_v2(&v1_list, &mut Losses::default()), v2_text);
            check::same(&to_v1(&v2_list, true, &mut losses), v1_text);
            assert_eq!(to_v2(&v2_list, &mut Losses::default()), v2_list, "already converted");
            assert_eq!(to_v1(&v1_list, true, &mut losses), v1_list, "already converted");
            assert_eq!(losses, Losses::default());
        }
    }

    #[test]
    fn a_boolean_is_a_choice_for_clients_that_do_not_know_it() {
        for (v2_text, v1_text) in [
            (
                r#"[{"configId":"b","name":"B","type":"boolean","currentValue":true}]"#,
                r#"[{"id":"b","name":"B","type":"select","currentValue":"true",
                    "options":[{"value":"true","name":"On"},{"value":"false","name":"Off"}],
                    "_meta":{"parlor/boolean":true}}]"#,
            ),
            (
                r#"[{"configId":"b","name":"B","type":"boolean","currentValue":false,"_meta":{"k":1}}]"#,
                r#"[{"id":"b","name":"B","type":"select","currentValue":"false",
                    "options":[{"value":"true","name":"On"},{"value":"false","name":"Off"}],
                    "_meta":{"k":1,"parlor/boolean":true}}]"#,
            ),
        ] {
            let mut losses = Losses::default();
            let converted = to_v1(&check::json(v2_text), false, &mut losses);
            check::same(&converted, v1_text);
            v1_parses(&converted);
            assert_eq!(to_v2(&converted, &mut Losses::default()).as_str(), v2_text);
            assert_eq!(losses, Losses::default());
        }
    }

    #[test]
    fn an_option_of_another_type_is_left_out() {
        let options = check::json(
            r#"[{"configId":"t","name":"T","type":"_text","currentValue":"x"},
                {"configId":"b","name":"B","type":"boolean","currentValue":true}]"#,
        );
        v2_parses(&options);
        let mut losses = Losses::default();
        let converted = to_v1(&options, true, &mut losses);
        assert_eq!(converted.as_str(), r#"[{"id":"b","name":"B","type":"boolean","currentValue":true}]"#);
        assert_eq!(check::names(losses), ["option_type"]);
    }

    #[test]
    fn values_go_both_ways() {
        for (v1_text, is_boolean, v2_text, back) in [
            (r#"{"value":"a"}"#, false, r#"{"type":"id","value":"a"}"#, r#"{"value":"a"}"#),
            (r#"{"value":"true"}"#, false, r#"{"type":"id","value":"true"}"#, r#"{"value":"true"}"#),
            (
                r#"{"value":"true"}"#,
                true,
                r#"{"type":"boolean","value":true}"#,
                r#"{"type":"boolean","value":true}"#,
            ),
            (
                r#"{"type":"boolean","value":false}"#,
                true,
                r#"{"type":"boolean","value":false}"#,
                r#"{"type":"boolean","value":false}"#,
            ),
        ] {
            let full =
                |value: &str| value.replacen('{', r#"{"sessionId":"s","configId":"c","_meta":{"k":1},"#, 1);
            let converted = set_to_v2(&check::object(&full(v1_text)), is_boolean);
            check::same(&converted.to_json(), &full(v2_text));
            check::parses::<v2::SetSessionConfigOptionRequest>(&converted.to_json(), &[]);
            assert_eq!(set_to_v2(&converted, is_boolean), converted, "already converted");

            let mut losses = Losses::default();
            let again = set_to_v1(&converted, &mut losses);
            check::same(&again.as_ref().unwrap().to_json(), &full(back));
            check::parses::<v1::SetSessionConfigOptionRequest>(&again.as_ref().unwrap().to_json(), &[]);
            assert_eq!(losses, Losses::default());
        }
        let mut losses = Losses::default();
        let other = check::object(r#"{"sessionId":"s","configId":"c","type":"_text","value":"x"}"#);
        assert_eq!(set_to_v1(&other, &mut losses), Some(other));
        assert_eq!(check::names(losses), ["option_value"]);
    }

    #[test]
    fn modes_convert_to_an_option_and_back() {
        for (modes, option) in [
            (
                r#"{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask","description":"d"},
                    {"id":"code","name":"Code","_meta":{"k":1}}]}"#,
                r#"{"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"ask",
                    "options":[{"value":"ask","name":"Ask","description":"d"},
                    {"value":"code","name":"Code","_meta":{"k":1}}],"_meta":{"parlor/modes":true}}"#,
            ),
            (
                r#"{"currentModeId":"a","availableModes":[{"id":"a","name":"A"}],"_meta":{"x":0}}"#,
                r#"{"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"a",
                    "options":[{"value":"a","name":"A"}],"_meta":{"x":0,"parlor/modes":true}}"#,
            ),
        ] {
            let made = modes_to_option(&check::object(modes)).unwrap();
            check::same(&made.to_json(), option);
            check::parses::<v2::SessionConfigOption>(&made.to_json(), &[]);
            let back = option_to_modes(&made).unwrap().to_json();
            check::same(&back, modes);
            check::parses::<v1::SessionModeState>(&back, &[]);
        }
        for nothing in ["{}", r#"{"currentModeId":"a","availableModes":[]}"#] {
            assert_eq!(modes_to_option(&check::object(nothing)), None);
        }
    }

    #[test]
    fn an_agents_own_mode_option_is_its_modes() {
        let options = check::json(
            r#"[1,{"configId":"m","name":"Model","category":"model","type":"select","currentValue":"x","options":[]},
                {"configId":"p","name":"Permissions","description":"d","category":"mode","type":"select",
                 "currentValue":"b","options":[{"groupId":"g","name":"G","options":[{"value":"a","name":"A"}]},
                 {"groupId":"h","name":"H","options":[{"value":"b","name":"B"},{"value":"c","name":"C"}]}]}]"#,
        );
        let mut option = mode_option(&options).unwrap();
        option.set("currentValue", "c");
        check::same(
            &option_to_modes(&option).unwrap().to_json(),
            r#"{"currentModeId":"c","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"},
                {"id":"c","name":"C"}]}"#,
        );
        for other in [
            r#"{"configId":"m","category":"model","type":"select","currentValue":"x","options":[]}"#,
            r#"{"configId":"m","category":"mode","type":"boolean","currentValue":true}"#,
            r#"{"configId":"m","category":"mode","type":"select","options":3}"#,
        ] {
            assert_eq!(option_to_modes(&check::object(other)), None);
        }
        assert_eq!(mode_option(&check::json("{}")), None);
    }

    #[test]
    fn malformed_options_pass() {
        for text in
            ["{}", "[1,null]", r#"[{"type":3,"options":{}}]"#, r#"[{"type":"boolean","currentValue":"?"}]"#]
        {
            let mut losses = Losses::default();
            assert_eq!(to_v2(&check::json(text), &mut Losses::default()).as_str(), text);
            assert_eq!(to_v1(&check::json(text), false, &mut losses).as_str(), text);
            assert_eq!(losses, Losses::default());
        }
    }
}
