//! What is found later: after a restart, a crash, a redaction, an upgrade.

use std::path::Path;

use parlor_dialect::Dialect;
use serde_json::json;

use crate::doors::Door;
use crate::place::{Place, until};
use crate::server::{AGENTS, Server};

#[test]
fn what_was_taken_back_is_not_found() {
    let mut server = Server::start();
    let mut sessions = Vec::new();
    for agent in ["v2", "draft"] {
        for script in ["redact", "redact clear"] {
            let mut client = server.client(Door::Unix, Dialect::V2, agent);
            let session = client.new_session();
            client.turn(&session, script);
            sessions.push((session, script));
        }
    }
    for _ in 0..2 {
        let mut client = server.client(Door::Unix, Dialect::V2, "v2");
        for (session, script) in &sessions {
            let found = |client: &mut crate::client::Client, query: &str| {
                client.hits_with(json!({ "query": query, "sessionId": session, "role": "agent" })).len()
            };
            assert_eq!(found(&mut client, "swordfish"), 0, "{script}");
            assert_eq!(found(&mut client, "password"), usize::from(*script == "redact"), "{script}");
        }
        server.restart();
    }
}

#[test]
fn what_was_said_before_a_crash_is_found_after_it() {
    let mut server = Server::start();
    let mut sessions = Vec::new();
    for agent in AGENTS {
        let mut client = server.client(Door::Unix, Dialect::V2, agent);
        let session = client.new_session();
        client.turn(&session, "say Before all.");
        client.prompt(&session, "say The last words.\nhang");
        client.hears(&session, "Hanging.");
        sessions.push(session);
    }
    server.crash();
    let mut client = server.client(Door::Unix, Dialect::V2, "v2");
    for session in sessions {
        // The turn that was interrupted is ended before anybody is let in.
        for query in ["last words", "before all", "hanging"] {
            let hits = client.hits_with(json!({ "query": query, "sessionId": session, "role": "agent" }));
            assert_eq!(hits.len(), 1, "{query}");
        }
    }
}

/// Makes a database what an earlier version would have written.
fn downgrade(database: &Path) {
    let conn = rusqlite::Connection::open(database).unwrap();
    conn.execute_batch(
        "DROP TABLE word_index; DROP TABLE words; DROP TABLE families; DROP TABLE unindexed; DROP TABLE indexed_texts; DROP TABLE journal;
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
fn sessions_of_an_earlier_version_are_found_after_an_upgrade() {
    let mut place = Place::served();
    let first = place.begin("title The old title\nsay An ancient saying.\ntool Dig it up");
    let second = place.begin("big 3000000\nsay Another ancient saying.");
    place.stop();
    downgrade(&place.data().join("parlor.db"));

    for command in [&["ls"][..], &["search", "ancient"]] {
        let said = place.run(command).ended(1);
        assert!(said.err.contains("earlier version") && said.err.contains("parlor serve"), "{said:#?}");
    }

    place.serve(&[]);
    let found = |place: &Place, query: &str| {
        let hits = place.run(&["search", "--json", query]).done().json();
        let mut ids: Vec<_> = hits
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["sessionId"].as_str().unwrap().to_owned())
            .collect();
        ids.sort_unstable();
        ids
    };
    until(|| place.run(&["search", "--json", "ancient role:agent"]).done().err.is_empty());
    let mut both = [first.clone(), second];
    both.sort_unstable();
    assert_eq!(found(&place, "ancient role:agent"), both);
    assert_eq!(found(&place, "old title role:title"), std::slice::from_ref(&first));
    assert_eq!(found(&place, "dig role:tool"), [first]);
    place.stop();
    assert_eq!(found(&place, "ancient role:agent").len(), 2, "also without a server");
}
