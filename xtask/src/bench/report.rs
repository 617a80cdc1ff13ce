//! Reports figures as a table or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use parlor_json::string_literal;

use super::environment::{Bench, Binary};
use super::measure::{machine, median};
use super::received::Faults;
use super::scenarios::{Figure, Kind, Limit, Sample, Scenario, Unit};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The relative difference up to which figures of two servers count as equal.
const SAME: f64 = 0.05;

/// The result of one scenario in all its runs.
pub(crate) struct Outcome {
    name: &'static str,
    about: &'static str,
    rows: Vec<Row>,
    faults: Faults,
}

/// A figure with its target.
struct Row {
    name: String,
    unit: Unit,
    kind: Kind,
    limit: Option<Limit>,
    /// The values of all runs for each server.
    values: Vec<Vec<f64>>,
}

/// The comparison of a server with the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
}

impl Outcome {
    /// `samples` has all runs of each server.
    pub(crate) fn new(scenario: &Scenario, samples: &[Vec<Sample>]) -> Self {
        let mut faults = Faults::default();
        samples.iter().flatten().for_each(|sample| faults.add(sample.faults));
        let first = samples.first().and_then(|runs| runs.first());
        let rows = first.iter().flat_map(|sample| &sample.figures).map(|figure| {
            let same = |other: &&Figure| other.name == figure.name;
            let of_run = |sample: &Sample| sample.figures.iter().find(same).map(|figure| figure.value);
            let values = samples.iter().map(|runs| runs.iter().filter_map(of_run).collect()).collect();
            let limit = scenario.aims.iter().find(|aim| aim.figure == figure.name).map(|aim| aim.limit);
            Row { name: figure.name.clone(), unit: figure.unit, kind: figure.kind, limit, values }
        });
        Self { name: scenario.name, about: scenario.about, rows: rows.collect(), faults }
    }

    /// Returns whether nothing was lost, duplicated or out of order.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults == Faults::default()
    }
}

impl Row {
    /// Returns the median of each server.
    fn medians(&self) -> Vec<f64> {
        self.values.iter().map(|values| median(values)).collect()
    }

    /// Returns the largest relative spread of the runs of one server.
    fn spread(&self) -> f64 {
        let of_server = |values: &Vec<f64>| {
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            ((most - least) / median(values)).abs()
        };
        self.values.iter().map(of_server).fold(0.0, f64::max)
    }

    fn verdict(&self, ratio: f64) -> Option<Verdict> {
        if self.kind != Kind::Server || !ratio.is_finite() {
            return None;
        }
        let ratio = if self.unit.is_better_higher() { 1.0 / ratio } else { ratio };
        Some(match ratio {
            ratio if ratio > 1.0 + SAME => Verdict::Worse,
            ratio if ratio < 1.0 - SAME => Verdict::Better,
            _ => Verdict::Same,
        })
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Better => GOOD,
            Self::Same => Style::new(),
            Self::Worse => BAD,
        }
    }
}

