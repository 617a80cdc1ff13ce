//! The search index after a restart, a crash, a redaction, an upgrade.

use std::path::Path;

use parlor_dialect::Dialect;
use parlor_testkit::scenario::Scenario;
use parlor_testkit::server::TEST_AGENTS;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::json;

use crate::Search;
use crate::{PARLOR, start_server};

#[test]
fn replaced_and_redacted_text_is_not_found() {
    let mut server = start_server("");
    let mut sessions = Vec::new();
    for agent in ["v2", "draft"] {
        for script in ["redact", "redact clear"] {
            let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
            let session = client.new_session();
            client.turn(&session, script);
            sessions.push((session, script));
        }
    }
    for _ in 0..2 {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
        for (session, script) in &sessions {
            let found = |client: &mut parlor_testkit::client::Client, query: &str| {
                client.hits_with(json!({ "query": query, "sessionId": session, "role": "agent" })).len()
            };
            assert_eq!(found(&mut client, "swordfish"), 0, "{script}");
            assert_eq!(found(&mut client, "password"), usize::from(*script == "redact"), "{script}");
        }
        server.restart();
    }
}

#[test]
fn text_from_before_a_crash_is_found_after_it() {
    let mut server = start_server("");
    let mut sessions = Vec::new();
    for agent in TEST_AGENTS {
        let mut client = server.client(TransportKind::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "say Before all.");
        client.prompt(&session, "say The last words.\nhang");
        client.wait_for_message(&session, "Hanging.");
        sessions.push(session);
    }
    server.crash();
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    for session in sessions {
        // The interrupted turn is ended before the server accepts connections.
        for query in ["last words", "before all", "hanging"] {
            let hits = client.hits_with(json!({ "query": query, "sessionId": session, "role": "agent" }));
            assert_eq!(hits.len(), 1, "{query}");
        }
    }
}

/// Converts a database to the format of an earlier version.
fn downgrade(database: &Path) {
    let conn = rusqlite::Connection::open(database).unwrap();
    conn.execute_batch(
        "DROP INDEX sessions_owner; ALTER TABLE sessions DROP COLUMN owner;
         DROP TABLE word_index; DROP TABLE words; DROP TABLE families; DROP TABLE unindexed; DROP TABLE indexed_texts; DROP TABLE journal;
         CREATE TABLE earlier (content INTEGER NOT NULL, n INTEGER NOT NULL, seq INTEGER NOT NULL,
             closed INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (content, n)) STRICT, WITHOUT ROWID;
         INSERT INTO earlier SELECT key >> 20, key & 0xfffff, seq, closed, text FROM segments;
         DROP TABLE segments;
         ALTER TABLE earlier RENAME TO segments;
         PRAGMA user_version = 1;",
    )
    .unwrap();
}

#[test]
fn sessions_of_an_earlier_version_are_indexed_after_an_upgrade() {
    let mut scenario = Scenario::new(PARLOR).with_server();
    let first = scenario.new_session("title The old title\nsay An ancient saying.\ntool Dig it up");
    let second = scenario.new_session("big 3000000\nsay Another ancient saying.");
    scenario.stop();
    downgrade(&scenario.data().join("parlor.db"));

    for command in [&["ls"][..], &["search", "ancient"]] {
        let output = scenario.run(command).exit_code(5);
        assert!(
            output.stderr.contains("earlier format") && output.stderr.contains("parlor serve"),
            "{output:#?}"
        );
    }

    scenario.serve(&[]);
    let found = |scenario: &Scenario, query: &str| {
        let hits = scenario.run(&["search", "--json", query]).success().json();
        let mut ids: Vec<_> = hits
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["sessionId"].as_str().unwrap().to_owned())
            .collect();
        ids.sort_unstable();
        ids
    };
    wait_until("all sessions are indexed", || {
        scenario.run(&["search", "--json", "ancient role:agent"]).success().stderr.is_empty()
    });
    let mut both = [first.clone(), second];
    both.sort_unstable();
    assert_eq!(found(&scenario, "ancient role:agent"), both);
    assert_eq!(found(&scenario, "old title role:title"), std::slice::from_ref(&first));
    assert_eq!(found(&scenario, "dig role:tool"), [first]);
    scenario.stop();
    assert_eq!(found(&scenario, "ancient role:agent").len(), 2, "also without a server");
}
