//! Authentication: methods, login, logout, and sessions that require it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::line_client::{LineClient, VERSIONS};
use parlor_agent::{
    Agent, AuthMethod, Info, Server, SessionRequest, SessionRequestKind, StopReason, Turn, TurnError,
};
use serde_json::{Value, json};

/// Requires a login.
#[derive(Clone, Default)]
struct Account {
    is_logged_in: Arc<AtomicBool>,
    /// The sessions that were requested, and the ids of methods.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Account {
    fn check(&self) -> Result<(), TurnError> {
        let is_logged_in = self.is_logged_in.load(Ordering::Relaxed);
        if is_logged_in { Ok(()) } else { Err(TurnError::AuthRequired("log in first".to_owned())) }
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Agent for Account {
    fn info(&self) -> Info {
        Info::new("account", "1")
            .auth_method(AuthMethod::new("key", "API key").description("A key"))
            .auth_method(AuthMethod::terminal("tty", "Terminal").arg("login"))
            .auth_method(AuthMethod::new("panic", "Panics"))
    }

    async fn authenticate(&self, method_id: &str) -> Result<(), TurnError> {
        self.note(method_id.to_owned());
        match method_id {
            "key" => self.is_logged_in.store(true, Ordering::Relaxed),
            "tty" => return Err(TurnError::AuthRequired("run it in a terminal".to_owned())),
            _ => panic!("as requested"),
        }
        Ok(())
    }

    async fn log_out(&self) -> Result<(), TurnError> {
        self.is_logged_in.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn open_session(&self, request: &SessionRequest) -> Result<(), TurnError> {
        let kind = match request.kind() {
            SessionRequestKind::New => "new",
            SessionRequestKind::Fork => "fork",
            SessionRequestKind::Resume => "resume",
            _ => "other",
        };
        self.note(format!("{kind} {} {}", request.cwd().display(), request.mcp_servers().len()));
        self.check()
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        self.check()?;
        turn.send_text("done").await;
        Ok(StopReason::EndTurn)
    }
}

const LOGIN: [(u32, &str, &str); 2] = [(1, "authenticate", "logout"), (2, "auth/login", "auth/logout")];

#[tokio::test]
async fn methods_are_offered_to_clients_of_both_versions() {
    let server = Server::builder(Account::default()).start().await.unwrap();
    let (_, initialized) = LineClient::connect(&server, 1, json!({})).await;
    let methods = &initialized["authMethods"];
    assert_eq!(methods[0], json!({"id": "key", "name": "API key", "description": "A key"}));
    assert_eq!(methods[1], json!({"type": "terminal", "id": "tty", "name": "Terminal", "args": ["login"]}));
    let (_, initialized) = LineClient::connect(&server, 2, json!({})).await;
    let methods = &initialized["authMethods"];
    let key = json!({"type": "agent", "methodId": "key", "name": "API key", "description": "A key"});
    assert_eq!(methods[0], key);
    let tty = json!({"type": "terminal", "methodId": "tty", "name": "Terminal", "args": ["login"]});
    assert_eq!(methods[1], tty);
}

#[tokio::test]
async fn an_agent_without_methods_offers_none_and_rejects_a_login() {
    struct Plain;
    impl Agent for Plain {
        async fn prompt(&self, _: Turn) -> Result<StopReason, TurnError> {
            Ok(StopReason::EndTurn)
        }
    }
    let server = Server::builder(Plain).start().await.unwrap();
    for (version, login, logout) in LOGIN {
        let (mut client, initialized) = LineClient::connect(&server, version, json!({})).await;
        assert!(initialized["authMethods"].as_array().is_none_or(Vec::is_empty), "{initialized}");
        assert_eq!(client.request(login, json!({"methodId": "key"})).await.unwrap_err()["code"], -32602);
        assert_eq!(client.request(logout, json!({})).await.unwrap_err()["code"], -32601);
    }
}

#[tokio::test]
async fn sessions_and_turns_need_a_login_until_logout() {
    let agent = Account::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    let required = |error: &Value| error["code"] == -32000 && error["message"] == "log in first";
    for (version, login, logout) in LOGIN {
        let (mut client, _) = LineClient::connect(&server, version, json!({})).await;
        let error = client.new_session().await.unwrap_err();
        assert!(required(&error), "{error}");
        client.request(login, json!({"methodId": "key"})).await.unwrap();
        let session = client.new_session().await.unwrap();
        assert_eq!(client.turn(&session, "hello").await.text, "done");
        client.request(logout, json!({})).await.unwrap();
        let error = client.turn(&session, "hello").await.outcome.unwrap_err();
        assert!(required(&error), "{error}");
        assert!(required(&client.new_session().await.unwrap_err()));
    }
}

#[tokio::test]
async fn a_login_that_fails_has_the_error_of_the_agent() {
    let agent = Account::default();
    let server = Server::builder(agent.clone()).start().await.unwrap();
    for (version, login, _) in LOGIN {
        let (mut client, _) = LineClient::connect(&server, version, json!({})).await;
        let error = client.request(login, json!({"methodId": "tty"})).await.unwrap_err();
        assert_eq!((&error["code"], &error["message"]), (&json!(-32000), &json!("run it in a terminal")));
        let error = client.request(login, json!({"methodId": "panic"})).await.unwrap_err();
        assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!("the agent panicked")));
        // A method that the agent does not have never reaches it.
        agent.calls.lock().unwrap().clear();
        for params in [json!({"methodId": "other"}), json!({"methodId": 5}), json!({})] {
            assert_eq!(client.request(login, params).await.unwrap_err()["code"], -32602);
        }
        assert_eq!(agent.calls.lock().unwrap().len(), 0);
    }
}

#[tokio::test]
async fn the_agent_decides_about_new_sessions_and_forks() {
    let agent = Account::default();
    agent.is_logged_in.store(true, Ordering::Relaxed);
    let server = Server::builder(agent.clone()).start().await.unwrap();
    for version in VERSIONS {
        agent.calls.lock().unwrap().clear();
        let (mut client, session) = LineClient::with_session(&server, version).await;
        client.turn(&session, "hello").await;
        let params = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
        client.request("session/fork", params).await.unwrap();
        assert_eq!(*agent.calls.lock().unwrap(), ["new /tmp 0", "fork / 0"]);
    }
}
