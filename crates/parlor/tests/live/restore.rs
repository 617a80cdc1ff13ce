//! Agent sessions that are restored, created again or forked by agents that behave as real ones do: options are
//! restored, nothing is sent twice, and every loss is reported.

use std::fs;

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::start_server;

/// Agents that restore sessions with their default mode and model.
const FORGETFUL: &str = r#"
[agents.resumes-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/a", "--offers", "resume,close", "--quirks", "forgets-settings"]
[agents.loads-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/b", "--offers", "load,close", "--quirks", "forgets-settings,silent-settings"]
[agents.resumes-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/c", "--quirks", "forgets-settings"]
[agents.silent-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/d", "--quirks", "forgets-settings,silent-settings"]
[agents.mode-option]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/e", "--offers", "resume,close", "--quirks", "forgets-settings,mode-option"]
[agents.models]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/f", "--offers", "resume,close", "--quirks", "forgets-settings,models"]
[agents.begins-again]
command = ["TEST_AGENT", "--version", "1", "--offers", "none"]
[agents.forks-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/g", "--offers", "resume,fork", "--quirks", "forgets-settings"]
[agents.forks-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/h", "--offers", "fork", "--quirks", "forgets-settings,silent-settings"]
[agents.refuses-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/i", "--offers", "resume", "--quirks", "forgets-settings,refuses-settings"]
[agents.refuses-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/j", "--quirks", "forgets-settings,refuses-settings"]
[agents.refuses-silently]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/k", "--offers", "resume", "--quirks", "forgets-settings,refuses-settings,silent-settings"]
"#;

fn set_mode(client: &mut Client, session: &str, mode: &str) -> Value {
    let set = if client.dialect == Dialect::V1 {
        client.call("session/set_mode", json!({ "sessionId": session, "modeId": mode }))
    } else {
        set_option(client, session, "mode", mode)
    };
    set.unwrap()
}

fn set_option(client: &mut Client, session: &str, option: &str, value: &str) -> Result<Value, Value> {
    let mut params = json!({ "sessionId": session, "configId": option, "value": value });
    if client.dialect != Dialect::V1 {
        params["type"] = json!("id");
    }
    client.call("session/set_config_option", params)
}

/// The description of the session by its agent, in a turn.
fn whoami(client: &mut Client, session: &str) -> String {
    let mark = client.mark();
    assert_eq!(client.turn(session, "whoami"), "end_turn");
    let text: String = client
        .updates(session, mark)
        .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str())
        .collect();
    assert!(text.contains("protocol"), "{text}");
    text
}

/// The modes in a response or an update.
fn mode_in(text: &Value) -> Vec<Value> {
    let options = text["configOptions"].as_array().cloned().unwrap_or_default();
    let mut modes: Vec<_> = options
        .into_iter()
        .filter(|option| option["category"] == "mode")
        .map(|option| option["currentValue"].clone())
        .collect();
    modes.extend(text["modes"].get("currentModeId").cloned());
    modes.extend(text.get("currentModeId").cloned());
    modes
}

#[test]
fn options_are_restored_before_the_first_prompt() {
    for agent in
        ["resumes-v1", "loads-v1", "resumes-v2", "silent-v2", "mode-option", "models", "begins-again"]
    {
        let mut server = start_server(FORGETFUL);
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            if agent == "models" && dialect == Dialect::V1 {
                client
                    .call("session/set_model", json!({ "sessionId": session, "modelId": "large" }))
                    .unwrap();
            } else {
                set_option(&mut client, &session, "model", "large").unwrap();
            }
            let chosen = "mode code, model large";
            assert!(whoami(&mut client, &session).contains(chosen), "{agent} {dialect}");
            // The agent exits, the session is evicted, the server is restarted.
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let text = whoami(&mut client, &session);
            assert!(text.contains(chosen), "{agent} {dialect} after its end: {text}");
            client.call("session/close", json!({ "sessionId": session })).unwrap();
            client.load(&session);
            let text = whoami(&mut client, &session);
            assert!(text.contains(chosen), "{agent} {dialect} after it was closed: {text}");
            server.restart();
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let joined = client.load(&session);
            assert!(mode_in(&joined).iter().all(|mode| mode == "code"), "{joined}");
            let text = whoami(&mut client, &session);
            assert!(text.contains(chosen), "{agent} {dialect} after a restart: {text}");
            // A change by the agent is restored as well.
            client.turn(&session, "mode ask");
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let text = whoami(&mut client, &session);
            assert!(text.contains("mode ask, model large"), "{agent} {dialect} after its own choice: {text}");
        }
    }
}

#[test]
fn options_are_restored_in_a_native_fork() {
    let server = start_server(FORGETFUL);
    for agent in ["forks-v1", "forks-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            client.turn(&session, "say One.");
            let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
            let forked = client.call("session/fork", params).unwrap();
            assert_eq!(forked["_meta"]["parlor/fork"], "native", "{forked}");
            assert!(mode_in(&forked).iter().all(|mode| mode == "code"), "{forked}");
            let text = whoami(&mut client, forked["sessionId"].as_str().unwrap());
            assert!(text.contains("mode code"), "{agent} {dialect}: {text}");
        }
    }
}

#[test]
fn a_prompt_is_not_sent_while_the_mode_is_not_restored() {
    let server = start_server(FORGETFUL);
    for agent in ["refuses-v1", "refuses-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            let mut others = Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent));
            let marks = others.each_mut().map(|other| {
                other.load(&session);
                other.mark()
            });
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let prompt = client.prompt(&session, "say Never.");
            let error = client.response(prompt).unwrap_err();
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("'code'") && message.contains("the mode in force is 'ask'"), "{error}");
            assert_eq!(error["data"]["mode"], "ask");
            for (other, mark) in others.iter_mut().zip(marks) {
                other.wait_for_update(&session, mark, "the mode in force", |update| {
                    mode_in(update).iter().any(|mode| mode == "ask")
                });
            }
            // It is not enough that the mode is known: a client has to set one.
            client.call("session/close", json!({ "sessionId": session })).unwrap();
            others.iter_mut().for_each(|other| {
                other.call("session/close", json!({ "sessionId": session })).unwrap();
            });
            client.load(&session);
            for _ in 0..2 {
                let prompt = client.prompt(&session, "say Never.");
                let error = client.response(prompt).unwrap_err();
                assert!(error["message"].as_str().unwrap().contains("set the mode to go on"), "{error}");
            }
            set_option(&mut client, &session, "model", "small").unwrap();
            let prompt = client.prompt(&session, "say Never.");
            assert_eq!(client.response(prompt).unwrap_err()["data"]["mode"], "ask");
            assert!(!server.stored_transcript(&session).iter().any(|line| line.contains("Never.")));
            set_mode(&mut client, &session, "ask");
            let text = whoami(&mut client, &session);
            assert!(text.contains("mode ask"), "{agent} {dialect}: {text}");
        }
    }
}

/// Agents whose quirks are in a file, so that they can be updated.
const UPDATED: &str = r#"
[agents.updated-v1]
command = ["sh", "-c", "exec TEST_AGENT --version 1 --state TEST_DIR/s1 --offers resume --quirks $(cat TEST_DIR/quirks)"]
[agents.updated-mode-option]
command = ["sh", "-c", "exec TEST_AGENT --version 1 --state TEST_DIR/s4 --offers resume --quirks mode-option,$(cat TEST_DIR/quirks)"]
[agents.updated-v2]
command = ["sh", "-c", "exec TEST_AGENT --version 2 --state TEST_DIR/s2 --quirks $(cat TEST_DIR/quirks)"]
[agents.switched]
command = ["sh", "-c", "exec TEST_AGENT --version $(cat TEST_DIR/version) --state TEST_DIR/s3 --quirks $(cat TEST_DIR/quirks)"]
"#;

#[test]
fn a_mode_that_the_agent_no_longer_has_fails_one_prompt_and_not_the_session() {
    let server = start_server(UPDATED);
    let quirks = server.dir().path().join("quirks");
    for agent in ["updated-v1", "updated-mode-option", "updated-v2"] {
        for lacks in [
            "lacks-modes,forgets-settings",
            "lacks-modes,forgets-settings,silent-settings",
            "lacks-settings,forgets-settings",
            "lacks-settings,forgets-settings,silent-settings",
        ] {
            for dialect in Dialect::ALL {
                fs::write(&quirks, "none").unwrap();
                let mut client = server.client(TransportKind::Unix, dialect, agent);
                let session = client.new_session();
                set_mode(&mut client, &session, "code");
                let mut others =
                    Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent));
                let marks = others.each_mut().map(|other| {
                    other.load(&session);
                    other.mark()
                });
                fs::write(&quirks, lacks).unwrap();
                let crash = client.prompt(&session, "crash");
                let _ = client.response(crash);
                let prompt = client.prompt(&session, "say Never.");
                let error = client.response(prompt).unwrap_err();
                assert_eq!(error["data"]["reason"], "settings_refused", "{agent} {lacks} {dialect}: {error}");
                assert_eq!(error["data"]["refused"]["mode"], "code", "{error}");
                // The response of an agent with an option for its mode to another setting contains its modes as well.
                let is_silent = lacks.contains("silent-settings") && agent == "updated-v1";
                let is_shown = lacks.starts_with("lacks-modes") && !is_silent;
                assert_eq!(error["data"].get("mode"), is_shown.then_some(&json!("ask")), "{error}");
                for (other, mark) in others.iter_mut().zip(marks) {
                    // Version 1 cannot express a session without a mode.
                    if is_shown {
                        other.wait_for_update(&session, mark, "the mode in force", |update| {
                            mode_in(update).iter().any(|mode| mode == "ask")
                        });
                    } else if other.dialect != Dialect::V1 {
                        other.wait_for_update(&session, mark, "that there is no mode", |update| {
                            update["sessionUpdate"] == "config_option_update" && mode_in(update).is_empty()
                        });
                    }
                }
                assert!(!server.stored_transcript(&session).iter().any(|line| line.contains("Never.")));
                let text = whoami(&mut client, &session);
                assert!(text.contains("mode ask"), "{agent} {lacks} {dialect}: {text}");
                for dialect in Dialect::ALL {
                    let joined = server.client(TransportKind::Unix, dialect, agent).load(&session);
                    let modes = mode_in(&joined);
                    assert!(
                        modes.iter().all(|mode| mode == "ask") && modes.is_empty() != is_shown,
                        "{joined}"
                    );
                }
                // It is not set again, even if the agent has it.
                fs::write(&quirks, "forgets-settings").unwrap();
                let crash = client.prompt(&session, "crash");
                let _ = client.response(crash);
                let text = whoami(&mut client, &session);
                assert!(text.contains("mode ask"), "{agent} {lacks} {dialect}: {text}");
            }
        }
    }
}

#[test]
fn a_mode_that_the_agents_dialect_cannot_set_is_reported() {
    for now in ["lacks-settings", "lacks-settings,silent-settings", "forgets-settings,silent-settings"] {
        for dialect in Dialect::ALL {
            let mut server = start_server(UPDATED);
            let write = |server: &Server, name: &str, text: &str| {
                fs::write(server.dir().path().join(name), text).unwrap();
            };
            write(&server, "quirks", "none");
            write(&server, "version", "1");
            let mut client = server.client(TransportKind::Unix, dialect, "switched");
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            write(&server, "quirks", now);
            write(&server, "version", "2");
            server.restart();
            let mut client = server.client(TransportKind::Unix, dialect, "switched");
            client.load(&session);
            let mut other = server.client(TransportKind::Unix, Dialect::V2, "switched");
            other.load(&session);
            let mark = other.mark();
            if now.starts_with("forgets-settings") {
                // Its response to another setting contains the option for its mode.
                let text = whoami(&mut client, &session);
                assert!(text.contains("mode code"), "{dialect}: {text}");
                continue;
            }
            let prompt = client.prompt(&session, "say Never.");
            let error = client.response(prompt).unwrap_err();
            assert_eq!(error["data"]["reason"], "settings_refused", "{now} {dialect}: {error}");
            assert_eq!(error["data"]["refused"]["mode"], "code", "{error}");
            assert_eq!(error["data"].get("mode"), None, "{error}");
            other.wait_for_update(&session, mark, "that there is no mode", |update| {
                update["sessionUpdate"] == "config_option_update" && mode_in(update).is_empty()
            });
            assert!(!server.stored_transcript(&session).iter().any(|line| line.contains("Never.")));
            whoami(&mut client, &session);
            for dialect in Dialect::ALL {
                let joined = server.client(TransportKind::Unix, dialect, "switched").load(&session);
                assert_eq!(mode_in(&joined), [] as [Value; 0], "{now}: {joined}");
            }
        }
    }
}

/// An agent of version 1 that has only options, and sends them only in a new session. In a session that is resumed, it
/// does not accept the mode `code` for now, nor the model `large` (`busy`), or does not have that one (`gone`).
const SHY: &str = r#"
option() { echo '{"id":"'"$1"'","name":"N","category":"'"$1"'","type":"select","currentValue":"'"$2"'","options":[{"value":"'"$3"'","name":"A"},{"value":"'"$4"'","name":"B"}]}'; }
options() { echo '"configOptions":['"$(option model "$1" small large)"','"$(option mode "$2" ask code)"','"$(option depth "$3" low high)"']'; }
update() { echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":'"$session"',"update":'"$1"'}}'; }
model=small mode=ask sessions=
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    session=$(printf '%s' "$line" | sed 's/.*"sessionId":\("[^"]*"\).*/\1/')
    value=$(printf '%s' "$line" | sed 's/.*"value":"\([^"]*\)".*/\1/')
    case "$sessions" in *"$session"*) resumed=yes ;; *) resumed= ;; esac
    answer='"result":{}'
    case "$line" in
    *'"initialize"'*) answer='"result":{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}' ;;
    *'"session/new"'*) answer='"result":{"sessionId":"s-'"$$"'-'"$id"'",'"$(options small ask low)"'}' ;;
    *'"session/resume"'*) sessions=$sessions$session ;;
    *'"configId":"model"'*)
        case "$resumed$value$1" in
        yeslargegone) answer='"error":{"code":-32602,"message":"Invalid params"}' ;;
        yeslargebusy) answer='"error":{"code":-32603,"message":"busy"}' ;;
        *) model=$value ;;
        esac
        ;;
    *'"configId":"mode"'*)
        case "$resumed$value" in
        yescode) answer='"error":{"code":-32603,"message":"busy"}' ;;
        *) mode=$value ;;
        esac
        ;;
    *'"configId":"depth"'*)
        if [ "$value" = high ]; then
            model=large mode=code
            update '{"sessionUpdate":"config_option_update",'"$(options large code high)"'}'
        fi
        ;;
    *crash*) exit 1 ;;
    *'"session/prompt"'*)
        update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"protocol, mode '"$mode"', model '"$model"'"}}'
        answer='"result":{"stopReason":"end_turn"}'
        ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"','"$answer"'}'
