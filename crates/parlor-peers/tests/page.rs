//! What can be checked of the suite without the peers: expectations, and that the page is of the present peers and steps.

use std::fs;
use std::path::Path;

use parlor_peers::agents::AGENTS;
use parlor_peers::clients::CLIENTS;
use parlor_peers::install::NPM;
use parlor_peers::report::{self, Column, Row, remarks};
use parlor_peers::step::{ClientStep, Expectation, Outcome, Step};
use serde_json::Value;

#[test]
fn an_outcome_must_be_the_expected_one() {
    let works = Outcome::Works(None);
    let fails = Outcome::Fails("it said: not found".to_owned());
    let not_tried = Outcome::NotTried("no model".to_owned());
    let expect_failure = Expectation::Fails { why: "it cannot", with: "not found" };
    let expect_other = Expectation::Fails { why: "it cannot", with: "refused" };
    let expect_none = Expectation::NotTried { why: "no model" };
    assert_eq!(Expectation::Works.check(&works), Ok(()));
    assert_eq!(expect_failure.check(&fails), Ok(()));
    assert_eq!(expect_none.check(&not_tried), Ok(()));
    for (expectation, outcome) in [
        (Expectation::Works, &fails),
        (Expectation::Works, &not_tried),
        (expect_failure, &works),
        (expect_failure, &not_tried),
        (expect_other, &fails),
        (expect_none, &works),
        (expect_none, &fails),
    ] {
        assert!(expectation.check(outcome).is_err(), "{expectation:?} {outcome:?}");
    }
}

/// `./test.sh --real-peers` compares all of the page.
#[test]
fn the_page_lists_the_present_peers_versions_steps_and_reasons() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let page = fs::read_to_string(page).unwrap();
    let agents = AGENTS.iter().map(|agent| format!("| {} | {} |", agent.name, (agent.package)()));
    let clients = CLIENTS.iter().map(|client| format!("| {} | {} |", client.name, (client.package)()));
    let steps = Step::ALL.iter().map(|step| format!("| {} | {} |", step.title(), step.meaning()));
    let client_steps =
        ClientStep::ALL.iter().map(|step| format!("| {} | {} |", step.title(), step.meaning()));
    let reasons = AGENTS
        .iter()
        .flat_map(|agent| agent.exceptions.iter().copied().flatten().map(|(_, _, expectation)| expectation));
    let reasons = reasons.chain(
        CLIENTS.iter().flat_map(|client| client.exceptions.iter().map(|(_, expectation)| expectation)),
    );
    let reasons = reasons.map(|expectation| match expectation {
        Expectation::Fails { why, .. } | Expectation::NotTried { why } => format!(". {why}\n"),
        Expectation::Works => String::new(),
    });
    for part in agents.chain(clients).chain(steps).chain(client_steps).chain(reasons) {
        assert!(
            page.contains(&part),
            "docs/compatibility.md lacks {part:?}: run UPDATE_EXPECT=1 ./test.sh --real-peers"
        );
    }
    assert!(!page.contains("FAILED"), "the page was written after a failure");
    let mut empty = report::page((&[], &[], &[]), (&[], &[], &[]));
    report::pairs(&mut empty, &[], &[]);
    for (from, to) in [("# Compatibility", "## Agents"), ("## Pairs", "| client")] {
        let start = empty.find(from).unwrap();
        let text = &empty[start..start + empty[start..].find(to).unwrap()];
        assert!(page.contains(text), "docs/compatibility.md lacks {text}");
    }
}

/// `parlor agents install` installs the versions that the suite tests.
#[test]
fn the_agents_that_parlor_installs_have_the_tested_versions() {
    let registry = Path::new(env!("CARGO_MANIFEST_DIR")).join("../parlor/src/agents_install/registry.json");
    let registry: Value = serde_json::from_str(&fs::read_to_string(registry).unwrap()).unwrap();
    let packages = registry["agents"].as_array().unwrap().iter();
    let packages: Vec<_> =
        packages.filter_map(|agent| agent["distribution"]["npx"]["package"].as_str()).collect();
    let tested = AGENTS.iter().filter(|agent| agent.has_model());
    for agent in tested {
        let package = (agent.package)();
        let package = package.trim_start_matches("npm `").replace("` ", "@");
        assert!(packages.contains(&package.as_str()), "registry.json lacks {package}: {packages:?}");
    }
    for (name, version) in NPM {
        let same: Vec<_> = packages
            .iter()
            .filter(|package| package.rsplit_once('@').is_some_and(|(of, _)| of == name))
            .collect();
        let is_same = same.iter().all(|package| package.ends_with(&format!("@{version}")));
        assert!(is_same, "the suite tests {name} {version}, registry.json has {same:?}");
    }
}

#[test]
fn the_stories_of_a_cell_have_one_remark() {
    let works = |remark: Option<&str>| Outcome::Works(remark.map(str::to_owned));
    assert_eq!(remarks(&[works(None), works(None)]).len(), 1);
    assert_eq!(remarks(&[works(Some("native")), works(Some("native"))]).len(), 1);
    assert_eq!(remarks(&[works(Some("native")), works(None)]).len(), 2);
    assert_eq!(remarks(&[works(Some("native")), works(Some("transcript"))]).len(), 2);
    let cells = |remarks: [Option<&str>; 2]| {
        let cells = vec![(Expectation::Works, remarks.map(works).to_vec())];
        let column = Column { title: "agent".to_owned(), cells, reasons: &[("native", "it can")] };
        let rows = [Row { title: "fork", meaning: "it forks" }];
        report::page((&[], &rows, &[column]), (&[], &[], &[]))
    };
    assert!(cells([Some("native"), Some("native")]).contains("| fork | yes, native (1) |"));
    assert!(cells([Some("native"), Some("transcript")]).contains("| fork | FAILED |"));
}

#[test]
fn nothing_is_tried_with_an_agent_that_cannot_start() {
    let agent = AGENTS.iter().find(|agent| agent.name == "Rust SDK, simple_agent").unwrap();
    assert!(matches!(agent.expectation(Step::Start, 1), Expectation::Fails { .. }));
    assert!(matches!(agent.expectation(Step::Prompt, 1), Expectation::NotTried { .. }));
}

#[test]
fn a_client_without_commands_does_not_try_them() {
    for client in CLIENTS {
        let expectation = client.expectation(ClientStep::Fork);
        let is_tried = matches!(expectation, Expectation::Works);
        assert_eq!(is_tried, client.commands.is_some(), "{}: {expectation:?}", client.name);
    }
}
