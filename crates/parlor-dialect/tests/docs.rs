//! `docs/translation.md` names every method and update of the schema and every loss.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;

use agent_client_protocol_schema::{v1, v2};
use common::testdata;
use expect_test::expect_file;
use parlor_dialect::LossKind;
use serde_json::Value;

fn page() -> String {
    std::fs::read_to_string(testdata("../docs/translation.md")).unwrap()
}

/// Every text between backticks.
fn named(page: &str) -> BTreeSet<&str> {
    page.split('`').skip(1).step_by(2).collect()
}

/// Every string in a table of method names.
fn strings(table: &Value) -> Vec<String> {
    table.as_object().unwrap().values().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// The constants of `sessionUpdate` anywhere in a schema.
fn updates(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            let name =
                members.get("sessionUpdate").and_then(|kind| kind.get("const")).and_then(Value::as_str);
            found.extend(name.map(str::to_owned));
            members.values().for_each(|value| updates(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| updates(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_method_and_update_of_the_schema_is_on_the_page() {
    let mut names = BTreeSet::new();
    for table in [
        serde_json::to_value(v1::AGENT_METHOD_NAMES).unwrap(),
        serde_json::to_value(v1::CLIENT_METHOD_NAMES).unwrap(),
        serde_json::to_value(v2::AGENT_METHOD_NAMES).unwrap(),
        serde_json::to_value(v2::CLIENT_METHOD_NAMES).unwrap(),
    ] {
        names.extend(strings(&table));
    }
    assert!(names.len() > 30, "{names:?}");
    updates(&serde_json::to_value(schemars::schema_for!(v1::SessionUpdate)).unwrap(), &mut names);
    updates(&serde_json::to_value(schemars::schema_for!(v2::SessionUpdate)).unwrap(), &mut names);
    assert!(names.len() > 55, "{names:?}");
    let page = page();
    let on_the_page = named(&page);
    let missing: Vec<_> = names.iter().filter(|name| !on_the_page.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/translation.md: {missing:?}");
}

#[test]
fn every_loss_is_explained_on_the_page() {
    let page = page();
    let before = page.split("\n| loss | meaning |").next().unwrap().trim_end_matches("LOSSES\n");
    let mut expected = format!("{}\n\n| loss | meaning |\n|---|---|\n", before.trim_end());
    for kind in LossKind::ALL {
        writeln!(expected, "| `{}` | {} |", kind.name(), kind.meaning().trim()).unwrap();
    }
    expect_file![testdata("../docs/translation.md")].assert_eq(&expected);
}

#[test]
fn loss_names_are_unique() {
    let names: BTreeSet<_> = LossKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), LossKind::ALL.len());
    for name in names {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
    }
}