/// Prints a table for people.
pub(crate) fn table(
    bench: &Bench,
    runs: u32,
    servers: &[Binary],
    outcomes: &[Outcome],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{DIM}{}; client {}, agent {}; median of {runs}{}{DIM:#}",
        machine(),
        bench.client.name(),
        bench.agent.name(),
        if bench.quick { ", a tenth of the load" } else { "" },
    )?;
    if servers.len() > 1 {
        for (index, server) in servers.iter().enumerate() {
            let number = index + 1;
            writeln!(out, "{DIM}server {number}: {} ({}){DIM:#}", server.path.display(), server.version)?;
        }
        writeln!(
            out,
            "{DIM}x 1: the ratio to server 1, with what it means if it is more than {:.0} % off{DIM:#}",
            SAME * 100.0
        )?;
    }
    for outcome in outcomes {
        writeln!(out, "\n{BOLD}{}{BOLD:#}  {}", outcome.name, outcome.about)?;
        let width = outcome.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        for row in &outcome.rows {
            let dim = if row.kind == Kind::Reference { DIM } else { Style::new() };
            write!(out, "  {dim}{:<width$}{dim:#}", row.name)?;
            let medians = row.medians();
            for (index, value) in medians.iter().enumerate() {
                write!(out, " {:>14}", amount(row.unit, *value))?;
                if index > 0 {
                    let ratio = value / medians[0];
                    let verdict = row.verdict(ratio);
                    let (style, word) =
                        verdict.map_or((Style::new(), ""), |verdict| (verdict.style(), verdict.name()));
                    write!(out, "  x 1: {ratio:>5.2} {style}{word:<6}{style:#}")?;
                }
            }
            if runs > 1 {
                write!(out, "  {DIM}spread {:>3.0} %{DIM:#}", row.spread() * 100.0)?;
            }
            if let (Some(limit), Some(value)) = (row.limit, medians.last()) {
                let (sign, most) = match limit {
                    Limit::Most(most) => ("at most", most),
                    Limit::Least(least) => ("at least", least),
                };
                let (style, word) = if limit.is_met(*value) { (GOOD, "met") } else { (BAD, "not met") };
                write!(out, "   {sign} {:<12} {style}{word}{style:#}", amount(row.unit, most))?;
            }
            writeln!(out)?;
        }
        let Faults { lost, duplicated, out_of_order } = outcome.faults;
        let style = if outcome.is_clean() { GOOD } else { BAD };
        writeln!(out, "  {style}{lost} lost, {duplicated} duplicated, {out_of_order} out of order{style:#}")?;
    }
    if servers.len() > 1 {
        let worse = worse(outcomes);
        writeln!(out, "\n{BOLD}Worse than server 1 by more than {:.0} %{BOLD:#}", SAME * 100.0)?;
        if worse.is_empty() {
            writeln!(out, "  nothing")?;
        }
        for line in worse {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Returns a line for each figure that got worse.
fn worse(outcomes: &[Outcome]) -> Vec<String> {
    let mut worse = Vec::new();
    for outcome in outcomes {
        for row in &outcome.rows {
            let medians = row.medians();
            for (index, value) in medians.iter().enumerate().skip(1) {
                let ratio = value / medians[0];
                if row.verdict(ratio) == Some(Verdict::Worse) {
                    let (scenario, name) = (outcome.name, &row.name);
                    worse.push(format!("{scenario}: {name}, server {}: x {ratio:.2}", index + 1));
                }
            }
        }
    }
    worse
}

/// Returns the report as JSON.
pub(crate) fn json(bench: &Bench, runs: u32, servers: &[Binary], outcomes: &[Outcome]) -> String {
    let servers = servers.iter().map(|server| {
        let (path, version) = (server.path.to_string_lossy(), &server.version);
        format!(r#"{{"path":{},"version":{}}}"#, string_literal(&path), string_literal(version))
    });
    let mut text = format!(
        r#"{{"machine":{},"client":"{}","agent":"{}","runs":{runs},"quick":{},"servers":[{}],"scenarios":["#,
        string_literal(&machine()),
        bench.client.name(),
        bench.agent.name(),
        bench.quick,
        servers.collect::<Vec<_>>().join(",")
    );
    for (index, outcome) in outcomes.iter().enumerate() {
        let Faults { lost, duplicated, out_of_order } = outcome.faults;
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#"{comma}{{"name":"{}","lost":{lost},"duplicated":{duplicated},"outOfOrder":{out_of_order},"figures":["#,
            outcome.name
        );
        let rows: Vec<_> = outcome.rows.iter().map(row_json).collect();
        text.push_str(&rows.join(","));
        text.push_str("]}");
    }
    text.push_str("]}\n");
    text
}

/// Returns a figure as JSON: its name, and for each server the median, all runs and the ratio to the first server.
fn row_json(row: &Row) -> String {
    let kind = match row.kind {
        Kind::Server => "server",
        Kind::Reference => "reference",
        Kind::Computed => "computed",
    };
    let medians = row.medians();
    let servers = row.values.iter().zip(&medians).enumerate().map(|(index, (values, median))| {
        let runs: Vec<_> = values.iter().map(|value| number(*value)).collect();
        let mut text = format!(r#"{{"median":{},"runs":[{}]"#, number(*median), runs.join(","));
        if index > 0 {
            let ratio = median / medians[0];
            let _ = write!(text, r#","ratio":{}"#, number(ratio));
            if let Some(verdict) = row.verdict(ratio) {
                let _ = write!(text, r#","verdict":"{}""#, verdict.name());
            }
        }
        if let Some(limit) = row.limit {
            let _ = write!(text, r#","met":{}"#, limit.is_met(*median));
        }
        text + "}"
    });
    let servers: Vec<_> = servers.collect();
    let limit = match row.limit {
        Some(Limit::Most(most)) => format!(r#""atMost":{most},"#),
        Some(Limit::Least(least)) => format!(r#""atLeast":{least},"#),
        None => String::new(),
    };
    let (name, unit) = (string_literal(&row.name), row.unit.name());
    format!(r#"{{"name":{name},"unit":"{unit}","kind":"{kind}",{limit}"servers":[{}]}}"#, servers.join(","))
}

/// Returns a number as JSON; a figure that could not be measured is null.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { "null".to_owned() }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Times => "x",
            Self::Megabytes => "MB",
            Self::PerSecond => "/s",
        }
    }
}

fn amount(unit: Unit, value: f64) -> String {
    let digits = match unit {
        Unit::Seconds => 3,
        Unit::Times | Unit::Milliseconds | Unit::Microseconds => 2,
        Unit::Megabytes => 1,
        Unit::PerSecond => 0,
    };
    format!("{value:.digits$} {}", unit.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, unit: Unit, values: &[&[f64]]) -> Row {
        let values = values.iter().map(|values| values.to_vec()).collect();
        Row { name: "a row".to_owned(), unit, kind, limit: None, values }
    }

    #[test]
    fn only_more_than_five_percent_in_the_wrong_direction_is_worse() {
        let time = row(Kind::Server, Unit::Microseconds, &[]);
        assert_eq!(time.verdict(1.04), Some(Verdict::Same));
        assert_eq!(time.verdict(1.06), Some(Verdict::Worse));
        assert_eq!(time.verdict(0.90), Some(Verdict::Better));
        let rate = row(Kind::Server, Unit::PerSecond, &[]);
        assert_eq!(rate.verdict(1.10), Some(Verdict::Better));
        assert_eq!(rate.verdict(0.90), Some(Verdict::Worse));
    }

    #[test]
    fn what_is_measured_beside_the_server_is_not_judged() {
        assert_eq!(row(Kind::Reference, Unit::Microseconds, &[]).verdict(2.0), None);
        assert_eq!(row(Kind::Computed, Unit::Times, &[]).verdict(2.0), None);
        assert_eq!(row(Kind::Server, Unit::Times, &[]).verdict(f64::NAN), None);
    }

    #[test]
    fn the_median_and_the_spread_are_of_all_runs() {
        let row = row(Kind::Server, Unit::Seconds, &[&[1.0, 3.0, 2.0], &[4.0, 4.0, 4.0]]);
        assert_eq!(row.medians(), [2.0, 4.0]);
        assert!((row.spread() - 1.0).abs() < f64::EPSILON);
    }
}