done
"#;

#[test]
fn a_rejected_option_is_restored_only_by_an_update_of_the_agent() {
    let server = start_server(
        "[agents.gone]\ncommand = [\"sh\", \"TEST_DIR/shy.sh\", \"gone\"]\nversion = 1\n\
         [agents.busy]\ncommand = [\"sh\", \"TEST_DIR/shy.sh\", \"busy\"]\nversion = 1\n",
    );
    fs::write(server.dir().path().join("shy.sh"), SHY).unwrap();
    for agent in ["gone", "busy"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            for (option, value) in [("model", "large"), ("mode", "code")] {
                set_option(&mut client, &session, option, value).unwrap();
            }
            assert!(whoami(&mut client, &session).contains("mode code, model large"));
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let refused = |client: &mut Client| {
                let prompt = client.prompt(&session, "say Never.");
                let error = client.response(prompt).expect_err(agent);
                assert_eq!(error["data"]["refused"], json!({ "model": "large", "mode": "code" }), "{error}");
                assert_eq!(error["data"].get("mode"), None, "{agent} {dialect}: {error}");
                assert!(error["message"].as_str().unwrap().contains("set the mo"), "{error}");
            };
            refused(&mut client);
            // The session has all options again: the agent has not reported the mode.
            set_option(&mut client, &session, "depth", "low").unwrap();
            refused(&mut client);
            refused(&mut client);
            // Nor when the session is opened again, which the agent has not closed.
            client.call("session/close", json!({ "sessionId": session })).unwrap();
            client.load(&session);
            set_option(&mut client, &session, "depth", "low").unwrap();
            let prompt = client.prompt(&session, "say Never.");
            let error = client.response(prompt).expect_err(agent);
            assert_eq!(error["data"]["refused"]["mode"], "code", "{agent} {dialect}: {error}");
            assert_eq!(error["data"].get("mode"), None, "{agent} {dialect}: {error}");
            if agent == "gone" {
                set_option(&mut client, &session, "mode", "ask").unwrap();
                assert!(whoami(&mut client, &session).contains("mode ask, model small"));
            } else {
                // One update has both.
                set_option(&mut client, &session, "depth", "high").unwrap();
                assert!(whoami(&mut client, &session).contains("mode code, model large"));
            }
        }
    }
}

