//! How the figures are told, to people and to machines.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use parlor_json::string_literal;

use super::heard::Faults;
use super::measure::{machine, median};
use super::place::Bench;
use super::scenarios::{Figure, Limit, Sample, Scenario, Unit};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// What came of one scenario in all its runs.
pub(crate) struct Outcome {
    name: &'static str,
    about: &'static str,
    rows: Vec<Row>,
    faults: Faults,
}

/// One figure: the median of all runs, and what is aimed at.
struct Row {
    figure: Figure,
    limit: Option<Limit>,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, samples: &[Sample]) -> Self {
        let mut faults = Faults::default();
        samples.iter().for_each(|sample| faults.add(sample.faults));
        let first = samples.first().map(|sample| &sample.figures[..]).unwrap_or_default();
        let rows = first.iter().map(|figure| {
            let same = |other: &&Figure| other.name == figure.name;
            let values: Vec<f64> = samples
                .iter()
                .filter_map(|sample| sample.figures.iter().find(same))
                .map(|f| f.value)
                .collect();
            let limit = scenario.aims.iter().find(|aim| aim.figure == figure.name).map(|aim| aim.limit);
            Row { figure: Figure { value: median(&values), ..*figure }, limit }
        });
        Self { name: scenario.name, about: scenario.about, rows: rows.collect(), faults }
    }

    /// Whether nothing was lost, doubled or out of order.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults == Faults::default()
    }
}

/// For people.
pub(crate) fn table(bench: &Bench, runs: u32, outcomes: &[Outcome], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{DIM}{}; client {}, agent {}; median of {runs}{}{DIM:#}",
        machine(),
        bench.client.name(),
        bench.agent.name(),
        if bench.quick { ", a tenth of the load" } else { "" },
    )?;
    for outcome in outcomes {
        writeln!(out, "\n{BOLD}{}{BOLD:#}  {}", outcome.name, outcome.about)?;
        for Row { figure, limit } in &outcome.rows {
            write!(out, "  {:<26} {:>14}", figure.name, amount(figure.unit, figure.value))?;
            if let Some(limit) = limit {
                let (sign, value) = match limit {
                    Limit::Most(most) => ("at most", *most),
                    Limit::Least(least) => ("at least", *least),
                };
                let is_met = limit.is_met(figure.value);
                let (style, word) = if is_met { (GOOD, "met") } else { (BAD, "not met") };
                write!(out, "   {sign} {:<12} {style}{word}{style:#}", amount(figure.unit, value))?;
            }
            writeln!(out)?;
        }
        let Faults { lost, doubled, disordered } = outcome.faults;
        let style = if outcome.is_clean() { GOOD } else { BAD };
        writeln!(out, "  {style}{lost} lost, {doubled} doubled, {disordered} out of order{style:#}")?;
    }
    Ok(())
}

/// For machines.
pub(crate) fn json(bench: &Bench, runs: u32, outcomes: &[Outcome]) -> String {
    let mut text = format!(
        r#"{{"machine":{},"client":"{}","agent":"{}","runs":{runs},"quick":{},"scenarios":["#,
        string_literal(&machine()),
        bench.client.name(),
        bench.agent.name(),
        bench.quick
    );
    for (place, outcome) in outcomes.iter().enumerate() {
        let Faults { lost, doubled, disordered } = outcome.faults;
        let comma = if place == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#"{comma}{{"name":"{}","lost":{lost},"doubled":{doubled},"outOfOrder":{disordered},"figures":["#,
            outcome.name
        );
        for (place, Row { figure, limit }) in outcome.rows.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(
                text,
                r#"{comma}{{"name":"{}","unit":"{}","value":{:.6}"#,
                figure.name,
                figure.unit.name(),
                figure.value
            );
            let _ = match limit {
                Some(Limit::Most(most)) => {
                    write!(text, r#","atMost":{most},"met":{}"#, figure.value <= *most)
                }
                Some(Limit::Least(least)) => {
                    write!(text, r#","atLeast":{least},"met":{}"#, figure.value >= *least)
                }
                None => Ok(()),
            };
            text.push('}');
        }
        text.push_str("]}");
    }
    text.push_str("]}\n");
    text
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
