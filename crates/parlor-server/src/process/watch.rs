//! The helper process that ends what a killed parlor leaves behind.

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::family::{self, Family};

/// How long agents have between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(2);

/// Reads which agents there are until the input ends, which it does when parlor is gone, however it went. Then ends
/// those that are left and returns.
///
/// Each line is `+ PGID MARK` for an agent that was started or `- PGID MARK` for one that has ended. An agent that is
/// about to be started has the number 0.
///
/// It must outlive parlor, so it does not end by the signals that end parlor.
pub fn watch(mut input: impl BufRead) {
    // The handlers stay for the life of the process; without them there would still be the group of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let _handlers = runtime.as_ref().map(|runtime| {
        let _context = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()]
            .map(signal)
    });
    let mut families = HashMap::new();
    let mut line = String::new();
    // An error is as good an end as the end: there is nothing more to hear.
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        heard(&mut families, &line);
        line.clear();
    }
    let mut left: Vec<_> = families.into_values().collect();
    if !left.is_empty() {
        family::end(&mut left, GRACE);
    }
}

fn heard(families: &mut HashMap<String, Family>, line: &str) {
    // Half a line is what parlor was about to say when it was killed.
    let Some(line) = line.strip_suffix('\n') else { return };
    let mut words = line.split(' ');
    let (sign, group, mark) = (words.next(), words.next(), words.next());
    let (Some(sign), Some(Ok(group)), Some(mark)) = (sign, group.map(str::parse), mark) else { return };
    match sign {
        "+" => drop(families.insert(mark.to_owned(), Family::seen(group, mark))),
        "-" => drop(families.remove(mark)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_and_remove() {
        let mut families = HashMap::new();
        for (line, count) in [
            ("+ 0 a\n", 1),
            ("+ 4194305 a\n", 1),
            ("+ 4194306 b\n", 2),
            ("+ 4194307 half", 2),
            ("nonsense\n", 2),
            ("* 1 b\n", 2),
            ("- 4194306 b\n", 1),
            ("- 0 a\n", 0),
        ] {
            heard(&mut families, line);
            assert_eq!(families.len(), count, "{line:?}");
        }
    }
}
