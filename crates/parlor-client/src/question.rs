use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::{mpsc, watch};

use crate::driver::Command;

/// Something that the agent wants to know. One that is dropped is declined.
#[derive(Debug)]
pub struct Question {
    id: RequestId,
    method: String,
    params: Object,
    answers: mpsc::WeakSender<Command>,
    withdrawn: Withdrawn,
    is_answered: bool,
}

/// One of the choices of a question for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// What is answered with.
    pub id: JsonStr,
    /// What a person is shown.
    pub name: String,
    /// What kind it is, such as `allow_once` or `reject_always`.
    pub kind: String,
}

#[derive(Debug)]
pub(crate) struct Withdrawn(pub(crate) watch::Receiver<bool>);

impl Question {
    pub(crate) fn new(
        id: RequestId,
        method: String,
        params: Object,
        answers: mpsc::WeakSender<Command>,
        withdrawn: Withdrawn,
    ) -> Self {
        Self { id, method, params, answers, withdrawn, is_answered: false }
    }

    /// What is asked, such as `session/request_permission`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// All that is said about it.
    pub fn params(&self) -> &Object {
        &self.params
    }

    /// The session that it is about.
    pub fn session(&self) -> Option<SessionId> {
        JsonStr::from_raw(self.params.get("sessionId")?.raw()).map(SessionId::from)
    }

    /// What the permission is for: the title of the question or of the tool call.
    pub fn title(&self) -> Option<String> {
        let text =
            |holder: &Object| Some(JsonStr::from_raw(holder.get("title")?.raw())?.to_text().into_owned());
        let member = |name: &str| Object::parse(self.params.get(name)?.raw()).ok();
        let inside = |holder: Object| {
            text(&holder).or_else(|| text(&Object::parse(holder.get("toolCall")?.raw()).ok()?))
        };
        text(&self.params)
            .or_else(|| member("toolCall").and_then(|call| text(&call)))
            .or_else(|| member("subject").and_then(inside))
    }

    /// The choices, if it is a question for permission.
    pub fn choices(&self) -> Vec<Choice> {
        let list = self.params.get("options").and_then(|list| parlor_json::elements(list.raw()));
        let choice = |option: &serde_json::value::RawValue| {
            let option = Object::parse(option).ok()?;
            let field = |name: &str| JsonStr::from_raw(option.get(name)?.raw());
            let text = |name: &str| field(name).map(|text| text.to_text().into_owned()).unwrap_or_default();
            Some(Choice { id: field("optionId")?, name: text("name"), kind: text("kind") })
        };
        list.unwrap_or_default().into_iter().filter_map(choice).collect()
    }

    /// Answers with a choice.
    pub async fn choose(self, choice: &Choice) {
        let text = format!(r#"{{"outcome":{{"outcome":"selected","optionId":{}}}}}"#, choice.id.as_literal());
        self.answer(object(&text)).await;
    }

    /// Answers that nothing is chosen, which mostly ends the turn.
    pub async fn cancel(self) {
        self.answer(object(r#"{"outcome":{"outcome":"cancelled"}}"#)).await;
    }

    /// Answers with a result as the protocol has it.
    pub async fn answer(mut self, result: Object) {
        self.send(Ok(result)).await;
    }

    /// Answers that this client cannot say: others may be asked.
    pub async fn decline(mut self) {
        self.send(Err(declined())).await;
    }

    /// Waits until an answer is not wanted any more, because somebody else gave one or the agent went on.
    pub async fn withdrawn(&mut self) {
        // One that can no more be withdrawn is one whose connection is gone.
        let _ = self.withdrawn.0.wait_for(|withdrawn| *withdrawn).await;
    }

    async fn send(&mut self, result: Result<Object, RpcError>) {
        self.is_answered = true;
        if let Some(answers) = self.answers.upgrade() {
            let _ = answers.send(Command::Answer { id: self.id.clone(), result }).await;
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        if let Some(answers) = self.answers.upgrade() {
            let _ = answers.try_send(Command::Answer { id: self.id.clone(), result: Err(declined()) });
        }
    }
}

fn declined() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "this client cannot be asked this")
}

fn object(text: &str) -> Object {
    let json = Json::parse(text).expect("it is made of JSON");
    Object::parse(json.raw()).expect("it is an object")
}
