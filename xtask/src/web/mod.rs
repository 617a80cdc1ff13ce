//! The page in a real browser: its figures and its pictures.

mod bench;
mod past;
mod screenshots;
mod story;

use parlor_testkit::browser::{Browser, Tab};
use parlor_testkit::programs::{self, Profile};
use parlor_testkit::scenario::Scenario;

pub(crate) use self::bench::BenchWeb;
pub(crate) use self::screenshots::Screenshots;
use crate::failure::Failure;

/// A directory for a server, with parlor built by the profile of this program.
fn scenario() -> Result<Scenario, Failure> {
    let program = programs::build("parlor", "parlor", Profile::current()).map_err(Failure::failed)?;
    let program = program.to_str().ok_or_else(|| Failure::failed("the path of parlor is not text"))?;
    Ok(Scenario::new(program))
}

/// A server, and a browser that is signed in.
struct Page {
    // The browser ends first: one that loses its server tries to connect again.
    browser: Browser,
    scenario: Scenario,
    origin: String,
}

impl Page {
    /// Starts a server with these arguments.
    fn start(args: &[&str]) -> Result<Self, Failure> {
        Ok(Self::start_in(scenario()?, args))
    }

    /// Starts a server with these arguments in a directory that may have sessions.
    fn start_in(mut scenario: Scenario, args: &[&str]) -> Self {
        scenario.serve(args);
        let browser = Browser::start();
        let output = scenario.run(&["open", "--print"]).success();
        let link = output.stdout.trim();
        browser.open(link).close();
        let origin = link.split_once("/sign-in").map_or(link, |(origin, _)| origin).to_owned();
        Self { browser, scenario, origin }
    }

    fn open(&self, path: &str) -> Tab {
        self.browser.open(&format!("{}{path}", self.origin))
    }
}
