//! Performs what a person does in a tab.

use std::path::Path;
use std::sync::Arc;

use parlor_client::{Client, DuringTurn, Error, Json, JsonStr, Object, Prompt, code};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::ClientRole;
use parlor_session::{Body, EntryId, MessageId, SessionId, Slot, Transcript};
use tokio::sync::mpsc;

use super::action::{Action, Attachment, FieldValue};
use super::feed::{DriverConnection, Feed, PAGE_ENTRIES};
use super::hub_client::HubConnector;
use super::new_session::{self, AgentChoiceRow};
use super::prompt;
use super::to_tab::{Completion, TabMessage, TabPatch};
use super::{PageState, list_feed, side};
use crate::render::text::{clean_line, element_id};
use crate::render::{AnswerError, RequestCard};

/// Pages of older entries that are read to find a message.
const MAX_PAGES: usize = 200;

/// Entries of such a page.
const PAGE: usize = PAGE_ENTRIES;

/// Completions that are sent to a tab.
const MAX_COMPLETIONS: usize = 20;

/// Performs one action of a tab.
pub(super) struct Performer {
    pub(super) state: Arc<PageState>,
    pub(super) feed: Option<Arc<Feed>>,
    /// The browser of the tab.
    pub(super) browser: SignedIn,
    pub(super) responses: mpsc::Sender<TabMessage>,
}

impl Performer {
    /// Performs an action, and sends the tab its outcome.
    pub(super) async fn perform(self, action: Action) {
        let page = action.page_key();
        let outcome = self.run(action).await;
        let patch = outcome.unwrap_or_else(|error| vec![TabPatch::failed(page, reason(&error))]);
        if !patch.is_empty() {
            // A tab that is gone needs no response.
            let _ = self.responses.send(TabMessage::new(patch)).await;
        }
    }

    fn feed(&self) -> Result<&Arc<Feed>, Error> {
        self.feed.as_ref().ok_or(Error::Protocol("the tab shows no session"))
    }

    async fn driver(&self) -> Result<Arc<DriverConnection>, Error> {
        self.feed()?.driver(&self.state, &self.browser).await
    }

    /// Calls a method about the session that the tab shows.
    async fn call(&self, method: &str, with: impl FnOnce(Object) -> Object) -> Result<Object, Error> {
        let driver = self.driver().await?;
        let params = with(Object::new().with("sessionId", self.feed()?.row.id.as_json()));
        driver.client.call(method, &params).await
    }

    async fn run(&self, action: Action) -> Result<Vec<TabPatch>, Error> {
        match action {
            Action::Prompt { key, text, files, now } => {
                let during_turn = if now { DuringTurn::Steer } else { DuringTurn::Queue };
                self.prompt(key, &text, &files, during_turn).await
            }
            Action::Withdraw { id } => {
                let id = Json::parse(&id).map_err(|_| Error::Protocol("the queued prompt has no such id"))?;
                self.call("_parlor/withdraw", |params| params.with("id", id)).await?;
                Ok(Vec::new())
            }
            Action::Stop => self.stop().await,
            Action::Answer { request, opened, option, values } => {
                let value =
                    |name: &str| values.get(name).map(|value| value.as_slice().to_vec()).unwrap_or_default();
                self.respond(&request, &opened, |card| card.answer(option.as_deref(), &value)).await
            }
            Action::Decline { request, opened } => {
                self.respond(&request, &opened, |card| Ok(card.decline())).await
            }
            Action::NotNow { request, opened } => {
                self.state.lists.postpone(&request, &opened);
                Ok(Vec::new())
            }
            Action::New { agent, directory, text, files } => {
                match new_session::create(&self.state.hub, &self.browser, &agent, &directory, &text, &files)
                    .await
                {
                    Ok(address) => Ok(vec![TabPatch::Go(address)]),
                    Err(message) => Ok(vec![TabPatch::NewError(message)]),
                }
            }
            Action::Dismiss { session } => {
                let session = decoded(&session).ok_or(Error::Protocol("the session has no such id"))?;
                list_feed::mark_seen(&self.state.hub, &SessionId::from(session.as_str())).await?;
                Ok(Vec::new())
            }
            Action::SetOption { option, value } => {
                let json =
                    |text: &str| Json::parse(text).map_err(|_| Error::Protocol("the option is not JSON"));
                let (option, value) = (json(&option)?, json(&value)?);
                let params = |params: Object| params.with("configId", option).with("value", value);
                self.call("session/set_config_option", params).await?;
                Ok(Vec::new())
            }
            Action::Rename { title } => {
                self.call("_parlor/title", |params| params.with("title", title)).await?;
                Ok(Vec::new())
            }
            Action::Archive => {
                self.call("_parlor/archive", |params| params.with("archived", true)).await?;
                Ok(vec![TabPatch::Go("/".to_owned())])
            }
            Action::Restore => {
                self.call("_parlor/archive", |params| params.with("archived", false)).await?;
                Ok(Vec::new())
            }
            Action::Delete => {
                let driver = self.driver().await?;
                self.feed()?.delete_later(driver);
                Ok(Vec::new())
            }
            Action::Undelete => {
                self.feed()?.keep();
                Ok(Vec::new())
            }
            Action::Fork { message, agent } => {
                if let Some(agent) = &agent {
                    self.check_agent(agent).await?;
                }
                let message = message.as_deref().map(message_id).transpose()?;
                self.fork("session/fork", |mut params| {
                    if let Some(message) = message {
                        params.set("messageId", message.as_json());
                    }
                    if let Some(agent) = agent {
                        params.set("_meta", Object::new().with("parlor/agent", agent));
                    }
                    params
                })
                .await
            }
            Action::Edit { message, text, dropped } => {
                let dropped = dropped.as_ref().map_or(&[][..], FieldValue::as_slice);
                self.edit(&message, &text, dropped).await
            }
            Action::Regenerate { message } => {
                let message = message_id(&message)?;
                self.fork("_parlor/regenerate", |params| params.with("messageId", message.as_json())).await
            }
            action @ (Action::Show { .. }
            | Action::Source { .. }
            | Action::Older { .. }
            | Action::Newer { .. }
            | Action::Find { .. }
            | Action::Latest
            | Action::Complete { .. }
            | Action::Seen) => self.read(action).await,
        }
    }

