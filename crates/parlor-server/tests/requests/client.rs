//! Clients in the process of the server.

use std::sync::Arc;

use parlor_dialect::Dialect;
use parlor_server::hub::{ClientRole, Hub};
use parlor_testkit::async_client::AsyncClient;
use parlor_testkit::wait::wait_until_async;
use serde_json::{Value, json};

use crate::common;

/// A client that can fill in forms.
pub(crate) async fn connect(hub: &Arc<Hub>, dialect: Dialect, role: ClientRole) -> AsyncClient {
    let capabilities = json!({ "elicitation": { "form": {}, "url": {} } });
    AsyncClient::over(common::connect(hub, role), dialect, capabilities).await
}

/// Operations of these tests on a client.
pub(crate) trait Requests {
    /// Checks that it received no message with this method so far.
    async fn received_none(&mut self, method: &str);

    /// Waits until no agent runs.
    async fn wait_for_no_agent(&mut self);

    /// Sends the request that attaches to a session with its history; its id.
    fn send_load(&mut self, session: &str, servers: Value) -> u64;

    /// Attaches to a session with its history.
    async fn load(&mut self, session: &str) -> Result<Value, Value>;

    /// Attaches to a session with its history and these MCP servers.
    async fn load_with(&mut self, session: &str, servers: Value) -> Result<Value, Value>;
}

impl Requests for AsyncClient {
    async fn received_none(&mut self, method: &str) {
        // The response follows all messages that the server sent before.
        self.call("_parlor/status", json!({})).await.unwrap();
        assert!(self.received.iter().all(|line| line["method"] != method), "{:?}", self.received);
    }

    async fn wait_for_no_agent(&mut self) {
        wait_until_async("the agent ends", async || {
            self.call("_parlor/status", json!({})).await.unwrap()["agents"] == json!([])
        })
        .await;
    }

    fn send_load(&mut self, session: &str, servers: Value) -> u64 {
        let mut params = json!({ "sessionId": session, "cwd": "/", "mcpServers": servers });
        if self.dialect == Dialect::V1 {
            return self.send("session/load", params);
        }
        params["replayFrom"] = json!({ "type": "start" });
        self.send("session/resume", params)
    }

    async fn load(&mut self, session: &str) -> Result<Value, Value> {
        self.load_with(session, json!([])).await
    }

    async fn load_with(&mut self, session: &str, servers: Value) -> Result<Value, Value> {
        let id = self.send_load(session, servers);
        self.response(id).await
    }
}
