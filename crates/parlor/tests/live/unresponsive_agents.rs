//! Agents that die, stop sending or hang.

use std::fs;

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::Server;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::scripted_agent::{SCRIPTED_AGENTS, ScriptedAgent};
use crate::start_server;

/// An agent in a few lines of shell. Its first argument determines what it does with a prompt.
const SHELL_AGENT: &str = r#"
version=$1
on_prompt=$2
info='{"name":"s","version":"1"}'
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":'"$version"',"info":'"$info"',"agentInfo":'"$info"',"capabilities":{},"agentCapabilities":{}}' ;;
    *'"session/new"'*) result='{"sessionId":"s-'"$$"'-'"$id"'"}' ;;
    *'"session/resume"'*) result='{}' ;;
    *'"session/prompt"'*) eval "$on_prompt" ; continue ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;

const SHELL_AGENTS: &str = r#"
[agents.dies]
command = ["sh", "TEST_DIR/agent.sh", "2", "echo dying of it >&2; exit 3"]
version = 2
[agents.mute-v1]
command = ["sh", "TEST_DIR/agent.sh", "1", "exec >&-; sleep 600"]
version = 1
[agents.mute-v2]
command = ["sh", "TEST_DIR/agent.sh", "2", "exec >&-; sleep 600"]
version = 2
[agents.deaf]
command = ["sh", "TEST_DIR/agent.sh", "1", "exec <&-; touch TEST_DIR/deaf; sleep 600"]
version = 1
"#;

fn server_with_shell_agents() -> Server {
    let server = start_server(SHELL_AGENTS);
    fs::write(server.dir().path().join("agent.sh"), SHELL_AGENT).unwrap();
    server
}

/// The error with which a prompt or its turn ended.
fn failure(client: &mut Client, session: &str, prompt: u64) -> Value {
    match client.response(prompt) {
        Err(error) => error,
        Ok(_) => {
            assert_eq!(client.end_of_turn(session, prompt), "error");
            client.view(session)["state"]["error"].clone()
        }
    }
}

#[test]
fn a_prompt_that_crashes_the_agent_fails_and_does_not_block_the_session() {
    let server = server_with_shell_agents();
    for dialect in Dialect::ALL {
        let mut client = server.client(TransportKind::Unix, dialect, "dies");
        let mut other = server.client(TransportKind::Unix, Dialect::V2, "dies");
        let session = client.new_session();
        other.load(&session);
        for text in ["poison", "more poison"] {
            let mark = other.mark();
            let prompt = client.prompt(&session, text);
            let error = client.response(prompt).unwrap_err();
            assert!(error["message"].as_str().unwrap().contains("dying of it"), "{error}");
            client.wait_for_queue(&session, &[]);
            assert_eq!(other.wait_for_idle(&session, mark), "error");
        }
        // Each queued prompt gets a response.
        let prompts = ["one", "two", "three"].map(|text| client.prompt(&session, text));
        for prompt in prompts {
            client.response(prompt).unwrap_err();
        }
        client.wait_for_queue(&session, &[]);
    }
}

#[test]
fn an_agent_that_closes_its_stdout_counts_as_exited() {
    let server = server_with_shell_agents();
    for agent in ["mute-v1", "mute-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let session = client.new_session();
            let prompt = client.prompt(&session, "Hello?");
            let error = failure(&mut client, &session, prompt);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("closed its standard output"), "{error}");
            // Other clients get another process.
            let mut other = server.client(TransportKind::Unix, Dialect::V2, agent);
            other.new_session();
        }
    }
}

#[test]
fn an_agent_that_closes_its_stdin_counts_as_exited() {
    let server = server_with_shell_agents();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "deaf");
    let session = client.new_session();
    let prompt = client.prompt(&session, "Hello?");
    client.response(prompt).unwrap();
    // The server sends a line that the agent does not read.
    wait_until("the agent reads no more", || server.dir().path().join("deaf").exists());
    client.cancel(&session);
    assert_eq!(client.end_of_turn(&session, prompt), "error");
    client.new_session();
}

#[test]
fn an_agent_that_hangs_at_startup_times_out_once_for_all_clients() {
    let server = start_server(
        r#"
[agents.hangs]
command = ["sh", "-c", "echo >> TEST_DIR/starts; echo no license >&2; exec sleep 600"]
startup_timeout = 2
[agents.hangs-later]
command = ["sh", "TEST_DIR/agent.sh"]
startup_timeout = 2
"#,
    );
    let agent = SHELL_AGENT.replace(
        "*'\"session/new\"'*)",
        "*'\"session/new\"'*) echo no license >&2; continue ;;\n    *never*)",
    );
    fs::write(server.dir().path().join("agent.sh"), format!("set -- 2 true\n{agent}")).unwrap();
    for agent in ["hangs", "hangs-later"] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let error = client.call("session/new", json!({ "cwd": "/", "mcpServers": [] })).unwrap_err();
        let what = if agent == "hangs" { "initialize" } else { "session/new" };
        let expected = format!("agent '{agent}' did not answer {what} within 2 s: no license");
        assert_eq!(error["message"], expected.as_str(), "{error}");
        assert!(error["data"]["stderr"].as_str().unwrap().contains("no license"), "{error}");
    }
    // `initialize` of the client and its first session cause one start.
    assert_eq!(fs::read_to_string(server.dir().path().join("starts")).unwrap(), "\n");
}

