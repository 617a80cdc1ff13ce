//! A disk without room: everybody is told, nothing is accepted that is not stored, and the server goes on.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::{Client, Shown};
use crate::server::{PARLOR, Place, Server};

/// A server that takes a file that may grow no further for an error, as on a full disk, and not for a signal to end.
fn serve(place: &Place) -> Server {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", PARLOR]);
    place.serve_with(&mut shell)
}

fn assert_kept(before: &Shown, after: &Shown) {
    for message in &before.messages {
        let kept = after.message(&message.id).unwrap_or_else(|| panic!("{} is missing", message.id));
        assert!(kept.text.starts_with(&message.text), "{} has lost of its text", message.id);
    }
}

fn say(client: &mut Client, session: &str, text: &str) {
    let prompt = client.prompt(session, &format!("say {text}"));
    client.answer(prompt).unwrap();
    client.until(|shown| shown.said().ends_with(text));
    assert_eq!(client.until_idle(), "end_turn");
}

fn until_told(client: &mut Client) {
    assert_eq!(client.until_idle(), "error");
    let error = client.shown.state["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("cannot be stored"), "{}", client.shown.state);
}

fn is_about_the_store(error: &Value) {
    assert!(error["message"].as_str().unwrap().contains("stored"), "{error}");
}

/// Resumes a session in which nothing goes on, and finds all that somebody was shown of it before.
fn find_again(client: &mut Client, session: &str, before: &Shown) {
    let answer = client.resume(session).unwrap();
    assert_eq!(answer["_meta"]["parlor/state"], "idle");
    assert_kept(before, &client.shown);
    let is_unheard = |message: &crate::client::Message| message.text.contains("nobody may hear this");
    assert!(!client.shown.messages.iter().any(is_unheard), "what was refused is not there");
}

#[test]
fn a_full_disk_is_told_to_all_and_takes_nothing_that_was_shown() {
    let place = Place::new().test_agent("");
    let server = serve(&place);
    let mut alice = server.client();
    let session = alice.new_session().unwrap();
    let mut bob = server.client();
    bob.resume(&session).unwrap();
    let mut carol = server.client();
    let others = carol.new_session().unwrap();
    say(&mut carol, &others, "of another session");
    say(&mut alice, &session, "before");

    let prompt = alice.prompt(&session, "stream 1000000 40 20000");
    alice.answer(prompt).unwrap();
    for client in [&mut alice, &mut bob] {
        client.until(|shown| shown.said().len() > 4000);
    }
    server.limit_files(Some(512));
    until_told(&mut alice);
    until_told(&mut bob);

    // There is no room: nothing is accepted, in no session, and each request has an answer all the same.
    for (client, session) in [(&mut alice, &session), (&mut bob, &session), (&mut carol, &others)] {
        let refused = client.prompt(session, "say nobody may hear this");
        is_about_the_store(&client.answer(refused).unwrap_err());
        assert!(!client.shown.said().contains("nobody may hear this"));
        let status = client.call("_parlor/status", &json!({})).unwrap();
        assert_eq!(status["clients"], 3, "all are still connected");
    }
    is_about_the_store(&alice.new_session().unwrap_err());
    let mut dave = server.client();
    let list = dave.call("session/list", &json!({})).unwrap();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);

    // There is room again, with this server and with the next one.
    server.limit_files(None);
    find_again(&mut dave, &session, &bob.shown);
    assert_eq!(dave.shown.state["stopReason"], "error", "the turn did not end well");
    say(&mut dave, &session, "there is room again");
    find_again(&mut dave, &others, &carol.shown);
    server.kill();
    let server = place.serve();
    let mut erin = server.client();
    find_again(&mut erin, &session, &alice.shown);
    say(&mut erin, &session, "and here as well");
    server.stop();
    place.wait_for_no_agent();
}
