//! The sessions of the server and the order in which they are listed.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use parlor_client::{MessageId, Object, SessionId, SessionInfo};

use crate::clean::Clean;
use crate::fuzzy;

/// Whether a session works, waits for a person, or is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowState {
    /// The agent waits for an answer of a person.
    NeedsYou,
    /// A turn runs.
    Running,
    /// The last turn failed.
    Failed,
    /// No turn runs.
    #[default]
    Idle,
}

/// Tokens in the context and what the session has cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Tokens in use.
    pub used: u64,
    /// The size of the context.
    pub size: u64,
    /// The cost, such as `$1.84`.
    pub cost: Option<Clean>,
}

impl Usage {
    /// Reads the members of a `usage_update`; `None` if there is no size of the context.
    pub fn of(fields: &Object) -> Option<Self> {
        let size = fields.get_u64("size").filter(|size| *size > 0)?;
        let cost = fields.get_object("cost").and_then(|cost| {
            let amount: f64 = cost.get("amount")?.as_str().parse().ok()?;
            let currency = cost.get_string("currency").unwrap_or_default();
            Some(match currency.as_str() {
                "USD" | "" => Clean::line(&format!("${amount:.2}")),
                "EUR" => Clean::line(&format!("€{amount:.2}")),
                other => Clean::line(&format!("{amount:.2} {other}")),
            })
        });
        Some(Self { used: fields.get_u64("used").unwrap_or(0), size, cost })
    }

    /// The part of the context that is in use, in percent.
    pub fn percent(&self) -> u64 {
        self.used.saturating_mul(100) / self.size
    }
}

/// One session of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: Clean,
    /// Whether it has a title of its own.
    pub has_title: bool,
    /// The name of its agent.
    pub agent: Clean,
    /// Its working directory.
    pub cwd: String,
    /// Its state.
    pub state: RowState,
    /// When it was last active.
    pub active: Option<Timestamp>,
    /// When its last prompt was sent.
    pub prompted: Option<Timestamp>,
    /// When its last turn ended.
    pub turn_ended: Option<Timestamp>,
    /// The session that it was forked from.
    pub parent: Option<SessionId>,
    /// The last message that it shares with its parent.
    pub forked_at: Option<MessageId>,
    /// Whether a turn has ended that no person has seen.
    pub is_unread: bool,
    /// Its mode.
    pub mode: Option<Clean>,
    /// Its model.
    pub model: Option<Clean>,
    /// Its usage.
    pub usage: Option<Usage>,
}

impl SessionRow {
    /// Reads a listed session.
    pub fn of(info: &SessionInfo) -> Self {
        let meta = info.fields.get_object("_meta").unwrap_or_default();
        let row = meta.get_object("parlor/row").unwrap_or_default();
        let time = |holder: &Object, name: &str| {
            holder.get_string(name).and_then(|text| text.parse::<Timestamp>().ok())
        };
        let text = |name: &str| row.get_string(name).map(|text| Clean::line(&text));
        let is_busy = meta.get_bool("parlor/busy").unwrap_or(false);
        let state = match row.get_string("state").as_deref() {
            Some("needs_you") => RowState::NeedsYou,
            Some("running") => RowState::Running,
            Some("failed") => RowState::Failed,
            Some("idle") => RowState::Idle,
            Some(_) | None => {
                if is_busy {
                    RowState::Running
                } else {
                    RowState::Idle
                }
            }
        };
        // A fork that has the title of its parent is listed by its own prompt.
        let name = row.get_string("name");
        let title = name.as_deref().or(info.title.as_deref()).filter(|title| !title.trim().is_empty());
        Self {
            id: info.id.clone(),
            title: Clean::line(title.unwrap_or("New session")),
            has_title: title.is_some(),
            agent: Clean::line(&meta.get_string("parlor/agent").unwrap_or_default()),
            cwd: info.cwd.clone(),
            state,
            active: info.updated_at.as_deref().and_then(|text| text.parse().ok()),
            prompted: time(&row, "lastPromptAt"),
            turn_ended: time(&row, "lastTurnEndedAt"),
            parent: meta.get_json_str("parlor/parent").map(SessionId::from),
            forked_at: meta.get_json_str("parlor/forkedAt").map(MessageId::from),
            is_unread: row.get_bool("unread").unwrap_or(false),
            mode: text("mode"),
            model: text("model"),
            usage: row.get_object("usage").and_then(|usage| Usage::of(&usage)),
        }
    }
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListLine {
    /// A directory above its sessions.
    Directory(String),
    /// A session, with the branches before its title: for each level whether more follow below.
    Session {
        /// The session.
        id: SessionId,
        /// For each level of forks, whether another one follows.
        branches: Vec<bool>,
    },
}

/// All sessions, and the order in which they are shown.
#[derive(Debug, Default)]
pub struct Sessions {
    rows: HashMap<SessionId, SessionRow>,
    /// The order while the list has the focus; `None` if it follows the activity.
    frozen: Option<Vec<SessionId>>,
    /// Sessions whose forks are folded.
    pub collapsed: HashSet<SessionId>,
    /// Sessions that are hidden until their archiving or deletion is sent.
    pub hidden: HashSet<SessionId>,
    /// Whether the list has arrived.
    pub is_loaded: bool,
}

impl Sessions {
    /// Replaces all rows.
    pub fn replace(&mut self, rows: Vec<SessionRow>) {
        self.rows = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
        self.is_loaded = true;
    }

