//! Checks the limits in `ARCHITECTURE.md`: each row names its constants, which are read from the sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sizes of reads and writes, which limit nothing for users, and constants that are defined by a listed one.
const NOT_LISTED: [&str; 6] = [
    "parlor_client::transport::MAX_LINES_PER_READ",
    "parlor_dialect::fast_path::MAX_REST",
    "parlor_server::send_queue::socket::MAX_DIRECT",
    "parlor_server::send_queue::socket::MAX_PARTS",
    "parlor_server::send_queue::socket::MAX_WRITE",
    "parlor_store::sqlite::shared::MAX_JOURNALED",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Number(u64),
    Time(Duration),
}

/// A row of the tables of limits.
struct Row {
    limit: String,
    value: String,
    constants: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All tables in the section "Limits".
fn rows() -> Vec<Row> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## Limits\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| limit |"));
    lines
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 4, "not four cells: {line}");
            let constants = cells[2].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            Row { limit: cells[0].to_owned(), value: cells[1].to_owned(), constants }
        })
        .collect()
}

/// The quantities in a cell, such as `64 KiB` and `1,000`. Names between backticks are skipped.
fn quantities(cell: &str) -> Vec<Quantity> {
    let text: String = cell.split('`').step_by(2).collect();
    let words: Vec<_> = text.split_whitespace().map(|word| word.trim_matches(['(', ')', ';', ','])).collect();
    let mut quantities = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if !word.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let (whole, decimals) = word.split_once('.').unwrap_or((word, ""));
        let digits = format!("{}{decimals}", whole.replace(',', ""));
        let number: u64 = digits.parse().unwrap_or_else(|_| panic!("not a number: {word:?} in {cell:?}"));
        let scale = 10_u64.pow(u32::try_from(decimals.len()).unwrap());
        let time = |millis: u64| Quantity::Time(Duration::from_millis(number * millis / scale));
        let bytes = |unit: u64| Quantity::Number(number * unit / scale);
        quantities.push(match words.get(index + 1).copied().unwrap_or_default() {
            "ms" => time(1),
            "second" | "seconds" => time(1000),
            "minute" | "minutes" => time(60_000),
            "KiB" => bytes(1 << 10),
            "MiB" => bytes(1 << 20),
            "GiB" => bytes(1 << 30),
            _ => bytes(1),
        });
    }
    quantities
}

/// The values of a constant, several for a tuple, or why there are none.
fn constant(path: &str) -> Result<Vec<Quantity>, String> {
    let (module, name) = path.rsplit_once("::").ok_or_else(|| format!("not a path: {path}"))?;
    let source = source_of(module).ok_or_else(|| format!("there is no module {module} for {name}"))?;
    let expression = match name.split_once('.') {
        Some((of_type, field)) => default_field(&source, of_type, field),
        None => definition(&source, name),
    };
    let expression = expression.ok_or_else(|| format!("there is no {path}"))?;
    Expression::new(&expression).values().ok_or_else(|| format!("{path}: cannot evaluate {expression}"))
}

/// The source of a module, such as `parlor_server::agent::lists`.
fn source_of(module: &str) -> Option<String> {
    let mut names = module.split("::");
    let folder = root().join("crates").join(names.next()?.replace('_', "-")).join("src");
    let inner = names.collect::<Vec<_>>().join("/");
    let files = if inner.is_empty() {
        [folder.join("lib.rs"), folder.join("main.rs")]
    } else {
        [folder.join(format!("{inner}.rs")), folder.join(inner).join("mod.rs")]
    };
    files.iter().find_map(|file| fs::read_to_string(file).ok())
}

/// The expression of a constant or a static.
fn definition(source: &str, name: &str) -> Option<String> {
    source.lines().find_map(|line| {
        let line = without_visibility(line.trim_start());
        let rest = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
        let rest = rest.strip_prefix(name)?.strip_prefix(": ")?;
        Some(rest.split_once(" = ")?.1.trim_end_matches(';').to_owned())
    })
}

/// The expression of a field in the `Default` implementation of a type.
fn default_field(source: &str, of_type: &str, field: &str) -> Option<String> {
    let implementation =
        source.split_once(&format!("impl Default for {of_type} {{"))?.1.split("\n}").next()?;
    let fields = implementation.lines().filter_map(|line| line.trim().strip_suffix(','));
    fields
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| *name == field)
        .map(|(_, it)| it.to_owned())
}

fn without_visibility(line: &str) -> &str {
    ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line)
}

/// Evaluates the expressions of constants: integers, operators, tuples, durations and semaphores.
struct Expression<'a> {
    rest: &'a str,
}

