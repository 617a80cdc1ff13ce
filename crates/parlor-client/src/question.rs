use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_dialect::live;
use parlor_json::{Json, JsonStr, Object};
use parlor_session::SessionId;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::{Notify, mpsc, watch};

use crate::driver::Command;

/// Something that the agent wants to know. One that is dropped is declined.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/agent.rs")); }
/// # use example::*;
/// # run(async {
/// # let client = connect().await;
/// # let session = client.new_session("/tmp".as_ref()).await?;
/// let mut questions = client.questions();
/// tokio::spawn(async move {
///     while let Some(question) = questions.next().await {
///         let allow = question.choices().into_iter().find(|choice| choice.kind == "allow_once");
///         match allow {
///             Some(choice) => question.choose(&choice).await,
///             None => question.decline().await,
///         }
///     }
/// });
/// let end = session.prompt("delete the notes").await?.end().await?;
/// assert_eq!(end.stop_reason.unwrap().to_text(), "end_turn");
/// # Ok(())
/// # });
/// ```
#[derive(Debug)]
pub struct Question {
    id: RequestId,
    method: String,
    params: Object,
    answers: mpsc::WeakSender<Command>,
    /// There until it is answered or dropped.
    withdrawn: Option<watch::Receiver<bool>>,
    given_up: Arc<Notify>,
    /// Up to where its session was known when it was asked.
    place: Option<(u64, u64)>,
}

/// What the agent wants to know, for who answers it. Each question goes to one of those who have this; while nobody does,
/// all are declined at once. Those that wait are declined when the last one goes.
///
/// It does not keep the connection open. There is an example at [`Question`].
#[derive(Debug)]
pub struct Questions {
    desk: Arc<Desk>,
}

/// Where questions wait for who answers them.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pile: Mutex<Pile>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pile {
    waiting: VecDeque<Question>,
    /// How many look at it.
    lookers: usize,
    is_closed: bool,
}

/// One of the choices of a question for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// What is answered with.
    pub id: JsonStr,
    /// What a person is shown; the id if it has no name.
    pub name: String,
    /// What kind it is, such as `allow_once` or `reject_always`.
    pub kind: String,
}

impl Desk {
    fn pile(&self) -> MutexGuard<'_, Pile> {
        self.pile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a question wait for an answer, if somebody looks; else it is dropped.
    pub(crate) fn put(&self, question: Question) -> bool {
        let mut pile = self.pile();
        if pile.lookers == 0 {
            return false;
        }
        pile.waiting.push_back(question);
        self.changed.notify_one();
        true
    }

    /// A question wants no answer any more. Who has it already is told otherwise.
    pub(crate) fn withdraw(&self, id: &RequestId) {
        let mut pile = self.pile();
        let place = pile.waiting.iter().position(|question| question.id == *id);
        let withdrawn = place.and_then(|place| pile.waiting.remove(place));
        drop(pile);
        drop(withdrawn);
    }

    /// No more will come, and those that wait cannot be answered.
    pub(crate) fn close(&self) {
        let mut pile = self.pile();
        pile.is_closed = true;
        let unanswered = std::mem::take(&mut pile.waiting);
        drop(pile);
        drop(unanswered);
        self.changed.notify_waiters();
    }
}

impl Questions {
    pub(crate) fn new(desk: Arc<Desk>) -> Self {
        desk.pile().lookers += 1;
        Self { desk }
    }

    /// The next question that wants an answer; `None` when the connection is gone.
    pub async fn next(&mut self) -> Option<Question> {
        loop {
            let mut changed = pin!(self.desk.changed.notified());
            // From here on it hears of what comes.
            changed.as_mut().enable();
            {
                let mut pile = self.desk.pile();
                if let Some(question) = pile.waiting.pop_front() {
                    return Some(question);
                }
                if pile.is_closed {
                    return None;
                }
            }
            changed.await;
        }
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        let mut pile = self.desk.pile();
        pile.lookers -= 1;
        let unwanted = if pile.lookers == 0 { std::mem::take(&mut pile.waiting) } else { VecDeque::new() };
        drop(pile);
        // Each is declined as it goes.
        drop(unwanted);
    }
}

