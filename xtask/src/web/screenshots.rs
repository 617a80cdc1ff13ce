//! `cargo xtask screenshots`: makes pictures of the page.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use parlor_testkit::browser::{Key, Tab};

use super::{Page, story};
use crate::failure::Failure;

/// Make pictures of the page with Chromium: wide and narrow, light and dark
///
/// An agent that plays fixed stories fills the sessions, so that pictures differ only if the page does.
#[derive(Args)]
pub(crate) struct Screenshots {
    /// Write them to this directory
    #[arg(value_name = "DIR", default_value = "target/screenshots")]
    dir: PathBuf,
    /// Be the agent of the pictures
    #[arg(long, hide = true)]
    agent: bool,
}

/// A picture: its name, its width and height in CSS pixels, and the colour scheme.
struct Picture {
    name: &'static str,
    size: (u32, u32),
    scheme: &'static str,
}

const WIDE: (u32, u32) = (1440, 900);
const TABLET: (u32, u32) = (1024, 768);
const PHONE: (u32, u32) = (390, 844);
const NARROW: (u32, u32) = (360, 740);
const LARGE: (u32, u32) = (1920, 1080);

/// The ids of the sessions that the pictures show.
struct Sessions {
    rotation: String,
    release: String,
    failed: String,
}

impl Screenshots {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.agent {
            return story::run();
        }
        fs::create_dir_all(&self.dir).map_err(Failure::failed)?;
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let agent = format!("coder={} screenshots --agent", program.display());
        let page = Page::start(&["--agent", &agent])?;
        let empty = page.open("/new");
        self.take(&empty, &[Picture { name: "first-start", size: WIDE, scheme: "light" }])?;
        empty.close();
        let sessions = play(&page);
        let tab = page.open(&format!("/s/{}", sessions.rotation));
        tab.wait_for("document.querySelector('#dock .req')");
        let wide = |name, scheme| Picture { name, size: WIDE, scheme };
        let phone = |name, scheme| Picture { name, size: PHONE, scheme };
        self.take(
            &tab,
            &[
                wide("request-light", "light"),
                wide("request-dark", "dark"),
                Picture { name: "request-tablet", size: TABLET, scheme: "light" },
                phone("request-phone", "dark"),
                Picture { name: "request-narrow", size: NARROW, scheme: "light" },
            ],
        )?;
        // A request takes no key in its first half second.
        tab.wait_for("performance.now() - requestSince > 500");
        tab.press("p");
        tab.press_key(Key::Escape, 0);
        tab.wait_for("!document.getElementById('composer').hidden");
        tab.eval(
            "(() => { const cards = [...document.querySelectorAll('#log .call:has(.diff) > details')]; const card = cards.at(-2); \
             card.open = true; card.scrollIntoView({ block: 'center' }); })()",
        );
        self.take(
            &tab,
            &[wide("session-light", "light"), wide("session-dark", "dark"), phone("session-phone", "light")],
        )?;
        tab.eval("changeLayout()");
        self.take(&tab, &[Picture { name: "side-by-side", size: LARGE, scheme: "light" }])?;
        tab.eval("changeLayout()");
        for (name, path) in
            [("inbox", "/inbox"), ("search", "/search?q=rotation"), ("keys", "/keys"), ("list", "/")]
        {
            tab.go_to(&format!("{}{path}", page.origin));
            self.take(&tab, &[wide(name, "light"), phone(phone_name(name), "dark")])?;
        }
        tab.go_to(&format!("{}/s/{}", page.origin, sessions.release));
        tab.wait_for("document.querySelector('#dock .req')");
        self.take(&tab, &[phone("release-phone", "light")])?;
        tab.go_to(&format!("{}/s/{}", page.origin, sessions.failed));
        self.take(
            &tab,
            &[wide("failed", "light"), Picture { name: "failed-narrow", size: NARROW, scheme: "dark" }],
        )?;
        for number in 1..=24 {
            let title =
                format!("Task {number} with a title that is longer than the list at the side of the page");
            page.scenario.run(&["prompt", "--new", "--yes", &title]).success();
        }
        page.scenario.run(&["archive", &sessions.failed]).success();
        tab.go_to(&format!("{}/archived", page.origin));
        self.take(&tab, &[wide("archived", "light")])?;
        tab.go_to(&format!("{}/", page.origin));
        self.take(&tab, &[Picture { name: "many-narrow", size: NARROW, scheme: "light" }])?;
        Ok(ExitCode::SUCCESS)
    }

    fn take(&self, tab: &Tab, pictures: &[Picture]) -> Result<(), Failure> {
        for Picture { name, size, scheme } in pictures {
            tab.resize(size.0, size.1);
            tab.set_media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
            tab.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))");
            let file = self.dir.join(format!("{name}.png"));
            tab.screenshot(&file);
            print(&file)?;
        }
        Ok(())
    }
}

fn phone_name(name: &str) -> &'static str {
    match name {
        "inbox" => "inbox-phone",
        "search" => "search-phone",
        "keys" => "keys-phone",
        _ => "list-phone",
    }
}

fn print(file: &Path) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{}", file.display()).map_err(|error| Failure::writing(&error))
}

/// Plays all stories; some of them wait for a person.
fn play(page: &Page) -> Sessions {
    let scenario = &page.scenario;
    let new = |project: &str, prompt: &str, more: &[&str]| {
        let directory = scenario.path().join("home/src").join(project);
        fs::create_dir_all(&directory).expect("the directory can be created");
        let directory = directory.to_str().expect("its name is text");
        let args = [&["prompt", "--new", "--json", "--cwd", directory], more, &[prompt]].concat();
        let output = scenario.run(&args);
        output.last_json()["sessionId"].as_str().expect("a session has an id").to_owned()
    };
    new("tailfin", "Raise the MSRV to 1.89", &["--yes"]);
    new("tailfin", "Benchmark memchr against std", &["--yes"]);
    new("quorum", "Why is the lease renewed twice?", &["--yes"]);
    let failed = new("courier", story::FAILURE, &["--yes"]);
    new("quorum", story::LONG, &["--no-wait"]);
    let release = new("tailfin", story::RELEASE, &["--no-wait"]);
    new("courier", story::FORM, &["--no-wait"]);
    let rotation = new("tailfin", story::ROTATION, &["--yes"]);
    let fork = scenario.run(&["fork", "--at", "2", &rotation]).success().stdout.trim().to_owned();
    scenario.run(&["title", &fork, "Use inotify instead of polling"]).success();
    scenario.run(&["prompt", "-s", &rotation, "--no-wait", story::WINDOWS]).success();
    Sessions { rotation, release, failed }
}