    /// Applies changes of the list.
    pub fn change(&mut self, changed: Vec<SessionRow>, removed: &[SessionId]) {
        for row in changed {
            self.rows.insert(row.id.clone(), row);
        }
        for id in removed {
            self.rows.remove(id);
        }
    }

    /// One session.
    pub fn get(&self, id: &SessionId) -> Option<&SessionRow> {
        self.rows.get(id)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.rows.keys().filter(|id| !self.hidden.contains(*id)).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sessions that are shown, the latest first.
    pub fn latest_first(&self) -> Vec<&SessionRow> {
        let mut rows: Vec<_> = self.rows.values().filter(|row| !self.hidden.contains(&row.id)).collect();
        rows.sort_by(|a, b| b.active.cmp(&a.active).then_with(|| a.id.to_string().cmp(&b.id.to_string())));
        rows
    }

    /// Keeps the present order until [`thaw`](Self::thaw), so that rows do not move under the cursor.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() {
            self.frozen = Some(self.latest_first().into_iter().map(|row| row.id.clone()).collect());
        }
    }

    /// Orders the sessions by activity again.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The lines of the list: directories, the one with the latest session first, with their sessions, and forks under their
    /// parents. A filter keeps the sessions that fit, without directories and forks.
    pub fn lines(&self, filter: &str) -> Vec<ListLine> {
        let mut rows = self.latest_first();
        if let Some(frozen) = &self.frozen {
            let position = |row: &SessionRow| frozen.iter().position(|id| *id == row.id);
            // New sessions come first, as they would without a cursor.
            rows.sort_by_key(|row| position(row).map_or(0, |index| index + 1));
        }
        if !filter.is_empty() {
            let mut fits: Vec<_> = rows
                .iter()
                .filter_map(|row| {
                    let text = format!("{} {} {}", row.title, row.agent, Clean::line(&row.cwd));
                    fuzzy::fit(filter, &text).map(|(score, _)| (score, row.id.clone()))
                })
                .collect();
            fits.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
            return fits.into_iter().map(|(_, id)| ListLine::Session { id, branches: Vec::new() }).collect();
        }
        let mut children: HashMap<&SessionId, Vec<&SessionRow>> = HashMap::new();
        let mut roots = Vec::new();
        for row in rows {
            match row.parent.as_ref().filter(|parent| self.is_ancestor(parent, &row.id)) {
                Some(parent) => children.entry(parent).or_default().push(row),
                None => roots.push(row),
            }
        }
        let mut directories: Vec<(&str, Vec<&SessionRow>)> = Vec::new();
        for row in roots {
            match directories.iter_mut().find(|(cwd, _)| *cwd == row.cwd) {
                Some((_, rows)) => rows.push(row),
                None => directories.push((&row.cwd, vec![row])),
            }
        }
        let mut lines = Vec::new();
        for (cwd, rows) in directories {
            lines.push(ListLine::Directory(cwd.to_owned()));
            for row in rows {
                self.push_tree(row, &children, &mut Vec::new(), &mut lines);
            }
        }
        lines
    }

    /// Whether a parent is listed and is not itself a descendant of its child: a server that says so would hide both.
    fn is_ancestor(&self, parent: &SessionId, child: &SessionId) -> bool {
        let mut seen = HashSet::from([child]);
        let mut next = Some(parent);
        while let Some(id) = next {
            let Some(row) = self.rows.get(id).filter(|row| !self.hidden.contains(&row.id)) else {
                return id != parent;
            };
            if !seen.insert(&row.id) {
                return false;
            }
            next = row.parent.as_ref();
        }
        true
    }

    fn push_tree(
        &self,
        row: &SessionRow,
        children: &HashMap<&SessionId, Vec<&SessionRow>>,
        branches: &mut Vec<bool>,
        lines: &mut Vec<ListLine>,
    ) {
        lines.push(ListLine::Session { id: row.id.clone(), branches: branches.clone() });
        if self.collapsed.contains(&row.id) {
            return;
        }
        let forks = children.get(&row.id).map_or(&[][..], Vec::as_slice);
        for (index, fork) in forks.iter().enumerate() {
            branches.push(index + 1 < forks.len());
            self.push_tree(fork, children, branches, lines);
            branches.pop();
        }
    }

    /// The lines of the tree that a session belongs to.
    pub fn tree(&self, of: &SessionId) -> Vec<ListLine> {
        let mut root = of;
        let mut seen = HashSet::new();
        while let Some(parent) = self.rows.get(root).and_then(|row| row.parent.as_ref()) {
            if !self.rows.contains_key(parent) || !seen.insert(root) {
                break;
            }
            root = parent;
        }
        let lines = self.lines("");
        let is_root = |line: &ListLine| matches!(line, ListLine::Session { id, .. } if id == root);
        let Some(start) = lines.iter().position(is_root) else { return Vec::new() };
        let is_fork =
            |line: &&ListLine| matches!(line, ListLine::Session { branches, .. } if !branches.is_empty());
        let forks = lines[start + 1..].iter().take_while(is_fork).count();
        lines[start..=start + forks].to_vec()
    }