impl Choice {
    /// The choices that the params of a question for permission offer. One without an id is none.
    ///
    /// ```
    /// use parlor_client::{Choice, Json, Object};
    ///
    /// let params = Json::parse(r#"{"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"name":"No"}]}"#);
    /// let choices = Choice::all_in(&Object::parse(params.unwrap().raw()).unwrap());
    /// assert_eq!(choices.len(), 1);
    /// assert_eq!(choices[0].kind, "allow_once");
    /// ```
    pub fn all_in(params: &Object) -> Vec<Self> {
        let list = params.get_array("options");
        let choice = |option: parlor_json::JsonRef<'_>| {
            let option = Object::parse(option).ok()?;
            let field = |name: &str| JsonStr::from_raw(option.get(name)?.raw());
            let id = field("optionId")?;
            let name = field("name").as_ref().unwrap_or(&id).to_text().into_owned();
            let kind = field("kind").map(|kind| kind.to_text().into_owned()).unwrap_or_default();
            Some(Self { id, name, kind })
        };
        list.unwrap_or_default().into_iter().filter_map(choice).collect()
    }
}

impl Question {
    pub(crate) fn new(
        id: RequestId,
        method: String,
        params: Object,
        answers: mpsc::WeakSender<Command>,
        withdrawn: watch::Receiver<bool>,
        given_up: Arc<Notify>,
        place: Option<(u64, u64)>,
    ) -> Self {
        Self { id, method, params, answers, withdrawn: Some(withdrawn), given_up, place }
    }

    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        self.place
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

    /// What the permission is for: the title of the question, else of the tool call or whatever else it is about.
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
        Choice::all_in(&self.params)
    }

    /// Answers with a choice.
    pub async fn choose(self, choice: &Choice) {
        let text = format!(r#"{{"outcome":{{"outcome":"selected","optionId":{}}}}}"#, choice.id.as_literal());
        self.answer(object(&text)).await;
    }

    /// Answers that nothing is chosen, which mostly ends the turn.
    pub async fn cancel(self) {
        let cancelled = live::cancelled_answer(&self.method);
        self.answer(Object::parse(cancelled.raw()).unwrap_or_default()).await;
    }

    /// Answers with a result as the protocol has it.
    pub async fn answer(mut self, result: Object) {
        self.send(Ok(result)).await;
    }

    /// Answers that this client cannot say: others may be asked.
    pub async fn decline(mut self) {
        self.send(Err(declined())).await;
    }

    /// Waits until an answer is not wanted any more, because somebody else gave one or the agent went on; `false` if it is
    /// because the connection is gone.
    pub async fn withdrawn(&mut self) -> bool {
        match &mut self.withdrawn {
            Some(withdrawn) => withdrawn.wait_for(|withdrawn| *withdrawn).await.is_ok(),
            None => false,
        }
    }

    async fn send(&mut self, result: Result<Object, RpcError>) {
        let (Some(answers), Some(question)) = (self.answers.upgrade(), self.withdrawn.clone()) else {
            return;
        };
        if let Ok(room) = answers.reserve().await {
            self.withdrawn = None;
            room.send(Command::Answer { id: self.id.clone(), result, question });
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // It goes first, so that it is seen to be gone by who is woken.
        if self.withdrawn.take().is_some() {
            self.given_up.notify_one();
        }
    }
}

/// What is answered where nothing can be.
pub(crate) fn declined() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "this client cannot be asked this")
}

fn object(text: &str) -> Object {
    let json = Json::parse(text).expect("it is made of JSON");
    Object::parse(json.raw()).expect("it is an object")
}
