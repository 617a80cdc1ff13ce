//! The page in a real browser, with a real server.

#![cfg(target_os = "linux")]

mod acting;
mod conversation;
mod everywhere;
mod keyboard;
mod requests;
mod safety;
mod sessions;

use std::ops::Deref;
use std::sync::{Condvar, Mutex, PoisonError};

use parlor_testkit::browser::{Browser, Tab};
use parlor_testkit::process::to_pid;
use parlor_testkit::scenario::Scenario;
use rustix::process::Pid;

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the demo agent, and a browser that is signed in.
struct Page {
    // The browser ends first: one that loses its server tries to connect again.
    browser: Browser,
    scenario: Scenario,
    /// The address at which the server can be started again.
    listen: Option<String>,
    _turn: Turn,
}

impl Page {
    fn new() -> Self {
        Self::of(|| Scenario::new(PARLOR).with_server())
    }

    fn of(scenario: impl FnOnce() -> Scenario) -> Self {
        let turn = Turn::take();
        let scenario = scenario();
        let browser = Browser::start();
        let page = Self { browser, scenario, listen: None, _turn: turn };
        page.browser.open(&page.link()).close();
        page
    }

    /// The same with a server that can be started again at its address.
    fn on_a_fixed_port() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        let mut page = Self::of(|| {
            let mut scenario = Scenario::new(PARLOR);
            scenario.serve(&["--agent", "demo", "--listen", &address]);
            scenario
        });
        page.listen = Some(address);
        page
    }

    /// Kills the server.
    fn kill(&mut self) {
        self.scenario.kill();
    }

    /// Starts the server again at its address.
    fn restart(&mut self) {
        let address = self.listen.clone().expect("the address is fixed");
        self.scenario.serve(&["--agent", "demo", "--listen", &address]);
    }

    /// The process of the server.
    fn process(&self) -> Pid {
        to_pid(self.scenario.server_pid().expect("a server runs"))
    }

    /// A new link that signs a browser in.
    fn link(&self) -> String {
        self.scenario.run(&["open", "--print"]).success().stdout.trim().to_owned()
    }

    /// The address of a path.
    fn address(&self, path: &str) -> String {
        let port = std::fs::read_to_string(self.scenario.data().join("port")).expect("the server has a port");
        format!("http://parlor.localhost:{}{path}", port.trim())
    }

    /// Opens a path in a new tab.
    fn open(&self, path: &str) -> Tab {
        self.browser.open(&self.address(path))
    }

    /// Opens a session in a new tab.
    fn open_session(&self, id: &str) -> Tab {
        self.open(&format!("/s/{id}"))
    }
}

impl Deref for Page {
    type Target = Scenario;

    fn deref(&self) -> &Scenario {
        &self.scenario
    }
}

/// The right to run a browser: each needs most of a core and some hundred megabytes.
struct Turn;

const MAX_BROWSERS: usize = 2;

static BROWSERS: Mutex<usize> = Mutex::new(0);
static BROWSER_ENDED: Condvar = Condvar::new();

impl Turn {
    fn take() -> Self {
        let running = BROWSERS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = BROWSER_ENDED
            .wait_while(running, |running| *running >= MAX_BROWSERS)
            .unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *BROWSERS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        BROWSER_ENDED.notify_one();
    }
}
