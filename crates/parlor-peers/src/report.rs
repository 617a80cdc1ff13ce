//! The page with the outcomes of all stories.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::step::{Expectation, Outcome};

/// A column of a table: one peer.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// For each step: what was expected, and how it ended in each story of this column.
    pub cells: Vec<(Expectation, Vec<Outcome>)>,
    /// Reasons for remarks.
    pub reasons: &'static [(&'static str, &'static str)],
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
        fork, and `transcript` means that the next prompt contains it. For agents without a model, the suite checks what the agent itself\n\
        is given.\n\n"
        .to_owned();
    section(&mut page, "Agents", "agent", agents);
    section(&mut page, "Clients", "client", clients);
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// Adds the table of pairs: which client got an answer from which agent.
pub fn pairs(page: &mut String, agents: &[&str], clients: &[(String, Vec<String>)]) {
    let _ = writeln!(
        page,
        "\n## Pairs\n\nEach client sends a prompt to each agent and shows the answer. More is not repeated for each pair: the stories above play the\n\
        steps with each agent, and with each client and claude-agent-acp, and between them is parlor, which translates each side by itself.\n\
        The examples of the SDKs are not paired as agents: they have no model, and send nothing that the others do not send.\n"
    );
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
        let cells: Vec<_> = columns.iter().map(|column| cell(column, index, &mut reasons)).collect();
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

/// The remarks of the stories of one cell, each once: there must not be two, because the page has no place for them.
pub fn remarks(outcomes: &[Outcome]) -> BTreeSet<Option<&str>> {
    let remarks = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Works(remark) => Some(remark.as_deref()),
        Outcome::Fails(_) | Outcome::NotTried(_) => None,
    });
    remarks.collect()
}

fn cell(column: &Column, index: usize, reasons: &mut Reasons) -> String {
    let Some((expectation, outcomes)) = column.cells.get(index) else {
        return String::new();
    };
    match expectation {
        _ if outcomes.is_empty() => String::new(),
        Expectation::Fails { why, .. } => format!("no ({})", reasons.number(why)),
        Expectation::NotTried { why } => format!("- ({})", reasons.number(why)),
        Expectation::Works => {
            let remarks = remarks(outcomes);
            if remarks.len() > 1 || outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Works(_))) {
                return "FAILED".to_owned();
            }
            let Some(remark) = remarks.into_iter().next().flatten() else { return "yes".to_owned() };
            let reason = column.reasons.iter().find(|(of, _)| *of == remark);
            let number = reason.map(|(_, why)| format!(" ({})", reasons.number(why))).unwrap_or_default();
            format!("yes, {remark}{number}")
        }
    }
}