/// An agent of version 1 that also replays earlier modes when a session is loaded or resumed, and does not send the current
/// mode, which is its default.
const MODES_OF_THE_PAST: &str = r#"
update() { echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":'"$session"',"update":'"$1"'}}'; }
text() { update '{"sessionUpdate":"'"$1"'","content":{"type":"text","text":"'"$2"'"}}'; }
mode=ask
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    session=$(printf '%s' "$line" | sed 's/.*"sessionId":\("[^"]*"\).*/\1/')
    result='{}'
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{'"$1"'}}' ;;
    *'"session/new"'*) result='{"sessionId":"s-'"$$"'-'"$id"'","modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]}}' ;;
    *'"session/load"'* | *'"session/resume"'*)
        text user_message_chunk whoami
        update '{"sessionUpdate":"current_mode_update","currentModeId":"code"}'
        text agent_message_chunk 'protocol in mode code'
        ;;
    *'"session/set_mode"'*) mode=$(printf '%s' "$line" | sed 's/.*"modeId":"\([^"]*\)".*/\1/') ;;
    *crash*) exit 1 ;;
    *'"session/prompt"'*)
        text agent_message_chunk "protocol in mode $mode"
        result='{"stopReason":"end_turn"}'
        ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

#[test]
fn a_replayed_mode_is_not_the_current_mode() {
    let agent = |name: &str, capabilities: &str| {
        format!("[agents.{name}]\ncommand = ['sh', 'TEST_DIR/past.sh', '{capabilities}']\nversion = 1\n")
    };
    let server = start_server(
        &(agent("loads", r#""loadSession":true"#)
            + &agent("resumes", r#""sessionCapabilities":{"resume":{}}"#)),
    );
    fs::write(server.dir().path().join("past.sh"), MODES_OF_THE_PAST).unwrap();
    for agent in ["loads", "resumes"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            assert!(whoami(&mut client, &session).contains("mode code"));
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let text = whoami(&mut client, &session);
            assert!(text.contains("mode code"), "{agent} {dialect}: {text}");
        }
    }
}

#[test]
fn a_rejected_mode_is_set_again_until_the_agent_accepts_it() {
    let mut server = start_server(UPDATED);
    let quirks = server.dir().path().join("quirks");
    for agent in ["updated-v1", "updated-v2"] {
        fs::write(&quirks, "none").unwrap();
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        set_mode(&mut client, &session, "code");
        for _ in 0..2 {
            fs::write(&quirks, "forgets-settings,refuses-settings").unwrap();
            server.restart();
            client = server.client(TransportKind::Unix, Dialect::V2, agent);
            client.load(&session);
            let prompt = client.prompt(&session, "say Never.");
            assert_eq!(client.response(prompt).unwrap_err()["data"]["mode"], "ask");
        }
        fs::write(&quirks, "forgets-settings").unwrap();
        server.restart();
        client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.load(&session);
        let text = whoami(&mut client, &session);
        assert!(text.contains("mode code"), "{agent}: {text}");
    }
}

#[test]
fn no_prompt_is_sent_while_the_current_mode_is_unknown() {
    let server = start_server(FORGETFUL);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "refuses-silently");
    let session = client.new_session();
    set_mode(&mut client, &session, "code");
    let crash = client.prompt(&session, "crash");
    let _ = client.response(crash);
    for _ in 0..3 {
        let prompt = client.prompt(&session, "say Never.");
        let error = client.response(prompt).unwrap_err();
        assert!(error["message"].as_str().unwrap().contains("does not say which mode"), "{error}");
    }
}

#[test]
fn a_queued_prompt_without_a_client_leaves_an_event_when_it_is_not_sent() {
    let mut server = start_server(FORGETFUL);
    for agent in ["refuses-v1", "refuses-v2"] {
        for how in ["the server ends", "its sender leaves"] {
            let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = client.new_session();
            set_mode(&mut client, &session, "code");
            let mut other =
                ClientBuilder::new(TransportKind::Unix, Dialect::V2, agent).with_events().connect(&server);
            other.load(&session);
            if how == "the server ends" {
                client.prompt(&session, "say Hanging around.\nhang");
                client.wait_for_message(&session, "Hanging around.");
            } else {
                client.prompt(&session, "sleep 2000\nsay Hm.\ncrash");
            }
            let mut sender = server.client(TransportKind::Unix, Dialect::V2, agent);
            sender.load(&session);
            sender.prompt(&session, "say Never.");
            other.wait_for_queue(&session, &["say Never."]);
            if how == "the server ends" {
                server.crash();
                other = ClientBuilder::new(TransportKind::Unix, Dialect::V2, agent)
                    .with_events()
                    .connect(&server);
                other.load(&session);
            } else {
                drop(sender);
            }
            let is_it = |update: &Value| update["error"]["data"]["reason"] == "settings_refused";
            let event = other.wait_for_update(&session, 0, "the event", |update| {
                update["type"] == "turn_failed" && is_it(update)
            });
            assert!(
                event["error"]["message"].as_str().unwrap().contains("'code'"),
                "{agent}, {how}: {event}"
            );
            let events =
                other.updates(&session, 0).filter(|update| is_it(update) && update["type"] == "turn_failed");
            assert_eq!(events.count(), 1, "{agent}, {how}");
            assert!(!server.stored_transcript(&session).iter().any(|line| line.contains("Never.")));
        }
    }
}

#[test]
fn the_mode_is_the_same_for_clients_of_all_dialects() {
    let server = start_server(FORGETFUL);
    for agent in ["mode-option", "resumes-v1", "resumes-v2"] {
        let mut clients = Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, agent));
        let session = clients[0].new_session();
        clients.iter_mut().skip(1).for_each(|client| drop(client.load(&session)));
        for setter in 0..clients.len() {
            for mode in ["code", "ask"] {
                let marks = clients.each_ref().map(Client::mark);
                let answer = set_mode(&mut clients[setter], &session, mode);
                assert!(mode_in(&answer).iter().all(|reported| reported == mode), "{answer}");
                for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != setter) {
                    let update = client.wait_for_update(&session, marks[index], "the mode", |update| {
                        mode_in(update).iter().any(|reported| reported == mode)
                    });
                    if client.dialect == Dialect::V1 {
                        client.wait_for_update(&session, marks[index], "the mode by itself", |update| {
                            update["sessionUpdate"] == "current_mode_update"
                                && update["currentModeId"] == mode
                        });
                    }
                    assert!(mode_in(&update).iter().all(|reported| reported == mode), "{update}");
                }
                for dialect in Dialect::ALL {
                    let joined = server.client(TransportKind::Unix, dialect, agent).load(&session);
                    let reported = mode_in(&joined);
                    assert!(
                        !reported.is_empty() && reported.iter().all(|reported| reported == mode),
                        "{agent}: {joined}"
                    );
                }
            }
        }
        // The agent changes it.
        clients[1].turn(&session, "mode code");
        for dialect in Dialect::ALL {
            let joined = server.client(TransportKind::Unix, dialect, agent).load(&session);
            assert!(mode_in(&joined).iter().all(|reported| reported == "code"), "{agent}: {joined}");
        }
    }
}