impl<'a> Expression<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    /// The values of the whole text, or `None` if it cannot be parsed.
    fn values(mut self) -> Option<Vec<Quantity>> {
        let values = self.tuple()?;
        self.rest.is_empty().then_some(values)
    }

    fn tuple(&mut self) -> Option<Vec<Quantity>> {
        let before = self.rest;
        if self.consume("(") {
            let mut values = vec![self.value()?];
            while self.consume(",") {
                values.push(self.value()?);
            }
            if self.consume(")") && values.len() > 1 {
                return Some(values);
            }
        }
        self.rest = before;
        Some(vec![self.value()?])
    }

    fn value(&mut self) -> Option<Quantity> {
        type Wrap = fn(u64) -> Quantity;
        let wrappers: [(&str, Wrap); 3] = [
            ("Duration::from_secs(", |seconds| Quantity::Time(Duration::from_secs(seconds))),
            ("Duration::from_millis(", |millis| Quantity::Time(Duration::from_millis(millis))),
            ("Semaphore::const_new(", Quantity::Number),
        ];
        for (start, wrap) in wrappers {
            if self.consume(start) {
                let number = self.number()?;
                return self.consume(")").then(|| wrap(number));
            }
        }
        Some(Quantity::Number(self.number()?))
    }

    /// Shifts bind less than sums, which bind less than products.
    fn number(&mut self) -> Option<u64> {
        let mut left = self.sum()?;
        while self.consume("<<") {
            left <<= self.sum()?;
        }
        Some(left)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut left = self.product()?;
        loop {
            if self.consume("+") {
                left += self.product()?;
            } else if self.consume("-") {
                left = left.checked_sub(self.product()?)?;
            } else {
                return Some(left);
            }
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut left = self.operand()?;
        while self.consume("*") {
            left *= self.operand()?;
        }
        Some(left)
    }

    fn operand(&mut self) -> Option<u64> {
        if self.consume("(") {
            let number = self.number()?;
            return self.consume(")").then_some(number);
        }
        // Other constants are defined by this one.
        if self.consume("DEFAULT_LINE_LIMIT") {
            return match constant("parlor_wire::framing::DEFAULT_LINE_LIMIT").ok()?[..] {
                [Quantity::Number(limit)] => Some(limit),
                _ => None,
            };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        digits.replace('_', "").parse().ok()
    }

    fn consume(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }
}

/// The paths of all constants of shipped crates that are named as limits.
fn named_as_limits() -> Vec<String> {
    let mut paths = Vec::new();
    for folder in fs::read_dir(root().join("crates")).unwrap().map(|folder| folder.unwrap().path()) {
        let name = folder.file_name().unwrap().to_str().unwrap().replace('-', "_");
        if !["parlor_testkit", "parlor_peers"].contains(&name.as_str()) {
            collect(&folder.join("src"), &name, &mut paths);
        }
    }
    paths.sort();
    paths
}

fn collect(folder: &Path, module: &str, paths: &mut Vec<String>) {
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let inner = match stem {
            "lib" | "main" | "mod" => module.to_owned(),
            _ => format!("{module}::{stem}"),
        };
        if path.is_dir() {
            collect(&path, &inner, paths);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for line in source.lines() {
            let rest = without_visibility(line).strip_prefix("const MAX_");
            if let Some((name, _)) = rest.and_then(|rest| rest.split_once(": ")) {
                paths.push(format!("{inner}::MAX_{name}"));
            }
        }
    }
}

#[test]
fn every_limit_in_the_tables_has_the_values_of_its_constants() {
    let rows = rows();
    assert!(rows.len() > 100, "{} rows", rows.len());
    let problems: Vec<_> = rows.iter().filter_map(|row| check(row).err()).collect();
    assert!(problems.is_empty(), "limits of ARCHITECTURE.md: {problems:#?}");
}

fn check(Row { limit, value, constants }: &Row) -> Result<(), String> {
    let expected: Vec<_> = constants.iter().map(|path| constant(path)).collect::<Result<_, _>>()?;
    let (expected, found) = (expected.concat(), quantities(value));
    if expected.is_empty() {
        return Err(format!("{limit}: no constant"));
    }
    if found == expected { Ok(()) } else { Err(format!("{limit}: {value}, but the code has {expected:?}")) }
}

#[test]
fn every_constant_that_is_named_as_a_limit_is_in_the_tables() {
    let listed: Vec<_> = rows().into_iter().flat_map(|row| row.constants).collect();
    let is_listed = |path: &String| listed.contains(path) || NOT_LISTED.contains(&path.as_str());
    let missing: Vec<_> = named_as_limits().into_iter().filter(|path| !is_listed(path)).collect();
    assert!(missing.is_empty(), "not in the limits of ARCHITECTURE.md: {missing:#?}");
}

#[test]
fn expressions_and_quantities_are_parsed() {
    for (expression, cell) in [
        ("1_000", "1,000"),
        ("64 << 20", "64 MiB"),
        ("64 * 1024", "64 KiB (`--option 7`)"),
        ("(64 << 20) - (512 << 10)", "63.5 MiB"),
        ("1 << 2 + 3 * 2", "256"),
        ("(64, 64 << 10)", "64 times the prompt and 64 KiB"),
        ("Duration::from_secs(30 * 60)", "30 minutes"),
        ("Duration::from_millis(1500)", "1.5 seconds"),
        ("Semaphore::const_new(4)", "4"),
    ] {
        assert_eq!(Expression::new(expression).values(), Some(quantities(cell)), "{expression}");
    }
    for expression in ["", "x", "1 +", "(1", "1 2", "Duration::from_secs(1"] {
        assert_eq!(Expression::new(expression).values(), None, "{expression}");
    }
    assert_ne!(quantities("30 seconds"), quantities("30"));
}
