//! What agents ask: of people, of editors, of parlor itself.

use std::fs;

use parlor_dialect::Dialect;
use serde_json::json;

use crate::client::{Client, Guest};
use crate::doors::{DOORS, Door};
use crate::server::{AGENTS, Server};

const PERMISSION: &str = "session/request_permission";

/// One client of each dialect in one session.
fn three(server: &Server, agent: usize) -> (Vec<Client>, String) {
    let mut clients: Vec<_> =
        (0..3).map(|n| server.client(DOORS[(n + agent) % 3], Dialect::ALL[n], AGENTS[agent])).collect();
    let session = clients[0].new_session();
    clients[1].load(&session);
    clients[2].load(&session);
    (clients, session)
}

#[test]
fn permission_is_asked_of_all_and_the_first_answer_counts() {
    let server = Server::start();
    for agent in 0..AGENTS.len() {
        let (mut clients, session) = three(&server, agent);
        for winner in 0..3 {
            let asker = (winner + 1) % 3;
            let prompt = clients[asker].prompt(&session, &format!("ask Delete it?\nsay Asked by {asker}."));
            let questions: Vec<_> = clients.iter_mut().map(|client| client.question(PERMISSION)).collect();
            for question in &questions {
                assert_eq!(question["params"]["sessionId"], session.as_str());
                assert_eq!(question["params"]["options"].as_array().unwrap().len(), 3);
            }
            clients[winner].choose(&questions[winner], "allow-always");
            for (n, client) in clients.iter_mut().enumerate() {
                if n != winner {
                    client.taken_back(&questions[n]);
                    // Too late: nobody listens to this any more.
                    client.choose(&questions[n], "reject-once");
                }
            }
            assert_eq!(clients[asker].end_of(&session, prompt), "end_turn");
            let truth = server.truth(&session);
            let chosen = truth.iter().filter(|line| line.contains("You chose allow-always.")).count();
            assert_eq!(chosen, winner + 1, "{truth:#?}");
            clients.iter_mut().for_each(|client| client.comes_to(&session, &truth));
        }
    }
}

#[test]
fn an_error_is_no_answer_until_everybody_has_erred() {
    let server = Server::start();
    for agent in 0..AGENTS.len() {
        let (mut clients, session) = three(&server, agent);
        let prompt = clients[0].prompt(&session, "ask\nsay On.");
        let questions: Vec<_> = clients.iter_mut().map(|client| client.question(PERMISSION)).collect();
        clients[0].refuse(&questions[0]);
        clients[2].refuse(&questions[2]);
        clients[1].choose(&questions[1], "reject-once");
        assert_eq!(clients[0].end_of(&session, prompt), "end_turn");
        clients[0].until("the choice", |client| {
            client
                .transcript(&session)
                .iter()
                .any(|line| line.contains("You chose reject-once."))
                .then_some(())
        });

        let prompt = clients[0].prompt(&session, "ask\nsay Still on.");
        for client in &mut clients {
            let question = client.question(PERMISSION);
            client.refuse(&question);
        }
        clients[0].end_of(&session, prompt);
        let truth = server.truth(&session);
        assert!(truth.iter().any(|line| line.contains("Asking failed: not me")), "{truth:#?}");
    }
}

#[test]
fn cancelling_the_turn_takes_back_the_question() {
    let server = Server::start();
    for agent in 0..AGENTS.len() {
        let (mut clients, session) = three(&server, agent);
        for asker in 0..3 {
            let prompt = clients[asker].prompt(&session, &format!("ask\nsay Never, {asker}."));
            let questions: Vec<_> = clients.iter_mut().map(|client| client.question(PERMISSION)).collect();
            clients[(asker + 1) % 3].cancel(&session);
            for (client, question) in clients.iter_mut().zip(&questions) {
                client.taken_back(question);
            }
            assert_eq!(clients[asker].end_of(&session, prompt), "cancelled");
        }
        let truth = server.truth(&session);
        assert!(!truth.iter().any(|line| line.starts_with("agent")), "{truth:#?}");
        clients.iter_mut().for_each(|client| client.comes_to(&session, &truth));
    }
}

#[test]
fn forms_go_to_those_who_can_show_them() {
    let server = Server::start();
    let able = json!({ "elicitation": { "form": {} } });
    for (n, agent) in AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut plain = server.client(Door::Unix, dialect, agent);
            let session = plain.new_session();
            // Nobody shows forms: nobody is asked, and the agent is not kept waiting.
            assert_eq!(plain.turn(&session, "elicit\nsay On."), "end_turn");
            plain.hears(&session, "On.");
            let mut shows = Guest::new(DOORS[n % 3], dialect, agent).able(able.clone()).join(&server);
            shows.load(&session);
            let prompt = plain.prompt(&session, "elicit\nsay Thanks.");
            let question = shows.question("elicitation/create");
            shows.respond(&question, &json!({ "action": "accept", "content": { "name": "Ada" } }));
            plain.end_of(&session, prompt);
            let truth = server.truth(&session);
            assert!(truth.iter().any(|line| line.contains("Ada")), "{truth:#?}");
            assert!(!plain.heard.iter().any(|line| line["method"] == "elicitation/create"));
        }
    }
}

