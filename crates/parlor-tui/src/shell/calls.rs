//! Requests to the server and what they return.

use std::path::Path;

use parlor_client::{Error, Json, Object, Session, SessionId, code};

use super::backend::{Context, DirectAnswer, SentPrompt, TAIL_ENTRIES, failure, reason};
use super::prompt::prompt;
use crate::event::{Call, Event, SessionCall};

impl Context {
    /// Runs a request and reports its outcome.
    pub(super) async fn run(&self, call: Call) {
        let outcome = match call {
            Call::Open { ticket, id, cwd } => {
                if let Err(error) = self.open(ticket, &id, cwd).await {
                    self.event(Event::OpenFailed { ticket, failure: failure(&error) }).await;
                }
                Ok(())
            }
            Call::New { ticket, agent, cwd, prompt } => {
                if let Err(error) = self.create(ticket, agent.as_deref(), cwd, prompt).await {
                    self.event(Event::OpenFailed { ticket, failure: failure(&error) }).await;
                }
                Ok(())
            }
            Call::InSession(id, call) => self.run_in_session(id, call).await,
            Call::Answer { id, result } => {
                if let Err(error) = self.answer(&id, result).await {
                    self.event(Event::AnswerFailed { id, reason: reason(&error) }).await;
                }
                Ok(())
            }
            Call::SetTitle(id, title) => {
                self.control_call("_parlor/title", &id, |params| params.with("title", title)).await
            }
            Call::Archive(id) => {
                let archived =
                    self.control_call("_parlor/archive", &id, |params| params.with("archived", true)).await;
                self.report_removal(id, false, archived).await;
                Ok(())
            }
            Call::Restore { id, note } => {
                let restored =
                    self.control_call("_parlor/archive", &id, |params| params.with("archived", false)).await;
                if restored.is_ok() {
                    self.event(Event::Note(note)).await;
                }
                restored
            }
            Call::Delete(id) => {
                let deleted = self.control_call("session/delete", &id, |params| params).await;
                self.report_removal(id, true, deleted).await;
                Ok(())
            }
            // A number after the last change counts as the last one.
            Call::Seen(id) => {
                self.control_call("_parlor/seen", &id, |params| params.with("seq", u64::from(u32::MAX))).await
            }
            Call::Agents => self.send_agents().await,
            Call::Search { generation, query, cwd, session } => {
                self.search(generation, query, cwd, session).await;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.event(Event::Failed(reason(&error))).await;
        }
    }

    async fn run_in_session(&self, id: SessionId, call: SessionCall) -> Result<(), Error> {
        match call {
            SessionCall::Prompt { text, key, during_turn } => {
                self.prompt(SentPrompt { session: id, text, key, during_turn }).await;
                Ok(())
            }
            SessionCall::Cancel => self.cancel(&id).await,
            SessionCall::Withdraw(prompt) => {
                self.session_call(&id, "_parlor/withdraw", |params| params.with("id", prompt)).await.map(drop)
            }
            SessionCall::Fork { at, agent, ticket } => {
                let with = |mut params: Object| {
                    if let Some(at) = &at {
                        params.set("messageId", at.as_json());
                    }
                    if let Some(agent) = agent {
                        params.set("_meta", Object::new().with("parlor/agent", agent));
                    }
                    params
                };
                let forked = self.fork(&id, "session/fork", with, ticket).await;
                self.report_fork(id, ticket, forked).await;
                Ok(())
            }
            SessionCall::EditPrompt { message, text, ticket } => {
                let forked = self.edit(&id, &message.as_json().into(), &text, ticket).await;
                self.report_fork(id, ticket, forked).await;
                Ok(())
            }
            SessionCall::Regenerate { message, ticket } => {
                let with = |params: Object| params.with("messageId", message.as_json());
                let forked = self.fork(&id, "_parlor/regenerate", with, ticket).await;
                self.report_fork(id, ticket, forked).await;
                Ok(())
            }
            SessionCall::SetOption { option, value, note } => {
                let with = |params: Object| params.with("configId", option).with("value", value);
                self.session_call(&id, "session/set_config_option", with).await?;
                self.event(Event::Note(note)).await;
                Ok(())
            }
            SessionCall::Older(cursor) => {
                self.older(id, &cursor).await;
                Ok(())
            }
        }
    }

    /// Sends a prompt and reports whether it was accepted.
    pub(super) async fn prompt(&self, sent: SentPrompt) {
        let outcome = match self.session(&sent.session) {
            Ok((session, cwd)) => self.prompt_session(&session, &cwd, &sent).await,
            Err(error) => Err(error),
        };
        let event = match outcome {
            Ok(()) => Event::PromptAccepted(sent.session),
            // The connection was closed for another session, after the prompt was written.
            Err(Error::Disconnected) if !self.is_direct() && self.session(&sent.session).is_err() => return,
            // It is sent again with its key when the connection is back.
            Err(Error::Disconnected) if !self.is_direct() => {
                self.shared().unconfirmed.push(sent);
                return;
            }
            Err(error) if error.code() == Some(code::REQUEST_CANCELLED) => {
                Event::PromptWithdrawn { session: sent.session, text: sent.text }
            }
            Err(error) => {
                Event::PromptFailed { session: sent.session, text: sent.text, failure: failure(&error) }
            }
        };
        self.event(event).await;
    }

    /// Sends a prompt to a session and waits until it is accepted.
    pub(super) async fn prompt_session(
        &self,
        session: &Session,
        cwd: &str,
        sent: &SentPrompt,
    ) -> Result<(), Error> {
        let content = prompt(&sent.text, Path::new(cwd), session.client().info());
        let content = content.key(sent.key.as_str()).during_turn(sent.during_turn);
        session.prompt(content).await.map(drop)
    }

    /// Cancels the turn. An agent without a server gets answers to its requests, as the protocol demands.
    async fn cancel(&self, id: &SessionId) -> Result<(), Error> {
        let (session, _) = self.session(id)?;
        session.cancel_turn().await?;
        let direct = std::mem::take(&mut self.shared().direct);
        for (_, request) in direct {
            let _ = request.send(DirectAnswer::Cancelled);
        }
        Ok(())
    }

    async fn answer(&self, id: &str, result: Object) -> Result<(), Error> {
        if self.is_direct() {
            let request = self.shared().direct.remove(id);
            if let Some(request) = request {
                let _ = request.send(DirectAnswer::Result(result));
            }
            return Ok(());
        }
        if !self.control()?.answer(id, result).await? {
            self.event(Event::Note("The request was answered or withdrawn already".to_owned())).await;
        }
        Ok(())
    }

    async fn session_call(
        &self,
        id: &SessionId,
        method: &str,
        with: impl FnOnce(Object) -> Object,
    ) -> Result<Object, Error> {
        let (session, _) = self.session(id)?;
        let params = with(Object::new().with("sessionId", session.id().as_json()));
        session.client().call(method, &params).await
    }

    async fn control_call(
        &self,
        method: &str,
        id: &SessionId,
        with: impl FnOnce(Object) -> Object,
    ) -> Result<(), Error> {
        let params = with(Object::new().with("sessionId", id.as_json()));
        self.control()?.call(method, &params).await.map(drop)
    }

    async fn report_removal(&self, id: SessionId, is_deletion: bool, removed: Result<(), Error>) {
        if let Err(error) = removed {
            self.event(Event::RemovalFailed { id, is_deletion, reason: reason(&error) }).await;
        }
    }

    async fn report_fork(&self, parent: SessionId, ticket: u64, forked: Result<(), Error>) {
        if let Err(error) = forked {
            self.event(Event::ForkFailed { parent, ticket, failure: failure(&error) }).await;
        }
    }

    /// Forks a session and reports the new one.
    async fn fork(
        &self,
        id: &SessionId,
        method: &str,
        with: impl FnOnce(Object) -> Object,
        ticket: u64,
    ) -> Result<(), Error> {
        let (_, cwd) = self.session(id)?;
        let params = with(Object::new().with("sessionId", id.as_json()));
        // The response attaches the connection: that of the open session is kept free of it. This one shows no requests, so it
        // detaches: it would refuse those of the fork.
        let result = self.control()?.call(method, &params).await?;
        let fork = result.get_json_str("sessionId").ok_or(Error::Protocol("the fork has no id"))?;
        let _ = self.control()?.call("session/detach", &Object::new().with("sessionId", &fork)).await;
        self.event(Event::Forked { parent: id.clone(), id: fork.into(), cwd, ticket }).await;
        Ok(())
    }

    /// Forks before a prompt and sends another one there.
    async fn edit(&self, id: &SessionId, message: &Json, text: &str, ticket: u64) -> Result<(), Error> {
        let (session, cwd) = self.session(id)?;
        let content = prompt(text, Path::new(&cwd), session.client().info());
        let with = |params: Object| {
            params.with("messageId", message.clone()).with("prompt", content.content().clone())
        };
        self.fork(id, "_parlor/edit", with, ticket).await
    }

    /// Loads earlier entries and reports them.
    async fn older(&self, id: SessionId, cursor: &Json) {
        let loaded = match self.session(&id) {
            Ok((session, _)) => session.older(cursor, TAIL_ENTRIES).await,
            Err(error) => Err(error),
        };
        let event = match loaded {
            Ok(page) => {
                let (page, before) = (Box::new(page.transcript), page.before);
                Event::Older { session: id, cursor: cursor.clone(), page, before }
            }
            Err(error) => Event::OlderFailed { session: id, cursor: cursor.clone(), reason: reason(&error) },
        };
        self.event(event).await;
    }
}
