//! Questions of agents, put to the person at the terminal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::select_all;
use parlor_client::PermissionOptionKind::{self, AllowAlways, AllowOnce, RejectAlways, RejectOnce};
use parlor_client::{Object, PeerRequest, PermissionOption};
use parlor_session::Transcript;
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::mpsc;

use crate::form::{Form, FormStatus};
use crate::output::DIM;
use crate::permission_request::PermissionRequest;

/// How many lines wait here. More stay at the terminal.
const MAX_TYPED: usize = 16;

/// Who decides whether an agent may do what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalPolicy {
    /// Everything is allowed.
    Yes,
    /// Everything is rejected.
    No,
    /// The person at the terminal.
    Person,
    /// Nobody is there.
    Nobody,
}

/// The questions that are open, the first of which is on the terminal.
pub(crate) struct RequestQueue {
    decider: ApprovalPolicy,
    /// Whether a person is there, whatever the flags decide: a form needs one.
    is_attended: bool,
    open: VecDeque<Open>,
    typed: Option<Typed>,
}

/// Lines that are typed.
struct Typed {
    /// Each with the number of the question that was on the terminal when it was read.
    lines: mpsc::Receiver<(u64, String)>,
    shown: Arc<AtomicU64>,
}

/// A question that a person is to answer.
struct Open {
    question: PeerRequest,
    about: About,
}

enum About {
    Permission(PermissionRequest, Vec<PermissionOption>),
    Form(Form),
}

/// What is decided about a question.
pub(crate) struct Decision {
    question: PeerRequest,
    outcome: Outcome,
    /// What the person is told.
    pub(crate) told: Option<String>,
}

enum Outcome {
    Select(PermissionOption),
    Answer(Object),
    /// Nothing is chosen, which mostly ends the turn.
    Cancel,
    /// Others may be asked.
    Decline,
}

/// What happens while questions are open.
enum Event {
    Typed(Option<String>),
    /// The question at this place needs no answer any more.
    Withdrawn(usize),
    Gone,
}

impl ApprovalPolicy {
    /// The one that the flags and the surroundings say.
    pub(crate) fn new(yes: bool, no: bool) -> Self {
        match (yes, no) {
            (true, _) => Self::Yes,
            (_, true) => Self::No,
            _ if is_attended() => Self::Person,
            _ => Self::Nobody,
        }
    }

    /// The choice that needs no person.
    fn choice(self, choices: &[PermissionOption]) -> Option<&PermissionOption> {
        match self {
            Self::Yes => of_kind(choices, &[AllowOnce, AllowAlways]),
            Self::No => of_kind(choices, &[RejectOnce, RejectAlways]),
            Self::Person | Self::Nobody => None,
        }
    }

    /// What the person is told of it.
    fn told(self, title: &str, choice: Option<&PermissionOption>) -> String {
        match (self, choice) {
            (_, Some(choice)) => format!("{title}: {}", choice.name),
            (Self::Nobody, None) => {
                format!("{title}: no terminal to ask on, left to other clients (--yes and --no decide)")
            }
            (Self::Yes | Self::No | Self::Person, None) => {
                format!("{title}: no such answer is offered, so it is cancelled")
            }
        }
    }
}

impl Decision {
    fn new(question: PeerRequest, outcome: Outcome, told: Option<String>) -> Self {
        Self { question, outcome, told }
    }

    /// The question, if it is left to others.
    pub(crate) fn left_to_others(&self) -> Option<&PeerRequest> {
        matches!(self.outcome, Outcome::Decline).then_some(&self.question)
    }

    /// Tells who asked.
    pub(crate) async fn tell(self) {
        match self.outcome {
            Outcome::Select(choice) => self.question.select(&choice).await,
            Outcome::Answer(answer) => self.question.respond(answer).await,
            Outcome::Cancel => self.question.cancel().await,
            Outcome::Decline => self.question.decline().await,
        }
    }
}

impl RequestQueue {
    pub(crate) fn new(decider: ApprovalPolicy) -> Self {
        Self { decider, is_attended: is_attended(), open: VecDeque::new(), typed: None }
    }

