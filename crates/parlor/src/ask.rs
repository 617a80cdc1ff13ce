//! Questions of agents, put to the person at the terminal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};

use futures_util::future::select_all;
use parlor_client::{Choice, Question};
use parlor_json::text;
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

/// The questions that are open, the first of which is on the terminal.
pub(crate) struct Questions {
    decider: Decider,
    open: VecDeque<(Question, Vec<Choice>)>,
    typed: Option<mpsc::UnboundedReceiver<String>>,
}

/// What is decided about a question.
pub(crate) struct Decision {
    question: Question,
    /// Without a choice it is cancelled.
    choice: Option<Choice>,
    /// What the person is told.
    pub(crate) told: Option<String>,
}

/// What happens while questions are open.
enum Event {
    Typed(Option<String>),
    /// The question at this place needs no answer any more.
    Withdrawn(usize),
    Gone,
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

    /// The choice that needs no person.
    fn choice(self, choices: &[Choice]) -> Option<&Choice> {
        match self {
            Self::Yes => of_kind(choices, "allow"),
            Self::No => of_kind(choices, "reject"),
            Self::Person | Self::Nobody => None,
        }
    }

    /// What the person is told of it.
    fn told(self, title: &str, choice: Option<&Choice>) -> String {
        match (self, choice) {
            (_, Some(choice)) => format!("{title}: {}", choice.name),
            (Self::Nobody, None) => {
                format!("{title}: nobody is here to decide, so it is cancelled (--yes and --no decide)")
            }
            (Self::Yes | Self::No | Self::Person, None) => {
                format!("{title}: no such answer is offered, so it is cancelled")
            }
        }
    }
}

impl Decision {
    /// Tells who asked.
    pub(crate) async fn tell(self) {
        match &self.choice {
            Some(choice) => self.question.choose(choice).await,
            None => self.question.cancel().await,
        }
    }
}

impl Questions {
    pub(crate) fn new(decider: Decider) -> Self {
        Self { decider, open: VecDeque::new(), typed: None }
    }

    /// An agent asks. It is decided at once unless a person is to choose.
    pub(crate) fn asked(&mut self, question: Question) -> io::Result<Option<Decision>> {
        let choices = question.choices();
        if self.decider == Decider::Person {
            self.open.push_back((question, choices));
            if self.open.len() == 1 {
                self.show()?;
            }
            return Ok(None);
        }
        let choice = self.decider.choice(&choices);
        let told = Some(self.decider.told(&title(&question), choice));
        Ok(Some(Decision { choice: choice.cloned(), question, told }))
    }

    /// Waits for the person; without an open question for ever. A call that is given up loses nothing.
    pub(crate) async fn decided(&mut self) -> io::Result<Decision> {
        loop {
            match self.event().await {
                Event::Typed(typed) => {
                    let Some((_, choices)) = self.open.front() else { continue };
                    let choice = match typed.as_deref().map(str::trim) {
                        // The end of the input decides nothing, so nothing is allowed.
                        None => None,
                        Some(typed) => match typed.parse::<usize>().ok().and_then(|n| n.checked_sub(1)) {
                            Some(place) if place < choices.len() => Some(choices[place].clone()),
                            Some(_) | None => {
                                self.show()?;
                                continue;
                            }
                        },
                    };
                    let Some((question, _)) = self.open.pop_front() else { continue };
                    self.show()?;
                    return Ok(Decision { question, choice, told: None });
                }
                Event::Withdrawn(place) => {
                    self.open.remove(place);
                    if place == 0 {
                        writeln!(anstream::stderr(), "{DIM}decided elsewhere{DIM:#}")?;
                        self.show()?;
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
        let typed = self.typed.get_or_insert_with(read_lines);
        let withdrawn = self.open.iter_mut().map(|(question, _)| Box::pin(question.withdrawn()));
        tokio::select! {
            typed = typed.recv() => Event::Typed(typed),
            (is_so, place, _) = select_all(withdrawn) => if is_so { Event::Withdrawn(place) } else { Event::Gone },
        }
    }

    fn show(&self) -> io::Result<()> {
        let Some((question, choices)) = self.open.front() else { return Ok(()) };
        let mut err = anstream::stderr();
        writeln!(err, "{BOLD}? {}{BOLD:#}", safe(&title(question)))?;
        let description = question.params().get("description").and_then(|value| text(value.raw()));
        for line in description.iter().flat_map(|text| text.lines()) {
            writeln!(err, "  {DIM}{}{DIM:#}", safe(line))?;
        }
        for (place, choice) in choices.iter().enumerate() {
            writeln!(err, "  {} {}", place + 1, safe(&choice.name))?;
        }
        write!(err, "Choose a number: ")?;
        err.flush()
    }
}

fn title(question: &Question) -> String {
    question.title().unwrap_or_else(|| "Permission".to_owned())
}

/// The first choice that allows or rejects, once rather than always.
fn of_kind<'a>(choices: &'a [Choice], kind: &str) -> Option<&'a Choice> {
    let find = |kind: String| choices.iter().find(|choice| choice.kind == kind);
    find(format!("{kind}_once")).or_else(|| find(format!("{kind}_always")))
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
    use parlor_json::{Json, Object};

    use super::*;

    fn asked(decider: Decider, options: &str) -> (Option<String>, String) {
        let params = Json::parse(format!(r#"{{"options":{options}}}"#)).unwrap();
        let choices = Choice::all_in(&Object::parse(params.raw()).unwrap());
        let choice = decider.choice(&choices);
        (choice.map(|choice| choice.id.to_string()), decider.told("Delete it", choice))
    }

    #[test]
    fn flags_choose_the_weakest_option() {
        let options = r#"[
            {"optionId":"aa","name":"Always","kind":"allow_always"},
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"}]"#;
        assert_eq!(asked(Decider::Yes, options), (Some("a".to_owned()), "Delete it: Allow".to_owned()));
        assert_eq!(asked(Decider::No, options), (Some("r".to_owned()), "Delete it: Reject".to_owned()));
        let (choice, told) = asked(Decider::Nobody, options);
        assert_eq!(choice, None);
        assert!(told.contains("--yes"), "{told}");
    }

    #[test]
    fn what_is_not_offered_is_not_chosen() {
        let options = r#"[{"optionId":"x","name":"Own","kind":"own"},{"name":"no id"},7]"#;
        let (choice, told) = asked(Decider::Yes, options);
        assert_eq!(choice, None);
        assert!(told.contains("no such answer"), "{told}");
    }
}
