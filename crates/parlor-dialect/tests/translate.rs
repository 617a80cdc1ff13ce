//! Translation: pairs of conversations, round trips, and the losses of recordings.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;

use common::{dialect, recordings, testdata, updates};
use expect_test::expect_file;
use parlor_dialect::Dialect::{Draft, V1, V2};
use parlor_dialect::{
    Dialect, Fold, LossKind, NotAsChunks, Recorded, Side, Translator, message_as_chunks, view,
};
use parlor_session::SessionId;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A translated recording, and its losses by line.
fn translate(mut translator: Translator, recording: &str) -> (String, String) {
    let (mut said, mut lost) = (String::new(), String::new());
    for (number, line) in recording.lines().enumerate() {
        let Some(recorded) = Recorded::read(line) else {
            writeln!(said, "{line}").unwrap();
            continue;
        };
        match translator.line(recorded.from.unwrap(), recorded.message) {
            Ok(translation) => {
                for line in &translation.lines {
                    let mark = if line.by == Side::Agent { "A->C" } else { "C->A" };
                    writeln!(said, "{mark} {}", line.text).unwrap();
                }
                for loss in translation.losses {
                    let about = loss.message_id.map(|id| format!(" {id}")).unwrap_or_default();
                    writeln!(lost, "line {}: {}{about}", number + 1, loss.kind).unwrap();
                }
                for problem in translation.problems {
                    writeln!(lost, "line {}: {problem}", number + 1).unwrap();
                }
            }
            Err(problem) => writeln!(lost, "line {}: not translated: {problem}", number + 1).unwrap(),
        }
    }
    (said, lost)
}

/// Each folder in `testdata/translation` is one topic: a conversation in v1 and the same one in v2, and in
/// `losses.txt` what cannot be said. A folder whose name ends in `.v2-to-v1` or `.v1-to-v2` goes one way only.
#[test]
fn pairs_of_conversations() {
    let mut topics: Vec<_> =
        std::fs::read_dir(testdata("translation")).unwrap().map(|topic| topic.unwrap().path()).collect();
    topics.sort();
    assert!(topics.len() >= 12, "{} topics", topics.len());
    for topic in topics {
        let name = topic.file_name().unwrap().to_str().unwrap().to_owned();
        let read = |dialect: Dialect| std::fs::read_to_string(topic.join(format!("{dialect}.jsonl")));
        let mut losses = String::new();
        let mut way = |from: Dialect, to: Dialect| {
            let (said, lost) = translate(Translator::record(from, to), &read(from).unwrap());
            expect_file![topic.join(format!("{to}.jsonl"))].assert_eq(&said);
            lost.lines().for_each(|line| writeln!(losses, "{from} to {to}, {line}").unwrap());
        };
        if !name.ends_with(".v2-to-v1") {
            way(V1, V2);
        }
        if !name.ends_with(".v1-to-v2") {
            way(V2, V1);
        }
        expect_file![topic.join("losses.txt")].assert_eq(&losses);
    }
}

#[test]
fn recordings_lose_exactly_what_is_listed() {
    let mut losses = String::new();
    for (name, from, text) in recordings() {
        for to in [V1, V2, Draft].into_iter().filter(|to| *to != from) {
            let (_, lost) = translate(Translator::record(from, to), &text);
            writeln!(losses, "{name} to {to}").unwrap();
            lost.lines().for_each(|line| writeln!(losses, "  {line}").unwrap());
        }
    }
    expect_file![testdata("losses.txt")].assert_eq(&losses);
}

/// What every session of a recording folds to, by its id. Ids that were given on the way are named by their
/// order, and messages that never got any content are left out: v1 cannot say them.
fn folded(dialect: Dialect, recording: &str) -> BTreeMap<String, Value> {
    let mut all = Fold::new(dialect);
    recording.lines().for_each(|line| drop(all.line(line)));
    let fold_one = |session: &SessionId| {
        let mut fold = Fold::of_session(dialect, session.clone());
        recording.lines().for_each(|line| drop(fold.line(line)));
        let view = serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap();
        (session.to_string(), normal(view))
    };
    all.sessions().iter().map(fold_one).collect()
}

fn normal(mut view: Value) -> Value {
    view.as_object_mut().unwrap().remove("order");
    let messages = view["messages"].as_array_mut().unwrap();
    messages.retain(|message| message["content"] != json!([]));
    for (place, message) in messages.iter_mut().enumerate() {
        if message["messageId"].as_str().unwrap().starts_with("parlor-") {
            message["messageId"] = json!(format!("#{place}"));
        }
    }
    view
}

