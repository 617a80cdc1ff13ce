//! The process that ends the agents of a killed parlor (`parlor watch-agents`).

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::tree::{self, ProcessTree};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Reads which agents run until the input ends, which happens when parlor ends for whatever reason. Then ends the agents
/// that are left and returns.
///
/// Each line is `+ PGID TAG` for an agent that was started or `- PGID TAG` for one that has ended. The PGID is 0 for an
/// agent that is about to be started.
///
/// The process must outlive parlor, so it ignores the signals that end parlor.
pub fn run(mut input: impl BufRead) {
    // The handlers stay for the life of the process. If they cannot be installed, it still has a process group of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let _handlers = runtime.as_ref().map(|runtime| {
        let _context = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()]
            .map(signal)
    });
    let mut trees = HashMap::new();
    let mut line = String::new();
    // An error ends the input, too.
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        on_line(&mut trees, &line);
        line.clear();
    }
    let mut left: Vec<_> = trees.into_values().collect();
    if !left.is_empty() {
        tree::end(&mut left, GRACE);
    }
}

fn on_line(trees: &mut HashMap<String, ProcessTree>, line: &str) {
    // parlor was killed while it wrote an incomplete line.
    let Some(line) = line.strip_suffix('\n') else { return };
    let mut words = line.split(' ');
    let (sign, group, tag) = (words.next(), words.next(), words.next());
    let (Some(sign), Some(Ok(group)), Some(tag)) = (sign, group.map(str::parse), tag) else { return };
    match sign {
        "+" => drop(trees.insert(tag.to_owned(), ProcessTree::seen(group, tag))),
        "-" => drop(trees.remove(tag)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_and_remove() {
        let mut trees = HashMap::new();
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
            on_line(&mut trees, line);
            assert_eq!(trees.len(), count, "{line:?}");
        }
    }
}
