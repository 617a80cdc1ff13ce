//! A full disk: all clients get errors, nothing is accepted that is not stored, and the server continues.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use parlor_client::{Activity, Error, SessionId};

use crate::client::{Client, Message, Snapshot, agent_text, reason};
use crate::server::{PARLOR, connect, limit_files, wait_for_no_agent, with_test_agent};

fn assert_kept(before: &Snapshot, after: &Snapshot) {
    for message in &before.messages {
        let stored = after.message(&message.id).unwrap_or_else(|| panic!("{} is missing", message.id));
        assert!(stored.text.starts_with(&message.text), "{} has lost of its text", message.id);
    }
}

fn say(client: &Client, text: &str) {
    assert_eq!(reason(&client.turn(&format!("say {text}"))), "end_turn");
    assert!(client.agent_text().ends_with(text));
}

fn until_told(client: &Client) {
    let state = client.until_idle();
    assert_eq!(reason(&state), "error");
    let error = state.fields.get("error").unwrap();
    let error = error.as_str();
    assert!(error.contains("cannot be stored") && error.contains("the disk is full"), "{error}");
}

fn is_about_the_store(error: &Error) {
    assert!(matches!(error, Error::Rpc(error) if error.message().contains("stored")), "{error}");
}

/// Attaches to an idle session, and checks that it has everything that a client received before.
fn find_again(client: &mut Client, session: &SessionId, before: &Snapshot) {
    client.join(session);
    let after = client.snapshot();
    assert!(after.is(&Activity::Idle));
    assert_kept(before, &after);
    let is_rejected = |message: &Message| message.text.contains("this must be rejected");
    assert!(!after.messages.iter().any(is_rejected), "what was refused is not there");
}

#[test]
fn a_full_disk_is_reported_to_all_clients_and_loses_no_delivered_update() {
    let dir = with_test_agent("");
    // Its standard error goes to the same disk, as with a service that writes it to a file.
    let mut stderr = File::create(dir.path().join("stderr.log")).unwrap();
    stderr.write_all(&[b'\n'; 1024]).unwrap();
    let mut command = Command::new(PARLOR);
    command.stderr(stderr);
    let mut server = dir.serve_with(command);
    let mut alice = connect(&server);
    let session = alice.new_session().unwrap();
    let mut bob = connect(&server);
    bob.join(&session);
    let mut carol = connect(&server);
    let others = carol.new_session().unwrap();
    say(&carol, "of another session");
    say(&alice, "before");

    alice.prompt("stream 1000000 40 20000").unwrap();
    for client in [&alice, &bob] {
        client.until(|transcript| agent_text(transcript).len() > 4000);
    }
    limit_files(&server, Some(512));
    until_told(&alice);
    until_told(&bob);

    // The disk is full: no session accepts anything, and every request still gets a response.
    for client in [&alice, &bob, &carol] {
        is_about_the_store(&client.prompt("say this must be rejected").unwrap_err());
        assert!(!client.agent_text().contains("this must be rejected"));
        assert_eq!(client.count(), "3", "all are still connected");
    }
    is_about_the_store(&alice.new_session().unwrap_err());
    let mut dave = connect(&server);
    assert_eq!(dave.list().len(), 2);

    // There is space again, for this server and for the next one.
    limit_files(&server, None);
    find_again(&mut dave, &session, &bob.snapshot());
    assert_eq!(reason(&dave.snapshot().state.unwrap()), "error", "the turn did not end well");
    say(&dave, "there is room again");
    find_again(&mut dave, &others, &carol.snapshot());
    server.kill();
    let mut server = dir.serve();
    let mut erin = connect(&server);
    find_again(&mut erin, &session, &alice.snapshot());
    say(&erin, "and here as well");
    assert!(server.stop().success());
    wait_for_no_agent(&dir);
}
