//! The sessions of the server and the order in which they are listed.

mod row;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use parlor_client::SessionId;

pub use self::row::{RowState, SessionRow, Usage};
use crate::clean::Clean;
use crate::fuzzy;

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListLine {
    /// A directory above its sessions.
    Directory(String),
    /// How many sessions are archived, above them if they are shown.
    Archived(usize),
    /// A session, with the branches before its title: for each level whether more follow below.
    Session {
        /// The session.
        id: SessionId,
        /// For each level of forks, whether another one follows.
        branches: Vec<bool>,
    },
}

impl ListLine {
    /// The session of the line.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session { id, .. } => Some(id),
            Self::Directory(_) | Self::Archived(_) => None,
        }
    }
}

/// The forks of each session.
type Children<'a> = HashMap<&'a SessionId, Vec<&'a SessionRow>>;

/// A session that is not below another one.
fn session_line(id: SessionId) -> ListLine {
    ListLine::Session { id, branches: Vec::new() }
}

/// All sessions, and the order in which they are shown.
#[derive(Debug, Default)]
pub struct Sessions {
    rows: HashMap<SessionId, SessionRow>,
    /// The place of each session while the list has the focus; `None` if it follows the activity.
    frozen: Option<HashMap<SessionId, usize>>,
    /// Sessions whose forks are folded.
    pub collapsed: HashSet<SessionId>,
    /// Whether archived sessions are listed.
    pub shows_archived: bool,
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

    /// Marks a session as archived or restored, until the server reports it.
    pub fn set_archived(&mut self, id: &SessionId, is_archived: bool) {
        if let Some(row) = self.rows.get_mut(id) {
            row.is_archived = is_archived;
        }
    }

