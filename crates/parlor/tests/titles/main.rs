//! Titles and metadata of sessions, as agents and people give them and as everybody hears of them.

#[path = "../live/client.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod client;
mod documents;
#[path = "../live/doors.rs"]
mod doors;
mod help;
#[path = "../live/known.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod known;
mod limits;
mod people;
#[path = "../live/server.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod server;

use parlor_dialect::Dialect;
use serde_json::{Value, json};

use crate::client::Client;
use crate::doors::{DOORS, Door};
use crate::server::{AGENTS, Server};

/// One client of each dialect in one session, which the first of them began.
fn three(server: &Server, agent: &str) -> ([Client; 3], String) {
    let mut clients = [0, 1, 2].map(|n| server.client(DOORS[n], Dialect::ALL[n], agent));
    let session = clients[0].new_session();
    clients[1].load(&session);
    clients[2].load(&session);
    (clients, session)
}

/// Lets look at a session with each agent.
fn each(mut look: impl FnMut(&Server, &str, &mut [Client; 3], &str)) {
    let server = Server::start();
    for agent in AGENTS {
        let (mut clients, session) = three(&server, agent);
        look(&server, agent, &mut clients, &session);
    }
}

impl Client {
    fn info(&self, session: &str) -> Value {
        if self.folds.contains_key(session) { self.view(session)["info"].clone() } else { Value::Null }
    }

    /// Listens until the session has a title, and this mark of whose it is.
    fn comes_to_title(&mut self, session: &str, title: &str, mark: &Value) {
        self.until(&format!("the title is {title}"), |client| {
            let info = client.info(session);
            (info["title"] == title && info["_meta"]["parlor/title"] == *mark).then_some(())
        });
    }

    /// How lists show the session.
    fn listed(&mut self, session: &str) -> Value {
        let listed = self.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
        let found = listed["sessions"].as_array().unwrap().iter().find(|one| one["sessionId"] == session);
        found.unwrap_or_else(|| panic!("{session} is not in {listed}")).clone()
    }
}

/// What somebody hears who comes now.
fn joiner(server: &Server, dialect: Dialect, agent: &str, session: &str) -> Value {
    let mut late = server.client(Door::Unix, dialect, agent);
    late.load(session);
    late.info(session)
}
