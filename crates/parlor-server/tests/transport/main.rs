//! The transports of a server, with real sockets.
//!
//! The hub responds to each request with an error that has the request's id, which is enough for these tests.

#[path = "../common/mod.rs"]
mod common;
mod data_dir;
mod http;
mod relay;
mod sign_in;
mod unix;
mod websocket;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use parlor_server::data_dir::{DataDir, Lock, Tokens};
use parlor_server::hub::Hub;
use parlor_server::transport::{HttpOptions, Limits, Listeners, Page};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time after which a test fails.
const LONG: Duration = Duration::from_secs(20);

/// A server with a directory and a port of its own.
struct Server {
    directory: TempDir,
    data: DataDir,
    lock: Lock,
    tokens: Tokens,
    address: SocketAddr,
    socket: PathBuf,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
    hub: Arc<Hub>,
}

impl Server {
    async fn start() -> Self {
        Self::with(Limits::default(), |_| {}).await
    }

    async fn with(limits: Limits, change: impl FnOnce(&mut HttpOptions)) -> Self {
        Self::with_page(limits, change, None).await
    }

    async fn with_page(
        limits: Limits,
        change: impl FnOnce(&mut HttpOptions),
        page: Option<axum::Router>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        let lock = data.lock().unwrap();
        let tokens = data.tokens(&lock, None).unwrap();
        let mut http = loopback();
        change(&mut http);
        let mut listeners = Listeners::open(&data, &lock, tokens.clone(), Some(&http), limits).await.unwrap();
        if let Some(page) = page {
            listeners.set_page(Page {
                routes: page,
                assets: axum::Router::new(),
                signed_out: |status, reason| (status, format!("<p>{reason}")).into_response(),
            });
        }
        let (address, socket) = (listeners.address().unwrap(), listeners.socket().to_owned());
        let (stop, stopping) = watch::channel(false);
        let hub = common::hub().await;
        let running = tokio::spawn(listeners.serve(Arc::clone(&hub), stopping));
        Self { directory, data, lock, tokens, address, socket, stop, running, hub }
    }

    /// Stops the server, and waits until it has stopped.
    async fn end(self) -> (TempDir, DataDir, Lock) {
        self.stop.send_replace(true);
        in_time(self.running).await.unwrap();
        (self.directory, self.data, self.lock)
    }
}

fn loopback() -> HttpOptions {
    HttpOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        allow_remote: false,
        origins: Vec::new(),
        hosts: Vec::new(),
    }
}

/// Waits for a future, up to a timeout.
async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("it takes too long")
}

fn request(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"test/none"}}"#)
}

fn response(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn id_of(line: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_u64()
}