#[test]
fn extensions_are_asked_of_the_client_whose_prompt_runs() {
    let server = Server::start();
    for agent in 0..AGENTS.len() {
        let (mut clients, session) = three(&server, agent);
        for (asker, client) in clients.iter_mut().enumerate() {
            let prompt = client.prompt(&session, "ext _example/weather");
            let question = client.question("_example/weather");
            assert_eq!(question["params"]["sessionId"], session.as_str());
            client.respond(&question, &json!({ "sky": format!("blue {asker}") }));
            client.end_of(&session, prompt);
            let truth = server.truth(&session);
            assert!(truth.last().unwrap().contains(&format!("blue {asker}")), "{truth:#?}");
        }
        let asked: usize = clients
            .iter()
            .map(|client| client.heard.iter().filter(|line| line["method"] == "_example/weather").count())
            .sum();
        assert_eq!(asked, 3);
    }
}

#[test]
fn files_are_the_editors_where_it_has_them_and_else_on_the_disk() {
    let server = Server::start();
    let path = server.home().path().join("notes.txt");
    let name = path.to_str().unwrap();
    fs::write(&path, "on the disk").unwrap();
    let able = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    for agent in ["v1", "anonymous"] {
        for door in [Door::Stdio, Door::Unix] {
            let mut editor = Guest::new(door, Dialect::V1, agent).able(able.clone()).join(&server);
            let session = editor.new_session();
            let prompt = editor.prompt(&session, &format!("read {name}\nwrite {name} changed"));
            let question = editor.question("fs/read_text_file");
            assert_eq!(question["params"], json!({ "sessionId": session, "path": name }));
            editor.respond(&question, &json!({ "content": "not saved yet" }));
            let question = editor.question("fs/write_text_file");
            assert_eq!(question["params"]["content"], "changed");
            editor.respond(&question, &json!({}));
            editor.end_of(&session, prompt);
            let truth = server.truth(&session);
            assert!(truth.iter().any(|line| line.contains("says: not saved yet")), "{truth:#?}");

            // The same editor watches: the files are on the disk then.
            let mut other = server.client(Door::Unix, Dialect::V2, agent);
            other.load(&session);
            other.turn(&session, &format!("read {name}"));
            other.hears(&session, "says: on the disk");
        }
        // Somebody on another machine has other files.
        let mut far = Guest::new(Door::Web, Dialect::V1, agent).able(able.clone()).join(&server);
        let session = far.new_session();
        far.turn(&session, &format!("read {name}\nwrite {name} on the disk"));
        far.until("what is on the disk", |client| {
            client.transcript(&session).iter().any(|line| line.contains("says: on the disk")).then_some(())
        });
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "on the disk");
}

#[test]
fn a_terminal_that_parlor_runs_can_be_cancelled() {
    let server = Server::start();
    for dialect in [Dialect::V2, Dialect::Draft] {
        let mut client = server.client(Door::Unix, dialect, "v1");
        let session = client.new_session();
        let prompt = client.prompt(&session, "terminal echo begun; sleep 1000\nsay On.");
        let shown = client.update(&session, 0, "the terminal is shown", |update| {
            update["sessionUpdate"] == "terminal_update" && update["terminalId"].is_string()
        });
        assert_eq!(shown["capabilities"], json!({ "cancel": {} }), "{shown}");
        let params = json!({ "sessionId": session, "terminalId": shown["terminalId"] });
        assert_eq!(client.call("terminal/cancel", params.clone()).unwrap(), json!({}));
        assert_eq!(client.end_of(&session, prompt), "end_turn");
        let terminals = client.view(&session)["terminals"].clone();
        assert!(terminals[0]["exitStatus"]["signal"].is_string(), "{terminals}");
        assert!(terminals[0].get("capabilities").is_none_or(serde_json::Value::is_null), "{terminals}");
        // Once more, or one that is not there.
        assert_eq!(client.call("terminal/cancel", params).unwrap_err()["code"], -32602);
        let unknown = json!({ "sessionId": session, "terminalId": "none" });
        assert_eq!(client.call("terminal/cancel", unknown).unwrap_err()["code"], -32602);
    }
}

#[test]
fn terminals_run_in_parlor_and_show_for_everybody() {
    let server = Server::start();
    for agent in 0..AGENTS.len() {
        let (mut clients, session) = three(&server, agent);
        let prompt = clients[0].prompt(&session, "terminal echo from the; echo terminal\nsay Ran.");
        clients[0].end_of(&session, prompt);
        let truth = server.truth(&session);
        clients.iter_mut().for_each(|client| client.comes_to(&session, &truth));
        for client in &mut clients[1..] {
            let terminals = client.view(&session)["terminals"].clone();
            let ended: Vec<_> = terminals.as_array().unwrap().iter().map(|one| &one["exitStatus"]).collect();
            assert_eq!(ended, [&json!({ "exitCode": 0 })], "{terminals}");
            assert!(terminals[0]["command"].as_str().unwrap().contains("echo from the"), "{terminals}");
        }
        // In v1 it is what the tool call shows.
        let calls = clients[0].view(&session)["toolCalls"].to_string();
        assert!(calls.contains("from the\\nterminal"), "{calls}");
    }
}
