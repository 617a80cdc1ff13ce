//! An agent that requires authentication: sessions can be created after the client has called `authenticate`.

use std::sync::atomic::{AtomicBool, Ordering};

use parlor_agent::{
    Agent, AuthMethod, Info, ServeError, Server, SessionRequest, StopReason, Turn, TurnError,
};

#[derive(Default)]
struct Account {
    is_logged_in: AtomicBool,
}

impl Agent for Account {
    fn info(&self) -> Info {
        let method = AuthMethod::new("key", "API key").description("Uses the key in EXAMPLE_API_KEY");
        Info::new("account", "0.1.0").auth_method(method)
    }

    async fn authenticate(&self, _method_id: &str) -> Result<(), TurnError> {
        if std::env::var_os("EXAMPLE_API_KEY").is_none() {
            return Err(TurnError::AuthRequired("set EXAMPLE_API_KEY".to_owned()));
        }
        self.is_logged_in.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn log_out(&self) -> Result<(), TurnError> {
        self.is_logged_in.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn open_session(&self, _request: &SessionRequest) -> Result<(), TurnError> {
        if self.is_logged_in.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(TurnError::AuthRequired("log in first".to_owned()))
        }
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        turn.send_text("You are logged in.").await;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    Server::builder(Account::default()).start().await?.stdio().await
}