/// The first path at which two values differ.
fn difference(found: &Value, expected: &Value, path: &str) -> Option<String> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names = found.keys().chain(expected.keys());
            names.into_iter().find_map(|name| {
                let of =
                    |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                difference(&of(found), &of(expected), &format!("{path}/{name}"))
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let pairs = found.iter().zip(expected).enumerate();
            pairs.into_iter().find_map(|(place, (found, expected))| {
                difference(found, expected, &format!("{path}/{place}"))
            })
        }
        _ => (found != expected).then(|| format!("{path}:\n  found    {found}\n  expected {expected}")),
    }
}

/// Compares what sessions folded to, and names the first place where they differ.
///
/// Commands and modes that one version sends with the response to `session/new` and the other with updates of
/// their own are no difference: a fold sees updates only. Nor is a title that a tool call had to get, which is
/// reported as a loss.
#[track_caller]
fn assert_same(found: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>, what: &str) {
    let mut found = found.clone();
    found.retain(|session, _| expected.contains_key(session));
    for (session, found) in &mut found {
        let expected = &expected[session];
        for (name, nothing) in [("commands", json!([])), ("modes", Value::Null)] {
            if expected[name] == nothing {
                found[name] = nothing;
            }
        }
        for (place, call) in found["toolCalls"].as_array_mut().unwrap().iter_mut().enumerate() {
            if expected["toolCalls"][place].get("title").is_none() {
                call.as_object_mut().unwrap().remove("title");
            }
        }
    }
    if let Some(difference) = difference(&json!(found), &json!(expected), "") {
        panic!("{what}: {difference}");
    }
}

#[test]
fn v1_to_v2_to_v1_folds_to_the_same_transcript() {
    for (name, _, text) in recordings().into_iter().filter(|(_, dialect, _)| *dialect == V1) {
        for through in [V2, Draft] {
            let (there, _) = translate(Translator::record(V1, through), &text);
            let (back, _) = translate(Translator::record(through, V1), &there);
            assert_same(&folded(V1, &back), &folded(V1, &text), &format!("{name} through {through}"));
        }
    }
}

#[test]
fn v2_to_v1_to_v2_folds_to_the_same_transcript_where_nothing_was_lost() {
    let mut compared = 0;
    for (name, _, text) in recordings().into_iter().filter(|(_, dialect, _)| *dialect == V2) {
        let (there, lost) = translate(Translator::record(V2, V1), &text);
        let (back, _) = translate(Translator::record(V1, V2), &there);
        let (mut back, mut text) = (folded(V2, &back), folded(V2, &text));
        for view in back.values_mut().chain(text.values_mut()) {
            let view = view.as_object_mut().unwrap();
            // v1 has no ids for what a person sends, so those are given anew, and a replay cannot be matched
            // with them.
            view["messages"].as_array_mut().unwrap().retain(|message| message["role"] != "user");
            // Reported losses are not compared; capabilities are no part of a transcript.
            if lost.contains(": state") {
                view.remove("state");
            }
            if lost.contains("terminal") {
                view.remove("terminals");
            }
            // A terminal that v1 was shown as text stays text, and says whose it is.
            for call in view["toolCalls"].as_array_mut().unwrap() {
                for item in call["content"].as_array_mut().into_iter().flatten() {
                    if let Some(terminal) = item["_meta"].get("parlor/terminal").cloned() {
                        *item = json!({ "type": "terminal", "terminalId": terminal });
                    }
                }
            }
        }
        // A message that is announced without content and filled afterwards is the same in the end.
        assert!(!lost.replace("message_empty", "").contains("message_"), "{name}: {lost}");
        assert_same(&back, &text, &name);
        compared += 1;
    }
    assert_eq!(compared, 5);
}

#[test]
fn v2_to_draft_to_v2_folds_to_the_same_transcript() {
    for (name, _, text) in recordings().into_iter().filter(|(_, dialect, _)| *dialect == V2) {
        let (there, lost) = translate(Translator::record(V2, Draft), &text);
        let (back, lost_back) = translate(Translator::record(Draft, V2), &there);
        assert_eq!((lost, lost_back), (String::new(), String::new()), "{name}");
        assert_same(&folded(V2, &back), &folded(V2, &text), &name);
    }
}

