//! The commands that an agent offers: v2 tags them and their input, v1 knows one kind of each.

use parlor_json::{Json, Object, Type};

use crate::shape;
use crate::{LossKind, Losses};

/// A list of v1 commands as v2 says it.
pub(crate) fn to_v2(commands: &Json) -> Json {
    shape::each(commands, |mut command| {
        shape::within(&mut command, "input", |input| tagged(input, "text"));
        Some(tagged(command, "command"))
    })
}

/// A list of v2 commands as v1 can parse it.
pub(crate) fn to_v1(commands: &Json, losses: &mut Losses) -> Json {
    shape::each(commands, |mut command| {
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
    if value.get("type").is_none() || shape::is(&value, "type", Type::Null) {
        return shape::in_front(&value, "type", Json::from(type_));
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
            let said = to_v2(&check::json(v1_text));
            check::same(&said, v2_text);
            let _: Vec<v2::AvailableCommand> = serde_json::from_str(said.as_str()).unwrap();
            assert_eq!(to_v2(&said), said, "already said");

            let mut losses = Losses::default();
            let back = to_v1(&said, &mut losses);
            check::same(&back, v1_text);
            assert_eq!(to_v1(&back, &mut losses), back, "already said");
            let _: Vec<v1::AvailableCommand> = serde_json::from_str(back.as_str()).unwrap();
            assert_eq!(losses, Losses::default());
            assert_eq!(to_v2(&back).as_str(), said.as_str(), "even the places of members are the same");
        }
    }

    #[test]
    fn other_types_are_said_as_far_as_v1_can() {
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
            let said = to_v1(&check::json(v2_text), &mut losses);
            assert_eq!(said.as_str(), v1_text);
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
