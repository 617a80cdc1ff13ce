//! Joins escape sequences that arrived in parts, so that a split arrow key is not taken for Esc.

#![expect(clippy::wildcard_enum_match_arm, reason = "only characters can be parts of a sequence")]

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

/// How long a lone ESC byte waits for the rest of its sequence.
const ESCAPE_TIME: Duration = Duration::from_millis(50);

/// Holds back an Esc until it is clear that no sequence follows.
#[derive(Debug, Default)]
pub(super) struct EscapeFilter {
    /// Events since the Esc, and when it came.
    held: Vec<Event>,
    since: Option<Instant>,
}

impl EscapeFilter {
    /// When [`flush`](Self::flush) is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + ESCAPE_TIME)
    }

    /// Returns what was held back.
    pub(super) fn flush(&mut self) -> Vec<Event> {
        self.since = None;
        std::mem::take(&mut self.held)
    }

    /// Takes an event and returns those that are complete.
    pub(super) fn filter(&mut self, event: Event, now: Instant) -> Vec<Event> {
        let is_escape = is_plain(&event, KeyCode::Esc);
        if self.held.is_empty() {
            if is_escape {
                self.held.push(event);
                self.since = Some(now);
                return Vec::new();
            }
            return vec![event];
        }
        if now.duration_since(self.since.unwrap_or(now)) >= ESCAPE_TIME || is_escape {
            let mut events = self.flush();
            events.extend(self.filter(event, now));
            return events;
        }
        self.held.push(event);
        match joined(&self.held) {
            Joined::Partial => Vec::new(),
            Joined::Key(key) => {
                self.flush();
                vec![Event::Key(key)]
            }
            Joined::Ignored => {
                self.flush();
                Vec::new()
            }
            Joined::No => self.flush(),
        }
    }
}

/// How long a sequence can be.
const MAX_SEQUENCE: usize = 32;

/// The meaning of held events together.
enum Joined {
    Key(KeyEvent),
    /// A whole sequence that is not a key.
    Ignored,
    /// More may follow.
    Partial,
    No,
}

fn is_plain(event: &Event, code: KeyCode) -> bool {
    matches!(event, Event::Key(key) if key.code == code && key.modifiers.is_empty())
}

fn joined(held: &[Event]) -> Joined {
    let letters = held[1..].iter().map(|event| match event {
        Event::Key(KeyEvent { code: KeyCode::Char(letter), modifiers, .. })
            if (*modifiers - KeyModifiers::SHIFT).is_empty() =>
        {
            Some(*letter)
        }
        _ => None,
    });
    let Some(letters) = letters.collect::<Option<String>>() else { return Joined::No };
    let key = |code| Joined::Key(KeyEvent::new(code, KeyModifiers::NONE));
    match letters.as_str() {
        "[A" | "OA" => key(KeyCode::Up),
        "[B" | "OB" => key(KeyCode::Down),
        "[C" | "OC" => key(KeyCode::Right),
        "[D" | "OD" => key(KeyCode::Left),
        "[H" | "OH" | "[1~" => key(KeyCode::Home),
        "[F" | "OF" | "[4~" => key(KeyCode::End),
        "[Z" => Joined::Key(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT)),
        "[3~" => key(KeyCode::Delete),
        "[5~" => key(KeyCode::PageUp),
        "[6~" => key(KeyCode::PageDown),
        "OP" => key(KeyCode::F(1)),
        "[" | "O" => Joined::Partial,
        other => match other.strip_prefix('[') {
            Some(rest) => other_sequence(rest),
            None => Joined::No,
        },
    }
}

/// A sequence that is not a key of the client, such as one of the mouse: it is neither Esc nor text.
fn other_sequence(rest: &str) -> Joined {
    let is_parameter = |letter: char| matches!(letter, '\u{20}'..='\u{3f}');
    let (parameters, last) = match rest.char_indices().next_back() {
        Some((at, last)) => (&rest[..at], last),
        None => return Joined::Partial,
    };
    // Text after an Esc is hardly ever a bracket with numbers.
    let is_sequence =
        rest.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '<' | '?' | '>'));
    if !is_sequence || !parameters.chars().all(is_parameter) || rest.len() > MAX_SEQUENCE {
        return Joined::No;
    }
    match last {
        '\u{40}'..='\u{7e}' => Joined::Ignored,
        last if is_parameter(last) => Joined::Partial,
        _ => Joined::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn typed(text: &str) -> Vec<Event> {
        text.chars()
            .map(|letter| key(if letter == '\u{1b}' { KeyCode::Esc } else { KeyCode::Char(letter) }))
            .collect()
    }

    /// The events of a text that arrives byte by byte within the time.
    fn filtered(text: &str) -> Vec<Event> {
        let mut filter = EscapeFilter::default();
        let now = Instant::now();
        let mut events: Vec<_> =
            typed(text).into_iter().flat_map(|event| filter.filter(event, now)).collect();
        events.extend(filter.flush());
        events
    }

    #[test]
    fn a_split_arrow_key_is_one_key_and_never_an_escape() {
        assert_eq!(filtered("\u{1b}[A"), [key(KeyCode::Up)]);
        assert_eq!(
            filtered("a\u{1b}OBb"),
            [key(KeyCode::Char('a')), key(KeyCode::Down), key(KeyCode::Char('b'))]
        );
        assert_eq!(filtered("\u{1b}[5~"), [key(KeyCode::PageUp)]);
    }

    #[test]
    fn a_split_sequence_of_the_mouse_is_neither_an_escape_nor_text() {
        assert_eq!(filtered("\u{1b}[<65;40;12Mx"), typed("x"));
        assert_eq!(filtered("\u{1b}[200~x"), typed("x"));
        assert_eq!(filtered("\u{1b}[1;5C"), typed(""));
    }

    #[test]
    fn other_text_after_an_escape_stays_as_it_is() {
        assert_eq!(filtered("\u{1b}xy"), typed("\u{1b}xy"));
        assert_eq!(filtered("\u{1b}[x]"), typed("\u{1b}[x]"));
        assert_eq!(filtered("\u{1b}\u{1b}[A"), [key(KeyCode::Esc), key(KeyCode::Up)]);
        assert_eq!(filtered("\u{1b}"), typed("\u{1b}"));
    }

    #[test]
    fn an_escape_counts_after_its_time() {
        let mut filter = EscapeFilter::default();
        let now = Instant::now();
        assert!(filter.filter(key(KeyCode::Esc), now).is_empty());
        assert_eq!(filter.due(), Some(now + ESCAPE_TIME));
        let later = now + ESCAPE_TIME;
        assert_eq!(filter.filter(key(KeyCode::Char('[')), later), typed("\u{1b}["));
    }
}
