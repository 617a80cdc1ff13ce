//! A test of commands: a directory, and a server that comes and goes.

use std::ops::Deref;

use crate::programs;
use crate::server::{Server, TestDir};

/// A directory with at most one server that the test starts; commands may start others.
#[derive(Debug)]
pub struct Scenario {
    dir: TestDir,
    server: Option<Server>,
}

impl Scenario {
    /// A scenario of this parlor without a server.
    pub fn new(program: &str) -> Self {
        Self { dir: TestDir::new(program), server: None }
    }

    /// The same with a server, whose agent is the demo agent.
    #[must_use]
    pub fn with_server(mut self) -> Self {
        self.serve(&["--agent", "demo"]);
        self
    }

    /// The same with a server, whose agent is the test agent.
    #[must_use]
    pub fn with_test_agent(mut self) -> Self {
        self.serve(&["--agent", &format!("test={}", programs::test_agent())]);
        self
    }

    /// Starts a server with these arguments, and waits until it is ready.
    pub fn serve(&mut self, args: &[&str]) {
        let dir = args.iter().fold(self.dir.clone(), |dir, arg| dir.argument(arg));
        self.server = Some(dir.serve());
    }

    /// Stops the server, also one that a command started.
    pub fn stop(&mut self) {
        match self.server.take() {
            Some(mut server) => drop(server.stop()),
            None => self.dir.stop_server(),
        }
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.server.take().expect("a server runs").kill();
    }

    /// Sends a prompt in a new session, and waits until its turn has ended; the id of the session.
    pub fn new_session(&self, text: &str) -> String {
        let output = self.dir.run(&["prompt", "--new", "--yes", "--json", text]).success();
        output.last_json()["sessionId"].as_str().expect("the session has an id").to_owned()
    }
}

impl Deref for Scenario {
    type Target = TestDir;

    fn deref(&self) -> &TestDir {
        &self.dir
    }
}
