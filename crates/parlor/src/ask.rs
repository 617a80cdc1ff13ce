//! Questions of agents, put to the person at the terminal.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};

use parlor_json::{Json, JsonStr, Members, Object, elements, text};
use parlor_wire::RequestId;
use tokio::sync::mpsc;

use crate::output::{BOLD, DIM};
use crate::render::safe;

/// Who decides whether an agent may do what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decider {
    /// Everything is allowed.
    Yes,
    /// Everything is rejected.
    No,
    /// The person at the terminal.
    Person,
    /// Nobody is there.
    Nobody,
}

/// A question that waits for the person.
struct Question {
    id: RequestId,
    title: String,
    description: Option<String>,
    options: Vec<Choice>,
}

/// One answer to choose.
struct Choice {
    id: JsonStr,
    name: String,
    kind: String,
}

/// The questions that are open, the first of which is on the terminal.
pub(crate) struct Questions {
    decider: Decider,
    open: VecDeque<Question>,
    typed: Option<mpsc::UnboundedReceiver<String>>,
}

/// What to say to the server about a question.
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) result: Object,
    /// What the person is told.
    pub(crate) told: Option<String>,
}

impl Decider {
    /// The one that the flags and the surroundings say.
    pub(crate) fn new(yes: bool, no: bool) -> Self {
        match (yes, no) {
            (true, _) => Self::Yes,
            (_, true) => Self::No,
            _ if io::stdin().is_terminal() && io::stderr().is_terminal() => Self::Person,
            _ => Self::Nobody,
        }
    }
}

impl Questions {
    pub(crate) fn new(decider: Decider) -> Self {
        Self { decider, open: VecDeque::new(), typed: None }
    }

    /// An agent asks. There is an answer at once unless a person is to choose.
    pub(crate) fn asked(&mut self, id: RequestId, params: &Object) -> io::Result<Option<Answer>> {
        let question = Question::read(id, params);
        let chosen = match self.decider {
            Decider::Yes => question.of_kind("allow"),
            Decider::No => question.of_kind("reject"),
            Decider::Person | Decider::Nobody => None,
        };
        let told = match (self.decider, chosen) {
            (Decider::Person, _) => {
                self.open.push_back(question);
                if self.open.len() == 1 {
                    self.show()?;
                }
                return Ok(None);
            }
            (_, Some(choice)) => format!("{}: {}", question.title, choice.name),
            (Decider::Nobody, None) => format!(
                "{}: nobody is here to decide, so it is cancelled (--yes and --no decide)",
                question.title
            ),
            (_, None) => format!("{}: no such answer is offered, so it is cancelled", question.title),
        };
        let result = outcome(chosen);
        Ok(Some(Answer { id: question.id, result, told: Some(told) }))
    }

    /// A question needs no answer any more.
    pub(crate) fn unasked(&mut self, id: &RequestId) -> io::Result<()> {
        let Some(place) = self.open.iter().position(|question| question.id == *id) else { return Ok(()) };
        self.open.remove(place);
        if place == 0 {
            writeln!(anstream::stderr(), "{DIM}decided elsewhere{DIM:#}")?;
            self.show()?;
        }
        Ok(())
    }

