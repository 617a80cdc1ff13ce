//! Requests of agents: to users, to editors and to the server.

use std::fs;

use parlor_dialect::Dialect;
use parlor_session::EntryId;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::{Server, TEST_AGENTS};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

use crate::scripted_agent::{SCRIPTED_AGENTS, ScriptedAgent};
use crate::{client_per_dialect, session_of, start_server};

const PERMISSION: &str = "session/request_permission";

/// One client of each dialect in one session.
fn three_clients(server: &Server, agent: usize) -> ([Client; 3], String) {
    let mut clients = client_per_dialect(server, agent, |builder| builder);
    let session = session_of(&mut clients, 0);
    (clients, session)
}

#[test]
fn a_permission_request_goes_to_all_clients_and_the_first_answer_counts() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        for winner in 0..3 {
            let sender = (winner + 1) % 3;
            let prompt = clients[sender].prompt(&session, &format!("ask Delete it?\nsay Asked by {sender}."));
            let peer_requests: Vec<_> =
                clients.iter_mut().map(|client| client.peer_request(PERMISSION)).collect();
            for peer_request in &peer_requests {
                assert_eq!(peer_request["params"]["sessionId"], session.as_str());
                assert_eq!(peer_request["params"]["options"].as_array().unwrap().len(), 3);
            }
            clients[winner].choose(&peer_requests[winner], "allow-always");
            for (n, client) in clients.iter_mut().enumerate() {
                if n != winner {
                    client.wait_for_cancel(&peer_requests[n]);
                    // Too late: this response is ignored.
                    client.choose(&peer_requests[n], "reject-once");
                }
            }
            assert_eq!(clients[sender].end_of_turn(&session, prompt), "end_turn");
            let stored = server.stored_transcript(&session);
            let chosen = stored.iter().filter(|line| line.contains("You chose allow-always.")).count();
            assert_eq!(chosen, winner + 1, "{stored:#?}");
            clients.iter_mut().for_each(|client| client.wait_for_transcript(&session, &stored));
        }
    }
}

#[test]
fn an_error_response_counts_only_when_all_clients_have_sent_one() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        let prompt = clients[0].prompt(&session, "ask\nsay On.");
        let peer_requests: Vec<_> =
            clients.iter_mut().map(|client| client.peer_request(PERMISSION)).collect();
        clients[0].respond_with_error(&peer_requests[0]);
        clients[2].respond_with_error(&peer_requests[2]);
        clients[1].choose(&peer_requests[1], "reject-once");
        assert_eq!(clients[0].end_of_turn(&session, prompt), "end_turn");
        clients[0].wait_for("the choice", |client| {
            client
                .transcript(&session)
                .iter()
                .any(|line| line.contains("You chose reject-once."))
                .then_some(())
        });

        let prompt = clients[0].prompt(&session, "ask\nsay Still on.");
        for client in &mut clients {
            let peer_request = client.peer_request(PERMISSION);
            client.respond_with_error(&peer_request);
        }
        clients[0].end_of_turn(&session, prompt);
        let stored = server.stored_transcript(&session);
        assert!(stored.iter().any(|line| line.contains("Asking failed: not me")), "{stored:#?}");
    }
}

#[test]
fn cancelling_the_turn_cancels_its_open_requests() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        for sender in 0..3 {
            let prompt = clients[sender].prompt(&session, &format!("ask\nsay Never, {sender}."));
            let peer_requests: Vec<_> =
                clients.iter_mut().map(|client| client.peer_request(PERMISSION)).collect();
            clients[(sender + 1) % 3].cancel(&session);
            for (client, peer_request) in clients.iter_mut().zip(&peer_requests) {
                client.wait_for_cancel(peer_request);
            }
            assert_eq!(clients[sender].end_of_turn(&session, prompt), "cancelled");
        }
        let stored = server.stored_transcript(&session);
        assert!(!stored.iter().any(|line| line.starts_with("agent")), "{stored:#?}");
        clients.iter_mut().for_each(|client| client.wait_for_transcript(&session, &stored));
    }
}

