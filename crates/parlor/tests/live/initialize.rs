//! What an agent gets of the `initialize` of a client.

use std::path::Path;

use parlor_dialect::Dialect;
use parlor_testkit::client::ClientBuilder;
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::start_server;

/// Agents whose input is written to a file for each process.
const AGENTS: &str = r#"
[agents.own]
command = ["sh", "-c", "tee TEST_DIR/own.$$ | TEST_AGENT --version 1 --offers load"]
process = "session"
[agents.two]
command = ["sh", "-c", "tee TEST_DIR/two.$$ | TEST_AGENT --version 2"]
process = "session"
[agents.shared]
command = ["sh", "-c", "tee TEST_DIR/shared.$$ | TEST_AGENT --version 2"]
"#;

/// The `_meta` of the `initialize` of each process of an agent that got sessions, and that of the capabilities.
fn metas(dir: &Path, agent: &str) -> Vec<Value> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(agent));
    let inputs = files.map(|file| std::fs::read_to_string(file).unwrap());
    let inputs = inputs.filter(|input| input.contains(r#""method":"session/new""#));
    let mut metas: Vec<_> = inputs
        .map(|input| {
            let line: Value = serde_json::from_str(input.lines().next().unwrap()).unwrap();
            assert_eq!(line["method"], "initialize");
            let params = &line["params"];
            let capabilities =
                if params["protocolVersion"] == 1 { "clientCapabilities" } else { "capabilities" };
            json!([params["_meta"], params[capabilities]["_meta"]])
        })
        .collect();
    metas.sort_by_key(Value::to_string);
    metas
}

#[test]
fn metadata_of_a_client_reaches_the_process_of_its_own_session_and_no_shared_one() {
    let server = start_server(AGENTS);
    for agent in ["own", "two", "shared"] {
        for (dialect, name) in [(Dialect::V1, "one"), (Dialect::V2, "two")] {
            let meta = json!({ "vendor": { "client": name }, "parlor/seq": true });
            // The server has logins on a terminal, whatever the client says.
            let of_capabilities = json!({ "vendor": name, "parlor/x": true, "terminal-auth": false });
            let builder = ClientBuilder::new(TransportKind::Unix, dialect, agent).with_meta(meta);
            let builder = builder.with_capabilities(json!({ "_meta": of_capabilities }));
            let mut client = builder.connect(&server);
            let session = client.new_session();
            assert_eq!(client.turn(&session, "say Hi."), "end_turn");
        }
    }
    let of =
        |name: &str| json!([{ "vendor": { "client": name } }, { "terminal-auth": true, "vendor": name }]);
    assert_eq!(metas(server.dir().path(), "own"), [of("one"), of("two")]);
    assert_eq!(metas(server.dir().path(), "two"), [of("one"), of("two")]);
    assert_eq!(metas(server.dir().path(), "shared"), [json!([null, { "terminal-auth": true }])]);
}