#[test]
fn a_change_of_the_model_reaches_all_clients() {
    let server = start_server(FORGETFUL);
    let mut clients = Dialect::ALL.map(|dialect| server.client(TransportKind::Unix, dialect, "models"));
    let session = clients[0].new_session();
    clients.iter_mut().skip(1).for_each(|client| drop(client.load(&session)));
    let model = |text: &Value| {
        let options = text["configOptions"].as_array().cloned().unwrap_or_default();
        options
            .iter()
            .find(|option| option["category"] == "model")
            .map(|option| option["currentValue"].clone())
    };
    for (setter, value) in [(0, "large"), (1, "small"), (2, "large")] {
        let marks = clients.each_ref().map(Client::mark);
        if setter == 0 {
            let params = json!({ "sessionId": session, "modelId": value });
            clients[0].call("session/set_model", params).unwrap();
        } else {
            let answer = set_option(&mut clients[setter], &session, "model", value).unwrap();
            assert_eq!(model(&answer), Some(json!(value)), "{answer}");
        }
        for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != setter) {
            client.wait_for_update(&session, marks[index], "the model", |update| {
                model(update) == Some(json!(value))
            });
        }
        for dialect in Dialect::ALL {
            let joined = server.client(TransportKind::Unix, dialect, "models").load(&session);
            assert_eq!(model(&joined), Some(json!(value)), "{joined}");
            if dialect == Dialect::V1 {
                assert_eq!(joined["models"]["currentModelId"], value, "{joined}");
            }
        }
    }
    assert!(whoami(&mut clients[1], &session).contains("model large"));
}

