//! The form of a new session, and what it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use maud::{Markup, html};
use parlor_client::{Connection, Error, Prompt};
use parlor_json::{JsonRef, Object};
use parlor_server::browsers::SignedIn;
use parlor_server::hub::Hub;

use super::action::Attachment;
use super::hub_client::HubConnector;
use super::prompt;
use super::side::{address, short_path};
use crate::assets::icon;
use crate::render::text::clean_line;

/// An agent that a new session can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentChoiceRow {
    name: String,
    is_default: bool,
    state: AgentState,
}

/// Whether an agent can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentState {
    Installed,
    /// It is known to need a login.
    SignedOut,
    /// It is part of parlor.
    BuiltIn,
    Missing,
}

impl AgentChoiceRow {
    /// The agents of the server.
    pub(super) async fn list(connection: &Connection) -> Result<Vec<Self>, Error> {
        let result = connection.call("_parlor/agents", &Object::default()).await?;
        let agents = result.get_array("agents").unwrap_or_default();
        let mut agents: Vec<Self> = agents.into_iter().filter_map(Self::decode).collect();
        // Those that can be used first, each in the order of the server.
        agents.sort_by_key(|agent| agent.state == AgentState::Missing);
        Ok(agents)
    }

    fn decode(raw: JsonRef<'_>) -> Option<Self> {
        let agent = raw.to_object()?;
        let command = agent.get_array("command").unwrap_or_default();
        let last = command.last().and_then(|word| word.to_text());
        Some(Self {
            name: agent.get_string("name")?,
            is_default: agent.get_bool("default") == Some(true),
            state: if agent.get_bool("installed") == Some(false) {
                AgentState::Missing
            } else if agent.get_bool("loggedIn") == Some(false) {
                AgentState::SignedOut
            } else if last.as_deref() == Some("demo-agent") {
                AgentState::BuiltIn
            } else {
                AgentState::Installed
            },
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a session can have it.
    pub(super) fn is_installed(&self) -> bool {
        self.state != AgentState::Missing
    }

    fn note(&self) -> &'static str {
        match self.state {
            AgentState::Installed => "installed",
            AgentState::SignedOut => "not signed in",
            AgentState::BuiltIn => "built in",
            AgentState::Missing => "not installed",
        }
    }
}

/// The form, with a directory in which a session may begin.
pub(super) fn page(agents: &[AgentChoiceRow], directory: &str, is_first: bool) -> Markup {
    let chosen = agents.iter().position(|agent| agent.is_default);
    let first_in = |state| agents.iter().position(|agent| agent.state == state);
    let chosen = chosen.or_else(|| first_in(AgentState::Installed)).or_else(|| first_in(AgentState::BuiltIn));
    let example = chosen.and_then(|index| agents.get(index)).map_or("claude", |agent| agent.name.as_str());
    html! {
        section aria-labelledby="title" {
            header.bar {
                a.btn.quiet.icon.back href="/" aria-label="Back to sessions" { (icon("back", "")) }
                span.title { "New session" }
            }
            div.scroll id="conversation" tabindex="0" role="region" aria-label="New session" {
                div.page {
                    h1 id="title" { @if is_first { "Start your first session" } @else { "Start a session" } }
                    p { "It goes on when you close this page, and every client that attaches sees the same conversation." }
                    form.start data-do="new" autocomplete="off" {
                        fieldset {
                            legend { "Agent" }
                            div.agents {
                                @for (index, agent) in agents.iter().enumerate() {
                                    label {
                                        input type="radio" name="agent" value=(clean_line(&agent.name)) checked[chosen == Some(index)]
                                            disabled[agent.state == AgentState::Missing] required;
                                        span { (clean_line(&agent.name)) }
                                        small { (agent.note()) }
                                    }
                                }
                            }
                        }
                        div {
                            label.lab for="dir" { "Directory " span.muted { "on the machine of the server" } }
                            input.field.mono id="dir" name="directory" value=(short_path(directory)) list="dirs" required autocomplete="off"
                                spellcheck="false" autocapitalize="off" maxlength="4096";
                            datalist id="dirs" {}
                        }
                        div {
                            label.lab for="fp" { "First prompt" }
                            textarea.field id="fp" name="text" placeholder="What should be done? Paste or drop images and files" {}
                            div.chips id="attached" {}
                            input id="files" type="file" multiple hidden;
                        }
                        div.row {
                            button.btn.quiet.small.icon type="button" data-do="attach" aria-label="Attach files" title="Attach files" {
                                (icon("clip", ""))
                            }
                            span.grow {}
                            button.btn.main type="submit" { "Start " kbd { "↵" } }
                        }
                        p id="new-error" role="alert" {}
                    }
                    @if is_first {
                        h2 { "Or attach something you already use" }
                        div.ways {
                            (way("An editor that speaks ACP", &format!("parlor acp --agent {}", clean_line(example))))
                            (way("A terminal", "parlor prompt --new \"Fix #214\""))
                        }
                    }
                }
            }
        }
    }
}

fn way(text: &str, command: &str) -> Markup {
    html! {
        div {
            p { (text) }
            div.code {
                pre { (command) }
                button.btn.quiet.small.icon type="button" data-do="copy-code" aria-label="Copy code" { (icon("copy", "")) }
            }
        }
    }
}

/// Creates a session with its first prompt, and returns the address of its page; the error is for people.
pub(super) async fn create(
    hub: &Arc<Hub>,
    browser: &SignedIn,
    agent: &str,
    directory: &str,
    text: &str,
    files: &[Attachment],
) -> Result<String, String> {
    let cwd = directory_of(directory).await?;
    let client = HubConnector::driver(browser).with_agent(agent, cwd.clone()).connect(hub).await;
    let client = client.map_err(|error| error.to_string())?;
    // The tab that opens the session is sent its requests.
    let mut requests = client.requests();
    let leaving = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            request.leave_open().await;
        }
    });
    let is_blank = text.trim().is_empty() && files.is_empty();
    let content =
        if is_blank { Ok(None) } else { prompt::content(text, files, &cwd, client.info()).map(Some) };
    let created = async {
        let content = content.map_err(Error::Refused)?;
        let session = client.new_session(&cwd).await?;
        if let Some(content) = content {
            session.prompt(Prompt::blocks(content)).await?;
        }
        Ok::<_, Error>(address(session.id()))
    };
    let created = created.await;
    client.disconnect().await;
    leaving.abort();
    created.map_err(|error| error.to_string())
}

