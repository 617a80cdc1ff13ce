//! The sessions of earlier hours and days in the pictures.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use parlor_json::JsonStr;
use parlor_server::stored::SessionData;
use parlor_store::{Batch, SqliteStore, Store, Write};
use parlor_testkit::scenario::Scenario;

use super::story;
use crate::failure::Failure;

/// When a session was active last.
#[derive(Clone, Copy)]
pub(super) enum When {
    /// This many minutes ago.
    Minutes(i64),
    /// This many days ago, at an hour and a minute (UTC).
    Day(i64, i64, i64),
}

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

impl When {
    fn millis(self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        match self {
            Self::Minutes(ago) => now - ago * MINUTE,
            Self::Day(ago, hour, minute) => (now / DAY - ago) * DAY + (hour * 60 + minute) * MINUTE,
        }
    }
}

/// Plays stories that have ended, and gives them their times. Returns the session that other stories continue.
pub(super) fn play(scenario: &mut Scenario, agents: &[&str]) -> Result<String, Failure> {
    scenario.serve(agents);
    let (old, rotation) = play_all(scenario);
    scenario.stop();
    let store = SqliteStore::open(&scenario.data().join("parlor.db")).map_err(Failure::failed)?;
    for (id, when, is_unread) in old {
        let id = JsonStr::new(&id).as_literal().to_owned();
        let row = store.session(&id).map_err(Failure::failed)?;
        let mut row = row.ok_or_else(|| Failure::failed(format!("{id} is not stored")))?;
        let mut data = SessionData::of(&row);
        if !is_unread {
            data.summary.seen_seq = data.summary.last_turn_seq;
        }
        row.data = data.to_text();
        row.active_at = when.millis();
        let (sender, done) = std::sync::mpsc::sync_channel(1);
        let batch = Batch { writes: vec![Write::Session(row)], durable: true };
        store.write(batch, Box::new(move |result| drop(sender.send(result))));
        done.recv().map_err(Failure::failed)?.map_err(Failure::failed)?;
    }
    store.close();
    Ok(rotation)
}

/// Creates a directory of a person's projects.
pub(super) fn project(scenario: &Scenario, name: &str) -> String {
    let directory = scenario.path().join("home").join(name);
    fs::create_dir_all(&directory).expect("the directory can be created");
    directory.to_str().expect("its name is text").to_owned()
}

type Old = Vec<(String, When, bool)>;

fn play_all(scenario: &Scenario) -> (Old, String) {
    let mut old = Old::new();
    let new = |project_name: &str, agent: &str, prompt: &str| {
        let directory = project(scenario, project_name);
        let args = ["prompt", "--new", "--json", "--yes", "--agent", agent, "--cwd", &directory, prompt];
        scenario.run(&args).last_json()["sessionId"].as_str().expect("a session has an id").to_owned()
    };
    let fork = |id: &str, at: &str, agent: &str, prompt: &str| {
        let fork = scenario.run(&["fork", "--at", at, "--agent", agent, id]).success();
        let fork = fork.stdout.trim().to_owned();
        scenario.run(&["prompt", "--yes", "-s", &fork, prompt]);
        fork
    };
    for (directory, agent, prompt, when, is_unread) in [
        ("dev/quorum", "opencode", "Review of the storage trait", When::Day(5, 9, 2), false),
        ("src/tailfin", "claude", "Benchmark memchr against std", When::Day(4, 15, 20), false),
        ("dev/courier", "gemini", "Document the retry policy", When::Day(1, 11, 25), false),
        ("src/tailfin", "claude", "Raise the MSRV to 1.89", When::Day(1, 16, 2), false),
        ("dev/courier", "codex", story::FAILURE, When::Day(1, 17, 40), false),
        ("dev/quorum", "claude", "Why is the lease renewed twice?", When::Minutes(190), true),
    ] {
        old.push((new(directory, agent, prompt), when, is_unread));
    }
    let rotation = new("src/tailfin", "claude", story::ROTATION);
    let polling = fork(&rotation, "3", "claude", "Keep polling, drain on rename");
    let inotify = fork(&rotation, "3", "codex", "Use inotify instead of polling");
    let kqueue = fork(&inotify, "-1", "codex", story::KQUEUE);
    old.push((polling, When::Minutes(31), false));
    old.push((inotify, When::Minutes(14), true));
    old.push((kqueue, When::Minutes(9), false));
    (old, rotation)
}