    /// How many sessions there are that are not archived.
    pub fn len(&self) -> usize {
        self.rows.values().filter(|row| self.is_active(row)).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_active(&self, row: &SessionRow) -> bool {
        !row.is_archived && !self.hidden.contains(&row.id)
    }

    fn is_archived(&self, row: &SessionRow) -> bool {
        row.is_archived && !self.hidden.contains(&row.id)
    }

    /// The sessions that are not archived, the latest first.
    pub fn latest_first(&self) -> Vec<&SessionRow> {
        self.latest_where(|row| self.is_active(row))
    }

    /// The sessions that a name matches, the latest first: by a prefix of the id, else by the whole title, else by a prefix of the
    /// title. Case is ignored in titles.
    pub fn named(&self, name: &str) -> Vec<&SessionRow> {
        let listed = self.latest_where(|row| !self.hidden.contains(&row.id));
        let by_id: Vec<_> =
            listed.iter().copied().filter(|row| row.id.to_string().starts_with(name)).collect();
        if !by_id.is_empty() {
            return by_id;
        }
        let wanted = name.to_lowercase();
        let title = |row: &SessionRow| row.title.as_str().to_lowercase();
        let mut by_title: Vec<_> = listed.into_iter().filter(|row| title(row).starts_with(&wanted)).collect();
        if by_title.iter().any(|row| title(row) == wanted) {
            by_title.retain(|row| title(row) == wanted);
        }
        by_title
    }

    fn latest_where(&self, is_shown: impl Fn(&SessionRow) -> bool) -> Vec<&SessionRow> {
        let mut rows: Vec<_> = self.rows.values().filter(|row| is_shown(row)).collect();
        // New sessions come first in a frozen order, as they would without a cursor.
        let position = |row: &SessionRow| {
            self.frozen.as_ref().and_then(|frozen| frozen.get(&row.id)).map_or(0, |index| index + 1)
        };
        rows.sort_by_cached_key(|row| (position(row), Reverse(row.active), row.id.to_string()));
        rows
    }

    /// Keeps the present order until [`thaw`](Self::thaw), so that rows do not move under the cursor.
    pub fn freeze(&mut self) {
        if self.frozen.is_none() {
            let rows = self.latest_where(|_| true).into_iter().map(|row| row.id.clone());
            self.frozen = Some(rows.zip(0..).collect());
        }
    }

    /// Orders the sessions by activity again.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    /// The lines of the list: directories, the one with the latest session first, with their sessions, and forks under their
    /// parents; then the archived sessions. A filter keeps the sessions that fit, without directories and forks.
    pub fn lines(&self, filter: &str) -> Vec<ListLine> {
        if !filter.is_empty() {
            return self.filtered(filter);
        }
        let (roots, children) = self.forests(|row| self.is_active(row));
        let mut directories: Vec<(&str, Vec<&SessionRow>)> = Vec::new();
        let mut indexes: HashMap<&str, usize> = HashMap::new();
        for row in roots {
            let index = *indexes.entry(&row.cwd).or_insert(directories.len());
            match directories.get_mut(index) {
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
        let archived = self.latest_where(|row| self.is_archived(row));
        if !archived.is_empty() {
            lines.push(ListLine::Archived(archived.len()));
        }
        if self.shows_archived {
            lines.extend(archived.into_iter().map(|row| session_line(row.id.clone())));
        }
        lines
    }

    fn filtered(&self, filter: &str) -> Vec<ListLine> {
        let is_shown =
            |row: &SessionRow| self.is_active(row) || (self.shows_archived && self.is_archived(row));
        let mut fits: Vec<_> = self
            .latest_where(is_shown)
            .into_iter()
            .filter_map(|row| {
                let text = format!("{} {} {}", row.title, row.agent, Clean::line(&row.cwd));
                fuzzy::fit(filter, &text).map(|(score, _)| (score, row.id.clone()))
            })
            .collect();
        fits.sort_by_key(|(score, _)| Reverse(*score));
        fits.into_iter().map(|(_, id)| session_line(id)).collect()
    }

    /// The sessions without a parent among those that are shown, and the forks of each session.
    fn forests(&self, is_shown: impl Fn(&SessionRow) -> bool) -> (Vec<&SessionRow>, Children<'_>) {
        let mut children = Children::new();
        let mut roots = Vec::new();
        for row in self.latest_where(&is_shown) {
            match row.parent.as_ref().filter(|parent| self.is_ancestor(parent, &row.id, &is_shown)) {
                Some(parent) => children.entry(parent).or_default().push(row),
                None => roots.push(row),
            }
        }
        (roots, children)
    }

    /// Whether a parent is shown and is not itself a descendant of its child: a server that says so would hide both.
    fn is_ancestor(
        &self,
        parent: &SessionId,
        child: &SessionId,
        is_shown: impl Fn(&SessionRow) -> bool,
    ) -> bool {
        let mut seen = HashSet::from([child]);
        let mut next = Some(parent);
        while let Some(id) = next {
            let Some(row) = self.rows.get(id).filter(|row| is_shown(row)) else {
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
        children: &Children<'_>,
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

    /// The lines of the tree that a session belongs to, with archived sessions.
    pub fn tree(&self, of: &SessionId) -> Vec<ListLine> {
        let is_shown = |row: &SessionRow| !self.hidden.contains(&row.id);
        let (roots, children) = self.forests(is_shown);
        let mut root = of;
        let mut seen = HashSet::new();
        while !roots.iter().any(|row| row.id == *root) && seen.insert(root) {
            match self.rows.get(root).and_then(|row| row.parent.as_ref()) {
                Some(parent) => root = parent,
                None => break,
            }
        }
        let mut lines = Vec::new();
        if let Some(row) = roots.into_iter().find(|row| row.id == *root) {
            self.push_tree(row, &children, &mut Vec::new(), &mut lines);
        }
        lines
    }

    /// Unfolds the forks above a session.
    pub fn reveal(&mut self, id: &SessionId) {
        let mut seen = HashSet::new();
        let mut next = self.rows.get(id).and_then(|row| row.parent.clone());
        while let Some(parent) = next.filter(|parent| seen.insert(parent.clone())) {
            self.collapsed.remove(&parent);
            next = self.rows.get(&parent).and_then(|row| row.parent.clone());
        }
    }

    /// How many turns run, without those of one session.
    pub fn running(&self, except: Option<&SessionId>) -> usize {
        let is_counted = |row: &&SessionRow| row.state == RowState::Running && Some(&row.id) != except;
        self.rows.values().filter(is_counted).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::Timestamp;

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
            shared_messages: None,
            is_archived: false,
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
            ListLine::Archived(count) => format!("{count} archived"),
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
    fn archived_sessions_are_counted_and_listed_on_demand() {
        let archived = |row: SessionRow| SessionRow { is_archived: true, ..row };
        let mut sessions = Sessions::default();
        sessions.replace(vec![
            row("one", "one", "/a", 3),
            archived(row("old", "old", "/b", 1)),
            archived(fork("fork", "one", 2)),
            fork("deep", "fork", 4),
        ]);
        assert_eq!(sessions.len(), 2);
        assert_eq!(shown(&sessions, ""), ["/a", "one", "deep", "2 archived"]);
        assert_eq!(shown(&sessions, "old"), [""; 0]);
        sessions.freeze();
        sessions.shows_archived = true;
        assert_eq!(shown(&sessions, ""), ["/a", "one", "deep", "2 archived", "old", "fork"]);
        assert_eq!(shown(&sessions, "old"), ["old"]);
        // One that is hidden until its deletion is sent is not counted.
        sessions.hidden.insert("old".into());
        assert_eq!(shown(&sessions, ""), ["/a", "one", "deep", "1 archived", "fork"]);
        // A fork tree has them in place.
        let tree: Vec<_> = sessions.tree(&"deep".into());
        assert_eq!(
            tree.iter().filter_map(ListLine::session).map(ToString::to_string).collect::<Vec<_>>(),
            ["one", "fork", "deep"]
        );
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
}
