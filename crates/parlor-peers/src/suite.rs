//! All stories.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parlor_dialect::Dialect;
use parlor_testkit::programs;

use crate::agents::{AGENTS, Agent};
use crate::client_story;
use crate::clients::{CLIENTS, Client};
use crate::install::Peers;
use crate::pairs::{self, Pair};
use crate::report::{self, Column, Listed, Row};
use crate::step::{ClientStep, Expectation, Outcome, Step};
use crate::story::{self, Cast, Report};

/// The agent of the stories with clients.
const AGENT_OF_CLIENTS: &str = "claude-agent-acp";

/// What is run.
#[derive(Debug, Default)]
pub struct Selection {
    /// Parts of the names of stories.
    pub names: Vec<String>,
    /// The titles of steps.
    pub steps: Vec<String>,
}

/// One story.
#[derive(Debug, Clone, Copy)]
enum Story {
    Agent(Cast),
    Client(&'static Client),
    Pairs,
}

/// How the steps of a story ended.
#[derive(Debug)]
enum Played {
    Agent(Vec<Report<Step>>),
    Client(Vec<Report<ClientStep>>),
    Pairs(Vec<Pair>),
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(cast) => cast.fmt(f),
            Self::Client(client) => write!(f, "client {}", client.name),
            Self::Pairs => f.write_str("pairs"),
        }
    }
}

impl Story {
    /// All stories, the long ones first.
    fn all() -> Vec<Self> {
        let versions = |agent: &'static Agent| agent.versions.iter().map(move |&version| (agent, version));
        let casts = AGENTS.iter().flat_map(versions).flat_map(|(agent, version)| {
            [Dialect::V1, Dialect::V2].map(|client| Self::Agent(Cast { agent, version, client }))
        });
        let mut all: Vec<_> =
            [Self::Pairs].into_iter().chain(casts).chain(CLIENTS.iter().map(Self::Client)).collect();
        all.sort_by_key(|story| !matches!(story, Self::Agent(cast) if cast.agent.is_slow));
        all
    }

    fn play(self, peers: &Peers, parlor: &str, selection: &Selection) -> Played {
        match self {
            Self::Agent(cast) => Played::Agent(story::play(cast, peers, parlor, &selection.of(Step::ALL))),
            Self::Client(client) => {
                let agent =
                    AGENTS.iter().find(|agent| agent.name == AGENT_OF_CLIENTS).expect("it is an agent");
                Played::Client(client_story::play(
                    client,
                    agent,
                    peers,
                    parlor,
                    &selection.of(ClientStep::ALL),
                ))
            }
            Self::Pairs => Played::Pairs(pairs::play(peers, parlor)),
        }
    }
}

impl Selection {
    fn of<S: Copy + fmt::Display>(&self, steps: &[S]) -> Vec<S> {
        steps.iter().copied().filter(|step| self.steps.contains(&step.to_string())).collect()
    }

    fn is_all(&self) -> bool {
        self.names.is_empty() && self.steps.is_empty()
    }
}

/// How the stories are run.
#[derive(Debug)]
pub struct SuiteOptions {
    /// The directory into which the peers are installed.
    pub dir: PathBuf,
    /// The program that is tested; that of this workspace if there is none.
    pub parlor: Option<String>,
    /// How many stories run at the same time.
    pub jobs: usize,
    /// Whether the page is written, not compared.
    pub update: bool,
}

/// Installs the peers.
pub fn install(dir: &Path) -> Result<Peers, String> {
    let start = Instant::now();
    let peers = Peers::install(dir)?;
    log(&format!("the peers are installed ({:.0} s)", start.elapsed().as_secs_f32()));
    Ok(peers)
}