/// Agents whose forks, ids and ends of sessions deviate from the specification.
const ODD: &str = r#"
[agents.replays-v1]
command = ["TEST_AGENT", "--version", "1", "--offers", "fork", "--quirks", "fork-replays"]
[agents.replays-late-v1]
command = ["TEST_AGENT", "--version", "1", "--no-message-ids", "--offers", "fork", "--quirks", "fork-replays-late"]
[agents.replays-v2]
command = ["TEST_AGENT", "--version", "2", "--offers", "fork", "--quirks", "fork-replays"]
[agents.replays-late-v2]
command = ["TEST_AGENT", "--version", "2", "--offers", "fork", "--quirks", "fork-replays-late"]
[agents.same-id-v1]
command = ["TEST_AGENT", "--version", "1", "--offers", "fork", "--quirks", "same-id"]
[agents.same-id-v2]
command = ["TEST_AGENT", "--version", "2", "--offers", "fork", "--quirks", "same-id"]
[agents.logged]
command = ["sh", "-c", "tee -a TEST_DIR/log | exec TEST_AGENT --version 1 --offers fork"]
[agents.slow-close-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/a", "--offers", "load,close", "--quirks", "slow-close"]
[agents.slow-close-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/b", "--quirks", "slow-close"]
[agents.fails-v1]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/c", "--offers", "resume,list", "--quirks", "restore-fails"]
[agents.fails-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/d", "--quirks", "restore-fails"]
[agents.no-close]
command = ["sh", "-c", "tee -a TEST_DIR/loads | exec TEST_AGENT --version 1 --offers load"]
"#;

fn fork(client: &mut Client, session: &str) -> Value {
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    client.call("session/fork", params).unwrap()
}

#[test]
fn a_fork_that_the_agent_replays_has_every_message_once() {
    let server = start_server(ODD);
    for agent in ["replays-v1", "replays-late-v1", "replays-v2", "replays-late-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            client.turn(&session, "think Hm.\nsay One.");
            client.turn(&session, "say Two.");
            let stored = server.stored_transcript(&session);
            let forked = fork(&mut client, &session);
            assert_eq!(forked["_meta"]["parlor/fork"], "native", "{forked}");
            let forked = forked["sessionId"].as_str().unwrap();
            assert_eq!(server.stored_transcript(forked), stored, "{agent} {dialect}");
            assert_eq!(client.turn(forked, "say Three."), "end_turn");
            let after = server.stored_transcript(forked);
            assert_eq!(after[..stored.len()], stored, "{agent} {dialect}");
            assert_eq!(after.len(), stored.len() + 2, "{agent} {dialect}: {after:#?}");
        }
    }
}

#[test]
fn an_agent_cannot_reuse_the_id_of_another_session() {
    let server = start_server(ODD);
    for agent in ["same-id-v1", "same-id-v2"] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "say One.");
        let forked = fork(&mut client, &session);
        assert_eq!(forked["_meta"]["parlor/fork"], "transcript", "{forked}");
        let why = forked["_meta"]["parlor/forkFailed"].as_str().unwrap();
        assert!(why.contains("in use"), "{why}");
        let new = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] }));
        assert!(new.as_ref().unwrap_err()["message"].as_str().unwrap().contains("in use"), "{new:?}");
        // The session still has its agent.
        assert_eq!(client.turn(&session, "say Two."), "end_turn");
        let stored = server.stored_transcript(&session);
        assert!(stored.last().unwrap().ends_with(": Two."), "{stored:#?}");
    }
}

