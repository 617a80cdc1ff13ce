//! Updates, requests and responses of a server for each dialect.

use std::fmt::Write as _;

use agent_client_protocol_schema::{v1, v2};
use expect_test::{Expect, expect};
use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_dialect::live::{self, EncodeContext, UpdateEncoder};
use parlor_dialect::{Decoder, Losses};
use parlor_json::{Json, JsonStr, Object};
use parlor_session::{
    Activity, EntryId, IdSource, MessageId, Patch, Role, Slot, State, Target, Transcript, Update, Upsert,
};
use parlor_wire::{Outcome, RpcError};
use serde_json::Value;

fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// A session with an agent and one client.
struct ClientOfSession {
    agent: Dialect,
    decoder: Decoder,
    transcript: Transcript,
    client: Dialect,
    encoder: UpdateEncoder,
    minted: u32,
}

impl ClientOfSession {
    fn between(agent: Dialect, client: Dialect) -> Self {
        Self {
            agent,
            decoder: Decoder::new(agent),
            transcript: Transcript::default(),
            client,
            encoder: UpdateEncoder::new(client, &object("{}")),
            minted: 0,
        }
    }

    /// The encoded updates and the losses for an update of the agent.
    fn on_agent_update(&mut self, update: &str) -> String {
        let raw = json(update);
        let mut new_id = || MessageId::from("made");
        let decoded = self.decoder.decode(raw.raw(), &mut new_id).unwrap();
        self.on_update(decoded.update, decoded.id_source)
    }

    fn on_update(&mut self, update: Update, id_source: IdSource) -> String {
        let meta_before = match &update {
            Update::Upsert { target: Target::Slot(slot), .. } => {
                self.transcript.slot(*slot).and_then(|body| body.meta.clone())
            }
            Update::Upsert { target: Target::Entry(entry), .. } => {
                self.transcript.get(entry).and_then(|entry| entry.body().meta.clone())
            }
            Update::Append { .. }
            | Update::Output { .. }
            | Update::Remove { .. }
            | Update::Note { .. }
            | Update::State(_) => None,
        };
        let change = self.transcript.push(update).unwrap();
        self.decoder.on_applied(&change, id_source);
        let encode_context = EncodeContext {
            from: self.agent,
            transcript: &self.transcript,
            meta_before: meta_before.as_ref(),
        };
        let mut losses = Losses::default();
        let minted = &mut self.minted;
        let mut new_id = || {
            *minted += 1;
            MessageId::from(format!("alias{minted}").as_str())
        };
        let mut results = self.encoder.encode(&change.update, encode_context, &mut new_id, &mut losses);
        for update in &results {
            self.check(update);
        }
        results.extend(losses.as_slice().iter().map(|loss| format!("lost: {}", loss.kind.name())));
        results.join("\n")
    }

    /// Checks an encoded update against the schema crate.
    fn check(&self, update: &str) {
        let line = live::update_line(&"s".into(), update, Some(7));
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["params"]["_meta"]["parlor/seq"], 7);
        let params = line["params"].to_string();
        match self.client {
            V1 => drop(serde_json::from_str::<v1::SessionNotification>(&params).unwrap()),
            V2 | Draft => drop(serde_json::from_str::<v2::UpdateSessionNotification>(&params).unwrap()),
        }
    }
}

#[track_caller]
fn check_encoding(agent: Dialect, client: Dialect, updates: &[&str], expected: &Expect) {
    let mut client = ClientOfSession::between(agent, client);
    let results: Vec<_> = updates.iter().map(|update| client.on_agent_update(update)).collect();
    expected.assert_eq(&results.join("\n"));
}

const REPLACED: [&str; 5] = [
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"one"}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"two"}]}"#,
    r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"three"}}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"text","text":"twothree"}]}"#,
    r#"{"sessionUpdate":"agent_message","messageId":"m","content":null}"#,
];

