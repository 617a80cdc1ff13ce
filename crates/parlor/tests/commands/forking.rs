//! `fork`, `edit`, `regenerate` and `ls --tree`.

use serde_json::{Value, json};

use crate::place::Place;

/// A session of two turns: its id and those of its messages.
fn begin(place: &Place) -> (String, Vec<String>) {
    let session = place.begin("say One.");
    place.run(&["prompt", &session, "say Two."]).done();
    let shown = place.run(&["show", &session, "--json"]).done().json();
    let messages = shown["messages"].as_array().unwrap();
    (session, messages.iter().map(|message| message["messageId"].as_str().unwrap().to_owned()).collect())
}

fn texts(place: &Place, session: &str) -> Vec<String> {
    let shown = place.run(&["show", session, "--json"]).done().json();
    let text = |message: &Value| -> String {
        let blocks = message["content"].as_array().unwrap();
        blocks.iter().map(|block| block["text"].as_str().unwrap()).collect()
    };
    shown["messages"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn the_beginning_of_an_id_names_a_prompt_to_edit_whatever_other_messages_are_called() {
    let place = Place::served();
    let (mut session, mut messages) = begin(&place);
    // Ids are random: until an answer begins as the first prompt does.
    while !messages[1..].iter().any(|id| id[..1] == messages[0][..1]) || messages[2][..1] == messages[0][..1]
    {
        (session, messages) = begin(&place);
    }
    place.run(&["edit", &session, &messages[0][..1], "say Else."]).done();
    assert_eq!(texts(&place, "latest"), ["say Else.", "Else."]);
    // What a prompt and its answer are called has nothing in common.
    let same = messages[0].chars().zip(messages[1].chars()).take_while(|(a, b)| a == b).count();
    assert!(same < 8, "{messages:?}");
}

#[test]
fn a_session_goes_on_from_a_message() {
    let place = Place::served();
    let (session, messages) = begin(&place);
    let forked = place.run(&["fork", &session, "--at", &messages[1]]).done().plain();
    let id = forked.out.trim_end().to_owned();
    assert_eq!(texts(&place, &id), ["say One.", "One."]);
    assert_eq!(place.run(&["prompt", &id, "say Else."]).done().out, "Else.\n");

    let forked = place.run(&["fork", &session, "--json"]).done().json();
    assert_eq!((&forked["parent"], &forked["messageId"]), (&json!(session), &json!(null)));
    assert!(["native", "transcript"].contains(&forked["fork"].as_str().unwrap()), "{forked}");
    assert_eq!(texts(&place, forked["sessionId"].as_str().unwrap()).len(), 4);
    assert_eq!(texts(&place, &session).len(), 4);
}

#[test]
fn a_prompt_is_said_in_another_way_or_again() {
    let mut place = Place::served();
    let (session, messages) = begin(&place);
    let said = place.run(&["edit", &session, &messages[2], "say Instead."]).done();
    assert_eq!(said.out, "Instead.\n");
    let id = said.err.trim_end().strip_prefix("session ").unwrap().to_owned();
    assert_eq!(texts(&place, &id), ["say One.", "One.", "say Instead.", "Instead."]);

    let said = place.run_with(&["edit", &session, &messages[0], "-", "--json"], "say First.").done().json();
    assert_eq!((&said["text"], &said["stopReason"]), (&json!("First."), &json!("end_turn")));
    assert_eq!(texts(&place, said["sessionId"].as_str().unwrap()), ["say First.", "First."]);

    // Without a server one is started.
    place.stop();
    assert_eq!(place.run(&["regenerate", &session]).done().out, "Two.\n");
    assert_eq!(place.run(&["regenerate", &session, &messages[1]]).done().out, "One.\n");
    assert_eq!(texts(&place, &session).len(), 4);
}

#[test]
fn what_is_not_there_cannot_be_forked() {
    let place = Place::served();
    let (session, messages) = begin(&place);
    let said = place.run(&["fork", &session, "--at", "nothing"]).ended(1);
    assert!(said.err.contains("no such message"), "{said:#?}");
    let said = place.run(&["edit", &session, &messages[1], "x"]).ended(1);
    assert!(said.err.contains("only what a person said"), "{said:#?}");
    place.run(&["fork", "nothing"]).ended(2);
    assert!(place.run(&["edit", &session, &messages[0], " "]).ended(2).err.contains("nothing to say"));
    let none = place.run(&["ls", "--json"]).done().json();
    assert_eq!(none.as_array().unwrap().len(), 1);
}

#[test]
fn forks_stand_below_their_session() {
    let place = Place::served();
    let (session, messages) = begin(&place);
    let fork = |of: &str, at: &str| place.run(&["fork", of, "--at", at]).done().out.trim_end().to_owned();
    let first = fork(&session, &messages[3]);
    let second = fork(&first, &messages[2]);
    let third = fork(&session, &messages[1]);
    let listed = place.run(&["ls", "--tree", "--json"]).done().json();
    let ids: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["sessionId"].as_str().unwrap()).collect();
    assert_eq!(ids, [&session, &third, &first, &second]);
    assert_eq!(listed[1]["parent"], json!(session));
    assert_eq!(listed[1]["forkedAt"], json!(messages[1]));
    let said = place.run(&["ls", "--tree"]).done().plain();
    let marks = |mark: &str| said.out.lines().filter(|line| line.contains(mark)).count();
    assert_eq!((marks("├─ "), marks("  └─ "), marks("└─ ")), (1, 2, 2), "{}", said.out);

    // One whose session is gone stands by itself.
    place.run(&["rm", "--yes", &session]).done();
    let listed = place.run(&["ls", "--tree"]).done().out;
    assert_eq!(listed.lines().filter(|line| line.contains("─ ")).count(), 1, "{listed}");
}
