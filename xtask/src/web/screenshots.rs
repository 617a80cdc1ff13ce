//! `cargo xtask screenshots`: makes pictures of the page.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use parlor_client::{Connector, Hello};
use parlor_testkit::browser::{Browser, Key, Tab};
use parlor_testkit::scenario::Scenario;

use super::{Page, past, story};
use crate::failure::Failure;

/// Make pictures of the page with Chromium: wide and narrow, light and dark
///
/// An agent that plays fixed stories fills the sessions, so that pictures differ only if the page does.
#[derive(Args)]
pub(crate) struct Screenshots {
    /// Write them to this directory
    #[arg(value_name = "DIR", default_value = "target/screenshots")]
    dir: PathBuf,
    /// Be the agent of the pictures, which stores its sessions in this file
    #[arg(long, hide = true, value_name = "FILE")]
    agent: Option<PathBuf>,
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
        if let Some(file) = &self.agent {
            return story::run(file);
        }
        fs::create_dir_all(&self.dir).map_err(Failure::failed)?;
        let empty = super::scenario()?;
        let agents = agents(&empty)?;
        self.take_of_first_start(&Page::start_in(empty, &texts(&agents)))?;
        let mut scenario = super::scenario()?;
        let agents = self::agents(&scenario)?;
        let agents = texts(&agents);
        let rotation = past::play(&mut scenario, &agents)?;
        let page = Page::start_in(scenario, &agents);
        let sessions = play(&page, rotation);
        let _others = Others::attach(&page, &sessions.rotation)?;
        let tab = page.open(&format!("/s/{}", sessions.rotation));
        tab.wait_for("document.querySelector('#dock .req') && document.querySelectorAll('#details dt [data-browser]').length === 2");
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
        page.scenario.run(&["prompt", "-s", &sessions.rotation, "--no-wait", story::QUEUED]).success();
        tab.wait_for("document.querySelector('#queue .queued')");
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

    /// A server without sessions, and a browser that is not signed in.
    fn take_of_first_start(&self, page: &Page) -> Result<(), Failure> {
        let tab = page.open("/new");
        self.take(&tab, &[Picture { name: "first-start", size: WIDE, scheme: "light" }])?;
        let stranger = Browser::start();
        let tab = stranger.open(&format!("{}/", page.origin));
        self.take(
            &tab,
            &[
                Picture { name: "sign-in", size: WIDE, scheme: "light" },
                Picture { name: "sign-in-phone", size: PHONE, scheme: "dark" },
            ],
        )
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

/// The arguments of a server with the agents of the pictures.
fn agents(scenario: &Scenario) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let agent = |name: &str| {
        let file = scenario.path().join(name);
        format!("{name}={} screenshots --agent {}", program.display(), file.display())
    };
    let names = ["claude", "codex", "gemini", "opencode"];
    Ok(names.iter().flat_map(|name| ["--agent".to_owned(), agent(name)]).collect())
}

fn texts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
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

/// Continues the story of an earlier session, and plays others that wait for a person or run.
fn play(page: &Page, rotation: String) -> Sessions {
    let scenario = &page.scenario;
    let new = |project: &str, agent: &str, prompt: &str| {
        let directory = past::project(scenario, project);
        let args = ["prompt", "--new", "--json", "--no-wait", "--agent", agent, "--cwd", &directory, prompt];
        scenario.run(&args).last_json()["sessionId"].as_str().expect("a session has an id").to_owned()
    };
    new("dev/quorum", "opencode", story::LONG);
    new("dev/courier", "gemini", story::FORM);
    let release = new("src/tailfin", "claude", story::RELEASE);
    scenario.run(&["prompt", "-s", &rotation, "--no-wait", story::WINDOWS]).success();
    let failed = scenario.run(&["ls", "--json"]).success().json();
    let failed = failed.as_array().into_iter().flatten().find(|row| row["title"] == story::FAILED_TITLE);
    let failed = failed.and_then(|row| row["sessionId"].as_str()).expect("its story was played").to_owned();
    Sessions { rotation, release, failed }
}

/// An editor and a phone that show a session as well.
struct Others {
    _runtime: tokio::runtime::Runtime,
    _editor: parlor_client::Session,
    _phone: (Tab, Browser),
}

impl Others {
    fn attach(page: &Page, session: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Runtime::new().map_err(Failure::failed)?;
        let editor = runtime.block_on(async {
            let connector = Connector::new("Zed", "1.0.0");
            let (client, _) = connector.socket(&page.scenario.socket(), &Hello::new()).await?;
            let mut requests = client.requests();
            tokio::spawn(async move {
                // Dropping a request would decline it.
                while let Some(mut request) = requests.next().await {
                    tokio::spawn(async move { request.cancelled().await });
                }
            });
            client.join(&session.into(), page.scenario.path()).await
        });
        let link = page.scenario.run(&["open", "--print", "--observe"]).success().stdout;
        let phone = Browser::start();
        let tab = phone.open("about:blank");
        tab.set_user_agent(
            "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/150.0.0.0 Mobile Safari/537.36",
        );
        tab.go_to(link.trim());
        tab.go_to(&format!("{}/s/{session}", page.origin));
        tab.wait_for("socket?.readyState === 1");
        Ok(Self { _runtime: runtime, _editor: editor.map_err(Failure::failed)?, _phone: (tab, phone) })
    }
}
