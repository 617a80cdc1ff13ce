//! A process that is killed while it writes.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use parlor_store::{Batch, SqliteStore, Store as _};
use tempfile::tempdir;

use super::common::{append, delete, entry, one, session, value, write};

/// Tells the child where to write. Without it, the child's test does nothing.
const PLACE: &str = "PARLOR_STORE_TEST_KILLED";

#[test]
fn a_batch_that_is_done_survives_a_kill() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("db");
    for round in 1..=3_u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed::child_process_that_writes_until_it_is_killed", "--nocapture"])
            .env(PLACE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reported = 0;
        // The output is read to its end, because what was said before the kill was promised.
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let Ok(n) = line.unwrap().parse::<u64>() else { continue };
            reported = n;
            if n == 1000 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(reported >= 1000);
        let store = SqliteStore::open(&path).unwrap();
        let entry = one(&store, "s", round);
        let kept = entry.seq - round;
        assert!(kept >= reported, "{reported} were reported and {kept} kept");
        // Whole batches, in order, without a gap.
        let text: String = (1..=kept).map(|n| format!("{n},{n};")).collect();
        assert!(entry.content == text);
        assert_eq!(store.value("last").unwrap(), Some(kept.to_string()));
        // A kill is not damage.
        assert_eq!(SqliteStore::damaged_journals(&path).unwrap(), []);
    }
}

#[test]
fn child_process_that_writes_until_it_is_killed() {
    let Some(path) = env::var_os(PLACE) else { return };
    let store = SqliteStore::open(Path::new(&path)).unwrap();
    let round = store.entries("s", 0, 0, usize::MAX).unwrap().len() as u64 + 1;
    write(&store, vec![session("s"), entry("s", round, round, "h", "")]);
    for n in 1_u64.. {
        let mut writes = vec![
            append("s", round, round + n, &format!("{n},")),
            append("s", round, round + n, &format!("{n};")),
            value("last", Some(&n.to_string())),
        ];
        if n % 37 == 0 {
            // This goes to the database at once.
            writes.push(delete("nobody"));
        }
        let done = move |result: Result<(), _>| {
            result.unwrap();
            let mut out = std::io::stdout().lock();
            writeln!(out, "{n}").and_then(|()| out.flush()).unwrap();
        };
        store.write(Batch { writes, durable: false }, Box::new(done));
    }
}