    /// Performs an action that changes nothing of a session.
    async fn read(&self, action: Action) -> Result<Vec<TabPatch>, Error> {
        match action {
            Action::Source { message, to } => {
                let (text, attachments) = self.source(&message).await?;
                let files = attachments.iter().map(prompt::attachment_name).collect();
                Ok(vec![TabPatch::Source { message, to, text, files }])
            }
            Action::Older { before } => {
                let page = self.feed()?.older(&before).await?;
                Ok(vec![page.into_patch(before, None)])
            }
            Action::Newer { after } => {
                let page = self.feed()?.newer(&after);
                Ok(vec![page.into_patch(Action::newer_key(&after), None)])
            }
            Action::Find { message } => self.find(&message).await,
            Action::Latest => {
                let feed = self.feed()?;
                let (page, _) = feed.tail();
                let epoch = feed.epoch.clone();
                Ok(vec![TabPatch::Tail { epoch, html: page.html, before: page.before }])
            }
            Action::Complete { word } => {
                let items = self.complete(&word).await?;
                Ok(vec![TabPatch::Completions { word, items }])
            }
            Action::Seen => {
                if self.browser.role == ClientRole::Driver
                    && let Some(feed) = &self.feed
                {
                    list_feed::mark_seen(&self.state.hub, &feed.row.id).await?;
                }
                Ok(Vec::new())
            }
            // The tab itself shows a session; the others change something.
            Action::Show { .. }
            | Action::Prompt { .. }
            | Action::Withdraw { .. }
            | Action::Stop
            | Action::Answer { .. }
            | Action::Decline { .. }
            | Action::NotNow { .. }
            | Action::New { .. }
            | Action::Dismiss { .. }
            | Action::SetOption { .. }
            | Action::Rename { .. }
            | Action::Archive
            | Action::Restore
            | Action::Delete
            | Action::Undelete
            | Action::Fork { .. }
            | Action::Edit { .. }
            | Action::Regenerate { .. } => Ok(Vec::new()),
        }
    }

    async fn prompt(
        &self,
        key: String,
        text: &str,
        files: &[Attachment],
        during_turn: DuringTurn,
    ) -> Result<Vec<TabPatch>, Error> {
        let driver = self.driver().await?;
        let cwd = Path::new(&self.feed()?.row.cwd);
        let content = match prompt::content(text, files, cwd, driver.client.info()) {
            Ok(content) => content,
            Err(message) => return Ok(vec![TabPatch::Unsent { key }, TabPatch::Error(message)]),
        };
        let prompt = Prompt::blocks(content).key(key.as_str()).during_turn(during_turn);
        match driver.session.prompt(prompt).await {
            Ok(_) => Ok(vec![TabPatch::Sent { key }]),
            // The tab has the prompt and sends it again.
            Err(Error::Disconnected) => Ok(Vec::new()),
            // The person gets the text back.
            Err(error) if is_withdrawn(&error) => Ok(vec![TabPatch::Unsent { key }]),
            Err(error) => Ok(vec![TabPatch::Unsent { key }, TabPatch::Error(reason(&error))]),
        }
    }

