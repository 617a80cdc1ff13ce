//! Browsers that are signed in to the page.
//!
//! one-time link (`new_link`) -> `sign_in` -> cookie (`find`) -> ticket for one WebSocket (`new_ticket`, `redeem`)
//!
//! The cookie is the only secret that lasts; it is stored in the data directory, so that browsers stay signed in when the server
//! restarts. Times are arguments, in milliseconds since 1970.

use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::data_dir::{self, DataDirError};
use crate::hub::ClientRole;
use crate::lock;

/// How long a link can be used.
const LINK_LIFETIME: Duration = Duration::from_secs(600);

/// How long a ticket can be used.
const TICKET_LIFETIME: Duration = Duration::from_secs(30);

/// How long a browser that is not used stays signed in.
const BROWSER_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How exact the time is at which a browser was last used: it is stored no more often.
const LAST_USED_STEP: Duration = Duration::from_secs(3600);

/// Links that can be used; the oldest is forgotten.
const MAX_LINKS: usize = 16;

/// Tickets that can be used; the oldest is forgotten.
const MAX_TICKETS: usize = 256;

/// Browsers that are signed in; the one that was not used for the longest time is signed out.
const MAX_BROWSERS: usize = 64;

/// Characters of the name that a browser gives itself.
const MAX_NAME: usize = 200;

/// Bytes of the file with the browsers that are signed in.
const MAX_FILE: u64 = 256 << 10;

/// The browsers of a server.
#[derive(Default)]
pub struct Browsers {
    state: Mutex<State>,
    /// Where browsers are stored; without it they are signed out when the server ends. It is locked while the file is written, and
    /// `state` is not, so that a stalled disk delays nothing else.
    file: Mutex<Option<PathBuf>>,
    /// Counts how often browsers were signed out, for connections that have to end with that.
    signed_out: watch::Sender<u64>,
}

/// A browser that is signed in, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// Its id, which is not a secret.
    pub id: String,
    /// What it is allowed to do.
    pub role: ClientRole,
    /// What it calls itself.
    pub name: String,
    /// When it was signed in.
    pub signed_in_at: i64,
    /// When it was last used, to the hour.
    pub last_used_at: i64,
}

#[derive(Default)]
struct State {
    links: Vec<Link>,
    tickets: Vec<Ticket>,
    browsers: Vec<Browser>,
    /// Whether the file has other browsers or times.
    is_dirty: bool,
}

struct Link {
    code: Secret,
    role: ClientRole,
    expires_at: i64,
}

