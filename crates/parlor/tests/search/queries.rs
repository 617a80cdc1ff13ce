//! Queries of clients, and their hits.

use parlor_dialect::Dialect;
use parlor_testkit::client::{ClientBuilder, error_code};
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use serde_json::json;

use crate::Search;
use crate::matches;
use crate::start_server;

#[test]
fn a_message_is_found_at_once_by_clients_of_all_dialects() {
    let server = start_server("");
    let mut others: Vec<_> =
        Dialect::ALL.into_iter().map(|dialect| server.client(TransportKind::Unix, dialect, "v2")).collect();
    others.push(ClientBuilder::new(TransportKind::WebSocket, Dialect::V2, "v2").observer().connect(&server));
    for (n, agent) in TEST_AGENTS.into_iter().enumerate() {
        for (dialect, transport) in Dialect::ALL.into_iter().zip(TransportKind::ALL) {
            let word = format!("needle{n}{}", dialect.name());
            let mut client = server.client(transport, dialect, agent);
            let session = client.new_session();
            let script = format!("think Of {word}s\ntool Thread the {word}\nsay The Café {word} is thin.");
            assert_eq!(client.turn(&session, &script), "end_turn");
            let output = |role: &str| (session.clone(), role.to_owned());
            for other in &mut others {
                assert_eq!(other.roles_of_hits(&format!("{word} thread")), [output("tool"), output("user")]);
                assert_eq!(other.roles_of_hits(&format!("{word}s")), [output("thought"), output("user")]);
                assert_eq!(
                    other.roles_of_hits(&format!("\"cafe {word}\"")),
                    [output("agent"), output("user")]
                );
                let hits = other.hits(&format!("cafe {word} role:agent"));
                assert_eq!(hits.len(), 1);
                assert_eq!(hits[0]["snippet"], format!("The Café {word} is thin."));
                assert_eq!(matches(&hits[0]), ["Café", &word]);
                assert_eq!((&hits[0]["agent"], &hits[0]["cwd"]), (&json!(agent), &json!("/")));
            }
            let hits = others[0].hits(&format!("{word} -thread -think"));
            let id = hits[0]["messageId"].as_str().unwrap();
            assert!(
                server
                    .stored_transcript(&session)
                    .iter()
                    .any(|line| line.contains(id) && line.contains("thin."))
            );
            assert!(hits[0]["at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        }
    }
}

#[test]
fn tool_calls_are_found_by_input_diff_and_output() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        let script = "tool Thread it\nterminal printf haystack; printf needlework\nsay Done.";
        assert_eq!(client.turn(&session, script), "end_turn");
        let tools = |client: &mut parlor_testkit::client::Client, query: &str| {
            let mut found = client.roles_of_hits(query);
            found.retain(|(found, role)| *found == session && role == "tool");
            found.len()
        };
        // Words that are only in the diff.
        assert_eq!(tools(&mut client, "\"Hello, world\""), 1, "{agent}");
        assert_eq!(tools(&mut client, "\"line changed\""), 1, "{agent}");
        assert!(tools(&mut client, "haystackneedlework") >= 1, "{agent}");
        client.call("session/delete", json!({ "sessionId": session })).unwrap();
        assert_eq!(client.roles_of_hits("haystackneedlework"), [], "{agent}");
    }
}

#[test]
fn a_completed_entry_is_found_before_the_turn_ends() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        let prompt = client.prompt(&session, "say A finished thing.\ntool Look around\nask\nsay The rest.");
        let peer_request = client.peer_request("session/request_permission");
        let roles_of_hits = client.roles_of_hits("finished");
        assert_eq!(
            roles_of_hits,
            [(session.clone(), "agent".to_owned()), (session.clone(), "user".to_owned())],
            "{agent}"
        );
        client.choose(&peer_request, "allow-once");
        assert_eq!(client.end_of_turn(&session, prompt), "end_turn");
        assert!(client.roles_of_hits("rest").contains(&(session.clone(), "agent".to_owned())));
        client.call("session/delete", json!({ "sessionId": session })).unwrap();
        assert_eq!(client.roles_of_hits("finished"), []);
    }
}