fn notification(update: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } })
        .to_string()
}

/// The updates that one side receives, and whether anything was lost.
fn one_sided(from: Dialect, to: Dialect, lines: &[String]) -> (Vec<String>, bool) {
    let mut translator = Translator::one_sided(from, to);
    let (mut said, mut lost) = (Vec::new(), false);
    for line in lines {
        let Ok(translation) = translator.line(Side::Agent, line) else { continue };
        lost |= !translation.losses.is_empty();
        said.extend(translation.lines.into_iter().map(|line| line.text.into_owned()));
    }
    (said, lost)
}

fn view_of(dialect: Dialect, lines: &[String]) -> Value {
    let mut fold = Fold::new(dialect);
    lines.iter().for_each(|line| drop(fold.line(line)));
    normal(serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap())
}

proptest! {
    #[test]
    fn a_generated_session_without_losses_survives_a_round_trip(from in dialect(), to in dialect(), updates in updates()) {
        let lines: Vec<_> = updates.iter().map(notification).collect();
        let (there, lost) = one_sided(from, to, &lines);
        let (back, lost_back) = one_sided(to, from, &there);
        if !lost && !lost_back {
            prop_assert_eq!(view_of(from, &back), view_of(from, &lines));
        }
    }

    #[test]
    fn every_dialect_ends_with_the_same_conversation_where_nothing_is_lost(from in dialect(), to in dialect(), updates in updates()) {
        let lines: Vec<_> = updates.iter().map(notification).collect();
        let (there, lost) = one_sided(from, to, &lines);
        if !lost {
            let (said, peer) = (view_of(from, &lines), view_of(to, &there));
            prop_assert_eq!(&said["messages"], &peer["messages"]);
            prop_assert_eq!(&said["info"], &peer["info"]);
        }
    }
}

/// The proposal "message updates", point 5 of its plan: what a conversion of one update can and cannot do.
#[test]
fn a_content_bearing_whole_message_fans_out_to_one_chunk_per_block() {
    let update = r#"{"sessionUpdate":"user_message","messageId":"m1","content":[{"type":"text","text":"A"},{"type":"image","data":"","mimeType":"image/png"}],"_meta":{"k":1}}"#;
    let chunks = message_as_chunks(serde_json::from_str(update).unwrap()).unwrap();
    let chunks: Vec<_> = chunks.iter().map(parlor_json::Json::as_str).collect();
    assert_eq!(
        chunks,
        [
            r#"{"sessionUpdate":"user_message_chunk","messageId":"m1","content":{"type":"text","text":"A"},"_meta":{"k":1}}"#,
            r#"{"sessionUpdate":"user_message_chunk","messageId":"m1","content":{"type":"image","data":"","mimeType":"image/png"}}"#,
        ]
    );
}

