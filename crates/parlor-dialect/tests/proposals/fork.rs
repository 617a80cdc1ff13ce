//! "Forking sessions at a specific message", as far as it is said on the wire

use parlor_dialect::Dialect::{self, Draft, V1, V2};
use parlor_dialect::{Side, Translator};
use serde_json::{Value, json};

const WAYS: [(Dialect, Dialect); 6] =
    [(V1, V2), (V1, Draft), (V2, V1), (V2, Draft), (Draft, V1), (Draft, V2)];

fn said(translator: &mut Translator, by: Side, line: &Value) -> Value {
    let line = line.to_string();
    let translation = translator.line(by, &line).unwrap();
    assert_eq!(translation.losses, []);
    serde_json::from_str(&translation.lines[0].text).unwrap()
}

#[test]
fn session_fork_carries_the_message_id_in_every_dialect() {
    let fork = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "session/fork",
        "params": {
            "sessionId": "sess_789xyz",
            "messageId": "ea87d0e7-beb8-484a-a404-94a30b78a5a8",
            "cwd": "/w",
            "mcpServers": []
        }
    });
    for (from, to) in WAYS {
        assert_eq!(said(&mut Translator::record(from, to), Side::Client, &fork), fork, "{from} to {to}");
    }
}

#[test]
fn agents_declare_support_by_at_message_id_in_the_fork_capability() {
    let v1 = json!({ "protocolVersion": 1, "agentInfo": { "name": "a", "version": "1" }, "agentCapabilities": {
        "loadSession": true,
        "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "fork": { "atMessageId": true } }
    } });
    let v2 = json!({ "protocolVersion": 2, "info": { "name": "a", "version": "1" }, "capabilities": {
        "session": { "mcp": { "stdio": {} }, "fork": { "atMessageId": true } }
    } });
    for (from, to) in WAYS {
        let (capabilities, pointer) = match from {
            V1 => (&v1, "/result/capabilities/session/fork"),
            V2 | Draft => (&v2, "/result/agentCapabilities/sessionCapabilities/fork"),
        };
        let pointer = if from != V1 && to != V1 { "/result/capabilities/session/fork" } else { pointer };
        let mut translator = Translator::record(from, to);
        let info = json!({ "name": "c", "version": "1" });
        let ask = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": from.version(), "info": info, "clientInfo": info, "capabilities": {}, "clientCapabilities": {}
        } });
        said(&mut translator, Side::Client, &ask);
        let answer = json!({ "jsonrpc": "2.0", "id": 0, "result": capabilities });
        let peer = said(&mut translator, Side::Agent, &answer);
        assert_eq!(peer.pointer(pointer), Some(&json!({ "atMessageId": true })), "{from} to {to}: {peer}");
    }
}