#[test]
fn the_metadata_of_a_fork_request_reaches_the_agent() {
    let server = start_server(ODD);
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "logged");
        let session = client.new_session();
        client.turn(&session, "say One.");
        let meta =
            json!({ "vendor": { "n": 12_345_678_901_234_567_890_u64, "of": dialect.name() }, "parlor/x": 1 });
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [], "_meta": meta });
        client.call("session/fork", params).unwrap();
        let log = fs::read_to_string(server.dir().path().join("log")).unwrap();
        let request = log.lines().rfind(|line| line.contains("session/fork")).unwrap();
        let request: Value = serde_json::from_str(request).unwrap();
        assert_eq!(request["params"]["_meta"], json!({ "vendor": meta["vendor"] }), "{request}");
    }
}

#[test]
fn a_session_is_not_restored_before_its_agent_has_closed_it() {
    let server = start_server(ODD);
    for agent in ["slow-close-v1", "slow-close-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            client.turn(&session, "say One.");
            client.call("session/close", json!({ "sessionId": session })).unwrap();
            client.load(&session);
            let text = whoami(&mut client, &session);
            assert!(text.contains("3 messages"), "{agent} {dialect}: {text}");
        }
    }
}

#[test]
fn a_temporary_restore_failure_does_not_create_a_new_agent_session() {
    let server = start_server(ODD);
    for agent in ["fails-v1", "fails-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            client.turn(&session, "say One.");
            let crash = client.prompt(&session, "crash");
            let _ = client.response(crash);
            let stored = server.stored_transcript(&session);
            let prompt = client.prompt(&session, "say Two.");
            let error = client.response(prompt).unwrap_err();
            assert_eq!(error["message"], "the provider is overloaded", "{agent}");
            assert_eq!(server.stored_transcript(&session), stored);
        }
    }
}

