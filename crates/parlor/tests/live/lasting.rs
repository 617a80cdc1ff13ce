//! What outlives an agent, a client, a server.

use parlor_dialect::Dialect;
use serde_json::{Value, json};

use crate::client::{Client, code};
use crate::doors::{DOORS, Door};
use crate::server::{AGENTS, PATIENCE, Server, is_alive};

/// Agents that keep their sessions, each in another way.
const KEEPERS: &str = r#"
[agents.resumes]
command = ["TEST_AGENT", "--version", "1", "--state", "HOME/resumes", "--offers", "resume"]
[agents.loads]
command = ["TEST_AGENT", "--version", "1", "--state", "HOME/loads", "--offers", "load"]
[agents.anonymous-loads]
command = ["TEST_AGENT", "--version", "1", "--no-message-ids", "--state", "HOME/anonymous", "--offers", "load"]
[agents.resumes-v2]
command = ["TEST_AGENT", "--version", "2", "--state", "HOME/v2"]
[agents.forgets]
command = ["TEST_AGENT", "--version", "1", "--offers", "none"]
"#;

/// The end of a turn in which the agent died.
fn died(client: &mut Client, session: &str, prompt: u64) -> Value {
    if client.dialect == Dialect::V1 {
        return client.answer(prompt).unwrap_err();
    }
    assert_eq!(client.end_of(session, prompt), "error");
    client.view(session)["state"]["error"].clone()
}

#[test]
fn an_agent_that_dies_comes_back_with_the_next_prompt() {
    let server = Server::with(KEEPERS);
    let agents = ["resumes", "loads", "anonymous-loads", "resumes-v2", "forgets", "v2", "draft"];
    for (n, agent) in agents.into_iter().enumerate() {
        for dialect in [Dialect::V1, Dialect::ALL[1 + n % 2]] {
            let mut client = server.client(DOORS[n % 3], dialect, agent);
            let mut other = server.client(Door::Unix, Dialect::ALL[n % 3], agent);
            let session = client.new_session();
            other.load(&session);
            client.turn(&session, "say The word is heron.");
            let prompt = client.prompt(&session, "say Going.\nask\nsay No.");
            client.question("session/request_permission");
            other.question("session/request_permission");
            let pid = agent_pid(&mut other, agent);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            let error = died(&mut client, &session, prompt);
            assert!(error["message"].as_str().unwrap().contains("ended"), "{error}");
            let truth = server.truth(&session);
            assert!(truth.iter().any(|line| line.ends_with("Delete the notes (failed)")), "{truth:#?}");
            other.comes_to(&session, &truth);

            assert_eq!(client.turn(&session, "whoami\nsay Back."), "end_turn");
            client.hears(&session, "Back.");
            let after = server.truth(&session);
            assert_eq!(after[..truth.len()], truth, "what was stays as it was");
            let whoami = after[truth.len()..].join("\n");
            // One that kept the session knows its messages; another is given the conversation to read.
            let knows =
                if matches!(agent, "forgets" | "v2" | "draft") { "conversation" } else { "4 messages" };
            assert!(whoami.contains(knows), "{agent}: {whoami}");
            other.comes_to(&session, &after);
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
fn an_agent_that_crashes_fails_its_turn_with_its_last_words() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(DOORS[n % 3], dialect, agent);
            let session = client.new_session();
            let prompt = client.prompt(&session, "say Oh.\ncrash 7");
            let error = died(&mut client, &session, prompt);
            assert!(error["message"].as_str().unwrap().contains("crashing as asked"), "{error}");
            client.hears(&session, "Oh.");
            assert_eq!(client.turn(&session, "say Alive."), "end_turn");
        }
    }
}

#[test]
fn a_server_that_ends_keeps_everything() {
    let mut server = Server::with(KEEPERS);
    let mut sessions = Vec::new();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(DOORS[n % 3], dialect, agent);
            let session = client.new_session();
            client.turn(&session, "title A title\nthink Hm\nsay Said.\ntool Done");
            sessions.push((agent, dialect, session.clone(), server.truth(&session)));
        }
    }
    server.restart();
    let mut client = server.client(Door::Unix, Dialect::V2, "v1");
    let listed = client.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
    let listed = listed["sessions"].as_array().unwrap();
    assert_eq!(listed.len(), sessions.len());
    assert!(listed.iter().all(|one| one["title"] == "A title"), "{listed:?}");
    for (n, (agent, dialect, session, truth)) in sessions.into_iter().enumerate() {
        let mut client = server.client(DOORS[n % 3], dialect, agent);
        let joined = client.load(&session);
        assert_eq!(joined["_meta"]["parlor/state"], "idle");
        assert_eq!(client.transcript(&session), truth);
        assert_eq!(client.turn(&session, "say On."), "end_turn");
        let after = server.truth(&session);
        assert_eq!(after[..truth.len()], truth);
        assert!(after.last().unwrap().ends_with("On."), "{after:#?}");
    }
}

