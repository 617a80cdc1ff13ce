use parlor_json::{Json, Object};

use crate::{Info, Session, SessionRequest, StopReason, Turn, TurnError};

/// An agent: it answers prompts, one turn at a time in each session, in any number of sessions at once.
///
/// The library does the rest of the protocol: sessions with their history, ids, states, queued prompts, cancellation, forks,
/// titles, both versions. Only [`prompt`](Self::prompt) is required.
pub trait Agent: Send + Sync + 'static {
    /// Answers a prompt, and returns why the turn ended.
    ///
    /// When the turn is cancelled, the future is dropped at the `.await` where it is. If it panics, the turn fails, and the agent
    /// goes on.
    fn prompt(&self, turn: Turn) -> impl Future<Output = Result<StopReason, TurnError>> + Send;

    /// Describes the agent. Called once.
    fn info(&self) -> Info {
        Info::new("agent", "0")
    }

    /// Decides whether a session is created, forked or resumed. An agent whose people have to authenticate first returns
    /// [`TurnError::AuthRequired`].
    fn open_session(&self, request: &SessionRequest) -> impl Future<Output = Result<(), TurnError>> + Send {
        let _ = request;
        async { Ok(()) }
    }

    /// Called when a session was created, before its first prompt. The agent can send something in it.
    fn session_started(&self, session: Session) -> impl Future<Output = ()> + Send {
        drop(session);
        async {}
    }

    /// Authenticates a person with one of the agent's [methods](Info::auth_method).
    fn authenticate(&self, method_id: &str) -> impl Future<Output = Result<(), TurnError>> + Send {
        let error = TurnError::InvalidParams(format!("no authentication method has the id '{method_id}'"));
        async move { Err(error) }
    }

    /// Forgets who is authenticated.
    fn log_out(&self) -> impl Future<Output = Result<(), TurnError>> + Send {
        async { Err(TurnError::MethodNotFound("auth/logout".to_owned())) }
    }

    /// Answers a request with a method that the protocol does not define. When the client cancels the request, the future is
    /// dropped.
    fn extension_request(
        &self,
        method: &str,
        params: &Object,
    ) -> impl Future<Output = Result<Json, TurnError>> + Send {
        let _ = params;
        let error = TurnError::MethodNotFound(method.to_owned());
        async move { Err(error) }
    }
}
