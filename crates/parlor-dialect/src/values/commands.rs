//! Commands of an agent: v2 has types of commands and of their input, v1 has one of each.

use parlor_json::{Json, Object, Type};

use crate::json_ext;
use crate::{LossKind, Losses};

/// Converts a list of v1 commands to v2.
pub(crate) fn to_v2(commands: &Json) -> Json {
    json_ext::each(commands, |mut command| {
        json_ext::within(&mut command, "input", |input| tagged(input, "text"));
        Some(tagged(command, "command"))
    })
}

/// Converts a list of v2 commands to v1.
pub(crate) fn to_v1(commands: &Json, losses: &mut Losses) -> Json {
    json_ext::each(commands, |mut command| {
        match command.get_string("type").as_deref() {
            None => (),
            Some("command") => drop(command.remove("type")),
            Some(_) => {
                command.remove("type");
                losses.add(LossKind::CommandType);
            }
        }
        if let Some(mut input) = command.get_object("input") {
            match input.get_string("type").as_deref() {
                None => (),
                Some("text") => {
                    input.remove("type");
                    command.set("input", input.to_json());
                }
                Some(_) => {
                    command.remove("input");
                    losses.add(LossKind::CommandInput);
                }
            }
        }
        Some(command)
    })
}

fn tagged(value: Object, type_: &str) -> Object {
    if value.get("type").is_none() || json_ext::is(&value, "type", Type::Null) {
        return json_ext::in_front(&value, "type", type_);
    }
    value
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    #[test]
    fn commands_go_both_ways() {
        for (v1_text, v2_text) in [
            ("[]", "[]"),
            (
                r#"[{"name":"web","description":"Search","input":{"hint":"query","_meta":{"a":1}},"_meta":{}}]"#,
                r#"[{"type":"command","name":"web","description":"Search",
                    "input":{"type":"text","hint":"query","_meta":{"a":1}},"_meta":{}}]"#,
            ),
            (
                r#"[{"name":"a","description":""},{"name":"b","description":"","input":null}]"#,
                r#"[{"type":"command","name":"a","description":""},
                    {"type":"command","name":"b","description":"","input":null}]"#,
            ),
        ] {
            let converted = to_v2(&check::json(v1_text));
            check::same(&converted, v2_text);
            let _: Vec<v2::AvailableCommand> = serde_json::from_str(converted.as_str()).unwrap();
            assert_eq!(to_v2(&converted), converted, "already converted");

            let mut losses = Losses::default();
            let back = to_v1(&converted, &mut losses);
            check::same(&back, v1_text);
            assert_eq!(to_v1(&back, &mut losses), back, "already converted");
            let _: Vec<v1::AvailableCommand> = serde_json::from_str(back.as_str()).unwrap();
            assert_eq!(losses, Losses::default());
            assert_eq!(to_v2(&back).as_str(), converted.as_str(), "the order of members is kept");
        }
    }

    #[test]
    fn other_types_are_converted_as_far_as_possible() {
        for (v2_text, v1_text, lost) in [
            (
                r#"[{"type":"_skill","name":"a","description":"b","level":1e400}]"#,
                r#"[{"name":"a","description":"b","level":1e400}]"#,
                &["command_type"][..],
            ),
            (
                r#"[{"type":"command","name":"a","description":"b","input":{"type":"_form","fields":[]}}]"#,
                r#"[{"name":"a","description":"b"}]"#,
                &["command_input"],
            ),
        ] {
            let mut losses = Losses::default();
            let converted = to_v1(&check::json(v2_text), &mut losses);
            assert_eq!(converted.as_str(), v1_text);
            assert_eq!(check::names(losses), lost);
        }
    }

    #[test]
    fn malformed_lists_pass() {
        for text in ["null", r#"{"a":1}"#, r#"[1,"a",null]"#] {
            let mut losses = Losses::default();
            assert_eq!(to_v2(&check::json(text)).as_str(), text);
            assert_eq!(to_v1(&check::json(text), &mut losses).as_str(), text);
            assert_eq!(losses, Losses::default());
        }
    }
}