#[test]
fn a_cancelled_turn_ends_even_if_the_agent_hangs() {
    let config: String = [("v1", "1"), ("v2", "2")]
        .iter()
        .map(|(name, version)| {
            format!(
                "[agents.hangs-{name}]\ncommand = [\"TEST_AGENT\", \"--version\", \"{version}\", \
                 \"--state\", \"TEST_DIR/{name}\"]\ncancel_timeout = 1\n"
            )
        })
        .collect();
    let server = start_server(&config);
    for agent in ["hangs-v1", "hangs-v2"] {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::Unix, dialect, agent);
            let mut other =
                ClientBuilder::new(TransportKind::Unix, Dialect::V2, agent).with_events().connect(&server);
            let (session, elsewhere) = (client.new_session(), other.new_session());
            other.load(&session);
            client.turn(&session, "say Before.");
            // Another session of the same process continues.
            let long = other.prompt(&elsewhere, "ask\nsay Undisturbed.");
            let peer_request = other.peer_request("session/request_permission");
            let prompt = client.prompt(&session, "hang");
            other.wait_for_message(&session, "Hanging.");
            let mark = other.mark();
            client.cancel(&session);
            assert_eq!(client.end_of_turn(&session, prompt), "cancelled", "{agent} {dialect}");
            assert_eq!(other.wait_for_idle(&session, mark), "cancelled", "{agent} {dialect}");
            let event = other
                .wait_for_update(&session, mark, "the event", |update| update["type"] == "turn_cancelled");
            assert_eq!(event["agentDidNotAnswer"], true, "{event}");
            assert!(event["by"]["name"] == "test" && event["by"]["client"].is_u64(), "{event}");
            assert_eq!(client.turn(&session, "say After."), "end_turn");
            client.wait_for_message(&session, "After.");
            other.choose(&peer_request, "allow-once");
            assert_eq!(other.end_of_turn(&elsewhere, long), "end_turn");
            other.wait_for_message(&elsewhere, "Undisturbed.");
        }
    }
}

/// Scripted agents with a cancel timeout of two seconds.
fn server_with_short_cancel_timeout() -> Server {
    start_server(&SCRIPTED_AGENTS.replace("version = ", "cancel_timeout = 2\nversion = "))
}

#[test]
fn a_prompt_that_is_cancelled_before_its_turn_ends_even_if_the_agent_hangs() {
    // Each case waits for its own cancel timeout, so they wait at the same time.
    std::thread::scope(|scope| {
        for agent in ["scripted-v2", "scripted-draft"] {
            for dialect in Dialect::ALL {
                for method in ["session/cancel", "$/cancel_request", "session/close", "session/archive"] {
                    scope.spawn(move || prompt_is_cancelled_while_the_agent_hangs(agent, dialect, method));
                }
            }
        }
    });
}

/// Cancels a prompt with `method` while `agent` hangs, and checks the response of the prompt.
fn prompt_is_cancelled_while_the_agent_hangs(agent: &str, dialect: Dialect, method: &str) {
    let server = server_with_short_cancel_timeout();
    let scripted = ScriptedAgent::of(&server, agent);
    let mut client = server.client(TransportKind::Unix, dialect, agent);
    let session = client.new_session();
    let prompt = client.prompt(&session, "Hello?");
    let received_prompt = scripted.prompt();
    scripted.accept(&received_prompt, "m1");
    // When this has arrived, everything before it has arrived as well.
    scripted.chunk(&received_prompt, "agent", Some("a"), "Hanging.");
    client.wait_for_message(&session, "Hanging.");
    let params = json!({ "sessionId": session });
    match method {
        "session/cancel" => client.cancel(&session),
        "$/cancel_request" => client.cancel_request(prompt),
        _ => assert_eq!(client.call(method, params), Ok(json!({})), "{agent} {dialect} {method}"),
    }
    match client.response(prompt) {
        Ok(result) if dialect == Dialect::V1 => assert_eq!(result["stopReason"], "cancelled"),
        Ok(result) => assert!(result.is_object()),
        Err(error) => assert_eq!(error["code"], -32800, "{agent} {dialect} {method}"),
    }
}

#[test]
fn an_agent_that_hangs_while_it_restores_a_session_is_replaced() {
    let mut server = start_server(
        r#"
[agents.loads]
command = ["sh", "TEST_DIR/agent.sh", "loads", '"loadSession":true']
startup_timeout = 2
version = 1
[agents.resumes]
command = ["sh", "TEST_DIR/agent.sh", "resumes", '"sessionCapabilities":{"resume":{}}']
startup_timeout = 2
version = 1
"#,
    );
    let hangs = r#"
cd "$(dirname "$0")"
name=$1
info='{"name":"s","version":"1"}'
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":1,"agentInfo":'"$info"',"agentCapabilities":{'"$2"'}}' ;;
    *'"session/new"'*) result='{"sessionId":"s-'"$$"'-'"$id"'"}' ;;
    *'"session/resume"'* | *'"session/load"'*) [ -e "$name" ] || { touch "$name"; exec sleep 600; }; result='{}' ;;
    *'"session/prompt"'*) result='{"stopReason":"end_turn"}' ;;
    *) continue ;;
    esac
    echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$result"'}'
done
"#;
    fs::write(server.dir().path().join("agent.sh"), hangs).unwrap();
    for (agent, method) in [("loads", "session/load"), ("resumes", "session/resume")] {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        assert_eq!(client.turn(&session, "Hello"), "end_turn");
        server.restart();
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        client.load(&session);
        let prompt = client.prompt(&session, "Hello?");
        let error = client.response(prompt).unwrap_err();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("did not answer {method} within 2 s")), "{error}");
        assert_eq!(client.turn(&session, "Hello again"), "end_turn", "{agent}");
    }
}
