//! Every client with every agent that has a model: one server with all of these agents, and one prompt for each pair.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use parlor_testkit::server::{Server, TestDir};

use crate::agents::{self, AGENTS, Agent};
use crate::client_story::{place, write_script};
use crate::clients::{CLIENTS, Client};
use crate::install::Peers;
use crate::model::{Model, Reply};
use crate::step::Outcome;
use crate::story::{agent_section, caught};

/// A client, an agent, and how a prompt ended.
#[derive(Debug)]
pub struct Pair {
    /// The client.
    pub client: &'static Client,
    /// The agent.
    pub agent: &'static Agent,
    /// How the prompt ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The agents that are paired.
pub fn paired_agents() -> impl Iterator<Item = &'static Agent> {
    AGENTS.iter().filter(|agent| agent.has_model())
}

/// Sends a prompt with each client to each agent.
pub fn play(peers: &Peers, parlor: &str) -> Vec<Pair> {
    let stage = caught(|| Stage::open(peers, parlor));
    let pairs = paired_agents().flat_map(|agent| CLIENTS.iter().map(move |client| (agent, client)));
    let play = |(agent, client): (&'static Agent, &'static Client)| {
        let since = Instant::now();
        let outcome = match &stage {
            Ok(stage) => caught(|| stage.prompt(peers, agent, client)),
            Err(error) => Err(format!("the server with all agents cannot be opened: {error}")),
        };
        let outcome = outcome.map_or_else(Outcome::Fails, |()| Outcome::Works(None));
        Pair { client, agent, outcome, took: since.elapsed() }
    };
    pairs.map(play).collect()
}

/// A server with all agents.
struct Stage {
    dir: TestDir,
    _server: Server,
    models: HashMap<&'static str, Model>,
}

impl Stage {
    fn open(peers: &Peers, parlor: &str) -> Result<Self, String> {
        let dir = TestDir::new(parlor);
        let mut config = String::new();
        let mut models = HashMap::new();
        for agent in paired_agents() {
            let home = dir.path().join("homes").join(agent.column);
            std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
            let model = Model::start().map_err(|error| error.to_string())?;
            let launch =
                (agent.launch)(&agents::AgentEnvironment { peers, home: &home, model: &model.url() });
            let section = agent_section(agent.column, None, peers, &launch, &home, "pairs");
            let _ = writeln!(config, "{section}");
            models.insert(agent.column, model);
        }
        let dir = dir.with_config(&config);
        let server = dir.serve();
        Ok(Self { dir, _server: server, models })
    }

    fn prompt(&self, peers: &Peers, agent: &Agent, client: &Client) -> Result<(), String> {
        let bin = self.dir.path().join("bin").join(agent.column);
        std::fs::create_dir_all(&bin).map_err(|error| error.to_string())?;
        let mut acp = self.dir.acp();
        acp.args(["--agent", agent.column]);
        write_script(&bin.join("npx"), &acp)?;
        let model = &self.models[agent.column];
        let (word, answer) =
            (client.fixed_prompt.unwrap_or("APPLE"), format!("FOR-{}", client.column.replace(' ', "-")));
        model.reply(word, Reply::text(&[&answer]));
        let process = (client.start)(&place(peers, &self.dir, bin, agent.column)?, "Say APPLE.")?;
        process.wait_for(&answer)
    }
}
