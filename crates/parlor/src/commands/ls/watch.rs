//! `parlor ls --watch`.

use std::collections::HashMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use parlor_client::{Connection, Error, Hello, Json, Notification, Object};
use parlor_store::Filter;
use serde_json::json;

use super::{Listing, Ls};
use crate::command_error::CommandError;
use crate::output::{self, DIM};
use crate::render::safe;
use crate::runtime;
use crate::server;
use crate::session_list::{ListedSession, ListedState, LiveState};
use crate::table::terminal_width;

/// How often the durations of running turns are drawn again on a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Prints a list and then its changes.
#[derive(Default)]
struct ListPrinter {
    json: bool,
    /// How many lines were drawn on the terminal.
    drawn: usize,
    /// What was printed of each session, to find out what changed.
    printed: HashMap<String, String>,
    /// The sessions that the last change removed from the list: deleted, archived or unarchived.
    removed: Vec<String>,
}

impl Ls {
    /// Prints the list and its changes until the server ends.
    pub(super) fn follow(&self, filter: &Filter) -> Result<ExitCode, CommandError> {
        let socket = server::running(&self.paths)?;
        let mut printer = ListPrinter { json: self.json, ..ListPrinter::default() };
        runtime::single_threaded()?.block_on(async {
            let connecting = async {
                let (server, _) = Connection::socket(&socket, &Hello::new()).await?;
                let changes = server.notifications();
                let all_agents = Object::new().with("parlor/agent", "*");
                let mut params = Object::new().with("_meta", all_agents.to_json());
                if self.archived {
                    params.set("archived", true);
                }
                server.call("_parlor/list/subscribe", &params).await?;
                Ok((server, changes))
            };
            let (server, mut changes) = server::respond_in_time(connecting).await?;
            loop {
                let requests = server::respond_in_time(server.open_requests()).await?;
                let listing = self.list(filter, &LiveState::of(requests))?;
                printer.print(&listing, self.empty_message()).map_err(|error| CommandError::write(&error))?;
                let runs = |session: &ListedSession| session.state == ListedState::Running;
                let redraws = printer.drawn > 0 && listing.sessions.iter().any(runs);
                tokio::select! {
                    change = changes.next() => match change {
                        Some(change) => printer.removed = removed_sessions(&change),
                        None => return Err(CommandError::client(&Error::Disconnected)),
                    },
                    () = tokio::time::sleep(REDRAW_INTERVAL), if redraws => {}
                }
            }
        })
    }
}

impl ListPrinter {
    fn print(&mut self, listing: &Listing, empty_message: &str) -> std::io::Result<()> {
        match terminal_width().filter(|_| !self.json) {
            Some(width) => self.draw(listing, width, empty_message),
            None => self.print_changes(listing),
        }
    }

    /// Draws the list over the one that was drawn before.
    fn draw(&mut self, listing: &Listing, width: usize, empty_message: &str) -> std::io::Result<()> {
        let height = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
        let mut text = Vec::new();
        let rows = height.saturating_sub(3).max(1);
        if listing.sessions.is_empty() {
            writeln!(text, "{}", crate::table::truncate(empty_message, width))?;
        } else {
            listing.write(Some(width), rows, &mut text)?;
            let hidden = listing.sessions.len().saturating_sub(rows);
            if hidden > 0 {
                writeln!(text, "{DIM}{hidden} more{DIM:#}")?;
            }
        }
        let mut out = anstream::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\u{1b}[{}A\u{1b}[J", self.drawn)?;
        }
        self.drawn = text.split(|byte| *byte == b'\n').count() - 1;
        out.write_all(&text)?;
        out.flush()
    }

    /// Prints one line for each session that changed, and for each that is not listed any more.
    fn print_changes(&mut self, listing: &Listing) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let mut before = std::mem::take(&mut self.printed);
        // The list has the latest session first; lines have the latest change last.
        for session in listing.sessions.iter().rev() {
            let line = if self.json { output::to_json(session) } else { line(listing, session) };
            // The time of the last activity alone is not a change.
            let mut compared = session.clone();
            compared.updated_at.clear();
            let compared = output::to_json(&compared);
            if before.remove(&session.session_id).as_ref() != Some(&compared) {
                writeln!(out, "{}", output::for_stdout(&line))?;
            }
            self.printed.insert(session.session_id.clone(), compared);
        }
        for id in std::mem::take(&mut self.removed).into_iter().filter(|id| before.contains_key(id)) {
            let line = if self.json {
                json!({ "sessionId": id, "removed": true }).to_string()
            } else {
                let id: String = id.chars().take(listing.id_length).collect();
                format!("{}  removed", safe(&id))
            };
            writeln!(out, "{}", output::for_stdout(&line))?;
        }
        out.flush()
    }
}

/// The sessions that a notification names as removed.
fn removed_sessions(change: &Notification) -> Vec<String> {
    let params = change.params.as_ref().and_then(Json::to_object).unwrap_or_default();
    let removed = params.get_array("removed").unwrap_or_default();
    removed.into_iter().filter_map(|id| Some(id.to_text()?.into_owned())).collect()
}

/// A session on one line.
fn line(listing: &Listing, session: &ListedSession) -> String {
    let name = session.name().unwrap_or("(no prompt yet)").replace('\n', " ");
    let (id, state) = (listing.short_id(session), session.state.word());
    safe(&format!("{id}  {state:<11}  {}  {name}", session.agent))
}