    /// How many turns run, without those of one session.
    pub fn running(&self, except: Option<&SessionId>) -> usize {
        let is_counted = |row: &&SessionRow| row.state == RowState::Running && Some(&row.id) != except;
        self.rows.values().filter(is_counted).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row that was last active this many minutes before noon.
    pub(crate) fn row(id: &str, title: &str, cwd: &str, minutes: i64) -> SessionRow {
        let noon: Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        SessionRow {
            id: id.into(),
            title: Clean::line(title),
            has_title: true,
            agent: Clean::line("demo"),
            cwd: cwd.to_owned(),
            state: RowState::Idle,
            active: Some(noon - jiff::SignedDuration::from_mins(minutes)),
            prompted: None,
            turn_ended: None,
            parent: None,
            forked_at: None,
            is_unread: false,
            mode: None,
            model: None,
            usage: None,
        }
    }

    fn fork(id: &str, parent: &str, minutes: i64) -> SessionRow {
        SessionRow { parent: Some(parent.into()), ..row(id, id, "/a", minutes) }
    }

    fn shown(sessions: &Sessions, filter: &str) -> Vec<String> {
        let line = |line: ListLine| match line {
            ListLine::Directory(cwd) => cwd,
            ListLine::Session { id, branches } => {
                let branches: String = branches.iter().map(|more| if *more { "+" } else { "-" }).collect();
                format!("{branches}{id}")
            }
        };
        sessions.lines(filter).into_iter().map(line).collect()
    }

    #[test]
    fn sessions_are_grouped_by_directory_with_forks_under_their_parents() {
        let mut sessions = Sessions::default();
        sessions.replace(vec![
            row("one", "one", "/a", 3),
            row("two", "two", "/b", 1),
            fork("fork", "one", 2),
            fork("deep", "fork", 9),
            fork("other", "one", 8),
            fork("orphan", "gone", 7),
        ]);
        assert_eq!(shown(&sessions, ""), ["/b", "two", "/a", "one", "+fork", "+-deep", "-other", "orphan"]);
        sessions.collapsed.insert("one".into());
        assert_eq!(shown(&sessions, ""), ["/b", "two", "/a", "one", "orphan"]);
    }

    #[test]
    fn sessions_that_are_each_others_parents_are_both_listed() {
        let mut sessions = Sessions::default();
        sessions.replace(vec![fork("a", "b", 1), fork("b", "a", 2), fork("c", "c", 3)]);
        assert_eq!(shown(&sessions, ""), ["/a", "a", "b", "c"]);
    }

    #[test]
    fn the_order_is_kept_while_the_list_is_frozen() {
        let mut sessions = Sessions::default();
        sessions.replace(vec![row("one", "one", "/a", 1), row("two", "two", "/a", 2)]);
        sessions.freeze();
        sessions.change(vec![row("two", "two", "/a", 0), row("new", "new", "/a", 0)], &[]);
        assert_eq!(shown(&sessions, ""), ["/a", "new", "one", "two"]);
        sessions.thaw();
        assert_eq!(shown(&sessions, ""), ["/a", "new", "two", "one"]);
    }

    #[test]
    fn a_filter_lists_what_fits_without_directories() {
        let mut sessions = Sessions::default();
        sessions.replace(vec![row("one", "Fix flaky port test", "/a", 1), row("two", "Other", "/b", 2)]);
        assert_eq!(shown(&sessions, "port"), ["one"]);
        assert_eq!(shown(&sessions, "demo"), ["one", "two"]);
        assert_eq!(shown(&sessions, "nothing"), [""; 0]);
    }

    #[test]
    fn a_tree_has_the_root_and_all_forks() {
        let mut sessions = Sessions::default();
        sessions.replace(vec![
            row("one", "one", "/a", 3),
            fork("fork", "one", 2),
            row("two", "two", "/a", 9),
        ]);
        assert_eq!(sessions.tree(&"fork".into()).len(), 2);
        assert_eq!(sessions.tree(&"two".into()).len(), 1);
        assert_eq!(sessions.tree(&"gone".into()).len(), 0);
    }

    #[test]
    fn usage_has_a_percentage_and_a_cost() {
        let fields = parlor_client::Json::parse(
            r#"{"used":124000,"size":200000,"cost":{"amount":1.841,"currency":"USD"}}"#,
        );
        let usage = Usage::of(&fields.unwrap().to_object().unwrap()).unwrap();
        assert_eq!((usage.percent(), usage.cost.unwrap().to_string()), (62, "$1.84".to_owned()));
        let empty = parlor_client::Json::parse(r#"{"used":1,"size":0}"#).unwrap();
        assert_eq!(Usage::of(&empty.to_object().unwrap()), None);
    }
}