#[test]
fn a_session_that_the_agent_has_open_is_not_loaded_again() {
    let server = start_server(ODD);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "no-close");
    let session = client.new_session();
    client.turn(&session, "say One.");
    client.call("session/close", json!({ "sessionId": session })).unwrap();
    client.load(&session);
    let text = whoami(&mut client, &session);
    assert!(text.contains("3 messages"), "{text}");
    let log = fs::read_to_string(server.dir().path().join("loads")).unwrap();
    assert!(!log.contains("session/load"), "{log}");
}

#[test]
fn a_session_that_the_agent_lost_gets_an_event() {
    let server = start_server(FORGETFUL);
    let mut client =
        ClientBuilder::new(TransportKind::Unix, Dialect::V2, "begins-again").with_events().connect(&server);
    let session = client.new_session();
    client.turn(&session, "say One.");
    let crash = client.prompt(&session, "crash");
    let _ = client.response(crash);
    let mark = client.mark();
    assert_eq!(client.turn(&session, "say Two."), "end_turn");
    let event =
        client.wait_for_update(&session, mark, "the event", |update| update["type"] == "memory_rebuilt");
    assert_eq!(event["reason"], "agent 'begins-again' cannot restore sessions", "{event}");
    // A fork that got the transcript has no such event.
    let forked = fork(&mut client, &session);
    let forked = forked["sessionId"].as_str().unwrap();
    let mark = client.mark();
    client.turn(forked, "say Three.");
    assert!(client.updates(forked, mark).all(|update| update["type"] != "memory_rebuilt"));
}