struct Ticket {
    code: Secret,
    browser: String,
    expires_at: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Browser {
    id: String,
    cookie: Secret,
    is_observer: bool,
    name: String,
    signed_in_at: i64,
    last_used_at: i64,
}

/// A random text that gives access.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Secret(String);

impl Secret {
    fn new() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })))
    }

    /// Whether it can be one that was created here, and not an empty or short text in a file that was edited.
    fn is_valid(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

/// Keeps secrets out of logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Browsers {
    /// Reads the browsers that are signed in, and stores later changes in the same file. A file that cannot be understood is
    /// replaced: its browsers have to sign in again. This blocks.
    pub fn load(&self, path: &Path) -> Result<(), DataDirError> {
        let mut browsers: Vec<Browser> = match data_dir::read_private(path, MAX_FILE)? {
            Some(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the browsers that are signed in: they have to sign in again");
                Vec::new()
            }),
            None => Vec::new(),
        };
        browsers.retain(|browser| browser.cookie.is_valid());
        browsers.sort_by_key(|browser| std::cmp::Reverse(browser.last_used_at));
        browsers.truncate(MAX_BROWSERS);
        lock(&self.state).browsers = browsers;
        *lock(&self.file) = Some(path.to_owned());
        Ok(())
    }

    /// Creates the code of a link that signs one browser in, once.
    pub fn new_link(&self, role: ClientRole, now: i64) -> io::Result<String> {
        let code = Secret::new()?;
        let mut state = lock(&self.state);
        state.links.retain(|link| link.expires_at > now);
        make_room(&mut state.links, MAX_LINKS);
        state.links.push(Link { code: code.clone(), role, expires_at: after(now, LINK_LIFETIME) });
        Ok(code.0)
    }

    /// Signs a browser in with the code of a link, and returns its cookie; `None` if the code is not valid any more. If the
    /// browser cannot be stored, it is not signed in, and the link can be used again. This blocks.
    pub fn sign_in(&self, code: &str, name: &str, now: i64) -> Result<Option<String>, DataDirError> {
        let cookie =
            Secret::new().map_err(data_dir::io_error("create a cookie for", Path::new("a browser")))?;
        let file = lock(&self.file);
        let (link, browser, browsers) = {
            let mut state = lock(&self.state);
            let link = state.links.iter().position(|link| link.code.is(code) && link.expires_at > now);
            let Some(link) = link.map(|at| state.links.remove(at)) else { return Ok(None) };
            let browser = Browser {
                id: uuid::Uuid::new_v4().simple().to_string(),
                cookie: cookie.clone(),
                is_observer: link.role == ClientRole::Observer,
                name: name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect(),
                signed_in_at: now,
                last_used_at: now,
            };
            let browsers = with_browser(state.browsers.clone(), browser.clone(), now);
            (link, browser, browsers)
        };
        let stored = write(file.as_deref(), &browsers);
        let mut state = lock(&self.state);
        if let Err(error) = stored {
            state.links.push(link);
            return Err(error);
        }
        // Others may have been signed out meanwhile.
        state.browsers = with_browser(std::mem::take(&mut state.browsers), browser, now);
        drop(state);
        // A browser may have been removed to make room.
        self.signed_out.send_modify(|count| *count += 1);
        Ok(Some(cookie.0))
    }

    /// The browser that has this cookie.
    pub fn find(&self, cookie: &str, now: i64) -> Option<SignedIn> {
        let mut state = lock(&self.state);
        let browser = state.browsers.iter_mut().find(|browser| browser.cookie.is(cookie))?;
        if !browser.is_valid(now) {
            return None;
        }
        let is_stale = now >= after(browser.last_used_at, LAST_USED_STEP);
        if is_stale {
            browser.last_used_at = now;
        }
        let found = browser.to_signed_in();
        state.is_dirty |= is_stale;
        Some(found)
    }

    /// Whether [`store`](Self::store) has something to write.
    pub fn is_dirty(&self) -> bool {
        lock(&self.state).is_dirty
    }

    /// Stores the times at which browsers were last used, and what could not be stored before. This blocks.
    pub fn store(&self) -> Result<(), DataDirError> {
        let file = lock(&self.file);
        let browsers = {
            let mut state = lock(&self.state);
            if !std::mem::take(&mut state.is_dirty) {
                return Ok(());
            }
            state.browsers.clone()
        };
        write(file.as_deref(), &browsers).inspect_err(|_| lock(&self.state).is_dirty = true)
    }

    /// Creates a ticket with which a page of this browser opens one WebSocket.
    pub fn new_ticket(&self, browser: &str, now: i64) -> io::Result<String> {
        let code = Secret::new()?;
        let mut state = lock(&self.state);
        state.tickets.retain(|ticket| ticket.expires_at > now);
        make_room(&mut state.tickets, MAX_TICKETS);
        let expires_at = after(now, TICKET_LIFETIME);
        state.tickets.push(Ticket { code: code.clone(), browser: browser.to_owned(), expires_at });
        Ok(code.0)
    }

    /// Uses a ticket, which is then not valid any more, and returns the browser that it was created for.
    pub fn redeem(&self, ticket: &str, now: i64) -> Option<SignedIn> {
        let mut state = lock(&self.state);
        let at = state.tickets.iter().position(|known| known.code.is(ticket))?;
        let ticket = state.tickets.remove(at);
        let browser = state.browsers.iter().find(|browser| browser.id == ticket.browser);
        browser.filter(|browser| ticket.expires_at > now && browser.is_valid(now)).map(Browser::to_signed_in)
    }

    /// The browsers that are signed in, the last one used first.
    pub fn list(&self, now: i64) -> Vec<SignedIn> {
        let state = lock(&self.state);
        let mut list: Vec<_> = state
            .browsers
            .iter()
            .filter(|browser| browser.is_valid(now))
            .map(Browser::to_signed_in)
            .collect();
        list.sort_by_key(|browser| std::cmp::Reverse(browser.last_used_at));
        list
    }

    /// Signs a browser out; `false` if it is not signed in. Its connections end, also if that cannot be stored: then it is signed
    /// in again after a restart of the server, unless a later call succeeds. This blocks.
    pub fn sign_out(&self, id: &str) -> Result<bool, DataDirError> {
        let is_signed_out = {
            let mut state = lock(&self.state);
            let before = state.browsers.len();
            state.browsers.retain(|browser| browser.id != id);
            let is_signed_out = state.browsers.len() < before;
            state.is_dirty |= is_signed_out;
            is_signed_out
        };
        if is_signed_out {
            self.signed_out.send_modify(|count| *count += 1);
        }
        self.store()?;
        Ok(is_signed_out)
    }

    /// Waits until a browser is signed out.
    pub async fn signed_out(&self, id: &str) {
        let mut changes = self.signed_out.subscribe();
        while lock(&self.state).browsers.iter().any(|browser| browser.id == id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Browser {
    fn is_valid(&self, now: i64) -> bool {
        now < after(self.last_used_at, BROWSER_LIFETIME)
    }

    fn to_signed_in(&self) -> SignedIn {
        SignedIn {
            id: self.id.clone(),
            role: if self.is_observer { ClientRole::Observer } else { ClientRole::Driver },
            name: self.name.clone(),
            signed_in_at: self.signed_in_at,
            last_used_at: self.last_used_at,
        }
    }
}

impl fmt::Debug for Browsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browsers").finish_non_exhaustive()
    }
}

