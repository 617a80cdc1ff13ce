//! The proposal for session information updates, sentence by sentence, with a server, agents of all dialects, clients of
//! all dialects, and lists.

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::wait::TIMEOUT;
use serde_json::{Value, json};

use crate::Titles;
use crate::{each, joiner};

/// Checks the session after a turn, for attached clients, for clients that attach later, and in lists.
fn all_know(
    server: &parlor_testkit::server::Server,
    agent: &str,
    clients: &mut [Client; 3],
    session: &str,
    is_so: impl Fn(&Value) -> bool,
) {
    for client in clients.iter_mut() {
        client.wait_for("the information is received", |client| is_so(&client.info(session)).then_some(()));
        let listed = client.listed(session);
        assert!(is_so(&listed), "{agent}: {listed}");
    }
    for dialect in Dialect::ALL {
        let info = joiner(server, dialect, agent, session);
        assert!(is_so(&info), "{agent} to {dialect}: {info}");
    }
}

#[test]
fn the_agent_generates_a_title_with_metadata_after_the_first_prompt_and_updates_the_title_later() {
    each(|server, agent, clients, session| {
        let meta = r#"meta {"projectName":"api-server","branch":"main","tags":["feature","auth"]}"#;
        clients[0].turn(session, &format!("title Debug authentication timeout\n{meta}"));
        all_know(server, agent, clients, session, |info| {
            info["title"] == "Debug authentication timeout"
                && info["_meta"]["projectName"] == "api-server"
                && info["_meta"]["branch"] == "main"
                && info["_meta"]["tags"] == json!(["feature", "auth"])
        });
        clients[1].turn(session, "title Debug authentication timeout → Add retry logic");
        all_know(server, agent, clients, session, |info| {
            info["title"] == "Debug authentication timeout → Add retry logic"
                && info["_meta"]["projectName"] == "api-server"
        });
    });
}

#[test]
fn metadata_persists_and_is_reflected_in_subsequent_lists() {
    let mut server = crate::start_server("");
    let mut sessions = Vec::new();
    for agent in crate::TEST_AGENTS {
        let mut client = server.client(crate::TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, r#"meta {"priority":"high"}"#);
        sessions.push((agent, session));
    }
    server.restart();
    for (agent, session) in sessions {
        let mut client = server.client(crate::TransportKind::Unix, Dialect::V1, agent);
        let listed = client.listed(&session);
        assert_eq!(listed["_meta"]["priority"], "high", "{listed}");
    }
}

#[test]
fn to_clear_a_specific_field_and_to_clear_all_custom_metadata() {
    each(|server, agent, clients, session| {
        clients[0].turn(session, "meta {\"a\":1,\"b\":{\"c\":2}}\nmeta {\"a\":null}");
        all_know(server, agent, clients, session, |info| {
            info["_meta"].get("a").is_none() && info["_meta"]["b"] == json!({ "c": 2 })
        });
        clients[2].turn(session, "meta null");
        all_know(server, agent, clients, session, |info| {
            // Keys of parlor are not custom metadata.
            let meta = info["_meta"].as_object().cloned().unwrap_or_default();
            meta.keys().all(|key| key.starts_with("parlor/")) && info["title"].is_string()
        });
    });
}

#[test]
fn updates_in_quick_succession_are_applied_in_order() {
    each(|server, agent, clients, session| {
        let script: Vec<_> =
            (0..200).map(|n| format!("title Step {n}\nmeta {{\"last\":{n},\"n{n}\":{n}}}")).collect();
        clients[0].turn(session, &script.join("\n"));
        all_know(server, agent, clients, session, |info| {
            info["title"] == "Step 199"
                && info["_meta"]["last"] == 199
                && (0..200).all(|n| info["_meta"][format!("n{n}")] == n)
        });
        for client in clients.iter() {
            let sent: Vec<i64> = client
                .updates(session, 0)
                .filter_map(|update| update["title"].as_str()?.strip_prefix("Step ")?.parse().ok())
                .collect();
            assert!(sent.is_sorted(), "{agent}: {sent:?}");
        }
    });
}

#[test]
fn a_title_that_is_too_long_is_truncated_for_all_clients() {
    each(|server, agent, clients, session| {
        let cut = format!("{}😀", "ü".repeat(499));
        clients[0].turn(session, &format!("title {cut} and more"));
        all_know(server, agent, clients, session, |info| info["title"] == cut.as_str());
    });
}

#[test]
fn activity_updates_the_time_in_lists() {
    each(|_, agent, clients, session| {
        let first = clients[0].listed(session)["updatedAt"].as_str().unwrap().to_owned();
        // The time is stored at most once per second.
        let mut last = first.clone();
        let started = std::time::Instant::now();
        while last == first {
            assert!(started.elapsed() < TIMEOUT, "{agent}");
            clients[1].turn(session, "say Something.");
            last = clients[2].listed(session)["updatedAt"].as_str().unwrap().to_owned();
        }
        let time = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        assert!(time(&last) > time(&first), "{agent}: {first} and then {last}");
    });
}
