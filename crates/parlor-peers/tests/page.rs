//! What can be checked of the suite without the peers: expectations, and that the page is of the present peers and steps.

use std::fs;
use std::path::Path;

use parlor_peers::agents::AGENTS;
use parlor_peers::clients::CLIENTS;
use parlor_peers::step::{ClientStep, Expectation, Outcome, Step};

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
}