    /// An agent asks. It is decided at once unless a person is to choose.
    pub(crate) fn asked(
        &mut self,
        question: PeerRequest,
        transcript: &Transcript,
        cwd: &str,
    ) -> io::Result<Option<Decision>> {
        match question.method() {
            "session/request_permission" => {
                let (request, choices) =
                    (PermissionRequest::of(&question, transcript, cwd), question.options());
                if self.decider == ApprovalPolicy::Person {
                    return self.put(question, About::Permission(request, choices)).map(|()| None);
                }
                let choice = self.decider.choice(&choices);
                let told = Some(self.decider.told(&request.summary(), choice));
                let outcome = match (self.decider, choice) {
                    (_, Some(choice)) => Outcome::Select(choice.clone()),
                    (ApprovalPolicy::Nobody, None) => Outcome::Decline,
                    (ApprovalPolicy::Yes | ApprovalPolicy::No | ApprovalPolicy::Person, None) => {
                        Outcome::Cancel
                    }
                };
                Ok(Some(Decision::new(question, outcome, told)))
            }
            "elicitation/create" => match Form::read(question.params()) {
                Some(form) if self.is_attended && self.decider != ApprovalPolicy::No => {
                    self.put(question, About::Form(form)).map(|()| None)
                }
                form => {
                    let message = form.as_ref().map_or("a form", |form| form.message());
                    let why = match (&form, self.decider) {
                        (_, ApprovalPolicy::No) => "declined (--no)",
                        (None, _) => "it cannot be filled in here, left to other clients",
                        (Some(_), _) => "no terminal to fill it in on, left to other clients",
                    };
                    let told = Some(format!("{message}: {why}"));
                    let outcome = match self.decider {
                        ApprovalPolicy::No => Outcome::Answer(declined()),
                        ApprovalPolicy::Yes | ApprovalPolicy::Person | ApprovalPolicy::Nobody => {
                            Outcome::Decline
                        }
                    };
                    Ok(Some(Decision::new(question, outcome, told)))
                }
            },
            method => {
                let told = Some(format!("the agent asks {method}, which this client cannot answer"));
                Ok(Some(Decision::new(question, Outcome::Decline, told)))
            }
        }
    }

    /// Puts a question to the person, after those that are open.
    fn put(&mut self, question: PeerRequest, about: About) -> io::Result<()> {
        self.open.push_back(Open { question, about });
        if self.open.len() == 1 { self.show_another() } else { Ok(()) }
    }

    /// Waits for the person; without an open question for ever. A call that is given up loses nothing.
    pub(crate) async fn decided(&mut self) -> io::Result<Decision> {
        loop {
            match self.event().await {
                Event::Typed(typed) => {
                    let Some(open) = self.open.front_mut() else { continue };
                    let outcome = match (&mut open.about, typed) {
                        // The end of the input decides nothing, so nothing is allowed.
                        (_, None) => Outcome::Cancel,
                        (About::Permission(_, choices), Some(typed)) => match chosen(choices, &typed) {
                            Some(choice) => Outcome::Select(choice.clone()),
                            None => {
                                self.show()?;
                                continue;
                            }
                        },
                        (About::Form(form), Some(typed)) => match form.typed(&typed) {
                            FormStatus::Done(answer) => Outcome::Answer(answer),
                            FormStatus::Open => {
                                self.show()?;
                                continue;
                            }
                        },
                    };
                    let Some(open) = self.open.pop_front() else { continue };
                    self.show_another()?;
                    return Ok(Decision::new(open.question, outcome, None));
                }
                Event::Withdrawn(index) => {
                    self.open.remove(index);
                    if index == 0 {
                        writeln!(anstream::stderr(), "{DIM}decided elsewhere{DIM:#}")?;
                        self.show_another()?;
                    }
                }
                // Who watches the turn says so.
                Event::Gone => self.open.clear(),
            }
        }
    }

    async fn event(&mut self) -> Event {
        if self.open.is_empty() {
            return std::future::pending().await;
        }
        let typed = self.typed.get_or_insert_with(Typed::read);
        let withdrawn = self.open.iter_mut().map(|open| Box::pin(open.question.cancelled()));
        tokio::select! {
            typed = typed.next() => Event::Typed(typed),
            (is_so, index, _) = select_all(withdrawn) => if is_so { Event::Withdrawn(index) } else { Event::Gone },
        }
    }

    /// Shows the first question when it was another before. What was typed until now was not meant for it.
    fn show_another(&self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        // Only a terminal has something to forget.
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        if let Some(typed) = &self.typed {
            typed.shown.fetch_add(1, Ordering::SeqCst);
        }
        self.show()
    }

    fn show(&self) -> io::Result<()> {
        let Some(open) = self.open.front() else { return Ok(()) };
        let mut err = anstream::stderr();
        match &open.about {
            About::Permission(request, choices) => {
                request.write(&mut err)?;
                for (index, choice) in choices.iter().enumerate() {
                    let key = key_of(choices, index).unwrap_or(' ');
                    writeln!(err, "  {} {key}  {}", index + 1, crate::render::safe(&choice.name))?;
                }
                write!(err, "Answer (1-{}): ", choices.len())?;
            }
            About::Form(form) => form.show(&mut err)?,
        }
        err.flush()
    }
}