#[test]
fn prompts_that_wait_outlive_their_sender_and_the_server() {
    for crashes in [false, true] {
        let mut server = Server::start();
        for (n, agent) in AGENTS.into_iter().enumerate() {
            let mut client = server.client(DOORS[n % 3], Dialect::ALL[n % 3], agent);
            let session = client.new_session();
            client.prompt(&session, "say Busy.\nsleep 60000");
            client.hears(&session, "Busy.");
            client.prompt(&session, "say Second.");
            client.prompt(&session, "say Third.");
            client.holds(&session, &["say Second.", "say Third."]);
            drop(client);
            if crashes {
                server.crash();
            } else {
                server.restart();
            }
            // Who only watches sets nothing off.
            let mut watcher =
                crate::client::Guest::new(Door::Web, Dialect::V2, agent).observing().join(&server);
            watcher.load(&session);
            assert_eq!(watcher.view(&session)["state"]["stopReason"], "error");
            let mut back = server.client(DOORS[(n + 1) % 3], Dialect::ALL[n % 3], agent);
            let mark = back.mark();
            back.load(&session);
            back.until("the last answer", |client| {
                let said = client.transcript(&session);
                said.iter()
                    .any(|line| line.starts_with("agent_message") && line.ends_with("Third."))
                    .then_some(())
            });
            back.idle(&session, mark);
            back.holds(&session, &[]);
            let truth = server.truth(&session);
            let order: Vec<_> = truth.iter().filter(|line| line.starts_with("user_message")).collect();
            assert!(order[1].ends_with("say Second.") && order[2].ends_with("say Third."), "{truth:#?}");
            watcher.comes_to(&session, &truth);
        }
    }
}

#[test]
fn closing_and_deleting() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut one = server.client(DOORS[n % 3], dialect, agent);
            let mut two = server.client(DOORS[(n + 1) % 3], Dialect::V2, agent);
            let session = one.new_session();
            two.load(&session);
            let about = json!({ "sessionId": session });
            // One leaves; the turn of the other goes on.
            let prompt = two.prompt(&session, "say Before.\nask\nsay After.");
            let question = two.question("session/request_permission");
            one.question("session/request_permission");
            assert_eq!(one.call("session/close", about.clone()), Ok(json!({})));
            let mark = one.mark();
            two.choose(&question, "allow-once");
            assert_eq!(two.end_of(&session, prompt), "end_turn");
            // The last one leaves: the turn ends.
            two.prompt(&session, "say Begun.\nsleep 60000\nsay Never.");
            two.hears(&session, "Begun.");
            assert_eq!(two.call("session/close", about.clone()), Ok(json!({})));
            let mut three = server.client(Door::Unix, dialect, agent);
            three.load(&session);
            three.until("the turn has ended", |client| {
                let rests =
                    |update: &Value| update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle";
                client.updates(&session, 0).last().filter(|update| rests(update)).map(drop)
            });
            assert_eq!(three.turn(&session, "say Again."), "end_turn");
            assert_eq!(one.updates(&session, mark).count(), 0, "it has left");

            two.load(&session);
            assert_eq!(three.call("session/delete", about.clone()), Ok(json!({})));
            assert_eq!(code(&two.try_load(&session)), -32002);
            let listed = one.call("session/list", json!({})).unwrap();
            assert!(!listed.to_string().contains(&session), "{listed}");
        }
    }
}

#[test]
fn a_server_leaves_nothing_behind() {
    for crashes in [false, true] {
        let mut server = Server::start();
        let mut pids = Vec::new();
        for agent in AGENTS {
            let mut client = server.client(Door::Unix, Dialect::V2, agent);
            let session = client.new_session();
            client.turn(&session, "think .\npid\nthink .\nchild\nthink .\nchild setsid");
            let said = client.transcript(&session);
            let said = said.iter().filter(|line| line.starts_with("agent_message"));
            pids.extend(said.map(|line| line.rsplit(' ').next().unwrap().parse::<i32>().unwrap()));
        }
        let pids: Vec<_> = pids.into_iter().filter_map(rustix::process::Pid::from_raw).collect();
        assert_eq!(pids.len(), 3 * AGENTS.len());
        assert!(pids.iter().all(|pid| is_alive(*pid)));
        if crashes {
            server.crash();
        } else {
            assert!(server.stop().success());
            assert!(!server.home().data().join("parlor.sock").exists());
        }
        let deadline = std::time::Instant::now() + PATIENCE;
        while pids.iter().any(|pid| is_alive(*pid)) {
            assert!(std::time::Instant::now() < deadline, "a process is left");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

#[test]
fn a_session_goes_on_without_clients() {
    let server = Server::start();
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut client = server.client(DOORS[n % 3], dialect, agent);
            let session = client.new_session();
            client.prompt(&session, "say Begun.\nsleep 50\ntool\nsay Ended.");
            client.hears(&session, "Begun.");
            drop(client);
            let mut back = server.client(DOORS[(n + 2) % 3], dialect, agent);
            back.load(&session);
            back.hears(&session, "Ended.");
            let truth = server.truth(&session);
            back.comes_to(&session, &truth);
        }
    }
}

/// Nobody is in the session any more, and the agent was let go of, but not told: it does not know how to close one.
#[test]
fn an_agent_is_heard_also_in_a_session_that_everybody_has_left() {
    let server = Server::with(KEEPERS);
    let mut client = server.client(Door::Unix, Dialect::V2, "forgets");
    let session = client.new_session();
    client.turn(&session, "later 300 Late words.");
    client.call("session/close", json!({ "sessionId": session })).unwrap();
    let mut other = server.client(Door::Unix, Dialect::V1, "forgets");
    other.load(&session);
    other.hears(&session, "Late words.");
}