    /// Sends another text in place of a prompt, with all that is attached to that except for what a person dropped.
    async fn edit(&self, element: &str, text: &str, dropped: &[String]) -> Result<Vec<TabPatch>, Error> {
        let message = message_id(element)?;
        let info = self.driver().await?.client.info().clone();
        let (_, attachments) = self.source(element).await?;
        let kept =
            attachments.into_iter().enumerate().filter(|(index, _)| !dropped.contains(&index.to_string()));
        let kept: Vec<Object> = kept.map(|(_, block)| block).collect();
        let cwd = Path::new(&self.feed()?.row.cwd);
        let content = match prompt::content_with(text, &kept, &[], cwd, &info) {
            Ok(content) => content,
            Err(message) => return Ok(vec![TabPatch::Error(message)]),
        };
        let params = |params: Object| params.with("messageId", message.as_json()).with("prompt", content);
        self.fork("_parlor/edit", params).await
    }

    /// Cancels the turn and withdraws the queued prompts of this browser, whose texts its tabs get back. Prompts of others stay.
    async fn stop(&self) -> Result<Vec<TabPatch>, Error> {
        self.driver().await?.session.cancel_turn().await?;
        Ok(Vec::new())
    }

    /// Forks the session and opens the fork.
    async fn fork(&self, method: &str, with: impl FnOnce(Object) -> Object) -> Result<Vec<TabPatch>, Error> {
        let params = with(Object::new().with("sessionId", self.feed()?.row.id.as_json()));
        // The response attaches the connection, which no tab may show.
        let fork = self.as_other_driver(async |client: &Client| client.call(method, &params).await).await?;
        let id = fork.get_json_str("sessionId").ok_or(Error::Protocol("the fork has no id"))?;
        Ok(vec![TabPatch::Go(side::address(&SessionId::from(id)))])
    }

    /// Runs calls on a connection of their own.
    async fn as_other_driver<T>(
        &self,
        run: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let row = &self.feed()?.row;
        let connector = HubConnector::driver(&self.browser).with_agent(&row.agent, row.cwd.clone().into());
        let client = connector.connect(&self.state.hub).await?;
        // Without a stream of them, requests would be declined.
        let requests = client.requests();
        let outcome = run(&client).await;
        client.disconnect().await;
        drop(requests);
        outcome
    }

    /// Answers an open request of any session with the result that its card makes.
    async fn respond(
        &self,
        id: &str,
        opened: &str,
        result: impl FnOnce(&RequestCard) -> Result<Object, AnswerError>,
    ) -> Result<Vec<TabPatch>, Error> {
        let view = self.state.lists.view().await.map_err(|_| Error::Disconnected)?;
        let is_answered = match view.request(id, opened) {
            Some(open) => {
                let result = result(&open.card).map_err(|error| Error::Refused(error.to_string()))?;
                // The decision is recorded under the name of the browser. The agent that waits for it is running.
                let connector =
                    HubConnector::driver(&self.browser).with_agent(&open.agent, open.cwd.clone().into());
                let client = connector.connect(&self.state.hub).await?;
                let is_answered = client.answer(id, result).await;
                client.disconnect().await;
                is_answered?
            }
            None => false,
        };
        if is_answered {
            Ok(Vec::new())
        } else {
            Ok(vec![TabPatch::Note("The request was answered or withdrawn already.".to_owned())])
        }
    }

    /// The page of older entries that has an element.
    async fn find(&self, element: &str) -> Result<Vec<TabPatch>, Error> {
        let feed = self.feed()?;
        let mut keys = Vec::new();
        let mut cursor = feed.tail().0.before;
        for _ in 0..MAX_PAGES {
            let Some(key) = cursor else { break };
            let page = feed.older(&key).await?;
            if page.ids.iter().any(|id| id == element) {
                return Ok(vec![page.into_patch(key, Some(keys))]);
            }
            cursor = page.before;
            keys.push(key);
        }
        let text = if cursor.is_some() {
            "The message that the link names is too far back to be shown. An export has it."
        } else {
            "The message that the link names is not in this session."
        };
        Ok(vec![TabPatch::NoPage { key: Action::FIND_KEY.to_owned(), text: text.to_owned() }])
    }

    /// Refuses an agent that is not installed: the session would fail at its next prompt.
    async fn check_agent(&self, name: &str) -> Result<(), Error> {
        let connection = HubConnector::new(ClientRole::Driver).connection(&self.state.hub);
        let agents = AgentChoiceRow::list(&connection).await?;
        match agents.iter().find(|agent| agent.name() == name) {
            Some(agent) if !agent.is_installed() => Err(Error::Refused(format!("{name} is not installed"))),
            Some(_) | None => Ok(()),
        }
    }