#[test]
fn forms_go_to_clients_with_the_capability() {
    let server = start_server("");
    let able = json!({ "elicitation": { "form": {} } });
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for dialect in Dialect::ALL {
            let mut plain = server.client(TransportKind::Unix, dialect, agent);
            let session = plain.new_session();
            // No client has the capability: no client gets the request, and the agent gets a response at once.
            assert_eq!(plain.turn(&session, "elicit\nsay On."), "end_turn");
            plain.wait_for_message(&session, "On.");
            let mut shows = ClientBuilder::new(TransportKind::ALL[n % 3], dialect, agent)
                .with_capabilities(able.clone())
                .connect(&server);
            shows.load(&session);
            let prompt = plain.prompt(&session, "elicit\nsay Thanks.");
            let peer_request = shows.peer_request("elicitation/create");
            shows.respond(&peer_request, &json!({ "action": "accept", "content": { "name": "Ada" } }));
            plain.end_of_turn(&session, prompt);
            let stored = server.stored_transcript(&session);
            assert!(stored.iter().any(|line| line.contains("Ada")), "{stored:#?}");
            assert!(!plain.received.iter().any(|line| line["method"] == "elicitation/create"));
        }
    }
}

#[test]
fn extension_requests_go_to_the_client_whose_prompt_runs() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        for (sender, client) in clients.iter_mut().enumerate() {
            let prompt = client.prompt(&session, "ext _example/weather");
            let peer_request = client.peer_request("_example/weather");
            assert_eq!(peer_request["params"]["sessionId"], session.as_str());
            client.respond(&peer_request, &json!({ "sky": format!("blue {sender}") }));
            client.end_of_turn(&session, prompt);
            let stored = server.stored_transcript(&session);
            assert!(stored.last().unwrap().contains(&format!("blue {sender}")), "{stored:#?}");
        }
        let prompt_id: usize = clients
            .iter()
            .map(|client| client.received.iter().filter(|line| line["method"] == "_example/weather").count())
            .sum();
        assert_eq!(prompt_id, 3);
    }
}

#[test]
fn files_are_read_through_the_editor_if_it_has_the_capability_else_from_disk() {
    let server = start_server("");
    let path = server.dir().path().join("notes.txt");
    let name = path.to_str().unwrap();
    fs::write(&path, "on the disk").unwrap();
    let able = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    for agent in ["v1", "anonymous"] {
        for transport in [TransportKind::Stdio, TransportKind::Unix] {
            let mut editor = ClientBuilder::new(transport, Dialect::V1, agent)
                .with_capabilities(able.clone())
                .connect(&server);
            let session = editor.new_session();
            let prompt = editor.prompt(&session, &format!("read {name}\nwrite {name} changed"));
            let peer_request = editor.peer_request("fs/read_text_file");
            assert_eq!(peer_request["params"], json!({ "sessionId": session, "path": name }));
            editor.respond(&peer_request, &json!({ "content": "not saved yet" }));
            let peer_request = editor.peer_request("fs/write_text_file");
            assert_eq!(peer_request["params"]["content"], "changed");
            editor.respond(&peer_request, &json!({}));
            editor.end_of_turn(&session, prompt);
            let stored = server.stored_transcript(&session);
            assert!(stored.iter().any(|line| line.contains("contains: not saved yet")), "{stored:#?}");

            // As an observer, the same editor does not serve files: they are read from disk.
            let mut other = server.client(TransportKind::Unix, Dialect::V2, agent);
            other.load(&session);
            other.turn(&session, &format!("read {name}"));
            other.wait_for_message(&session, "contains: on the disk");
        }
        // A client on another machine has other files.
        let mut far = ClientBuilder::new(TransportKind::WebSocket, Dialect::V1, agent)
            .with_capabilities(able.clone())
            .connect(&server);
        let session = far.new_session();
        far.turn(&session, &format!("read {name}\nwrite {name} on the disk"));
        far.wait_for("what is on the disk", |client| {
            client
                .transcript(&session)
                .iter()
                .any(|line| line.contains("contains: on the disk"))
                .then_some(())
        });
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "on the disk");
}

