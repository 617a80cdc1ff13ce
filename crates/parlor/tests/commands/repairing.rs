//! `agents` and `doctor`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::place::Place;

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap()
}

#[test]
fn agents_come_from_everywhere() {
    let mut place = Place::new();
    let config = place.path().join("config.toml");
    fs::write(&config, "default_agent = 'mine'\n[agents.mine]\ncommand = 'no-such-program acp'\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let list = place.run(&["agents", "--json", "--config", &config]).done().json();
    assert_eq!(
        (&named(&list, "mine")["source"], &named(&list, "mine")["default"]),
        (&json!("config"), &json!(true))
    );
    assert_eq!(named(&list, "mine")["path"], json!(null));
    assert_eq!(
        (&named(&list, "demo")["source"], &named(&list, "demo")["dialect"]),
        (&json!("preset"), &json!(null))
    );
    assert!(named(&list, "claude")["install"].as_str().unwrap().contains("npm"));
    let said = place.run(&["agents", "--config", &config]).done().plain();
    assert!(said.out.contains("*  mine") && said.out.contains("no: npm install"), "{said:#?}");

    let agent = format!("own={} test-agent --version 1", env!("CARGO_BIN_EXE_parlor"));
    place.serve(&["--agent", &agent]);
    place.begin("say hello");
    let list = place.run(&["agents", "--json"]).done().json();
    let own = named(&list, "own");
    assert_eq!(
        (&own["source"], &own["default"], &own["dialect"]),
        (&json!("command line"), &json!(true), &json!("v1"))
    );
    assert_eq!(own["path"], env!("CARGO_BIN_EXE_parlor"));
}

#[test]
fn a_healthy_place_is_healthy() {
    let mut place = Place::new();
    let report = place.run(&["doctor", "--json"]).done().json();
    assert_eq!(report["ok"], true);
    assert!(!place.data().exists(), "looking makes nothing");
    place.serve(&[]);
    place.begin("say hello");
    let said = place.run(&["doctor"]).done().plain();
    for part in ["1 session, format version", "runs as process", "demo (Demo agent of parlor) answers, in v2"]
    {
        assert!(said.out.contains(part), "{part}: {said:#?}");
    }
    assert!(said.out.lines().all(|line| line.starts_with("ok ")), "{said:#?}");
}

#[test]
fn what_is_broken_is_found() {
    let place = Place::new();
    fs::create_dir(place.data()).unwrap();
    fs::set_permissions(place.data(), Permissions::from_mode(0o755)).unwrap();
    fs::write(place.data().join("parlor.db"), "this is no database, and long enough to see that it is none")
        .unwrap();
    fs::write(place.data().join("token"), "secret").unwrap();
    fs::set_permissions(place.data().join("token"), Permissions::from_mode(0o644)).unwrap();
    drop(UnixListener::bind(place.data().join("parlor.sock")).unwrap());
    let config = place.path().join("config.toml");
    fs::write(&config, "default_agnet = 'x'\n").unwrap();
    let args = ["doctor", "--config", config.to_str().unwrap()];
    let report = place.run(&[&args[..], &["--json"]].concat()).ended(1).json();
    let verdict = |name: &str| {
        let check = named(&report["checks"], name);
        assert!(check["hint"].is_string(), "{check}");
        check["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(report["ok"], false);
    assert_eq!(verdict("data directory"), "warn");
    assert_eq!(verdict("database"), "fail");
    assert_eq!(verdict("token"), "fail");
    assert_eq!(verdict("server"), "warn");
    assert_eq!(verdict("configuration"), "fail");
    let said = place.run(&args).ended(1).plain();
    assert!(said.out.contains("fail  database") && said.out.contains("3 checks failed."), "{said:#?}");
    let said = place.run(&["ls"]).ended(1);
    assert!(said.err.contains("parlor.db") && said.err.contains("`parlor doctor`"), "{said:#?}");
}

#[test]
fn an_agent_that_does_not_start_is_found() {
    let place = Place::new();
    let config = place.path().join("config.toml");
    for (command, part) in
        [("no-such-program", "cannot be started"), ("sh -c 'echo broken >&2; exit 3'", "broken")]
    {
        fs::write(&config, format!("default_agent = 'mine'\n[agents.mine]\ncommand = \"{command}\"\n"))
            .unwrap();
        let said = place.run(&["doctor", "--config", config.to_str().unwrap()]).ended(1);
        let line = said.out.lines().find(|line| line.contains("default agent")).unwrap();
        assert!(line.starts_with("fail") && line.contains(part), "{said:#?}");
    }
}