/// An agent whose replay takes longer than the startup timeout, and that sets options slowly, or not at all the first time.
const SLOW: &str = r#"
cd "$(dirname "$0")"
modes='{"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"},{"id":"code","name":"Code"}]}'
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    session=$(printf '%s' "$line" | sed 's/.*"sessionId":\("[^"]*"\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}' ;;
    *'"session/new"'*) mode=ask; result=$modes',"sessionId":"s-'"$$"'-'"$id"'"}' ;;
    *'"session/load"'*)
        mode=ask
        for word in 1 2 3 4 5 6; do
            echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":'"$session"',"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"old"}}}}'
            sleep 0.5
        done
        result=$modes'}'
        ;;
    *'"session/set_mode"'*)
        if [ "$1" = hangs ] && [ -e hangs-prompted ] && [ ! -e hung ]; then touch hung; exec sleep 600; fi
        sleep 0.3
        mode=code
        result='{}'
        ;;
    *'"session/prompt"'*)
        touch "$1-prompted"
        echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":'"$session"',"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"protocol in mode '"$mode"'"}}}}'
        result='{"stopReason":"end_turn"}'
        ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

#[test]
fn a_mode_is_restored_after_a_long_replay() {
    let config = |name: &str| {
        format!(
            "[agents.{name}]\ncommand = [\"sh\", \"TEST_DIR/agent.sh\", \"{name}\"]\nstartup_timeout = 2\nversion = 1\n"
        )
    };
    let mut server = start_server(&(config("slow") + &config("hangs")));
    fs::write(server.dir().path().join("agent.sh"), SLOW).unwrap();
    for agent in ["slow", "hangs"] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        set_mode(&mut client, &session, "code");
        assert!(whoami(&mut client, &session).contains("mode code"), "{agent}");
        server.restart();
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.load(&session);
        if agent == "hangs" {
            // An agent that does not respond has not rejected the mode.
            let prompt = client.prompt(&session, "whoami");
            let error = client.response(prompt).unwrap_err();
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("did not answer session/set_mode within 2 s"), "{error}");
        }
        assert!(whoami(&mut client, &session).contains("mode code"), "{agent}");
    }
}