/// The keys that stand for kinds of choices.
const KEYS: [(char, PermissionOptionKind); 4] =
    [('y', AllowOnce), ('a', AllowAlways), ('n', RejectOnce), ('N', RejectAlways)];

/// The key of a choice: it stands for the first of its kind.
fn key_of(choices: &[PermissionOption], index: usize) -> Option<char> {
    let kind = &choices.get(index)?.kind;
    let is_first = choices.iter().position(|choice| choice.kind == *kind) == Some(index);
    KEYS.iter().find(|(_, of)| of == kind).filter(|_| is_first).map(|(key, _)| *key)
}

/// The choice that was typed, by its number or its key.
fn chosen<'a>(choices: &'a [PermissionOption], typed: &str) -> Option<&'a PermissionOption> {
    let typed = typed.trim();
    if let Some((_, kind)) = KEYS.iter().find(|(key, _)| typed.chars().eq([*key])) {
        return choices.iter().find(|choice| choice.kind == *kind);
    }
    choices.get(typed.parse::<usize>().ok()?.checked_sub(1)?)
}

/// Whether a person can be asked.
fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn declined() -> Object {
    let mut answer = Object::default();
    answer.set("action", &parlor_json::JsonStr::new("decline"));
    answer
}

/// The first choice that allows or rejects, once rather than always.
fn of_kind<'a>(
    choices: &'a [PermissionOption],
    kinds: &[PermissionOptionKind],
) -> Option<&'a PermissionOption> {
    kinds.iter().find_map(|kind| choices.iter().find(|choice| choice.kind == *kind))
}

impl Typed {
    /// Reads lines. That cannot be interrupted, so a thread does it that ends with the process.
    fn read() -> Self {
        let (sender, lines) = mpsc::channel(MAX_TYPED);
        let shown = Arc::new(AtomicU64::new(0));
        let current = Arc::clone(&shown);
        std::thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                if sender.blocking_send((current.load(Ordering::SeqCst), line)).is_err() {
                    return;
                }
            }
        });
        Self { lines, shown }
    }

    /// The next line that was typed for the question that is shown; `None` at the end of the input.
    async fn next(&mut self) -> Option<String> {
        loop {
            let (question, line) = self.lines.recv().await?;
            if question == self.shown.load(Ordering::SeqCst) {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    fn asked(decider: ApprovalPolicy, options: &str) -> (Option<String>, String) {
        let params = Json::parse(format!(r#"{{"options":{options}}}"#)).unwrap();
        let choices = PermissionOption::all_in(&Object::parse(params.raw()).unwrap());
        let choice = decider.choice(&choices);
        (choice.map(|choice| choice.id.to_string()), decider.told("Delete it", choice))
    }

    #[test]
    fn flags_choose_the_weakest_option() {
        let options = r#"[
            {"optionId":"aa","name":"Always","kind":"allow_always"},
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"}]"#;
        assert_eq!(
            asked(ApprovalPolicy::Yes, options),
            (Some("a".to_owned()), "Delete it: Allow".to_owned())
        );
        assert_eq!(
            asked(ApprovalPolicy::No, options),
            (Some("r".to_owned()), "Delete it: Reject".to_owned())
        );
        let (choice, told) = asked(ApprovalPolicy::Nobody, options);
        assert_eq!(choice, None);
        assert!(told.contains("--yes"), "{told}");
    }

    #[test]
    fn a_person_chooses_by_number_or_by_key() {
        let options = r#"{"options":[
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"b","name":"Allow this too","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"},
            {"optionId":"rr","name":"Never","kind":"reject_always"}]}"#;
        let choices = PermissionOption::all_in(&Object::parse(Json::parse(options).unwrap().raw()).unwrap());
        for (typed, id) in [("1", "a"), ("2", "b"), (" y ", "a"), ("n", "r"), ("N", "rr"), ("4", "rr")] {
            assert_eq!(chosen(&choices, typed).unwrap().id.inner(), id);
        }
        // Enter alone decides nothing, and neither does what is not offered.
        for typed in ["", "0", "5", "a", "yes", "-1"] {
            assert_eq!(chosen(&choices, typed), None, "{typed}");
        }
        let keys: Vec<_> = (0..4).map(|index| key_of(&choices, index)).collect();
        assert_eq!(keys, [Some('y'), None, Some('n'), Some('N')]);
    }

    #[test]
    fn what_is_not_offered_is_not_chosen() {
        let options = r#"[{"optionId":"x","name":"Own","kind":"own"},{"name":"no id"},7]"#;
        let (choice, told) = asked(ApprovalPolicy::Yes, options);
        assert_eq!(choice, None);
        assert!(told.contains("no such answer"), "{told}");
    }
}