#[test]
fn patch_only_updates_null_and_empty_content_and_null_meta_fail_conversion() {
    for (fields, reason) in [
        (r#""_meta":{"source":"replay"}"#, NotAsChunks::PatchOnly),
        (r#""content":null"#, NotAsChunks::ContentCleared),
        (r#""content":[]"#, NotAsChunks::ContentCleared),
        (r#""content":[{"type":"text","text":"A"}],"_meta":null"#, NotAsChunks::MetaCleared),
        (r#""content":[{"type":"_hologram"}]"#, NotAsChunks::BlockType),
    ] {
        for kind in ["user_message", "agent_message", "agent_thought"] {
            let update = format!(r#"{{"sessionUpdate":"{kind}","messageId":"m1",{fields}}}"#);
            assert_eq!(
                message_as_chunks(serde_json::from_str(&update).unwrap()),
                Err(reason.clone()),
                "{update}"
            );
        }
    }
    let plan = serde_json::from_str(r#"{"sessionUpdate":"plan","entries":[]}"#).unwrap();
    assert_eq!(message_as_chunks(plan), Err(NotAsChunks::NotAMessage));
}

#[test]
fn without_its_request_a_response_passes_unchanged_and_is_reported() {
    for (from, to) in [(V1, V2), (V2, V1), (Draft, V1)] {
        let line = r#"{"jsonrpc":"2.0", "id":7,"result":{"stopReason":"end_turn"}}"#;
        let mut translator = Translator::one_sided(from, to);
        let translation = translator.line(Side::Agent, line).unwrap();
        assert_eq!(translation.lines[0].text, line);
        assert_eq!(translation.losses[0].kind, LossKind::ResponseWithoutRequest);
    }
}

#[test]
fn one_side_alone_gets_nothing_invented() {
    let permission = r#"{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Run"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}}"#;
    let read =
        r#"{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}"#;
    let mut translator = Translator::one_sided(V1, V2);
    let asked = translator.line(Side::Agent, permission).unwrap();
    assert_eq!(asked.lines.len(), 1, "no state is made up");
    let read = translator.line(Side::Agent, read).unwrap();
    assert_eq!((read.lines.len(), read.losses[0].kind), (0, LossKind::Method), "and no answer either");
}

#[test]
fn methods_of_extensions_and_metadata_go_through_untouched() {
    let line =
        r#"{"jsonrpc":"2.0", "id":"x","method":"_vendor/thing","params":{"n":1.50,"_meta":{"k":null}}}"#;
    let note = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":  "x"}}"#;
    for (from, to) in [(V1, V2), (V2, V1), (V2, Draft), (Draft, V1)] {
        for side in [Side::Agent, Side::Client] {
            let mut translator = Translator::record(from, to);
            assert_eq!(translator.line(side, line).unwrap().lines[0].text, line);
            assert_eq!(translator.line(side, note).unwrap().lines[0].text, note);
        }
    }
}

#[test]
fn bad_lines_are_errors_that_change_nothing() {
    let mut translator = Translator::record(V2, V1);
    for line in [
        "",
        "{",
        "7",
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk"}}}"#,
    ] {
        assert!(translator.line(Side::Agent, line).is_err(), "{line}");
    }
}

#[test]
fn a_relay_makes_a_v1_agent_speak_v2_to_its_client() {
    let mut relay = Translator::relay(V1, V2);
    let mut said = |by: Side, line: &str| -> Vec<String> {
        let lines = relay.line(by, line).unwrap().lines;
        lines.into_iter().map(|line| format!("{:?}: {}", line.by, line.text)).collect()
    };
    let prompt = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"Hi"}]}}"#;
    assert_eq!(
        said(Side::Client, prompt),
        [
            format!("Client: {prompt}").as_str(),
            r#"Agent: {"jsonrpc":"2.0","id":1,"result":{"messageId":"parlor-1"}}"#,
            r#"Agent: {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"user_message","messageId":"parlor-1","content":[{"type":"text","text":"Hi"}]}}}"#,
            r#"Agent: {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}"#,
        ]
    );
    assert_eq!(
        said(Side::Agent, r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}"#),
        [
            r#"Agent: {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}}}"#
        ]
    );
}

#[test]
fn every_bad_field_of_an_update_is_named() {
    let update = json!({ "sessionUpdate": "session_info_update", "title": 1, "updatedAt": 2, "_meta": 3 });
    let line = notification(&update);
    let named = "session_info_update: `title` must be a string, this is a number; \
                 session_info_update: `updatedAt` must be a string, this is a number; \
                 session_info_update: `_meta` must be an object, this is a number; the rest was taken";
    for (from, to) in [(V1, V2), (V2, V1), (Draft, V1)] {
        let translation = Translator::one_sided(from, to);
        let mut translator = translation;
        let problems = translator.line(Side::Agent, &line).unwrap().problems;
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [named]);
        assert_eq!(Fold::new(from).line(&line).unwrap_err().to_string(), named);
    }
    // A later message of a batch does not hide what was wrong with an earlier one.
    let good = notification(&json!({ "sessionUpdate": "session_info_update", "title": "T" }));
    let batch = format!("[{line},{good},{line}]");
    let problems = Translator::one_sided(V2, V1).line(Side::Agent, &batch).unwrap().problems;
    assert_eq!(problems.len(), 2);
}

#[test]
fn a_message_without_content_that_v1_does_not_know_is_a_loss() {
    for from in [V2, Draft] {
        for kind in ["user_message", "agent_message", "agent_thought"] {
            for fields in
                [json!({}), json!({ "content": [] }), json!({ "content": null }), json!({ "_meta": null })]
            {
                let mut update = json!({ "sessionUpdate": kind, "messageId": "m" });
                update.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                let mut translator = Translator::one_sided(from, V1);
                let line = notification(&update);
                let translation = translator.line(Side::Agent, &line).unwrap();
                let losses: Vec<_> = translation.losses.iter().map(|loss| loss.kind).collect();
                assert_eq!(losses, [LossKind::MessageEmpty], "{update}");
                assert_eq!(translation.losses[0].message_id, Some("m".into()));
                // Once v1 knows the message, each of them has a meaning of its own.
                let content = json!([{ "type": "text", "text": "A" }]);
                let said =
                    notification(&json!({ "sessionUpdate": kind, "messageId": "m", "content": content }));
                assert!(translator.line(Side::Agent, &said).unwrap().losses.is_empty());
                let losses = translator.line(Side::Agent, &line).unwrap().losses;
                assert!(losses.iter().all(|loss| loss.kind != LossKind::MessageEmpty), "{update}");
            }
        }
    }
}

#[test]
fn an_id_of_the_agents_own_that_was_generated_before_is_another_message() {
    let chunk = |id: Option<&str>, text: &str| {
        let mut chunk =
            json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        if let Some(id) = id {
            chunk["messageId"] = json!(id);
        }
        notification(&chunk)
    };
    let lines =
        [chunk(None, "A"), chunk(Some("parlor-1"), "B"), chunk(None, "C"), chunk(Some("parlor-1"), "D")];
    let texts = |view: Value| -> Vec<String> {
        let text = |message: &Value| {
            let blocks = message["content"].as_array().unwrap().iter();
            blocks.map(|block| block["text"].as_str().unwrap()).collect()
        };
        view["messages"].as_array().unwrap().iter().map(text).collect()
    };
    let folded = |dialect: Dialect, lines: &[String]| {
        let mut fold = Fold::new(dialect);
        lines.iter().for_each(|line| fold.line(line).unwrap());
        serde_json::from_str(view::transcript(fold.transcript()).as_str()).unwrap()
    };
    assert_eq!(texts(folded(V1, &lines)), ["A", "BD", "C"]);
    for to in [V2, Draft] {
        let (said, _) = one_sided(V1, to, &lines);
        assert_eq!(texts(folded(to, &said)), ["A", "BD", "C"]);
    }
    // An id that the agent had first stays as it is.
    let lines = [chunk(Some("parlor-1"), "A"), chunk(None, "B"), chunk(Some("parlor-1"), "C")];
    let view: Value = folded(V1, &lines);
    assert_eq!(view["messages"][0]["messageId"], "parlor-1");
    assert_eq!(texts(view), ["AC", "B"]);
}

#[test]
fn an_id_of_the_agents_own_that_a_prompt_got_before_is_another_message() {
    let mut relay = Translator::relay(V1, V2);
    let prompt = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "Hi" }] });
    let prompt =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": prompt }).to_string();
    relay.line(Side::Client, &prompt).unwrap();
    let chunk = json!({ "sessionUpdate": "user_message_chunk", "messageId": "parlor-1", "content": { "type": "text", "text": "Other" } });
    let said = relay.line(Side::Agent, &notification(&chunk)).unwrap().lines[0].text.clone().into_owned();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["params"]["update"]["messageId"], "parlor-2");
    // The client's id is replaced by the agent's.
    let params = json!({ "sessionId": "s", "messageId": "parlor-2", "cwd": "/", "mcpServers": [] });
    let fork = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/fork", "params": params }).to_string();
    let said: Value = serde_json::from_str(&relay.line(Side::Client, &fork).unwrap().lines[0].text).unwrap();
    assert_eq!(said["params"]["messageId"], "parlor-1");
}

#[test]
fn a_prompt_of_which_nothing_is_left_for_v1_is_refused() {
    for from in [V2, Draft] {
        let prompt = |blocks: Value| {
            let params = json!({ "sessionId": "s", "prompt": blocks });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": params }).to_string()
        };
        let empty = prompt(json!([{ "type": "_hologram" }]));
        let mut relay = Translator::relay(V1, from);
        let said = relay.line(Side::Client, &empty).unwrap();
        assert_eq!(said.losses[0].kind, LossKind::ContentBlockType);
        assert_eq!(said.lines.len(), 1);
        assert!(said.lines[0].by == Side::Agent && said.lines[0].text.contains("-32602"));
        let some = prompt(json!([{ "type": "_hologram" }, { "type": "text", "text": "Hi" }]));
        assert_eq!(relay.line(Side::Client, &some).unwrap().lines[0].by, Side::Client);
    }
}