/// The browsers with one more, without those that are not valid any more and the one that is too many.
fn with_browser(mut browsers: Vec<Browser>, browser: Browser, now: i64) -> Vec<Browser> {
    browsers.retain(|browser| browser.is_valid(now));
    if browsers.len() >= MAX_BROWSERS {
        let oldest = (0..browsers.len()).min_by_key(|at| browsers[*at].last_used_at);
        oldest.into_iter().for_each(|at| drop(browsers.swap_remove(at)));
    }
    browsers.push(browser);
    browsers
}

fn write(file: Option<&Path>, browsers: &[Browser]) -> Result<(), DataDirError> {
    let Some(path) = file else { return Ok(()) };
    let text = serde_json::to_string(browsers).expect("strings and numbers are JSON");
    data_dir::replace(path, text.as_bytes())
}

/// The time some time after another one.
fn after(at: i64, time: Duration) -> i64 {
    at.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// Removes the first items of a list that has no room for one more.
fn make_room<T>(list: &mut Vec<T>, limit: usize) {
    let excess = (list.len() + 1).saturating_sub(limit);
    list.drain(..excess);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn signed_in(browsers: &Browsers, role: ClientRole) -> String {
        let code = browsers.new_link(role, NOW).unwrap();
        browsers.sign_in(&code, "Firefox\n on <b>", NOW).unwrap().unwrap()
    }

    #[test]
    fn a_link_signs_in_one_browser_once_and_in_time() {
        let browsers = Browsers::default();
        let code = browsers.new_link(ClientRole::Driver, NOW).unwrap();
        assert_eq!(browsers.sign_in("", "x", NOW).unwrap(), None);
        assert_eq!(browsers.sign_in(&code[1..], "x", NOW).unwrap(), None);
        let cookie = browsers.sign_in(&code, "x", after(NOW, LINK_LIFETIME) - 1).unwrap().unwrap();
        assert_eq!(browsers.sign_in(&code, "x", NOW).unwrap(), None, "a link works once");
        assert_ne!(cookie, code);
        let late = browsers.new_link(ClientRole::Driver, NOW).unwrap();
        assert_eq!(browsers.sign_in(&late, "x", after(NOW, LINK_LIFETIME)).unwrap(), None);
        assert_eq!(browsers.list(NOW).len(), 1);
    }

    #[test]
    fn a_cookie_is_valid_while_the_browser_is_used() {
        let browsers = Browsers::default();
        let cookie = signed_in(&browsers, ClientRole::Observer);
        let found = browsers.find(&cookie, NOW).unwrap();
        assert_eq!((found.role, found.name.as_str()), (ClientRole::Observer, "Firefox on <b>"));
        assert_eq!(browsers.find(&found.id, NOW), None, "the id is not a cookie");
        assert_eq!(browsers.find("", NOW), None);
        let later = after(NOW, BROWSER_LIFETIME) - 1;
        assert_eq!(browsers.find(&cookie, later).unwrap().last_used_at, later);
        assert!(browsers.find(&cookie, after(later, BROWSER_LIFETIME) - 1).is_some());
        assert_eq!(browsers.find(&cookie, after(later, 3 * BROWSER_LIFETIME)), None);
    }

    #[test]
    fn a_ticket_works_once_in_time_and_only_for_a_browser_that_is_signed_in() {
        let browsers = Browsers::default();
        let cookie = signed_in(&browsers, ClientRole::Driver);
        let id = browsers.find(&cookie, NOW).unwrap().id;
        let ticket = browsers.new_ticket(&id, NOW).unwrap();
        assert_eq!(browsers.redeem(&cookie, NOW), None, "a cookie is not a ticket");
        assert_eq!(browsers.redeem(&ticket, NOW).unwrap().id, id);
        assert_eq!(browsers.redeem(&ticket, NOW), None);
        let late = browsers.new_ticket(&id, NOW).unwrap();
        assert_eq!(browsers.redeem(&late, after(NOW, TICKET_LIFETIME)), None);
        let ticket = browsers.new_ticket(&id, NOW).unwrap();
        assert!(browsers.sign_out(&id).unwrap());
        assert_eq!(browsers.redeem(&ticket, NOW), None);
        assert_eq!(browsers.find(&cookie, NOW), None);
        assert!(!browsers.sign_out(&id).unwrap());
    }

    #[test]
    fn links_tickets_and_browsers_are_limited() {
        let browsers = Browsers::default();
        let first = browsers.new_link(ClientRole::Driver, NOW).unwrap();
        for _ in 0..MAX_LINKS {
            browsers.new_link(ClientRole::Driver, NOW).unwrap();
        }
        assert_eq!(browsers.sign_in(&first, "x", NOW).unwrap(), None);
        let cookies: Vec<_> = (0..=MAX_BROWSERS).map(|_| signed_in(&browsers, ClientRole::Driver)).collect();
        assert_eq!(browsers.list(NOW).len(), MAX_BROWSERS);
        let id = browsers.find(cookies.last().unwrap(), NOW).unwrap().id;
        let first = browsers.new_ticket(&id, NOW).unwrap();
        for _ in 0..MAX_TICKETS {
            browsers.new_ticket(&id, NOW).unwrap();
        }
        assert_eq!(browsers.redeem(&first, NOW), None);
    }

    #[test]
    fn browsers_stay_signed_in_after_a_restart_and_a_damaged_file_signs_them_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("browsers");
        let browsers = Browsers::default();
        browsers.load(&path).unwrap();
        let cookie = signed_in(&browsers, ClientRole::Driver);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let restarted = Browsers::default();
        restarted.load(&path).unwrap();
        assert_eq!(restarted.list(NOW), browsers.list(NOW));
        assert!(restarted.find(&cookie, NOW).is_some());
        std::fs::write(&path, "[{").unwrap();
        restarted.load(&path).unwrap();
        assert_eq!(restarted.find(&cookie, NOW), None);
    }

    #[tokio::test]
    async fn connections_learn_that_their_browser_was_signed_out() {
        let browsers = Browsers::default();
        let ids: Vec<_> = (0..2)
            .map(|_| signed_in(&browsers, ClientRole::Driver))
            .map(|cookie| browsers.find(&cookie, NOW).unwrap().id)
            .collect();
        let mut waiting = Box::pin(browsers.signed_out(&ids[0]));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        browsers.sign_out(&ids[1]).unwrap();
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "another browser was signed out");
        browsers.sign_out(&ids[0]).unwrap();
        waiting.await;
    }

    /// Replaces the directory of the file by a file, so that nothing can be written there.
    fn break_disk(directory: &Path) {
        std::fs::remove_dir_all(directory).unwrap();
        std::fs::write(directory, "").unwrap();
    }

    fn repair_disk(directory: &Path) {
        std::fs::remove_file(directory).unwrap();
        std::fs::create_dir(directory).unwrap();
    }

    #[test]
    fn a_browser_that_cannot_be_stored_is_not_signed_in_and_its_link_works_later() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("data");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("browsers");
        let browsers = Browsers::default();
        browsers.load(&path).unwrap();
        let code = browsers.new_link(ClientRole::Driver, NOW).unwrap();
        break_disk(&directory);
        browsers.sign_in(&code, "x", NOW).unwrap_err();
        assert_eq!(browsers.list(NOW), []);
        repair_disk(&directory);
        assert!(browsers.sign_in(&code, "x", NOW).unwrap().is_some());
        assert_eq!(browsers.list(NOW).len(), 1);
    }

    #[test]
    fn a_browser_is_signed_out_at_once_and_stored_as_soon_as_that_is_possible() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("data");
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("browsers");
        let browsers = Browsers::default();
        browsers.load(&path).unwrap();
        let cookie = signed_in(&browsers, ClientRole::Driver);
        let stored = std::fs::read(&path).unwrap();
        let id = browsers.find(&cookie, NOW).unwrap().id;
        break_disk(&directory);
        browsers.sign_out(&id).unwrap_err();
        assert_eq!(browsers.find(&cookie, NOW), None);
        browsers.sign_out(&id).unwrap_err();
        repair_disk(&directory);
        std::fs::write(&path, stored).unwrap();
        assert!(!browsers.sign_out(&id).unwrap());
        let restarted = Browsers::default();
        restarted.load(&path).unwrap();
        assert_eq!(restarted.find(&cookie, NOW), None);
    }

    #[test]
    fn the_time_of_the_last_use_is_stored_once_an_hour() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("browsers");
        let browsers = Browsers::default();
        browsers.load(&path).unwrap();
        let cookie = signed_in(&browsers, ClientRole::Driver);
        browsers.find(&cookie, after(NOW, LAST_USED_STEP) - 1).unwrap();
        assert!(!browsers.is_dirty());
        let later = after(NOW, LAST_USED_STEP);
        browsers.find(&cookie, later).unwrap();
        assert!(browsers.is_dirty());
        browsers.store().unwrap();
        assert!(!browsers.is_dirty());
        let restarted = Browsers::default();
        restarted.load(&path).unwrap();
        assert_eq!(restarted.list(later)[0].last_used_at, later);
    }

    #[test]
    fn browsers_in_an_edited_file_need_a_valid_cookie_and_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("browsers");
        let browser = |cookie: &str, at: i64| {
            format!(
                r#"{{"id":"b{at}","cookie":"{cookie}","is_observer":false,"name":"x","signed_in_at":{at},"last_used_at":{at}}}"#
            )
        };
        let good = "a".repeat(64);
        let later = NOW + 1_000_000;
        let mut listed = vec![browser("", later), browser("short", later), browser(&"é".repeat(32), later)];
        listed.extend((0..=MAX_BROWSERS).map(|n| browser(&good, NOW + i64::try_from(n).unwrap())));
        std::fs::write(&path, format!("[{}]", listed.join(","))).unwrap();
        let browsers = Browsers::default();
        browsers.load(&path).unwrap();
        for cookie in ["", "short"] {
            assert_eq!(browsers.find(cookie, NOW), None, "{cookie:?}");
        }
        let list = browsers.list(NOW);
        assert_eq!(list.len(), MAX_BROWSERS);
        assert!(list.iter().all(|browser| browser.last_used_at > NOW), "the oldest is signed out");
    }
}