#[test]
fn files_outside_the_session_directory_are_rejected() {
    let server = start_server(
        "[agents.all]\ncommand = ['TEST_AGENT', '--version', '1']\nfs = 'all'\n\
         [agents.off]\ncommand = ['TEST_AGENT', '--version', '1']\nfs = 'off'\n",
    );
    let dir = server.dir().path();
    let name = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    for folder in ["project", "more"] {
        fs::create_dir(name(folder)).unwrap();
        fs::write(name(&format!("{folder}/notes")), format!("in {folder}")).unwrap();
    }
    fs::write(name("secret"), "not readable").unwrap();
    let able = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let refused = |text: &str, why: &str| text.contains("failed") && text.contains(why);
    for (agent, outside) in [("v1", false), ("anonymous", false), ("all", true)] {
        // With files from the server and from an editor.
        for is_editor in [false, true] {
            let builder = ClientBuilder::new(TransportKind::Unix, Dialect::V1, agent);
            let builder = if is_editor { builder.with_capabilities(able.clone()) } else { builder };
            let mut client = builder.connect(&server);
            let params =
                json!({ "cwd": name("project"), "mcpServers": [], "additionalDirectories": [name("more")] });
            let session =
                client.call("session/new", params).unwrap()["sessionId"].as_str().unwrap().to_owned();
            let mut last = |prompt: &str, serves: bool| {
                let id = client.prompt(&session, prompt);
                if is_editor && serves {
                    let peer_request = client.peer_request("fs/read_text_file");
                    let path = peer_request["params"]["path"].as_str().unwrap();
                    let content = fs::read_to_string(path).unwrap();
                    client.respond(&peer_request, &json!({ "content": content }));
                }
                client.end_of_turn(&session, id);
                client.transcript(&session).last().unwrap().clone()
            };
            assert!(last(&format!("read {}", name("project/notes")), true).contains("contains: in project"));
            assert!(last(&format!("read {}", name("more/notes")), true).contains("contains: in more"));
            let secret = last(&format!("read {}", name("secret")), outside);
            assert_eq!(secret.contains("not readable"), outside, "{secret}");
            if !outside {
                assert!(refused(&secret, "outside the session's directories"), "{secret}");
                let written = last(&format!("write {} mine", name("secret")), false);
                assert!(refused(&written, "outside the session's directories"), "{written}");
            }
            for private in [name("data/token"), "/proc/self/environ".to_owned()] {
                let text = last(&format!("read {private}"), false);
                assert!(refused(&text, "are not served"), "{text}");
                let text = last(&format!("write {private} mine"), false);
                assert!(refused(&text, "are not served"), "{text}");
            }
        }
    }
    let mut client =
        ClientBuilder::new(TransportKind::Unix, Dialect::V1, "off").with_capabilities(able).connect(&server);
    let session = client.new_session();
    client.turn(&session, &format!("read {}", name("project/notes")));
    client.wait_for_message(&session, "This client reads no files for me.");
    assert_eq!(fs::read_to_string(name("secret")).unwrap(), "not readable");
}

