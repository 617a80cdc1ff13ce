//! The door that is this process's own: one client, which started it.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::lines::{Bounds, Conversation, Incoming};
use crate::hub::{Hub, Peer};

/// Serves the client at the standard streams, until it says no more and has all answers, or is gone.
///
/// Reading standard input cannot be interrupted: who calls this from `main` has to end the process afterwards without
/// waiting for its runtime.
pub async fn stdio(hub: &Arc<Hub>, peer: Peer) {
    streams(hub, peer, tokio::io::stdin(), tokio::io::stdout()).await;
}

/// Serves one client over any two streams.
pub async fn streams<R, W>(hub: &Arc<Hub>, peer: Peer, read: R, write: W)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    Conversation::begin(hub, peer).go_on(Incoming::new(read), write, Bounds::default()).await;
}
