//! The result of every update that is not a message.

use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_dialect::{Fold, view};
use serde_json::{Value, json};

/// Folds updates, each `kind` with the fields of `rest`, and compares one value of the result.
#[track_caller]
fn check(dialect: Dialect, updates: &[Value], pointer: &str, expected: &Value) {
    let view = fold(dialect, updates).expect("every update is taken");
    assert_eq!(view.pointer(pointer), Some(expected), "{dialect}");
}

fn fold(dialect: Dialect, updates: &[Value]) -> Result<Value, String> {
    let mut fold = Fold::new(dialect);
    for update in updates {
        fold.line(&update.to_string()).map_err(|problem| problem.to_string())?;
    }
    Ok(serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap())
}

#[track_caller]
fn refused(dialect: Dialect, update: &Value, problem: &str) {
    assert_eq!(fold(dialect, std::slice::from_ref(update)), Err(problem.to_owned()));
}

fn text(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

#[test]
fn a_v1_tool_call_is_created_and_updated_and_a_null_is_ignored() {
    check(
        V1,
        &[
            json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Read", "kind": "read", "rawInput": { "n": 1 } }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": null, "status": "completed", "content": [text("a")] }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "content": null, "_meta": null }),
        ],
        "/toolCalls",
        &json!([{
            "toolCallId": "t", "title": "Read", "kind": "read", "rawInput": { "n": 1 }, "status": "completed", "content": [text("a")]
        }]),
    );
}

#[test]
fn a_v1_update_may_come_before_its_tool_call() {
    check(
        V1,
        &[
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress" }),
            json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "title": "Read" }),
        ],
        "/toolCalls",
        &json!([{ "toolCallId": "t", "status": "in_progress", "title": "Read", "content": [] }]),
    );
}

#[test]
fn a_v2_tool_call_is_an_upsert_where_null_clears() {
    for dialect in [V2, Draft] {
        check(
            dialect,
            &[
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Read", "status": "pending", "content": [text("a")], "future": 1 }),
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": null, "content": [], "status": "_odd" }),
            ],
            "/toolCalls",
            &json!([{ "toolCallId": "t", "status": "_odd", "future": 1, "content": [] }]),
        );
    }
}

#[test]
fn tool_call_content_streams_and_can_be_replaced() {
    for dialect in [V2, Draft] {
        let chunk = |item: Value| json!({ "sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": item });
        check(
            dialect,
            &[chunk(text("a")), chunk(text("b"))],
            "/toolCalls/0/content",
            &json!([text("a"), text("b")]),
        );
        let replace =
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [text("c")] });
        check(
            dialect,
            &[chunk(text("a")), replace, chunk(text("d"))],
            "/toolCalls/0/content",
            &json!([text("c"), text("d")]),
        );
    }
}

#[test]
fn tool_call_metadata_follows_the_dialect() {
    let update =
        |meta: Value| json!({ "sessionUpdate": "tool_call_update", "toolCallId": "t", "_meta": meta });
    let updates = [update(json!({ "a": 1, "b": { "x": 1 } })), update(json!({ "b": { "y": 2 }, "a": null }))];
    for dialect in [V2, Draft] {
        check(dialect, &updates, "/toolCalls/0/_meta", &json!({ "b": { "y": 2 } }));
    }
    check(V1, &updates, "/toolCalls/0/_meta", &json!({ "b": { "y": 2 }, "a": null }));
}

#[test]
fn plans_are_replaced_removed_and_restored_at_their_position() {
    let items = |id: &str, what: &str| json!({ "sessionUpdate": "plan_update", "plan": { "type": "items", "planId": id, "entries": [{ "content": what, "priority": "low", "status": "pending" }] } });
    let file = json!({ "sessionUpdate": "plan_update", "plan": { "type": "file", "planId": "a", "uri": "file:///p.md" } });
    let removed = json!({ "sessionUpdate": "plan_removed", "planId": "a" });
    for dialect in [V1, V2, Draft] {
        // The new form of a plan leaves nothing of the old one.
        check(
            dialect,
            &[items("a", "1"), items("b", "2"), file.clone()],
            "/plans",
            &json!([{ "type": "file", "planId": "a", "uri": "file:///p.md" }, items("b", "2")["plan"]]),
        );
        check(
            dialect,
            &[items("a", "1"), items("b", "2"), removed.clone()],
            "/plans",
            &json!([items("b", "2")["plan"]]),
        );
        check(
            dialect,
            &[items("a", "1"), items("b", "2"), removed.clone(), items("a", "3")],
            "/plans",
            &json!([items("a", "3")["plan"], items("b", "2")["plan"]]),
        );
    }
}

