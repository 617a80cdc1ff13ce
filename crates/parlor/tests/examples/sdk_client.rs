//! A client made with the SDK.

mod v1;
mod v2;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::Result;
use parlor_testkit::wait::within_timeout;

use crate::client_view::ClientView;
use crate::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

pub(crate) const VERSIONS: [Version; 2] = [Version::One, Version::Two];

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SdkClientRun<'a> {
    /// The command of the agent.
    pub(crate) agent: &'a [String],
    /// The working directory of the session.
    pub(crate) cwd: &'a Path,
    /// The session to attach to; `None` for a new one.
    pub(crate) session: Option<&'a str>,
    /// The prompts, each sent after the end of the turn before.
    pub(crate) prompts: &'a [&'a str],
}

/// The same, owned by a task.
struct Plan {
    cwd: String,
    session: Option<String>,
    prompts: Vec<String>,
}

/// The shared view of a client.
type SharedView = Arc<Mutex<ClientView>>;

impl SdkClientRun<'_> {
    /// Starts the agent, runs the client, and returns the session and what the client has received. The SDK must have
    /// accepted everything that it received.
    pub(crate) async fn by(self, version: Version) -> (String, ClientView) {
        let (wire, mut agent) = wire::start(self.agent, self.cwd);
        let plan = Plan {
            cwd: self.cwd.to_str().unwrap().to_owned(),
            session: self.session.map(str::to_owned),
            prompts: self.prompts.iter().map(|&text| text.to_owned()).collect(),
        };
        let view = SharedView::default();
        let shown = Arc::clone(&view);
        let client_run = async {
            let session: Result<String> = match version {
                Version::One => v1::client_run(wire, plan, shown).await,
                Version::Two => v2::client_run(wire, plan, shown).await,
            };
            // The agent exits at the end of its input, after it has stored its sessions.
            let status = agent.wait().await.unwrap();
            assert!(status.success(), "{status}");
            session.unwrap()
        };
        let session = within_timeout(client_run).await;
        let view = view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (session, view)
    }
}

fn show<T>(show: &SharedView, change: impl FnOnce(&mut ClientView) -> T) -> T {
    change(&mut show.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The JSON name of a value.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or_default().to_owned()
}

/// Updates the title and the status of a tool call.
fn tool(
    view: &mut ClientView,
    ids: &mut Vec<String>,
    id: String,
    title: Option<String>,
    status: Option<String>,
) {
    let index = ids.iter().position(|it| *it == id).unwrap_or_else(|| {
        ids.push(id);
        view.tools.push(Default::default());
        ids.len() - 1
    });
    let call = &mut view.tools[index];
    call.0 = title.unwrap_or_else(|| std::mem::take(&mut call.0));
    call.1 = status.unwrap_or_else(|| std::mem::take(&mut call.1));
}