/// The directory that a person typed.
async fn directory_of(typed: &str) -> Result<PathBuf, String> {
    let path =
        expanded(typed.trim()).ok_or_else(|| format!("{typed}: the directory has to begin with / or ~/"))?;
    match tokio::fs::metadata(&path).await {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(format!("{typed} is not a directory")),
        Err(error) => Err(format!("{typed}: {error}")),
    }
}

/// A path with the home directory for `~`; `None` if it is not absolute.
pub(super) fn expanded(typed: &str) -> Option<PathBuf> {
    let path = match typed.strip_prefix('~') {
        Some("") => std::env::home_dir()?,
        Some(inside) => std::env::home_dir()?.join(inside.strip_prefix('/')?),
        None => PathBuf::from(typed),
    };
    path.is_absolute().then_some(path)
}

/// Where a new session begins: where the last one did, else in the home directory.
pub(super) fn first_directory(last: Option<&str>) -> String {
    let last = last.filter(|cwd| Path::new(cwd).is_absolute()).map(str::to_owned);
    last.unwrap_or_else(|| std::env::home_dir().unwrap_or_default().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_a_note_and_the_default_one_is_chosen() {
        let agent =
            |json: &str| AgentChoiceRow::decode(parlor_json::Json::parse(json).unwrap().raw()).unwrap();
        let agents = [
            agent(r#"{"name":"claude","command":["claude-acp"],"installed":true,"loggedIn":false}"#),
            agent(r#"{"name":"<b>","command":["x"],"installed":false}"#),
            agent(
                r#"{"name":"demo","command":["/usr/bin/parlor","demo-agent"],"default":true,"installed":true}"#,
            ),
        ];
        assert_eq!(
            agents.each_ref().map(AgentChoiceRow::note),
            ["not signed in", "not installed", "built in"]
        );
        let html = page(&agents, "/w", true).into_string();
        assert!(html.contains("value=\"demo\" checked") && html.contains("&lt;b&gt;"), "{html}");
        assert!(html.contains("parlor acp --agent demo"), "{html}");
        let html = page(&agents[..2], "/w", false).into_string();
        assert!(!html.contains(" checked") && !html.contains("parlor acp"), "{html}");
    }

    #[test]
    fn a_directory_is_absolute_or_in_the_home_directory() {
        let home = std::env::home_dir().unwrap();
        assert_eq!(expanded("~"), Some(home.clone()));
        assert_eq!(expanded("~/src"), Some(home.join("src")));
        assert_eq!(expanded("/tmp"), Some(PathBuf::from("/tmp")));
        for bad in ["", "src", "./src", "~root", "~root/x"] {
            assert_eq!(expanded(bad), None, "{bad}");
        }
    }
}