#[test]
fn cancelling_kills_a_terminal_that_the_server_runs() {
    let server = start_server("");
    for dialect in [Dialect::V2, Dialect::Draft] {
        let mut client = server.client(TransportKind::Unix, dialect, "v1");
        let session = client.new_session();
        let prompt = client.prompt(&session, "terminal echo begun; sleep 1000\nsay On.");
        let shown = client.wait_for_update(&session, 0, "the terminal is shown", |update| {
            update["sessionUpdate"] == "terminal_update" && update["terminalId"].is_string()
        });
        assert_eq!(shown["capabilities"], json!({ "cancel": {} }), "{shown}");
        let params = json!({ "sessionId": session, "terminalId": shown["terminalId"] });
        assert_eq!(client.call("terminal/cancel", params.clone()).unwrap(), json!({}));
        assert_eq!(client.end_of_turn(&session, prompt), "end_turn");
        let terminals = client.view(&session)["terminals"].clone();
        assert!(terminals[0]["exitStatus"]["signal"].is_string(), "{terminals}");
        assert!(terminals[0].get("capabilities").is_none_or(serde_json::Value::is_null), "{terminals}");
        // Again, and for an unknown terminal.
        assert_eq!(client.call("terminal/cancel", params).unwrap_err()["code"], -32602);
        let unknown = json!({ "sessionId": session, "terminalId": "none" });
        assert_eq!(client.call("terminal/cancel", unknown).unwrap_err()["code"], -32602);
    }
}

#[test]
fn the_server_runs_terminals_and_their_output_reaches_all_clients() {
    let server = start_server("");
    for agent in 0..TEST_AGENTS.len() {
        let (mut clients, session) = three_clients(&server, agent);
        let prompt = clients[0].prompt(&session, "terminal echo from the; echo terminal\nsay Ran.");
        clients[0].end_of_turn(&session, prompt);
        let stored = server.stored_transcript(&session);
        clients.iter_mut().for_each(|client| client.wait_for_transcript(&session, &stored));
        for client in &mut clients[1..] {
            let terminals = client.view(&session)["terminals"].clone();
            let ended: Vec<_> = terminals.as_array().unwrap().iter().map(|one| &one["exitStatus"]).collect();
            assert_eq!(ended, [&json!({ "exitCode": 0 })], "{terminals}");
            assert!(terminals[0]["command"].as_str().unwrap().contains("echo from the"), "{terminals}");
        }
        // In v1 it is content of the tool call.
        let calls = clients[0].view(&session)["toolCalls"].to_string();
        assert!(calls.contains("from the\\nterminal"), "{calls}");
    }
}

#[test]
fn a_file_request_falls_back_to_disk_when_the_editor_disconnects() {
    let server = start_server(SCRIPTED_AGENTS);
    let scripted = ScriptedAgent::of(&server, "scripted-v1");
    let able = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let folder = server.dir().path().join("folder");
    fs::create_dir(&folder).unwrap();
    let (read, written) = (folder.join("read"), folder.join("written"));
    fs::write(&read, "on the disk").unwrap();
    for (n, how) in ["it closes the session", "its connection ends"].into_iter().enumerate() {
        let mut editor = ClientBuilder::new(TransportKind::Unix, Dialect::V1, "scripted-v1")
            .with_capabilities(able.clone())
            .connect(&server);
        let session = editor.new_session_in(folder.to_str().unwrap());
        let mut other = server.client(TransportKind::Unix, Dialect::V2, "scripted-v1");
        other.load(&session);
        editor.prompt(&session, "go");
        let prompt = scripted.prompt();
        scripted.send_request(&prompt, 1, "fs/read_text_file", json!({ "path": read }));
        let peer_request = editor.peer_request("fs/read_text_file");
        scripted.send_request(&prompt, 2, "fs/write_text_file", json!({ "path": written, "content": how }));
        editor.peer_request("fs/write_text_file");
        if n == 0 {
            editor.call("session/close", json!({ "sessionId": session })).unwrap();
            editor.wait_for_cancel(&peer_request);
        } else {
            drop(editor);
        }
        let mut answers = [scripted.next_response(), scripted.next_response()];
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!(answers[0]["result"]["content"], "on the disk", "{how}: {answers:?}");
        assert!(answers[1].get("result").is_some(), "{how}: {answers:?}");
        assert_eq!(fs::read_to_string(&written).unwrap(), how);
        // Later requests are served from disk as well.
        scripted.send_request(&prompt, 3, "fs/read_text_file", json!({ "path": written }));
        assert_eq!(scripted.response_to(3)["result"]["content"], how);
        scripted.send_request(&prompt, 4, "fs/read_text_file", json!({ "path": server.dir().config() }));
        assert!(scripted.response_to(4).get("error").is_some());
        scripted.turn(&prompt, "m", "end_turn");
        other.wait_for_idle(&session, 0);
    }
}

