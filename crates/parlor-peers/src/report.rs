//! The page with the outcomes of all stories.

use std::fmt::Write as _;

use crate::step::{Expectation, Outcome};

/// A column of a table: one peer.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// For each step: what was expected, and how it ended in each story of this column.
    pub cells: Vec<(Expectation, Vec<Outcome>)>,
}

/// A row of a table: one step.
#[derive(Debug)]
pub struct Row {
    /// The heading.
    pub title: &'static str,
    /// What is checked.
    pub meaning: &'static str,
}

/// A row of a list of peers: the name, the package, the versions of the protocol.
pub type Listed = (String, String, String);

/// The reasons under a table, each with its number.
#[derive(Debug, Default)]
struct Reasons(Vec<String>);

impl Reasons {
    fn number(&mut self, reason: &str) -> usize {
        let found = self.0.iter().position(|known| known == reason);
        found.unwrap_or_else(|| {
            self.0.push(reason.to_owned());
            self.0.len() - 1
        }) + 1
    }
}

/// The whole page.
pub fn page(agents: (&[Listed], &[Row], &[Column]), clients: (&[Listed], &[Row], &[Column])) -> String {
    let mut page = "# Compatibility\n\n\
        Agents and clients of other projects that parlor is tested with. `./test.sh --real-peers` installs these versions, plays a\n\
        story with each of them, and fails if the outcome differs from this page. With `UPDATE_EXPECT=1` it writes the page.\n\n\
        The agents use a stand-in model (`crates/parlor-peers/src/model`), whose log of requests shows what an agent knows. Each story\n\
        with an agent is played twice: with a first client of version 1 and a second one of version 2, and the other way round.\n\n\
        How the agent gets a conversation is named where it matters: `restored` is the agent's own load or resume, `native` its own\n\
        fork, and `transcript` means that the next prompt contains it.\n\n"
        .to_owned();
    section(&mut page, "Agents", "agent", agents);
    section(&mut page, "Clients", "client", clients);
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Adds the table of pairs: which client got an answer from which agent.
pub fn pairs(page: &mut String, agents: &[&str], clients: &[(String, Vec<String>)]) {
    let _ = writeln!(page, "\n## Pairs\n\nEach client sends a prompt to each agent and shows the answer.\n");
    let _ = writeln!(page, "| client | {} |\n|---|{}", agents.join(" | "), "---|".repeat(agents.len()));
    for (client, outcomes) in clients {
        let _ = writeln!(page, "| {client} | {} |", outcomes.join(" | "));
    }
}

fn section(
    page: &mut String,
    title: &str,
    kind: &str,
    (peers, rows, columns): (&[Listed], &[Row], &[Column]),
) {
    let _ = writeln!(page, "## {title}\n\n| {kind} | package | protocol version |\n|---|---|---|");
    for (name, package, versions) in peers {
        let _ = writeln!(page, "| {name} | {package} | {versions} |");
    }
    let titles: Vec<_> = columns.iter().map(|column| column.title.as_str()).collect();
    let _ = writeln!(page, "\n| step | {} |\n|---|{}", titles.join(" | "), "---|".repeat(columns.len()));
    let mut reasons = Reasons::default();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> =
            columns.iter().map(|column| cell(column.cells.get(index), &mut reasons)).collect();
        let _ = writeln!(page, "| {} | {} |", row.title, cells.join(" | "));
    }
    if !reasons.0.is_empty() {
        let _ = writeln!(page, "\nReasons:\n");
        for (index, reason) in reasons.0.iter().enumerate() {
            let _ = writeln!(page, "{}. {reason}", index + 1);
        }
    }
    let _ = writeln!(page, "\n| step | what is checked |\n|---|---|");
    for row in rows {
        let _ = writeln!(page, "| {} | {} |", row.title, row.meaning);
    }
    page.push('\n');
}

fn cell(cell: Option<&(Expectation, Vec<Outcome>)>, reasons: &mut Reasons) -> String {
    let Some((expectation, outcomes)) = cell else {
        return String::new();
    };
    match expectation {
        _ if outcomes.is_empty() => String::new(),
        Expectation::Fails { why, .. } => format!("no ({})", reasons.number(why)),
        Expectation::NotTried { why } => format!("- ({})", reasons.number(why)),
        Expectation::Works => {
            let remark = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Works(remark) => remark.clone(),
                Outcome::Fails(_) | Outcome::NotTried(_) => None,
            });
            if outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Works(_))) {
                return "FAILED".to_owned();
            }
            remark.map_or_else(|| "yes".to_owned(), |remark| format!("yes, {remark}"))
        }
    }
}