    /// Waits for the person; without an open question for ever.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            if self.open.is_empty() {
                std::future::pending::<()>().await;
            }
            let typed = self.typed.get_or_insert_with(read_lines).recv().await;
            let Some(question) = self.open.front() else { continue };
            let choice = match typed.as_deref().map(str::trim) {
                // The end of the input decides nothing, so nothing is allowed.
                None => None,
                Some(typed) => match typed.parse::<usize>().ok().and_then(|n| n.checked_sub(1)) {
                    Some(place) if place < question.options.len() => Some(&question.options[place]),
                    Some(_) | None => {
                        self.show()?;
                        continue;
                    }
                },
            };
            let answer = Answer { id: question.id.clone(), result: outcome(choice), told: None };
            self.open.pop_front();
            self.show()?;
            return Ok(answer);
        }
    }

    fn show(&self) -> io::Result<()> {
        let Some(question) = self.open.front() else { return Ok(()) };
        let mut err = anstream::stderr();
        writeln!(err, "{BOLD}? {}{BOLD:#}", safe(&question.title))?;
        for line in question.description.iter().flat_map(|text| text.lines()) {
            writeln!(err, "  {DIM}{}{DIM:#}", safe(line))?;
        }
        for (place, choice) in question.options.iter().enumerate() {
            writeln!(err, "  {} {}", place + 1, safe(&choice.name))?;
        }
        write!(err, "Choose a number: ")?;
        err.flush()
    }
}

impl Question {
    fn read(id: RequestId, params: &Object) -> Self {
        let named = |name: &str| params.get(name).and_then(|value| text(value.raw())).map(Cow::into_owned);
        let options = params.get("options").and_then(|list| elements(list.raw())).unwrap_or_default();
        let options = options.into_iter().filter_map(|option| {
            let members = Members::of(option).ok()?;
            let named = |name: &str| members.get(name).and_then(text).map(Cow::into_owned);
            let id = JsonStr::from_raw(members.get("optionId")?)?;
            let name = named("name").unwrap_or_else(|| id.to_string());
            Some(Choice { id, name, kind: named("kind").unwrap_or_default() })
        });
        Self {
            id,
            title: named("title").unwrap_or_else(|| "Permission".to_owned()),
            description: named("description"),
            options: options.collect(),
        }
    }

    /// The first option that allows or rejects, once rather than always.
    fn of_kind(&self, kind: &str) -> Option<&Choice> {
        let find = |kind: String| self.options.iter().find(|option| option.kind == kind);
        find(format!("{kind}_once")).or_else(|| find(format!("{kind}_always")))
    }
}

fn outcome(choice: Option<&Choice>) -> Object {
    let mut outcome = Object::default();
    outcome
        .set("outcome", Json::from(&JsonStr::new(if choice.is_some() { "selected" } else { "cancelled" })));
    if let Some(choice) = choice {
        outcome.set("optionId", Json::from(&choice.id));
    }
    let mut result = Object::default();
    result.set("outcome", outcome.to_json());
    result
}

/// Lines that are typed. Reading them cannot be interrupted, so a thread does it that ends with the process.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, typed) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    typed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(decider: Decider, options: &str) -> (String, String) {
        let params = format!(r#"{{"sessionId":"s","title":"Delete \u001b it","options":{options}}}"#);
        let params = Object::parse(Json::parse(params).unwrap().raw()).unwrap();
        let answer = Questions::new(decider).asked(RequestId::from(1), &params).unwrap().unwrap();
        (answer.result.to_json().as_str().to_owned(), answer.told.unwrap())
    }

    #[test]
    fn flags_choose_the_weakest_option() {
        let options = r#"[
            {"optionId":"aa","name":"Always","kind":"allow_always"},
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"}]"#;
        assert_eq!(asked(Decider::Yes, options).0, r#"{"outcome":{"outcome":"selected","optionId":"a"}}"#);
        assert_eq!(asked(Decider::No, options).0, r#"{"outcome":{"outcome":"selected","optionId":"r"}}"#);
        let (result, told) = asked(Decider::Nobody, options);
        assert_eq!(result, r#"{"outcome":{"outcome":"cancelled"}}"#);
        assert!(told.contains("--yes"), "{told}");
    }

    #[test]
    fn what_is_not_offered_is_not_chosen() {
        let options = r#"[{"optionId":"x","name":"Own","kind":"own"},{"name":"no id"},7]"#;
        let (result, told) = asked(Decider::Yes, options);
        assert_eq!(result, r#"{"outcome":{"outcome":"cancelled"}}"#);
        assert!(told.contains("no such answer"), "{told}");
    }
}
