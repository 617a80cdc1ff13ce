//! The command `parlor translate`.

mod common;

use std::path::Path;

use common::{check, parlor};
use expect_test::expect;

fn update(update: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
}

#[test]
fn the_help_of_translate() {
    check(
        &["translate", "--help"],
        "",
        0,
        &expect![[r#"
            Translate messages of an agent or a client to another protocol version

            Reads one JSON-RPC message per line and writes the translated lines. Missing ids are assigned, and
            updates of tool calls are merged where the dialect requires it. What the other dialect cannot
            express is a loss, one JSON line on standard error:
            `{"line":3,"loss":"message_replaced","messageId":"m1"}`; the exit code is then 3.

            In a recording, each line starts with its direction (`C->A {json}`, `A->C {json}`): both sides are
            translated, including the start and end of turns, and the output has directions as well. Without
            directions, only the messages of the side in --side are translated and no messages are added.

            Usage: parlor translate [OPTIONS] --from <DIALECT> --to <DIALECT> [FILES]...

            Arguments:
              [FILES]...
                      Read these files in order [default: standard input]

            Options:
                  --from <DIALECT>
                      Decode the lines in this dialect: v1, v2 or draft

                  --to <DIALECT>
                      Encode them in this dialect: v1, v2 or draft

                  --side <SIDE>
                      Treat lines without a direction as messages of this side

                      Possible values:
                      - agent:  Messages that an agent sends
                      - client: Messages that a client sends

                      [default: agent]

                  --max-line <BYTES>
                      Skip lines that are longer than this many bytes

                      [default: 67108864]

                  --color <WHEN>
                      Print colours: auto (on a terminal), always or never

              -h, --help
                      Print help (see a summary with '-h')

            Examples:
              parlor translate --from v1 --to v2 < agent-output.jsonl
              parlor translate --from v2 --to v1 recording.jsonl
        "#]],
        &expect![""],
    );
}

#[test]
fn a_recording_may_end_while_the_agent_echoes_the_prompt() {
    let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi there"}]}}"#;
    let chunk = update(
        r#"{"sessionUpdate":"user_message_chunk","messageId":"m","content":{"type":"text","text":"Hi"}}"#,
    );
    check(
        &["translate", "--from", "v2", "--to", "v1"],
        &format!("C->A {prompt}\nA->C {chunk}\n"),
        0,
        &expect![[r#"
            C->A {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi there"}]}}
            A->C {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message_chunk","messageId":"m","content":{"type":"text","text":"Hi"}}}}
        "#]],
        &expect![""],
    );
}

#[test]
fn the_translation_state_is_kept_between_lines() {
    let chunk = update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"}}"#);
    let tool = update(r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"Look"}"#);
    let input = format!("{chunk}\n{chunk}\n{tool}\n{chunk}\n");
    check(
        &["translate", "--from", "v1", "--to", "v2"],
        &input,
        0,
        &expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"parlor-1","content":{"type":"text","text":"Hi"}}}}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"parlor-1","content":{"type":"text","text":"Hi"}}}}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Look"}}}
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"parlor-2","content":{"type":"text","text":"Hi"}}}}
    "#]],
        &expect![""],
    );
}

#[test]
fn losses_are_json_lines_and_the_exit_code_is_3() {
    let lines = [
        update(
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m\"1","content":{"type":"text","text":"A"}}"#,
        ),
        update(
            r#"{"sessionUpdate":"agent_message","messageId":"m\"1","content":[{"type":"text","text":"B"}]}"#,
        ),
        update(r#"{"sessionUpdate":"state_update","state":"running"}"#),
    ];
    check(
        &["translate", "--from", "v2", "--to", "v1"],
        &lines.join("\n"),
        3,
        &expect![[r#"
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m\"1","content":{"type":"text","text":"A"}}}}
            {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"parlor-alias-1","content":{"type":"text","text":"B"},"_meta":{"parlor/replaces":"m\"1"}}}}
        "#]],
        &expect![[r#"
            {"line":2,"loss":"message_replaced","messageId":"m\"1"}
            {"line":3,"loss":"state"}
        "#]],
    );
}

#[test]
fn bad_lines_are_named_and_skipped_and_2_beats_3() {
    let lines = [
        "nonsense".to_owned(),
        update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"A"}}"#),
        update(r#"{"sessionUpdate":"_odd"}"#),
        update(
            r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"A"}}"#,
        ),
    ];
    check(
        &["translate", "--from", "v2", "--to", "v1"],
        &lines.join("\n"),
        2,
        &expect![[r#"
        {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"A"}}}}
    "#]],
        &expect![[r#"
        line 1: not JSON: expected ident at line 1 column 2: nonsense
        line 2: agent_message_chunk: `messageId` is missing
        {"line":3,"loss":"unknown_update"}
    "#]],
    );
}

#[test]
fn lines_with_directions_are_translated_for_both_sides() {
    let input = r#"# a recording
C->A {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}
A->C {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
"#;
    check(
        &["translate", "--from", "v1", "--to", "draft"],
        input,
        0,
        &expect![[r##"
        # a recording
        C->A {"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}
        A->C {"jsonrpc":"2.0","id":1,"result":{}}
        A->C {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"parlor-1","content":[{"type":"text","text":"Hi"}]}}}
        A->C {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_change","state":"running"}}}
        A->C {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_change","state":"idle","stop_reason":"end_turn"}}}
    "##]],
        &expect![""],
    );
}

#[test]
fn the_client_side_can_be_translated_alone() {
    let input = r#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/w","mcpServers":[{"name":"x","command":"/bin/x","args":[],"env":[]}]}}"#;
    check(
        &["translate", "--from", "v1", "--to", "v2", "--side", "client"],
        input,
        0,
        &expect![[r#"
        {"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"sessionId":"s","cwd":"/w","mcpServers":[{"type":"stdio","name":"x","command":"/bin/x","args":[],"env":[]}],"replayFrom":{"type":"start"}}}
    "#]],
        &expect![""],
    );
}

#[test]
fn a_response_without_its_request_passes_unchanged() {
    let input = r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#;
    check(
        &["translate", "--from", "v1", "--to", "v2"],
        input,
        3,
        &expect![[r#"
        {"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}
    "#]],
        &expect![[r#"
        {"line":1,"loss":"response_without_request"}
    "#]],
    );
}

#[test]
fn the_same_dialect_comes_out_byte_for_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings");
    let recording = folder.join("client-rust-sdk-5.0.0.codex.v2.jsonl");
    let output = parlor(&["translate", "--from", "v2", "--to", "v2", recording.to_str().unwrap()], b"");
    assert_eq!(output.stdout, std::fs::read(recording).unwrap());
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn both_dialects_are_required() {
    check(
        &["translate", "--from", "v1"],
        "",
        2,
        &expect![""],
        &expect![[r#"
            parlor: --to is missing
              hint: usage: parlor translate --from <DIALECT> --to <DIALECT> [FILES]...; `parlor translate --help` has examples
        "#]],
    );
}