#[test]
fn a_v1_client_is_sent_a_replacement_under_an_alias() {
    check_encoding(
        V2,
        V1,
        &REPLACED,
        &expect![[r#"
        {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"one"}}
        {"sessionUpdate":"agent_message_chunk","messageId":"alias1","content":{"type":"text","text":"two"},"_meta":{"parlor/replaces":"m"}}
        lost: message_replaced
        {"sessionUpdate":"agent_message_chunk","messageId":"alias1","content":{"type":"text","text":"three"}}

        {"sessionUpdate":"agent_message_chunk","messageId":"alias2","content":{"type":"text","text":""},"_meta":{"parlor/replaces":"m"}}
        lost: message_cleared"#]],
    );
}

#[test]
fn a_message_that_is_replaced_by_content_that_v1_lacks_is_cleared_in_v1() {
    let replaced = [
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"secret"}}"#,
        r#"{"sessionUpdate":"agent_message","messageId":"m","content":[{"type":"hologram"}]}"#,
        r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"more"}}"#,
    ];
    check_encoding(
        V2,
        V1,
        &replaced,
        &expect![[r#"
            {"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"secret"}}
            {"sessionUpdate":"agent_message_chunk","messageId":"alias1","content":{"type":"text","text":""},"_meta":{"parlor/replaces":"m"}}
            lost: message_replaced
            lost: content_block_type
            {"sessionUpdate":"agent_message_chunk","messageId":"alias1","content":{"type":"text","text":"more"}}"#]],
    );
}

#[test]
fn a_v2_client_is_sent_a_replacement_unchanged() {
    for client in [V2, Draft] {
        let mut client = ClientOfSession::between(V2, client);
        for update in REPLACED {
            assert_eq!(client.on_agent_update(update), update);
        }
    }
}

#[test]
fn states_are_encoded_for_the_client() {
    let states = [
        r#"{"sessionUpdate":"state_update","state":"running"}"#,
        r#"{"sessionUpdate":"state_update","state":"requires_action"}"#,
        r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#,
    ];
    check_encoding(
        V2,
        V1,
        &states,
        &expect![[r#"
        {"sessionUpdate":"session_info_update","_meta":{"parlor/state":"running"}}
        {"sessionUpdate":"session_info_update","_meta":{"parlor/state":"requires_action"}}
        {"sessionUpdate":"session_info_update","_meta":{"parlor/state":"idle"}}"#]],
    );
    check_encoding(
        V2,
        V2,
        &states,
        &expect![[r#"
        {"sessionUpdate":"state_update","state":"running"}
        {"sessionUpdate":"state_update","state":"requires_action"}
        {"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#]],
    );
    check_encoding(
        V2,
        Draft,
        &states,
        &expect![[r#"
        {"sessionUpdate":"state_change","state":"running"}
        {"sessionUpdate":"state_change","state":"requires_action"}
        {"sessionUpdate":"state_change","state":"idle","stop_reason":"end_turn"}"#]],
    );
}

#[test]
fn a_v1_client_is_not_sent_its_own_prompt() {
    for (client, results) in [(V1, ""), (V2, "user_message")] {
        let mut client = ClientOfSession::between(V1, client);
        let content = json(r#"[{"type":"text","text":"hi"}]"#);
        client.encoder.sent(&"u".into(), &content);
        let prompt = |id: &str| Update::Upsert {
            target: Target::Entry(EntryId::Message(Role::User, id.into())),
            upsert: Upsert {
                content: Patch::Value(parlor_session::Content::parse(content.raw()).unwrap()),
                ..Upsert::default()
            },
        };
        let own = client.on_update(prompt("u"), IdSource::Given);
        assert!(if results.is_empty() { own.is_empty() } else { own.contains(results) }, "{own}");
        // It is sent the prompts of others.
        let others = client.on_update(prompt("v"), IdSource::Given);
        assert!(others.contains("user_message") && others.contains("\"v\""), "{others}");
        // A client that loads the session is sent all of it.
        client.encoder.reset();
        let again = client.on_update(prompt("u"), IdSource::Given);
        assert!(again.contains("user_message") && again.contains("\"u\""), "{again}");
    }
}

#[test]
fn updates_of_v1_agents_are_encoded_for_every_dialect() {
    let updates = [
        r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#,
        r#"{"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","status":"pending"}"#,
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}"#,
        r#"{"sessionUpdate":"session_info_update","title":"Work"}"#,
    ];
    check_encoding(
        V1,
        V1,
        &updates,
        &expect![[r#"
        {"sessionUpdate":"agent_thought_chunk","messageId":"made","content":{"type":"text","text":"hm"}}
        {"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","status":"pending"}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}
        {"sessionUpdate":"session_info_update","title":"Work"}"#]],
    );
    check_encoding(
        V1,
        V2,
        &updates,
        &expect![[r#"
        {"sessionUpdate":"agent_thought_chunk","messageId":"made","content":{"type":"text","text":"hm"}}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","title":"Run","status":"pending"}
        {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}
        {"sessionUpdate":"session_info_update","title":"Work"}"#]],
    );
}

#[test]
fn settings_of_a_response_are_stored_and_encoded_for_clients() {
    let response = object(
        r#"{"sessionId":"s","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]},
            "configOptions":[{"id":"model","name":"Model","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]}]}"#,
    );
    let mut transcript = Transcript::default();
    for update in live::updates_from_response(&response) {
        transcript.push(update).unwrap();
    }
    let fields = |dialect: Dialect, transcript: &Transcript| {
        let mut losses = Losses::default();
        let mut fields = UpdateEncoder::new(dialect, &object("{}")).session_fields(transcript, &mut losses);
        assert_eq!(losses.as_slice(), []);
        fields.set("sessionId", json(r#""s""#));
        fields.to_json().as_str().to_owned()
    };
    let said = fields(V1, &transcript);
    serde_json::from_str::<v1::NewSessionResponse>(&said).unwrap();
    assert!(said.contains(r#""currentModeId":"ask""#) && said.contains(r#""id":"model""#), "{said}");
    let said = fields(V2, &transcript);
    serde_json::from_str::<v2::NewSessionResponse>(&said).unwrap();
    assert!(said.contains(r#""category":"mode""#) && !said.contains("currentModeId"), "{said}");
    assert_eq!(said, fields(Draft, &transcript));
    // A v1 agent does not report a mode that a client has set.
    transcript
        .push(
            parlor_dialect::settings::chosen_by("session/set_mode", &object(r#"{"modeId":"code"}"#)).unwrap(),
        )
        .unwrap();
    assert!(fields(V1, &transcript).contains(r#""currentModeId":"code""#));
    assert!(fields(V2, &transcript).contains(r#""currentValue":"code""#));
}

#[test]
fn a_response_without_settings_has_no_updates() {
    for nothing in ["{}", r#"{"modes":null,"configOptions":null,"availableCommands":7}"#] {
        assert_eq!(live::updates_from_response(&object(nothing)), []);
    }
    let mut losses = Losses::default();
    let fields = UpdateEncoder::new(V1, &object("{}")).session_fields(&Transcript::default(), &mut losses);
    assert_eq!(fields, Object::default());
    let [Update::Upsert { target, .. }] =
        &live::updates_from_response(&object(r#"{"availableCommands":[]}"#))[..]
    else {
        panic!("one update")
    };
    assert_eq!(*target, Target::Slot(Slot::Commands));
}

#[test]
fn an_error_ends_a_turn_and_is_unchanged_in_the_result() {
    for error in [
        RpcError::new(-32603, "the agent is gone"),
        RpcError::new(-32000, "log in").with_data(json(r#"{"why":[1,null]}"#)),
    ] {
        let state = live::failed_state(&error);
        assert_eq!(
            (&state.activity, state.stop_reason.as_ref().map(JsonStr::inner)),
            (&Activity::Idle, Some("error"))
        );
        let mut losses = Losses::default();
        let said = live::turn_result(&state, &Object::default(), V1, &mut losses).unwrap_err();
        assert_eq!((said.code(), said.message(), said.data()), (error.code(), error.message(), error.data()));
        assert_eq!(losses.as_slice(), []);
        // A v2 client parses the state.
        ClientOfSession::between(V1, V2).on_update(Update::State(state), IdSource::Given);
    }
}

#[test]
fn the_response_to_a_prompt_converts_to_its_state_and_back() {
    let result = json(r#"{"stopReason":"max_tokens","more":1,"_meta":{"k":1}}"#);
    let state = live::state_after(Outcome::Result(result.raw()));
    let mut losses = Losses::default();
    let accepted = object(r#"{"messageId":"u","also":2}"#);
    let said = live::turn_result(&state, &accepted, V1, &mut losses).unwrap();
    let said = said.to_json();
    serde_json::from_str::<v1::PromptResponse>(said.as_str()).unwrap();
    let said: Value = serde_json::from_str(said.as_str()).unwrap();
    assert_eq!(
        said,
        serde_json::json!({ "stopReason": "max_tokens", "more": 1, "_meta": { "k": 1 }, "also": 2 })
    );
    // Members of another version do not go to the root of a v1 result.
    for agent in [V2, Draft] {
        let said = live::turn_result(&state, &accepted, agent, &mut losses).unwrap();
        let said: Value = serde_json::from_str(said.to_json().as_str()).unwrap();
        let meta = serde_json::json!({ "k": 1, "parlor/turn": { "more": 1, "also": 2 } });
        assert_eq!(said, serde_json::json!({ "stopReason": "max_tokens", "_meta": meta }));
    }
    // v1 does not know the reason.
    let odd = State { stop_reason: Some("tired".into()), ..state };
    let said = live::turn_result(&odd, &Object::default(), V1, &mut losses).unwrap();
    assert_eq!(said.get("stopReason").unwrap().as_str(), r#""end_turn""#);
    assert_eq!(losses.as_slice()[0].kind.name(), "stop_reason");
}

#[test]
fn only_an_answer_of_version_2_is_one() {
    for (result, speaks) in [
        (r#"{"protocolVersion":2,"info":{"name":"a","version":"1"}}"#, true),
        (r#"{"protocolVersion":2,"agentInfo":{"name":"a"},"agentCapabilities":{}}"#, false),
        (r#"{"protocolVersion":2,"info":null}"#, false),
        (r#"{"protocolVersion":1,"info":{"name":"a","version":"1"}}"#, false),
        (r#"{"info":{"name":"a","version":"1"}}"#, false),
    ] {
        assert_eq!(live::speaks_v2(&object(result)), speaks, "{result}");
    }
}

/// A converted request of a client.
fn request(method: &str, params: &str, from: Dialect, to: Dialect, transcript: &Transcript) -> String {
    let mut losses = Losses::default();
    let asked = live::request_to_agent(method, &object(params), from, to, Some(transcript), &mut losses);
    let mut said = match asked {
        Ok((method, params)) => format!("{method} {}", params.to_json().as_str()),
        Err(loss) => format!("cannot be said: {}", loss.name()),
    };
    for loss in losses.as_slice() {
        let _ = write!(said, "\nlost: {}", loss.kind.name());
    }
    said
}

#[test]
fn requests_for_modes_are_converted_for_the_agent() {
    let set_mode = r#"{"sessionId":"s","modeId":"code"}"#;
    let set_option = r#"{"sessionId":"s","configId":"mode","type":"id","value":"code"}"#;
    let mut modes = Transcript::default();
    for update in
        live::updates_from_response(&object(r#"{"modes":{"currentModeId":"ask","availableModes":[]}}"#))
    {
        modes.push(update).unwrap();
    }
    let mut option = Transcript::default();
    let options = r#"{"configOptions":[{"configId":"how","name":"How","category":"mode","type":"select","currentValue":"ask","options":[]}]}"#;
    for update in live::updates_from_response(&object(options)) {
        option.push(update).unwrap();
    }
    let results = [
        request("session/set_mode", set_mode, V1, V1, &modes),
        request("session/set_mode", set_mode, V1, V2, &modes),
        request("session/set_mode", set_mode, V1, Draft, &option),
        request("session/set_config_option", set_option, V2, V1, &modes),
        request("session/set_config_option", set_option, Draft, V1, &option),
        request("session/set_config_option", set_option, V2, Draft, &option),
    ];
    expect![[r#"
        session/set_mode {"sessionId":"s","modeId":"code"}
        session/set_config_option {"sessionId":"s","value":"code","configId":"mode","type":"id"}
        session/set_config_option {"sessionId":"s","value":"code","configId":"how","type":"id"}
        session/set_mode {"sessionId":"s","modeId":"code"}
        session/set_config_option {"sessionId":"s","configId":"mode","value":"code"}
        session/set_config_option {"sessionId":"s","configId":"mode","type":"id","value":"code"}"#]]
    .assert_eq(&results.join("\n"));
}

#[test]
fn requests_for_sessions_are_converted_for_the_agent() {
    let nothing = Transcript::default();
    let results = [
        request("session/new", r#"{"cwd":"/w","mcpServers":[]}"#, V1, V2, &nothing),
        request(
            "session/new",
            r#"{"cwd":"/w","mcpServers":[{"name":"a","command":"b","args":[],"env":[]}]}"#,
            V1,
            V2,
            &nothing,
        ),
        request("session/new", r#"{"cwd":"/w"}"#, V2, V1, &nothing),
        request("session/new", r#"{"cwd":"/w"}"#, V2, Draft, &nothing),
        request("session/load", r#"{"sessionId":"s","cwd":"/w","mcpServers":[]}"#, V1, V2, &nothing),
        request("tool_call/cancel", r#"{"sessionId":"s"}"#, V2, V1, &nothing),
        request("_own", r#"{"a":1.0}"#, V2, V1, &nothing),
    ];
    expect![[r#"
        session/new {"cwd":"/w","mcpServers":[]}
        session/new {"cwd":"/w","mcpServers":[{"type":"stdio","name":"a","command":"b","args":[],"env":[]}]}
        session/new {"cwd":"/w","mcpServers":[]}
        session/new {"cwd":"/w"}
        session/resume {"sessionId":"s","cwd":"/w","mcpServers":[],"replayFrom":{"type":"start"}}
        cannot be said: method
        lost: method
        _own {"a":1.0}"#]]
    .assert_eq(&results.join("\n"));
}

#[test]
fn a_session_reports_its_activity() {
    let mut transcript = Transcript::default();
    assert!(live::is_idle(&transcript));
    assert_eq!(live::state_name(&transcript).inner(), "idle");
    let activity = Activity::RequiresAction;
    let state = State { activity, stop_reason: None, fields: Object::default(), meta: None };
    transcript.push(Update::State(state)).unwrap();
    assert!(!live::is_idle(&transcript));
    assert_eq!(live::state_name(&transcript).inner(), "requires_action");
}

#[test]
fn a_final_status_ends_a_tool_call() {
    for (status, is_over) in [
        (r#"{"status":"pending"}"#, false),
        (r#"{"status":"in_progress"}"#, false),
        ("{}", false),
        (r#"{"status":"completed"}"#, true),
        (r#"{"status":"failed"}"#, true),
        (r#"{"status":"cancelled"}"#, true),
    ] {
        let mut transcript = Transcript::default();
        let entry = EntryId::ToolCall("t".into());
        let upsert = Upsert { fields: object(status), ..Upsert::default() };
        transcript.push(Update::Upsert { target: Target::Entry(entry.clone()), upsert }).unwrap();
        let body = transcript.get(&entry).unwrap().body();
        assert_eq!((live::HOOKS.is_final)(body), is_over, "{status}");
        let failed = (live::HOOKS.mark_failed)(body);
        assert_eq!(failed.is_none(), is_over, "{status}");
        if let Some(upsert) = failed {
            transcript.push(Update::Upsert { target: Target::Entry(entry.clone()), upsert }).unwrap();
            assert!((live::HOOKS.is_final)(transcript.get(&entry).unwrap().body()));
        }
    }
}

#[test]
fn a_chunk_like_the_last_one_is_read_as_if_it_were_the_first() {
    let line = |id: &str, content: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{content}{more}}}}}}}"#
        )
    };
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    for dialect in [V1, V2, Draft] {
        let decoder = Decoder::new(dialect);
        let mut new_id = || panic!("the chunks have ids");
        let mut decode = |line: &str| {
            let read = live::AgentUpdate::read(line)?;
            let spans = read.spans(line)?;
            Some((read.decode(&decoder, &mut new_id).ok()?, spans))
        };
        for more in ["", r#","_meta":{"a":1}"#] {
            let first = line("m", &text("one"), more);
            let (decoded, spans) = decode(&first).unwrap();
            let stream =
                live::ChunkTemplate::after(&first, &spans, &live::ParamsExtra::default(), &decoded).unwrap();
            for content in [text("two"), text(r#"\",\"x"#), r#"{"text":"two","type":"text"}"#.to_owned()] {
                let next = line("m", &content, more);
                let (decoded, spans) = decode(&next).unwrap();
                assert_eq!(stream.read(&next), Some(decoded), "{next}");
                let (mut passed, mut expected) = (String::new(), String::new());
                let (session, message) = ("session".into(), "message".into());
                stream.spans().pass(&next, &session, Some(&message), &mut passed);
                spans.pass(&next, &session, Some(&message), &mut expected);
                assert_eq!(passed, expected);
            }
            let others = [
                line("n", &text("two"), more),
                line("m", "7", more),
                // A block that is not plain text is decoded in full.
                line("m", r#"{"type":"image","data":"","mimeType":"image/png"}"#, more),
                line("m", r#"{"type":"text"}"#, more),
                line("m", " {} ", more),
                line("m", r#"{"type":"text","text":"two}"#, more),
                line("m", r#"{},"content":{}"#, more),
                line("m", &text("two"), r#","_meta":{"a":2}"#),
            ];
            for other in others {
                assert_eq!(stream.read(&other), None, "{other}");
            }
        }
    }
}