#[test]
fn sessions_are_found_by_their_titles() {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "title Repairing the zeppelin");
        let hits = client.hits("zeppelin role:title");
        assert_eq!(hits.len(), 1, "{agent}");
        assert_eq!(
            (&hits[0]["sessionId"], &hits[0]["title"]),
            (&json!(session), &json!("Repairing the zeppelin"))
        );
        assert_eq!((&hits[0]["messageId"], &hits[0]["snippet"]), (&json!(null), &hits[0]["title"]));
        assert_eq!(matches(&hits[0]), ["zeppelin"]);
        client.turn(&session, "title Something else");
        assert_eq!(client.hits("zeppelin role:title"), [json!(null); 0]);
        client.call("session/delete", json!({ "sessionId": session })).unwrap();
    }
}

#[test]
fn filters_restrict_the_hits() {
    let server = start_server("");
    let there = server.dir().path().to_str().unwrap().to_owned();
    let mut one = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let mut two = server.client(TransportKind::Unix, Dialect::V1, "v1");
    let (here, away) = (one.new_session(), two.new_session_in(&there));
    one.turn(&here, "say marked");
    two.turn(&away, "say marked");
    let sessions = |client: &mut parlor_testkit::client::Client, params: serde_json::Value| {
        let mut found: Vec<_> = client
            .hits_with(params)
            .iter()
            .map(|hit| format!("{} {}", hit["sessionId"].as_str().unwrap(), hit["role"].as_str().unwrap()))
            .collect();
        found.sort_unstable();
        found
    };
    let of = |session: &str| [format!("{session} agent"), format!("{session} user")];
    let mut both = [of(&here), of(&away)].concat();
    both.sort_unstable();
    for (query, expected) in [
        ("marked".to_owned(), both.clone()),
        ("marked agent:v1".to_owned(), of(&away).to_vec()),
        (format!("cwd:{there} marked"), of(&away).to_vec()),
        ("marked cwd:/ role:user".to_owned(), vec![of(&here)[1].clone()]),
        ("marked since:1h".to_owned(), both.clone()),
        ("since:2020-01-01 marked".to_owned(), both.clone()),
        ("marked since:2999-01-01".to_owned(), vec![]),
        ("marked agent:nobody".to_owned(), vec![]),
    ] {
        assert_eq!(sessions(&mut one, json!({ "query": query })), expected, "{query}");
    }
    let params =
        json!({ "query": "marked", "sessionId": away, "role": "agent", "agent": "v1", "cwd": there });
    assert_eq!(sessions(&mut two, params), [of(&away)[0].clone()]);
    for bad in [
        json!({ "query": "colour:blue" }),
        json!({ "query": "x", "colour": "blue" }),
        json!({ "query": "x", "role": "nobody" }),
        json!({ "query": "x since:tomorrow" }),
        json!({}),
    ] {
        assert_eq!(error_code(&one.call("_parlor/search", bad.clone())), -32602, "{bad}");
    }
    let error = one.call("_parlor/search", json!({ "query": "colour:blue" })).unwrap_err();
    assert!(error["data"]["hint"].as_str().unwrap().contains("since"), "{error}");
}

#[test]
fn pages_continue_at_the_cursor() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let session = client.new_session();
    for n in 0..7 {
        client.turn(&session, &format!("say paged {}", "and so on ".repeat(n)));
    }
    let all = client.hits("paged role:agent");
    assert_eq!(all.len(), 7);
    let (mut pages, mut cursor) = (Vec::new(), json!(null));
    loop {
        let page = client
            .call("_parlor/search", json!({ "query": "paged role:agent", "limit": 3, "cursor": cursor }))
            .unwrap();
        pages.extend(page["hits"].as_array().unwrap().clone());
        match page.get("nextCursor") {
            Some(next) => cursor = next.clone(),
            None => break,
        }
    }
    assert_eq!(pages, all);
}
