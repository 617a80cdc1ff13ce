//! The agents among the examples, met by the SDK's clients.

use std::fs;

use tempfile::TempDir;

use crate::built::example;
use crate::visitor::{VERSIONS, Version, Visit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_echo_agent_says_what_it_is_told() {
    let home = TempDir::new().unwrap();
    let agent = [example("echo")];
    for version in VERSIONS {
        let visit = Visit { agent: &agent, cwd: home.path(), session: None, prompts: &["One.", "Two."] };
        let (_, seen) = visit.by(version).await;
        let said = [("user", "One."), ("agent", "One."), ("user", "Two."), ("agent", "Two.")];
        assert_eq!(seen.said(), said, "{version:?}");
        assert!(seen.messages.iter().filter(|it| it.role == "agent").all(|it| it.id.is_some()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_asks_writes_and_finds_its_sessions_again() {
    for version in VERSIONS {
        let home = TempDir::new().unwrap();
        let file = home.path().join("sessions.db");
        let agent = [example("worker"), file.to_str().unwrap().to_owned()];
        let visit = Visit { agent: &agent, cwd: home.path(), session: None, prompts: &["Buy milk"] };
        let (session, first) = visit.by(version).await;
        assert_eq!(
            first.said(),
            [
                ("user", "Buy milk"),
                ("thought", "That is worth a note."),
                ("agent", "I will write that down."),
                ("agent", "That was note 1.")
            ],
            "{version:?}"
        );
        assert_eq!(first.tools, [("Write notes.txt".to_owned(), "completed".to_owned())], "{version:?}");
        assert_eq!(first.title.as_deref(), Some("Notes: Buy milk"), "{version:?}");

        // Another process, and a client of the other version.
        let other = if version == Version::One { Version::Two } else { Version::One };
        let again = Visit { session: Some(&session), prompts: &["Sell eggs"], ..visit };
        let (_, second) = again.by(other).await;
        assert_eq!(second.said()[..4], first.said(), "{version:?}");
        assert_eq!(second.said().last(), Some(&("agent", "That was note 2.")), "{version:?}");
        assert_eq!(second.title.as_deref(), Some("Notes: Buy milk"), "{version:?}");
        assert_eq!(fs::read_to_string(home.path().join("notes.txt")).unwrap(), "Buy milk\nSell eggs\n");
    }
}
