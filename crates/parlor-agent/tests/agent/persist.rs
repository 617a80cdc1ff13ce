//! Persistence.

use parlor_agent::{Agent, Info, PromptCapability, ServeError, Server, StopReason, Turn, TurnError};
use parlor_client::{Client, Connector, Session};
use parlor_testkit::wait::within_timeout;

/// Repeats prompts; its name and version are given.
struct Echo(&'static str, &'static str);

impl Agent for Echo {
    fn info(&self) -> Info {
        Info::new(self.0, self.1).accepts(if self.1 == "1" {
            PromptCapability::Audio
        } else {
            PromptCapability::Image
        })
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        if turn.prompt_text() == "wait" {
            std::future::pending::<()>().await;
        }
        turn.send_text(&turn.prompt_text()).await;
        Ok(StopReason::EndTurn)
    }
}

async fn client(server: &Server) -> Client {
    let (read, write) = tokio::io::split(server.connect());
    within_timeout(Connector::new("test", "1").over(read, write)).await.unwrap()
}

async fn turn(session: &Session, text: &str) {
    let turn = within_timeout(session.prompt(text)).await.unwrap();
    within_timeout(turn.outcome()).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_changes_its_name_finds_its_sessions_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Echo("old", "1")).persist(&file).start().await.unwrap();
    let session = within_timeout(client(&server).await.new_session("/tmp".as_ref())).await.unwrap();
    turn(&session, "one").await;
    server.stop().await;
    drop(server);

    let server = Server::builder(Echo("new", "2")).persist(&file).start().await.unwrap();
    let client = client(&server).await;
    let info = client.info().to_json();
    let info = info.as_str();
    assert!(info.contains(r#""name":"new""#) && info.contains(r#""version":"2""#), "{info}");
    assert!(info.contains("image") && !info.contains("audio"), "{info}");
    assert_eq!(within_timeout(client.list(None)).await.unwrap().len(), 1);
    let session = within_timeout(client.load(session.id(), "/tmp".as_ref())).await.unwrap();
    turn(&session, "two").await;
    assert_eq!(session.transcript().entries().len(), 4);
}

#[tokio::test]
async fn only_one_server_can_use_a_file_of_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let server = Server::builder(Echo("a", "1")).persist(&file).start().await.unwrap();
    let session = within_timeout(client(&server).await.new_session("/tmp".as_ref())).await.unwrap();
    let running = within_timeout(session.prompt("wait")).await.unwrap();
    let second = Server::builder(Echo("a", "1")).persist(&file).start().await;
    let error = second.unwrap_err();
    assert!(matches!(&error, ServeError::Locked { path } if *path == file), "{error:?}");
    assert!(error.to_string().contains("another process uses the sessions in"), "{error}");
    // The first one still works.
    within_timeout(session.cancel()).await.unwrap();
    within_timeout(running.outcome()).await.unwrap();

    std::fs::write(directory.path().join("broken.db"), "no database ".repeat(1000)).unwrap();
    for name in ["no/such/place", "broken.db"] {
        let failed = Server::builder(Echo("a", "1")).persist(directory.path().join(name)).start().await;
        let error = failed.unwrap_err();
        let is_open = matches!(&error, ServeError::Open { path, .. } if path.ends_with(name));
        assert!(is_open && error.to_string().contains(name), "{error:?}");
    }
}
