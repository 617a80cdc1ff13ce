//! MCP servers of a session.
//!
//! In v1 a server without a type is started by its command; in v2 every server has a type. v1 requires lists that are
//! optional in v2.

use parlor_json::{Json, Object, Type};

use crate::json_ext;
use crate::{LossKind, Losses};

/// Converts a list of v1 servers to v2.
pub(crate) fn to_v2(servers: &Json, losses: &mut Losses) -> Json {
    json_ext::each(servers, |server| {
        if server.get("type").is_none() || json_ext::is(&server, "type", Type::Null) {
            return Some(json_ext::in_front(&server, "type", "stdio"));
        }
        if server.get_str("type").as_deref() == Some("sse") {
            losses.add(LossKind::McpSse);
        }
        Some(server)
    })
}

/// Converts a list of v2 servers to v1.
pub(crate) fn to_v1(servers: &Json, losses: &mut Losses) -> Json {
    json_ext::each(servers, |mut server| {
        match server.get_string("type").as_deref() {
            Some("stdio") => {
                server.remove("type");
                demand(&mut server, &["args", "env"]);
            }
            Some("http" | "sse") => demand(&mut server, &["headers"]),
            Some("acp") | None => (),
            Some(_) => {
                losses.add(LossKind::McpServerType);
                return None;
            }
        }
        Some(server)
    })
}

fn demand(server: &mut Object, lists: &[&str]) {
    for list in lists {
        if server.get(list).is_none() {
            server.set(*list, Json::array::<Json>([]));
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;
    use crate::values::check;

    fn v1_parses(servers: &Json, unknown: &[&str]) {
        check::parses::<Vec<v1::McpServer>>(servers, unknown);
    }

    fn v2_parses(servers: &Json, unknown: &[&str]) {
        check::parses::<Vec<v2::McpServer>>(servers, unknown);
    }

    #[test]
    fn servers_go_both_ways() {
        for (v1_text, v2_text, lost, unknown) in [
            (
                r#"[{"name":"a","command":"/bin/a","args":["-x"],"env":[{"name":"A","value":"b"}],"own":1}]"#,
                r#"[{"type":"stdio","name":"a","command":"/bin/a","args":["-x"],
                    "env":[{"name":"A","value":"b"}],"own":1}]"#,
                &[][..],
                &["[0].own"][..],
            ),
            (
                r#"[{"type":"http","name":"h","url":"https://h","headers":[]},
                    {"type":"acp","name":"c","serverId":"1"}]"#,
                r#"[{"type":"http","name":"h","url":"https://h","headers":[]},
                    {"type":"acp","name":"c","serverId":"1"}]"#,
                &[],
                &[],
            ),
            (
                r#"[{"type":"sse","name":"s","url":"https://s","headers":[]}]"#,
                r#"[{"type":"sse","name":"s","url":"https://s","headers":[]}]"#,
                &["mcp_sse"],
                &[],
            ),
        ] {
            v1_parses(&check::json(v1_text), unknown);
            let mut losses = Losses::default();
            let converted = to_v2(&check::json(v1_text), &mut losses);
            check::same(&converted, v2_text);
            v2_parses(&converted, unknown);
            assert_eq!(check::names(losses), lost);

            let mut losses = Losses::default();
            let back = to_v1(&converted, &mut losses);
            check::same(&back, v1_text);
            assert_eq!(to_v1(&back, &mut losses), back, "already converted");
            assert_eq!(losses, Losses::default());
        }
    }

    #[test]
    fn v1_gets_the_lists_it_demands() {
        let servers = check::json(
            r#"[{"type":"stdio","name":"a","command":"/a"},{"type":"http","name":"h","url":"https://h"},
                {"type":"_pipe","name":"p"}]"#,
        );
        v2_parses(&servers, &[]);
        let mut losses = Losses::default();
        let converted = to_v1(&servers, &mut losses);
        check::same(
            &converted,
            r#"[{"name":"a","command":"/a","args":[],"env":[]},
                {"type":"http","name":"h","url":"https://h","headers":[]}]"#,
        );
        v1_parses(&converted, &[]);
        assert_eq!(check::names(losses), ["mcp_server_type"]);
    }

    #[test]
    fn malformed_lists_pass() {
        for text in ["{}", r#"["a",1]"#, r#"[{"type":1}]"#] {
            let mut losses = Losses::default();
            assert_eq!(to_v2(&check::json(text), &mut losses).as_str(), text);
            assert_eq!(to_v1(&check::json(text), &mut losses).as_str(), text);
            assert_eq!(losses, Losses::default());
        }
    }
}
