//! Somebody with a client that was made with the SDK.

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

/// What somebody comes for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SdkClientRun<'a> {
    /// How the agent is started.
    pub(crate) agent: &'a [String],
    /// Where the session works.
    pub(crate) cwd: &'a Path,
    /// The session that is joined; else a new one is begun.
    pub(crate) session: Option<&'a str>,
    /// What is said in it, each when the one before is done with.
    pub(crate) prompts: &'a [&'a str],
}

/// What is to be done, for a task of its own.
struct Plan {
    cwd: String,
    session: Option<String>,
    prompts: Vec<String>,
}

/// What was seen, for who shows it.
type SharedView = Arc<Mutex<ClientView>>;

impl SdkClientRun<'_> {
    /// Starts the agent, does it all, and says which session it was and what there was to see in the end. The SDK must
    /// not have found fault with anything that it was sent.
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
            // The agent has no more to do when nobody speaks to it, and leaves its sessions in order.
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

/// The name that JSON has for a value.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or_default().to_owned()
}

/// The last status of the tool call of this number.
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