    /// The text of a message, and what is attached to it.
    async fn source(&self, element: &str) -> Result<(String, Vec<Object>), Error> {
        let feed = self.feed()?;
        let cwd = Path::new(&feed.row.cwd);
        let source = |body: &Body| {
            let text = body.content.to_text();
            let attachments = prompt::attachments(body, &text, cwd);
            (text, attachments)
        };
        let found = |transcript: &Transcript| {
            let mut messages =
                transcript.entries().iter().filter(|entry| matches!(entry.id(), EntryId::Message(..)));
            let found = messages.find(|entry| element_id(entry.id()) == element);
            found.map(|entry| source(entry.body()))
        };
        if let Some(source) = found(&feed.transcript()) {
            return Ok(source);
        }
        let mut before = feed.session().older_cursor();
        for _ in 0..MAX_PAGES {
            let Some(cursor) = before else { break };
            let page = feed.session().older(&cursor, PAGE).await?;
            if let Some(source) = found(&page.transcript) {
                return Ok(source);
            }
            before = page.before;
        }
        Err(Error::Protocol("the session has no such message"))
    }

    /// Commands that begin with a word after `/`, and files that contain one after `@`.
    async fn complete(&self, word: &str) -> Result<Vec<Completion>, Error> {
        let feed = self.feed()?;
        if let Some(start) = word.strip_prefix('/') {
            let transcript = feed.transcript();
            let commands =
                transcript.slot(Slot::Commands).map(|slot| slot.fields.clone()).unwrap_or_default();
            let commands = commands.get_array("availableCommands").unwrap_or_default();
            let completion = |command: parlor_client::JsonRef<'_>| {
                let command = command.to_object()?;
                let name = command.get_string("name").filter(|name| name.starts_with(start))?;
                let about = clean_line(&command.get_string("description").unwrap_or_default());
                Some(Completion { text: format!("/{}", clean_line(&name)), about })
            };
            return Ok(commands.into_iter().filter_map(completion).take(MAX_COMPLETIONS).collect());
        }
        let Some(part) = word.strip_prefix('@') else { return Ok(Vec::new()) };
        let files = feed.files().await;
        let part = part.to_lowercase();
        let mut found: Vec<&String> =
            files.iter().filter(|file| file.to_lowercase().contains(&part)).collect();
        found.sort_by_key(|file| {
            let name = file.rsplit('/').next().unwrap_or(file).to_lowercase();
            (!name.starts_with(&part), !name.contains(&part), file.len())
        });
        let completion = |file: &String| Completion { text: format!("@{file}"), about: String::new() };
        Ok(found.into_iter().take(MAX_COMPLETIONS).map(completion).collect())
    }
}

/// Whether a client withdrew the prompt; the error of an agent that dropped it names none.
fn is_withdrawn(error: &Error) -> bool {
    let Error::Rpc(error) = error else { return false };
    let by = error.data().and_then(|data| data.to_object()?.get("by").cloned());
    error.code() == code::REQUEST_CANCELLED && by.is_some()
}

/// The message that an element shows.
fn message_id(element: &str) -> Result<MessageId, Error> {
    let literal = element.strip_prefix("m-").and_then(decoded).map(|inner| format!("\"{inner}\""));
    let id = literal.as_deref().and_then(JsonStr::from_literal);
    id.map(MessageId::from).ok_or(Error::Protocol("the element shows no message"))
}

/// Decodes a percent-encoded text; `None` if it is not valid.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Why an action failed, for people.
pub(super) fn reason(error: &Error) -> String {
    let text = match error {
        Error::Disconnected => "The connection to the session was lost".to_owned(),
        Error::Busy => "Too many sessions are shown or loaded at a time".to_owned(),
        Error::Refused(reason) => reason.clone(),
        Error::Protocol(reason) => (*reason).to_owned(),
        Error::Connect(_)
        | Error::SessionClosed
        | Error::NotSubscribed
        | Error::Rpc(_)
        | Error::TooLong
        | _ => error.to_string(),
    };
    let mut letters = text.chars();
    let text: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use parlor_session::Role as MessageRole;

    use super::*;

    #[test]
    fn elements_name_the_messages_that_they_show() {
        for literal in [r#""a b\"<%é""#, r#""\ud800""#, r#""""#] {
            let id = MessageId::from(JsonStr::from_literal(literal).unwrap());
            let element = element_id(&EntryId::Message(MessageRole::Agent, id.clone()));
            assert_eq!(message_id(&element).unwrap(), id, "{element}");
        }
        for element in ["", "t-1", "m-%", "m-%zz", "m-%FF", "m-\"", "1"] {
            assert!(message_id(element).is_err(), "{element}");
        }
    }
}