#[test]
fn terminal_output_is_bytes() {
    let chunk =
        |data: &str| json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": data });
    for dialect in [V2, Draft] {
        // A character of three bytes, cut between two chunks: "€" is e2 82 ac.
        check(
            dialect,
            &[chunk("4oI="), chunk("rA==")],
            "/terminals",
            &json!([{ "terminalId": "t", "output": { "data": "4oKs" } }]),
        );
        // Padding may be left out.
        check(dialect, &[chunk("4oI"), chunk("rA")], "/terminals/0/output/data", &json!("4oKs"));
        refused(dialect, &chunk("!"), "terminal_output_chunk: `data` is not base64");
    }
}

#[test]
fn a_terminal_is_an_upsert_and_its_output_a_snapshot() {
    let update = |fields: Value| {
        let mut update = json!({ "sessionUpdate": "terminal_update", "terminalId": "t" });
        update.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        update
    };
    let start =
        update(json!({ "command": "ls", "cwd": "/w", "output": { "data": "YQ==", "_meta": { "k": 1 } } }));
    let chunk = json!({ "sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "Yg==" });
    for dialect in [V2, Draft] {
        check(
            dialect,
            &[start.clone(), chunk.clone(), update(json!({ "exitStatus": { "exitCode": 0 } }))],
            "/terminals",
            &json!([{
                "terminalId": "t", "command": "ls", "cwd": "/w", "output": { "data": "YWI=", "_meta": { "k": 1 } }, "exitStatus": { "exitCode": 0 }
            }]),
        );
        check(
            dialect,
            &[start.clone(), update(json!({ "output": { "data": "Yw==" } }))],
            "/terminals/0/output",
            &json!({ "data": "Yw==" }),
        );
        check(
            dialect,
            &[start.clone(), update(json!({ "output": null }))],
            "/terminals/0/output",
            &json!({ "data": "" }),
        );
        refused(
            dialect,
            &update(json!({ "output": "YQ==" })),
            "terminal_update: `output` must be an object, this is a string; the rest was taken",
        );
    }
}

#[test]
fn commands_options_and_modes_are_reports_that_replace_the_last_one() {
    for dialect in [V1, V2, Draft] {
        let commands = |name: &str| json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": name, "description": "" }] });
        check(
            dialect,
            &[commands("a"), commands("b")],
            "/commands",
            &json!([{ "name": "b", "description": "" }]),
        );
        let options = |value: &str| json!({ "sessionUpdate": "config_option_update", "configOptions": [{ "id": "model", "currentValue": value }] });
        check(
            dialect,
            &[options("x"), options("y")],
            "/configOptions",
            &json!([{ "id": "model", "currentValue": "y" }]),
        );
        let mode = |id: &str| json!({ "sessionUpdate": "current_mode_update", "currentModeId": id });
        check(dialect, &[mode("ask"), mode("code")], "/modes", &json!({ "currentModeId": "code" }));
        refused(
            dialect,
            &json!({ "sessionUpdate": "available_commands_update" }),
            "available_commands_update: `availableCommands` is missing",
        );
    }
}

#[test]
fn usage_keeps_a_cost_that_is_not_mentioned_again() {
    let with_cost = json!({ "sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": { "amount": 0.5, "currency": "USD" } });
    let without = json!({ "sessionUpdate": "usage_update", "used": 2, "size": 9 });
    let cleared = json!({ "sessionUpdate": "usage_update", "used": 3, "size": 9, "cost": null });
    for dialect in [V1, V2, Draft] {
        let cost = json!({ "amount": 0.5, "currency": "USD" });
        check(
            dialect,
            &[with_cost.clone(), without.clone()],
            "/usage",
            &json!({ "used": 2, "size": 9, "cost": cost }),
        );
    }
    check(V2, &[with_cost, cleared], "/usage", &json!({ "used": 3, "size": 9 }));
}

#[test]
fn compactions_are_upserts_whose_summary_streams() {
    for dialect in [V1, V2, Draft] {
        let summary = |what: &str| json!({ "type": "text", "text": what });
        check(
            dialect,
            &[
                json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress" }),
                json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": summary("a") }),
                json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed" }),
            ],
            "/other",
            &json!([{ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed", "summary": [summary("a")] }]),
        );
    }
}

#[test]
fn subagents_and_session_messages_are_upserts() {
    for dialect in [V1, V2, Draft] {
        check(
            dialect,
            &[
                json!({ "sessionUpdate": "subagent_update", "sessionId": "child", "title": "Look", "state": { "state": "running" } }),
                json!({ "sessionUpdate": "session_message", "messageId": "m", "senderSessionId": "s" }),
                json!({ "sessionUpdate": "session_message_chunk", "messageId": "m", "content": { "type": "text", "text": "x" } }),
                json!({ "sessionUpdate": "subagent_update", "sessionId": "child", "state": { "state": "idle" } }),
            ],
            "/other",
            &json!([
                { "sessionUpdate": "subagent_update", "sessionId": "child", "title": "Look", "state": { "state": "idle" } },
                { "sessionUpdate": "session_message", "messageId": "m", "senderSessionId": "s", "content": [{ "type": "text", "text": "x" }] }
            ]),
        );
    }
}

#[test]
fn notices_and_unknown_updates_are_kept_unchanged_in_order() {
    for dialect in [V1, V2, Draft] {
        let notice =
            json!({ "sessionUpdate": "notice", "severity": "warning", "title": "Slow", "description": null });
        let unknown = json!({ "sessionUpdate": "_vendor/thing", "big": 1e300, "nothing": null, "_meta": { "k": null } });
        let chunk = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": { "type": "text", "text": "x" } });
        let updates = [notice.clone(), chunk, unknown.clone(), unknown.clone()];
        check(dialect, &updates, "/other", &json!([notice, unknown, unknown]));
        check(
            dialect,
            &updates,
            "/order",
            &json!([
                { "kind": "notice", "id": "1" },
                { "kind": "agent_message", "id": "m" },
                { "kind": "_vendor/thing", "id": "3" },
                { "kind": "_vendor/thing", "id": "4" }
            ]),
        );
    }
}

#[test]
fn numbers_key_order_and_unknown_fields_of_blocks_are_unchanged() {
    let block = r#"{"z":123456789012345678901234567890,"type":"_new","a":{"y":1.0,"x":-0}}"#;
    let lines = [
        format!(r#"{{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{block}}}"#),
        format!(r#"{{"sessionUpdate":"agent_message","messageId":"n","content":[{block},{block}]}}"#),
    ];
    for dialect in [V1, V2, Draft] {
        let mut fold = Fold::new(dialect);
        lines.iter().for_each(|line| fold.line(line).unwrap());
        let text = view::transcript(fold.transcript());
        assert_eq!(text.as_str().matches(block).count(), 3);
    }
}

#[test]
fn an_update_kind_spelled_with_escapes_is_the_same_kind() {
    let mut fold = Fold::new(V2);
    fold.line(r#"{"sessionUpdate":"\u0070lan_removed","planId":"p"}"#).unwrap();
    fold.line(r#"{"\u0073essionUpdate":"state_update","state":"idle"}"#).unwrap();
    assert!(fold.transcript().entries()[0].body().removed);
    assert!(fold.transcript().state().is_some());
}

#[test]
fn an_invalid_update_is_rejected_with_its_reason() {
    for (line, problem) in [
        (r#"{"jsonrpc":"2.0","method":"session/update"}"#, "no session update: `params` is missing"),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":[]}"#,
            "no session update: `params` is not an object",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":{}}"#,
            "no session update: `sessionId` must be a string",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#,
            "no session update: `update` is missing",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":7}}"#,
            "no session update: `update` is not an object",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#,
            "`sessionUpdate` is missing",
        ),
        (r#"{"sessionUpdate":null}"#, "`sessionUpdate` must be a string, this is null"),
    ] {
        assert_eq!(Fold::new(V2).line(line).unwrap_err().to_string(), problem, "{line}");
    }
}

#[test]
fn an_optional_field_that_cannot_be_read_costs_nothing_but_itself() {
    for dialect in [V1, V2, Draft] {
        let mut fold = Fold::new(dialect);
        let line = json!({ "sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn", "_meta": "x" });
        let problem = fold.line(&line.to_string()).unwrap_err().to_string();
        assert_eq!(problem, "state_update: `_meta` must be an object, this is a string; the rest was taken");
        assert_eq!(fold.transcript().state().unwrap().stop_reason.as_ref().unwrap().to_text(), "end_turn");
    }
}

#[test]
fn a_stop_reason_is_found_under_either_name() {
    for update in [
        json!({ "sessionUpdate": "state_update", "state": "idle", "stopReason": null, "stop_reason": "end_turn" }),
        json!({ "sessionUpdate": "state_change", "state": "idle", "stopReason": "end_turn", "stop_reason": null }),
    ] {
        check(V2, &[update], "/state", &json!({ "state": "idle", "stopReason": "end_turn" }));
    }
}

#[test]
fn a_bad_message_of_a_batch_does_not_spoil_the_others() {
    let chunk = |id: Value| {
        let update = json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "content": { "type": "text", "text": "x" } });
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } })
    };
    let batch = json!([chunk(json!("a")), chunk(json!(null)), 7, chunk(json!("b"))]).to_string();
    let mut fold = Fold::new(V2);
    assert_eq!(
        fold.line(&batch).unwrap_err().to_string(),
        "in a batch: agent_message_chunk: `messageId` must be a string, this is null; the message must be an object, not a number: 7"
    );
    assert_eq!(fold.transcript().entries().len(), 2);
    let refused = Fold::new(V1).line(&batch).unwrap_err().to_string();
    assert!(refused.starts_with("batches are not accepted"), "v1 takes no batches: {refused}");
}

#[test]
fn a_refused_update_moves_no_boundary_between_messages() {
    let chunk = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}"#;
    for refused in [r#"{"sessionUpdate":"state_update"}"#, r#"{"sessionUpdate":"tool_call"}"#, "{", "[]"] {
        let mut fold = Fold::new(V1);
        fold.line(chunk).unwrap();
        fold.line(refused).unwrap_err();
        fold.line(chunk).unwrap();
        assert_eq!(fold.transcript().entries().len(), 1, "{refused}");
    }
}

#[test]
fn an_id_that_is_given_here_is_never_one_that_the_agent_uses() {
    let named = r#"{"sessionUpdate":"agent_message_chunk","messageId":"parlor-1","content":{"type":"text","text":"x"}}"#;
    let unnamed = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"y"}}"#;
    let mut fold = Fold::new(V1);
    [named, unnamed].iter().for_each(|line| fold.line(line).unwrap());
    assert_eq!(fold.transcript().entries().len(), 2);
}

#[test]
fn without_directions_a_response_answers_the_last_request_of_its_id() {
    let mut fold = Fold::new(V1);
    for line in [
        r#"{"jsonrpc":"2.0","id":0,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"content":""}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"y"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"stopReason":"end_turn"}}"#,
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"z"}}"#,
    ] {
        fold.line(line).unwrap();
    }
    let counts: Vec<_> = fold.transcript().entries().iter().map(|entry| entry.body().content.len()).collect();
    assert_eq!(counts, [2, 1]);
}

#[test]
fn an_object_with_many_members_takes_linear_time() {
    let fields: Vec<_> = (0..60_000).map(|n| format!(r#""f{n}":{n}"#)).collect();
    let line = format!(r#"{{"sessionUpdate":"agent_message","messageId":"m",{}}}"#, fields.join(","));
    let mut fold = Fold::new(V2);
    for _ in 0..3 {
        fold.line(&line).unwrap();
    }
    // Quadratic work would be billions of steps here, and the test would not end.
    assert!(view::transcript(fold.transcript()).as_str().contains(r#""f59999":59999"#));
}
