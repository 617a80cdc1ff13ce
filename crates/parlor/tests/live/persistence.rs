//! What survives the end of an agent, a client or the server.

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder, error_code};
use parlor_testkit::process::is_alive;
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::{start_server, two_clients};

/// Agents that store their sessions and restore them in different ways.
const STORING_AGENTS: &str = r#"
[agents.resumes]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/resumes", "--offers", "resume"]
[agents.loads]
command = ["TEST_AGENT", "--version", "1", "--state", "TEST_DIR/loads", "--offers", "load"]
[agents.anonymous-loads]
command = ["TEST_AGENT", "--version", "1", "--no-message-ids", "--state", "TEST_DIR/anonymous", "--offers", "load"]
[agents.resumes-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "TEST_DIR/v2"]
[agents.forgets]
command = ["TEST_AGENT", "--version", "1", "--offers", "none"]
"#;

/// The end of a turn in which the agent died.
fn died(client: &mut Client, session: &str, prompt: u64) -> Value {
    if client.dialect == Dialect::V1 {
        return client.response(prompt).unwrap_err();
    }
    assert_eq!(client.end_of_turn(session, prompt), "error");
    client.view(session)["state"]["error"].clone()
}

#[test]
fn the_next_prompt_restarts_an_agent_that_died() {
    let server = start_server(STORING_AGENTS);
    let agents = ["resumes", "loads", "anonymous-loads", "resumes-v2", "forgets", "v2", "draft"];
    for (n, agent) in agents.into_iter().enumerate() {
        for dialect in [Dialect::V1, Dialect::ALL[1 + n % 2]] {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let mut other = server.client(TransportKind::Unix, Dialect::ALL[n % 3], agent);
            let session = client.new_session();
            other.load(&session);
            client.turn(&session, "say The word is heron.");
            let prompt = client.prompt(&session, "say Going.\nask\nsay No.");
            client.peer_request("session/request_permission");
            other.peer_request("session/request_permission");
            let pid = agent_pid(&mut other, agent);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            let error = died(&mut client, &session, prompt);
            assert!(error["message"].as_str().unwrap().contains("ended"), "{error}");
            let stored = server.stored_transcript(&session);
            assert!(stored.iter().any(|line| line.ends_with("Delete the notes (failed)")), "{stored:#?}");
            other.wait_for_transcript(&session, &stored);

            assert_eq!(client.turn(&session, "whoami\nsay Back."), "end_turn");
            client.wait_for_message(&session, "Back.");
            let after = server.stored_transcript(&session);
            assert_eq!(after[..stored.len()], stored, "what was stays as it was");
            let whoami = after[stored.len()..].join("\n");
            // An agent that stored the session has its messages; another one gets the transcript.
            let knows =
                if matches!(agent, "forgets" | "v2" | "draft") { "conversation" } else { "4 messages" };
            assert!(whoami.contains(knows), "{agent}: {whoami}");
            other.wait_for_transcript(&session, &after);
        }
    }
}

/// The process of an agent. Each of these tests has one of each.
fn agent_pid(client: &mut Client, agent: &str) -> rustix::process::Pid {
    let status = client.call("_parlor/status", json!({})).unwrap();
    let agents = status["agents"].as_array().unwrap();
    let pids: Vec<_> = agents.iter().filter(|one| one["name"] == agent).collect();
    assert_eq!(pids.len(), 1, "{status}");
    rustix::process::Pid::from_raw(i32::try_from(pids[0]["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_crash_of_the_agent_fails_the_turn_with_its_last_stderr_lines() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            let prompt = client.prompt(&session, "say Oh.\ncrash 7");
            let error = died(&mut client, &session, prompt);
            assert!(error["message"].as_str().unwrap().contains("crashing as asked"), "{error}");
            client.wait_for_message(&session, "Oh.");
            assert_eq!(client.turn(&session, "say Alive."), "end_turn");
        }
    }
}

#[test]
fn a_stopped_server_has_stored_everything() {
    let mut server = start_server(STORING_AGENTS);
    let mut sessions = Vec::new();
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            client.turn(&session, "title A title\nthink Hm\nsay Said.\ntool Done");
            sessions.push((agent, dialect, session.clone(), server.stored_transcript(&session)));
        }
    }
    server.restart();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v1");
    let listed = client.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
    let listed = listed["sessions"].as_array().unwrap();
    assert_eq!(listed.len(), sessions.len());
    assert!(listed.iter().all(|one| one["title"] == "A title"), "{listed:?}");
    for (n, (agent, dialect, session, stored)) in sessions.into_iter().enumerate() {
        let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
        let joined = client.load(&session);
        assert_eq!(joined["_meta"]["parlor/state"], "idle");
        assert_eq!(client.transcript(&session), stored);
        assert_eq!(client.turn(&session, "say On."), "end_turn");
        let after = server.stored_transcript(&session);
        assert_eq!(after[..stored.len()], stored);
        assert!(after.last().unwrap().ends_with("On."), "{after:#?}");
    }
}