/// Installs the peers and runs the stories: whether everything is as expected. `page` is the page with the outcomes.
pub fn run(options: &SuiteOptions, selection: &Selection, page: &Path) -> Result<bool, String> {
    let start = Instant::now();
    story::print_other_panics();
    let peers = install(&options.dir)?;
    let parlor = match &options.parlor {
        Some(parlor) => parlor.clone(),
        None => programs::find("parlor", "parlor")?,
    };
    let is_selected = |story: &Story| {
        let name = story.to_string();
        selection.names.is_empty() || selection.names.iter().any(|part| name.contains(part.as_str()))
    };
    let stories: Vec<_> = Story::all().into_iter().filter(is_selected).collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(Story, Played)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some(&story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let played = story.play(&peers, &parlor, selection);
                    log(&summary(story, &played, start));
                    results.lock().expect("no thread panics with it").push((story, played));
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics with it");
    let failures: usize = results.iter().map(|(story, played)| failures(*story, played).len()).sum();
    let disagreements = disagreements(&results);
    disagreements.iter().for_each(|text| log(&format!("UNEXPECTED {text}")));
    let failures = failures + disagreements.len();
    log(&format!(
        "{} stories, {failures} unexpected outcomes, {:.0} s",
        results.len(),
        start.elapsed().as_secs_f32()
    ));
    if failures > 0 || !selection.is_all() {
        return Ok(failures == 0);
    }
    compare(page, &render(&results), options.update)
}

/// Compares the page with what it should be, or writes it.
fn compare(page: &Path, text: &str, update: bool) -> Result<bool, String> {
    if std::fs::read_to_string(page).is_ok_and(|present| present == text) {
        return Ok(true);
    }
    if update {
        std::fs::write(page, text).map_err(|error| format!("cannot write {}: {error}", page.display()))?;
        log(&format!("wrote {}", page.display()));
        return Ok(true);
    }
    log(&format!("{} is out of date: run with UPDATE_EXPECT=1 to write it", page.display()));
    Ok(false)
}

/// What was expected of each step of a story, and how it ended.
fn outcomes(story: Story, played: &Played) -> Vec<(String, Expectation, &Outcome)> {
    match (story, played) {
        (Story::Agent(cast), Played::Agent(reports)) => {
            let expected = |step| cast.agent.expectation(step, cast.version);
            reports
                .iter()
                .map(|report| (report.step.to_string(), expected(report.step), &report.outcome))
                .collect()
        }
        (Story::Client(client), Played::Client(reports)) => {
            let expected = |step| client.expectation(step);
            reports
                .iter()
                .map(|report| (report.step.to_string(), expected(report.step), &report.outcome))
                .collect()
        }
        (_, Played::Pairs(pairs)) => {
            let name = |pair: &Pair| format!("{} with {}", pair.client.column, pair.agent.column);
            pairs.iter().map(|pair| (name(pair), Expectation::Works, &pair.outcome)).collect()
        }
        _ => Vec::new(),
    }
}

/// The steps that ended in another way than expected.
fn failures(story: Story, played: &Played) -> Vec<(String, String)> {
    let outcomes = outcomes(story, played).into_iter();
    outcomes.filter_map(|(step, expected, outcome)| Some((step, expected.check(outcome).err()?))).collect()
}

/// The steps that end with different remarks in the stories of the same column.
fn disagreements(results: &[(Story, Played)]) -> Vec<String> {
    let columns = AGENTS.iter().flat_map(|agent| agent.versions.iter().map(move |&version| (agent, version)));
    let columns = columns.map(|(agent, version)| agent_column(agent, version, results));
    let of_column = |column: Column| {
        let steps = Step::ALL.iter().zip(column.cells);
        let differ = steps.filter(|(_, (_, outcomes))| report::remarks(outcomes).len() > 1);
        let describe = |(step, (_, outcomes)): (&Step, (_, Vec<Outcome>))| {
            format!("{step} of {}: {:?}", column.title, report::remarks(&outcomes))
        };
        differ.map(describe).collect::<Vec<_>>()
    };
    columns.flat_map(of_column).collect()
}

fn summary(story: Story, played: &Played, start: Instant) -> String {
    let times: Vec<_> = match played {
        Played::Agent(reports) => reports.iter().map(|report| report.took).collect(),
        Played::Client(reports) => reports.iter().map(|report| report.took).collect(),
        Played::Pairs(pairs) => pairs.iter().map(|pair| pair.took).collect(),
    };
    let mut text = format!("{story} ({:.0} s)", start.elapsed().as_secs_f32());
    for ((step, _, outcome), took) in outcomes(story, played).into_iter().zip(times) {
        let outcome = match outcome {
            Outcome::Works(None) => "works".to_owned(),
            Outcome::Works(Some(remark)) => format!("works ({remark})"),
            Outcome::Fails(_) => "fails".to_owned(),
            Outcome::NotTried(_) => "not tried".to_owned(),
        };
        let _ = write!(text, "\n  {step:15} {:5.1} s  {outcome}", took.as_secs_f32());
    }
    for (step, wrong) in failures(story, played) {
        let wrong: String = wrong.chars().take(3000).collect();
        let _ = write!(text, "\n  UNEXPECTED {step}: {wrong}");
    }
    text
}

/// The page for these results.
fn render(results: &[(Story, Played)]) -> String {
    let versions = |versions: &[u8]| versions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let agents: Vec<Listed> = AGENTS
        .iter()
        .map(|agent| (agent.name.to_owned(), (agent.package)(), versions(agent.versions)))
        .collect();
    let clients: Vec<Listed> = CLIENTS
        .iter()
        .map(|client| (client.name.to_owned(), (client.package)(), versions(&[client.version])))
        .collect();
    let row = |title, meaning| Row { title, meaning };
    let agent_rows: Vec<_> = Step::ALL.iter().map(|step| row(step.title(), step.meaning())).collect();
    let client_rows: Vec<_> = ClientStep::ALL.iter().map(|step| row(step.title(), step.meaning())).collect();
    let agent_columns =
        AGENTS.iter().flat_map(|agent| agent.versions.iter().map(move |&version| (agent, version)));
    let agent_columns: Vec<_> =
        agent_columns.map(|(agent, version)| agent_column(agent, version, results)).collect();
    let client_columns: Vec<_> = CLIENTS.iter().map(|client| client_column(client, results)).collect();
    let pairs: Vec<_> = results
        .iter()
        .filter_map(|(_, played)| if let Played::Pairs(pairs) = played { Some(pairs) } else { None })
        .flatten()
        .collect();
    let heading: Vec<_> = pairs::paired_agents().map(|agent| agent.column).collect();
    let row = |client: &Client| {
        let outcome = |column: &&str| {
            let is_it = |pair: &&&Pair| pair.client.name == client.name && pair.agent.column == *column;
            pairs.iter().find(is_it).map_or("", |_| "yes").to_owned()
        };
        (client.column.to_owned(), heading.iter().map(outcome).collect())
    };
    let pair_rows: Vec<(String, Vec<String>)> = CLIENTS.iter().map(row).collect();
    let mut page =
        report::page((&agents, &agent_rows, &agent_columns), (&clients, &client_rows, &client_columns));
    report::pairs(&mut page, &heading, &pair_rows);
    page
}

fn agent_column(agent: &Agent, version: u8, results: &[(Story, Played)]) -> Column {
    let is_ours = |cast: &Cast| cast.agent.name == agent.name && cast.version == version;
    let reports: Vec<_> = results
        .iter()
        .filter_map(|(story, played)| match (story, played) {
            (Story::Agent(cast), Played::Agent(reports)) if is_ours(cast) => Some(reports),
            _ => None,
        })
        .flatten()
        .collect();
    let cell = |step: Step| {
        let outcomes =
            reports.iter().filter(|report| report.step == step).map(|report| report.outcome.clone());
        (agent.expectation(step, version), outcomes.collect())
    };
    let title = if agent.versions.len() > 1 {
        format!("{} v{version}", agent.column)
    } else {
        agent.column.to_owned()
    };
    Column { title, cells: Step::ALL.iter().map(|&step| cell(step)).collect(), reasons: agent.reasons }
}

fn client_column(client: &Client, results: &[(Story, Played)]) -> Column {
    let reports: Vec<_> = results
        .iter()
        .filter_map(|(story, played)| match (story, played) {
            (Story::Client(of), Played::Client(reports)) if of.name == client.name => Some(reports),
            _ => None,
        })
        .flatten()
        .collect();
    let cell = |step: ClientStep| {
        let outcomes =
            reports.iter().filter(|report| report.step == step).map(|report| report.outcome.clone());
        (client.expectation(step), outcomes.collect())
    };
    Column {
        title: client.column.to_owned(),
        cells: ClientStep::ALL.iter().map(|&step| cell(step)).collect(),
        reasons: &[],
    }
}

fn log(text: &str) {
    let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("{text}\n"));
}
