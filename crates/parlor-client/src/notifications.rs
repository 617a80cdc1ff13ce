use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use parlor_json::Json;
use parlor_session::SessionId;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::losses::LossLog;
use crate::updates::{BoxStream, stream};

/// A notification that is not a session update, such as one of a protocol extension.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// The method, such as `_example/progress`.
    pub method: String,
    /// The params, if there are any.
    pub params: Option<Json>,
}

impl Notification {
    /// A notification, for tests of programs that handle them.
    pub fn new(method: impl Into<String>, params: Option<Json>) -> Self {
        Self { method: method.into(), params }
    }

    /// The session that its params name.
    pub fn session(&self) -> Option<SessionId> {
        let params = self.params.as_ref()?.to_object()?;
        params.get_json_str("sessionId").map(SessionId::from)
    }
}

/// A stream of notifications, each of which goes to all such streams. The oldest are dropped, and counted as
/// [losses](crate::Client::losses), when more than 1,024 wait.
///
/// It ends when the connection is closed, and does not keep it open.
pub struct Notifications {
    stream: BoxStream<Notification>,
}

impl Notifications {
    /// The notifications that arrive from here on; none if the connection is closed.
    pub(crate) fn new(receiver: Option<broadcast::Receiver<Notification>>, losses: LossLog) -> Self {
        let stream = stream((receiver, losses), |(receiver, losses)| async {
            let mut receiver = receiver?;
            loop {
                match receiver.recv().await {
                    Ok(notification) => return Some((notification, (Some(receiver), losses))),
                    Err(RecvError::Lagged(count)) => {
                        losses.record(format!("{count} notifications that were not read in time"));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Self { stream }
    }

    /// The next notification; `None` when the connection is closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notification> {
        std::future::poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Notifications {
    type Item = Notification;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Notification>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for Notifications {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifications").finish_non_exhaustive()
    }
}