#[test]
fn queued_prompts_survive_their_client_and_a_restart() {
    for crashes in [false, true] {
        let mut server = start_server("");
        for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
            let mut client = server.client(TransportKind::ALL[n % 3], Dialect::ALL[n % 3], agent);
            let session = client.new_session();
            client.prompt(&session, "say Busy.\nsleep 60000");
            client.wait_for_message(&session, "Busy.");
            client.prompt(&session, "say Second.");
            client.prompt(&session, "say Third.");
            client.wait_for_queue(&session, &["say Second.", "say Third."]);
            drop(client);
            if crashes {
                server.crash();
            } else {
                server.restart();
            }
            // An observer does not start the queued prompts.
            let mut observer =
                ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, agent).observer().connect(&server);
            observer.load(&session);
            assert_eq!(observer.view(&session)["state"]["stopReason"], "error");
            let mut back = server.client(TransportKind::ALL[(n + 1) % 3], Dialect::ALL[n % 3], agent);
            let mark = back.mark();
            back.load(&session);
            back.wait_for("the last answer", |client| {
                let text = client.transcript(&session);
                text.iter()
                    .any(|line| line.starts_with("agent_message") && line.ends_with("Third."))
                    .then_some(())
            });
            back.wait_for_idle(&session, mark);
            back.wait_for_queue(&session, &[]);
            let stored = server.stored_transcript(&session);
            let order: Vec<_> = stored.iter().filter(|line| line.starts_with("user_message")).collect();
            assert!(order[1].ends_with("say Second.") && order[2].ends_with("say Third."), "{stored:#?}");
            observer.wait_for_transcript(&session, &stored);
        }
    }
}

#[test]
fn sessions_are_closed_and_deleted() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let (mut one, mut two, session) = two_clients(&server, n, agent, [dialect, Dialect::V2]);
            let about = json!({ "sessionId": session });
            // One client disconnects; the turn of the other continues.
            let prompt = two.prompt(&session, "say Before.\nask\nsay After.");
            let peer_request = two.peer_request("session/request_permission");
            one.peer_request("session/request_permission");
            assert_eq!(one.call("session/close", about.clone()), Ok(json!({})));
            let mark = one.mark();
            two.choose(&peer_request, "allow-once");
            assert_eq!(two.end_of_turn(&session, prompt), "end_turn");
            // The last client closes the session: the turn ends.
            two.prompt(&session, "say Begun.\nsleep 60000\nsay Never.");
            two.wait_for_message(&session, "Begun.");
            assert_eq!(two.call("session/close", about.clone()), Ok(json!({})));
            let mut three = server.client(TransportKind::Unix, dialect, agent);
            three.load(&session);
            three.wait_for("the turn has ended", |client| {
                let rests =
                    |update: &Value| update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle";
                client.updates(&session, 0).last().filter(|update| rests(update)).map(drop)
            });
            assert_eq!(three.turn(&session, "say Again."), "end_turn");
            assert_eq!(one.updates(&session, mark).count(), 0, "it has left");

            two.load(&session);
            assert_eq!(three.call("session/delete", about.clone()), Ok(json!({})));
            assert_eq!(error_code(&two.try_load(&session)), -32002);
            let listed = one.call("session/list", json!({})).unwrap();
            assert!(!listed.to_string().contains(&session), "{listed}");
        }
    }
}

#[test]
fn a_stopped_server_leaves_no_processes_and_runtime_files() {
    for crashes in [false, true] {
        let mut server = start_server("");
        let mut pids = Vec::new();
        for agent in TEST_AGENTS {
            let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = client.new_session();
            client.turn(&session, "think .\npid\nthink .\nchild\nthink .\nchild setsid");
            let text = client.transcript(&session);
            let text = text.iter().filter(|line| line.starts_with("agent_message"));
            pids.extend(text.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()));
        }
        assert_eq!(pids.len(), 3 * TEST_AGENTS.len());
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        if crashes {
            server.crash();
        } else {
            assert!(server.stop().success());
            assert!(!server.dir().data().join("parlor.sock").exists());
        }
        wait_until("no process is left", || !pids.iter().any(|pid| is_alive(*pid)));
    }
}

#[test]
fn a_session_continues_without_clients() {
    let server = start_server("");
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(TransportKind::ALL[n % 3], dialect, agent);
            let session = client.new_session();
            client.prompt(&session, "say Begun.\nsleep 50\ntool\nsay Ended.");
            client.wait_for_message(&session, "Begun.");
            drop(client);
            let mut back = server.client(TransportKind::ALL[(n + 2) % 3], dialect, agent);
            back.load(&session);
            back.wait_for_message(&session, "Ended.");
            let stored = server.stored_transcript(&session);
            back.wait_for_transcript(&session, &stored);
        }
    }
}

/// No client is attached and the agent session is released, but not closed, because the agent cannot close sessions.
#[test]
fn updates_for_an_evicted_session_are_stored() {
    let server = start_server(STORING_AGENTS);
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "forgets");
    let session = client.new_session();
    client.turn(&session, "later 300 Late words.");
    client.call("session/close", json!({ "sessionId": session })).unwrap();
    let mut other = server.client(TransportKind::Unix, Dialect::V1, "forgets");
    other.load(&session);
    other.wait_for_message(&session, "Late words.");
}
