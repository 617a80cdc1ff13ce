//! A running server with agents and with clients of all dialects on all transports.

mod acp_command;
mod attach;
mod close;
mod config;
mod context;
mod dialects;
mod events;
mod forks;
mod initialize;
mod login;
mod peer_requests;
mod persistence;
mod prompt_matching;
mod prompts;
mod restore;
mod roles_and_errors;
mod scripted_agent;
mod steering;
mod unresponsive_agents;
mod updates;

use parlor_dialect::Dialect;
use parlor_testkit::client::{Client, ClientBuilder};
use parlor_testkit::server::{Server, TEST_AGENTS, TestDir};
use parlor_testkit::transport::TransportKind;

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}

/// Two clients of the given dialects in one session, which the first one created. The transports depend on `n`.
fn two_clients(server: &Server, n: usize, agent: &str, dialects: [Dialect; 2]) -> (Client, Client, String) {
    let mut one = server.client(TransportKind::ALL[n % 3], dialects[0], agent);
    let mut two = server.client(TransportKind::ALL[(n + 1) % 3], dialects[1], agent);
    let session = one.new_session();
    two.load(&session);
    (one, two, session)
}

/// One client per dialect for the test agent with this index; the transport of a dialect differs for each agent.
fn client_per_dialect(
    server: &Server,
    agent: usize,
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> [Client; 3] {
    [0, 1, 2].map(|n| {
        let transport = TransportKind::ALL[(n + agent) % 3];
        configure(ClientBuilder::new(transport, Dialect::ALL[n], TEST_AGENTS[agent])).connect(server)
    })
}

/// Creates a session with one of the clients, and attaches the others to it.
fn session_of(clients: &mut [Client], creator: usize) -> String {
    let session = clients[creator].new_session();
    for (_, client) in clients.iter_mut().enumerate().filter(|(n, _)| *n != creator) {
        client.load(&session);
    }
    session
}