#[test]
fn a_request_for_one_client_ends_when_that_client_disconnects_or_the_agent_cancels_it() {
    let server = start_server(SCRIPTED_AGENTS);
    for name in ["scripted-v1", "scripted-v2"] {
        let scripted = ScriptedAgent::of(&server, name);
        for dialect in Dialect::ALL {
            for how in ["it closes the session", "its connection ends", "the agent cancels it"] {
                let mut client = server.client(TransportKind::Unix, dialect, name);
                let session = client.new_session();
                let mut other = server.client(TransportKind::Unix, Dialect::V2, name);
                other.load(&session);
                let prompt_id = client.prompt(&session, "go");
                let prompt = scripted.prompt();
                if name == "scripted-v2" {
                    scripted.accept(&prompt, "m");
                    scripted.state(&prompt, "running", None);
                }
                scripted.send_request(&prompt, 7, "_example/weather", json!({}));
                let peer_request = client.peer_request("_example/weather");
                match how {
                    "it closes the session" => {
                        client.call("session/close", json!({ "sessionId": session })).unwrap();
                        client.wait_for_cancel(&peer_request);
                    }
                    "its connection ends" => drop(client),
                    _ => {
                        let params = json!({ "requestId": 7 });
                        scripted.send(
                            &json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": params }),
                        );
                        client.wait_for_cancel(&peer_request);
                        assert_eq!(scripted.response_to(7)["error"]["code"], -32800);
                        end(&scripted, name, &prompt);
                        client.end_of_turn(&session, prompt_id);
                        // Too late: this response is ignored.
                        client.respond(&peer_request, &json!({ "sky": "blue" }));
                        continue;
                    }
                }
                let error = scripted.response_to(7)["error"].clone();
                assert!(
                    error["message"].as_str().unwrap().contains("has left the session"),
                    "{how}: {error}"
                );
                end(&scripted, name, &prompt);
                other.wait_for_idle(&session, 0);
            }
        }
    }
}

/// Ends the running turn.
fn end(scripted: &ScriptedAgent, name: &str, prompt: &Value) {
    match name {
        "scripted-v1" => scripted.respond(prompt, &json!({ "stopReason": "end_turn" })),
        _ => scripted.state(prompt, "idle", Some("end_turn")),
    }
}

