//! One agent with all kinds of clients: those of the SDK and of parlor, in both versions, and a server that has it as one of
//! its agents. All get the same transcript of one session.

use std::path::Path;

use parlor_client::{
    Client, Connector, Hello, PermissionOptionKind, Session, SessionId, Version as ClientVersion,
};
use parlor_testkit::programs::example;
use parlor_testkit::wait::within_timeout;
use tempfile::TempDir;

use crate::client_view::ClientView;
use crate::sdk_client::{SdkClientRun, VERSIONS};
use crate::start_server;

/// Attaches to a session with `parlor-client`, sends the prompt, if there is one, and disconnects.
async fn join(client: Client, session: &str, cwd: &Path, prompt: Option<&str>) -> ClientView {
    let mut requests = client.requests();
    let allow = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let choice = request
                .options()
                .into_iter()
                .find(|choice| choice.kind == PermissionOptionKind::AllowOnce)
                .unwrap();
            request.select(&choice).await;
        }
    });
    let session: Session = within_timeout(client.load(&SessionId::from(session), cwd)).await.unwrap();
    if let Some(prompt) = prompt {
        let turn = within_timeout(session.prompt(prompt)).await.unwrap();
        within_timeout(turn.outcome()).await.unwrap();
    }
    let view = ClientView::of(&session.transcript());
    client.disconnect().await;
    allow.await.unwrap();
    view
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_clients_have_the_same_transcript() {
    let dir = TempDir::new().unwrap();
    let agent = [example("worker"), dir.path().join("sessions.db").to_str().unwrap().to_owned()];
    let connector = Connector::new("story", "1");
    let own = async |version| {
        within_timeout(connector.clone().only(version).spawn(&agent[0], &agent[1..])).await.unwrap()
    };

    // Each client sends a prompt, one after the other, and gets the messages of the earlier ones.
    let begin = SdkClientRun { agent: &agent, cwd: dir.path(), session: None, prompts: &["First"] };
    let (session, _) = begin.by(VERSIONS[0]).await;
    let client_run = SdkClientRun { session: Some(&session), prompts: &["Second"], ..begin };
    client_run.by(VERSIONS[1]).await;
    for (version, prompt) in [(ClientVersion::V1, "Third"), (ClientVersion::V2, "Fourth")] {
        join(own(version).await, &session, dir.path(), Some(prompt)).await;
    }
    // The server does not have the session, but its agent does.
    let mut server = start_server("worker", &agent);
    let (client, _) = within_timeout(connector.socket(&server.socket(), &Hello::new())).await.unwrap();
    let behind = join(client, &session, dir.path(), Some("Fifth")).await;
    // Its agent exits with it: one process at a time can open the file with the sessions.
    assert!(server.stop().success());

    let look = SdkClientRun { session: Some(&session), prompts: &[], ..begin };
    let (_, expected) = look.by(VERSIONS[1]).await;
    let notes = ["First", "Second", "Third", "Fourth", "Fifth"];
    let answers = (1..).map(|number| format!("That was note {number}."));
    let messages: Vec<_> = notes.iter().zip(answers).collect();
    let messages: Vec<_> = messages
        .iter()
        .flat_map(|(note, answer)| {
            [
                ("user", **note),
                ("thought", "That is worth a note."),
                ("agent", "I will write that down."),
                ("agent", answer.as_str()),
            ]
        })
        .collect();
    assert_eq!(expected.messages(), messages);
    assert_eq!(expected.title.as_deref(), Some("Notes: First"));
    assert_eq!(expected.tools.len(), 5);

    assert_eq!(look.by(VERSIONS[0]).await.1, expected, "the SDK's client of version 1");
    for version in [ClientVersion::V1, ClientVersion::V2] {
        let view = join(own(version).await, &session, dir.path(), None).await;
        assert_eq!(view, expected, "parlor's client, {version:?}");
    }
    assert_eq!(behind, expected, "behind a server");
}
