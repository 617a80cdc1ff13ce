//! Spans: what an agent logs belongs to its session and turn.

#[path = "agent/line_client.rs"]
mod line_client;

use std::io::Write;
use std::sync::{Arc, Mutex};

use line_client::LineClient;
use parlor_agent::{Agent, Server, Session, StopReason, Turn, TurnError};
use tracing_subscriber::fmt::MakeWriter;

struct Logging;

impl Agent for Logging {
    async fn session_started(&self, _: Session) {
        tracing::info!("started by the agent");
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        tracing::info!("answered by the agent: {}", turn.prompt_text());
        if turn.prompt_text() == "fail" {
            return Err(TurnError::new("as requested"));
        }
        turn.send_text("done").await;
        Ok(StopReason::EndTurn)
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// The spans of the line with a text.
    fn spans_of(&self, text: &str) -> String {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {log}"));
        line.split(text).next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn what_an_agent_logs_is_in_the_spans_of_its_session_and_turn() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::builder(Logging).start().await.unwrap();
    let (mut client, session) = LineClient::with_session(&server, 2).await;
    client.turn(&session, "hello").await;
    let (mut other_client, other) = LineClient::with_session(&server, 1).await;
    other_client.turn(&other, "fail").await;

    let first = format!("session{{session={session}}}");
    assert!(log.spans_of("started by the agent").contains(&first));
    let spans = log.spans_of("answered by the agent: hello");
    assert!(spans.contains(&format!("{first}:turn{{message_id=")), "{spans}");
    let spans = log.spans_of("answered by the agent: fail");
    assert!(spans.contains(&format!("session{{session={other}}}:turn{{message_id=")), "{spans}");
    // The library logs the error of a turn in the same span.
    let failed = log.spans_of("turn failed");
    assert!(failed.contains(&format!("session{{session={other}}}:turn{{message_id=")), "{failed}");
}