#[test]
fn a_request_has_the_tool_call_id_that_clients_have() {
    let server = start_server(SCRIPTED_AGENTS);
    let able = json!({ "elicitation": { "form": {} } });
    for name in ["scripted-v1", "scripted-v2", "scripted-draft"] {
        let scripted = ScriptedAgent::of(&server, name);
        let call = |prompt: &Value, status: &str| {
            let kind = if name == "scripted-v1" { "tool_call" } else { "tool_call_update" };
            scripted.update(
                prompt,
                &json!({ "sessionUpdate": kind, "toolCallId": "t1", "title": "It", "status": status }),
            );
        };
        let mut first = server.client(TransportKind::Unix, Dialect::V2, name);
        let session = first.new_session();
        let prompt_id = first.prompt(&session, "one");
        let prompt = scripted.prompt();
        call(&prompt, "completed");
        scripted.turn(&prompt, "m1", "end_turn");
        first.end_of_turn(&session, prompt_id);
        // The fork has the tool calls of its parent, and its agent session uses the same id for another tool call.
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        let fork = first.call("session/fork", params).unwrap()["sessionId"].as_str().unwrap().to_owned();
        let mut clients = Dialect::ALL.map(|dialect| {
            ClientBuilder::new(TransportKind::Unix, dialect, name)
                .with_capabilities(able.clone())
                .with_events()
                .connect(&server)
        });
        clients.iter_mut().for_each(|client| drop(client.load(&fork)));
        let prompt_id = clients[1].prompt(&fork, "two");
        let prompt = scripted.prompt();
        if name != "scripted-v1" {
            scripted.accept(&prompt, "m2");
            scripted.state(&prompt, "running", None);
        }
        call(&prompt, "in_progress");
        let id = clients[1].wait_for("the tool call", |client| {
            let transcript = client.fold(&fork)?.transcript();
            let calls = transcript.entries().iter().filter_map(|entry| {
                if let EntryId::ToolCall(id) = entry.id() { Some(id.to_string()) } else { None }
            });
            calls.skip(1).last()
        });
        assert_ne!(id, "t1");
        let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
        let shown = json!({ "toolCallId": "t1", "title": "It", "kind": "edit" });
        let permission =
            |subject: Value| json!({ "options": options, "title": "May I?", "subject": subject });
        let form = json!({ "toolCallId": "t1", "mode": "form", "message": "Who?",
            "requestedSchema": { "type": "object", "properties": {} } });
        let mut requests = vec![("elicitation/create", form)];
        if name == "scripted-v1" {
            requests.push((PERMISSION, json!({ "options": options, "toolCall": shown })));
        } else {
            requests.push((PERMISSION, permission(json!({ "type": "tool_call", "toolCall": shown }))));
            let command = json!({ "type": "command", "command": "ls", "cwd": "/", "toolCallId": "t1" });
            requests.push((PERMISSION, permission(command)));
        }
        for (number, (method, params)) in (100..).zip(requests) {
            let marks = clients.each_ref().map(Client::mark);
            scripted.send_request(&prompt, number, method, params);
            let peer_requests = clients.each_mut().map(|client| client.peer_request(method));
            for (peer_request, client) in peer_requests.iter().zip(&clients) {
                let params = &peer_request["params"];
                assert_eq!(params["sessionId"], fork.as_str(), "{peer_request}");
                let named = [
                    &params["toolCallId"],
                    &params["toolCall"]["toolCallId"],
                    &params["subject"]["toolCallId"],
                    &params["subject"]["toolCall"]["toolCallId"],
                ];
                let named: Vec<_> = named.into_iter().filter(|id| id.is_string()).collect();
                // For v1 a command becomes a tool call that is not in the session.
                let is_made = client.dialect == Dialect::V1 && number == 102;
                assert!(named == [id.as_str()] || is_made && named != ["t1"], "{name}: {id}: {peer_request}");
            }
            match method {
                PERMISSION => clients[0].choose(&peer_requests[0], "yes"),
                _ => clients[0].respond(&peer_requests[0], &json!({ "action": "decline" })),
            }
            scripted.response_to(number);
            let event = clients[2]
                .wait_for_update(&fork, marks[2], "the decision", |update| update["type"] == "decision");
            assert_eq!(event["toolCallId"], id.as_str(), "{event}");
        }
        if name == "scripted-v2" {
            let cancel = clients[1].send("tool_call/cancel", json!({ "sessionId": fork, "toolCallId": id }));
            let cancelled = scripted.wait_for("tool_call/cancel");
            assert_eq!(cancelled["params"]["toolCallId"], "t1", "{cancelled}");
            scripted.respond(&cancelled, &json!({}));
            clients[1].response(cancel).unwrap();
        } else if name == "scripted-v1" {
            let cancel = clients[1]
                .call("tool_call/cancel", json!({ "sessionId": fork, "toolCallId": id }))
                .unwrap_err();
            assert_eq!(cancel["code"], -32601, "{cancel}");
            let message = "the agent's protocol version has no method tool_call/cancel";
            assert_eq!(cancel["message"], message, "{cancel}");
        }
        end(&scripted, name, &prompt);
        clients[1].end_of_turn(&fork, prompt_id);
    }
}
