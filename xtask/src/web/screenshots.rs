//! `cargo xtask screenshots`: makes pictures of the page.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use parlor_testkit::browser::Tab;

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

/// The ids of the sessions that the pictures show.
struct Sessions {
    rotation: String,
    release: String,
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
            ],
        )?;
        tab.press_key(parlor_testkit::browser::Key::Escape, 0);
        tab.eval("document.querySelector('table.diff:last-of-type')?.scrollIntoView({ block: 'center' })");
        self.take(
            &tab,
            &[wide("session-light", "light"), wide("session-dark", "dark"), phone("session-phone", "light")],
        )?;
        for (name, path) in
            [("inbox", "/inbox"), ("search", "/search?q=rotation"), ("keys", "/keys"), ("list", "/")]
        {
            tab.go_to(&format!("{}{path}", page.origin));
            self.take(&tab, &[wide(name, "light"), phone(phone_name(name), "dark")])?;
        }
        tab.go_to(&format!("{}/s/{}", page.origin, sessions.release));
        tab.wait_for("document.querySelector('#dock .req')");
        self.take(&tab, &[phone("release-phone", "light")])?;
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
    let new = |prompt: &str| {
        let output = scenario.run(&["prompt", "--new", "--no-wait", "--json", prompt]).success();
        output.last_json()["sessionId"].as_str().expect("a session has an id").to_owned()
    };
    for prompt in
        ["Raise the MSRV to 1.89", "Benchmark memchr against std", "Why is the lease renewed twice?"]
    {
        scenario.new_session(prompt);
    }
    scenario.run(&["prompt", "--new", story::FAILURE]).exit_code(1);
    new(story::LONG);
    let release = new(story::RELEASE);
    new(story::FORM);
    let rotation = scenario.new_session(story::ROTATION);
    let fork = scenario.run(&["fork", "--at", "2", &rotation]).success().stdout.trim().to_owned();
    scenario.run(&["title", &fork, "Use inotify instead of polling"]).success();
    scenario.run(&["prompt", "-s", &rotation, "--no-wait", story::WINDOWS]).success();
    Sessions { rotation, release }
}
