//! Titles and metadata of sessions, set by agents and users, for clients of all dialects.

mod agent_titles;
mod limits;
mod user_titles;

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::server::{Server, TEST_AGENTS, TestDir};
use parlor_testkit::transport::TransportKind;
use serde_json::{Value, json};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}

/// One client of each dialect in one session, which the first client created.
fn three(server: &Server, agent: &str) -> ([Client; 3], String) {
    let mut clients = [0, 1, 2].map(|n| server.client(TransportKind::ALL[n], Dialect::ALL[n], agent));
    let session = clients[0].new_session();
    clients[1].load(&session);
    clients[2].load(&session);
    (clients, session)
}

/// Runs a check on a session with each agent.
fn each(mut look: impl FnMut(&Server, &str, &mut [Client; 3], &str)) {
    let server = start_server("");
    for agent in TEST_AGENTS {
        let (mut clients, session) = three(&server, agent);
        look(&server, agent, &mut clients, &session);
    }
}

/// What these tests check.
trait Titles {
    /// The title and metadata of a session as the client has them.
    fn info(&self, session: &str) -> Value;

    /// Waits until the session has this title and this source of it.
    fn wait_for_title(&mut self, session: &str, title: &str, mark: &Value);

    /// The session in a list.
    fn listed(&mut self, session: &str) -> Value;
}

impl Titles for Client {
    fn info(&self, session: &str) -> Value {
        self.fold(session).map_or(Value::Null, |_| self.view(session)["info"].clone())
    }

    fn wait_for_title(&mut self, session: &str, title: &str, mark: &Value) {
        self.wait_for(&format!("the title is {title}"), |client| {
            let info = client.info(session);
            (info["title"] == title && info["_meta"]["parlor/title"] == *mark).then_some(())
        });
    }

    fn listed(&mut self, session: &str) -> Value {
        let listed = self.call("session/list", json!({ "_meta": { "parlor/agent": "*" } })).unwrap();
        let found = listed["sessions"].as_array().unwrap().iter().find(|one| one["sessionId"] == session);
        found.unwrap_or_else(|| panic!("{session} is not in {listed}")).clone()
    }
}

/// What a client gets that attaches now.
fn joiner(server: &Server, dialect: Dialect, agent: &str, session: &str) -> Value {
    let mut late = server.client(TransportKind::Unix, dialect, agent);
    late.load(session);
    late.info(session)
}
