//! How tabs connect, and connect again.

use serde_json::json;

use super::tab::{Browser, entry_ids};
use super::{new_session, start_server};

#[test]
fn a_socket_needs_a_ticket_of_the_same_browser_and_the_own_origin() {
    let server = start_server();
    let browser = Browser::sign_in(&server, false);
    let other = Browser::sign_in(&server, false);
    let origin = browser.origin();
    assert_eq!(browser.socket("", &origin).err(), Some(403));
    assert_eq!(browser.socket("?ticket=x", &origin).err(), Some(403));
    let ticket = format!("?ticket={}", browser.ticket());
    assert_eq!(browser.socket(&ticket, "http://localhost:3000").err(), Some(403));
    assert!(browser.socket(&ticket, &origin).is_ok());
    assert_eq!(browser.socket(&ticket, &origin).err(), Some(403), "a ticket works once");
    let foreign = format!("?ticket={}", other.ticket());
    assert_eq!(browser.socket(&foreign, &origin).err(), Some(403));
}

#[test]
fn streamed_text_grows_in_two_tabs() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let (mut one, mut two) = (browser.show(&session), browser.show(&session));
    one.prompt("say first\nsay second");
    for tab in [&mut one, &mut two] {
        tab.wait_for("put", |patch| patch["html"].as_str().unwrap().contains("say first"));
        tab.wait_for_text("second");
        tab.wait_for_idle();
    }
    assert_eq!(one.revision, two.revision);
}

#[test]
fn a_tab_that_connects_again_gets_only_what_changed() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut watching = browser.show(&session);
    let lost = browser.show(&session);
    let (epoch, revision) = (lost.epoch.clone(), lost.revision);
    drop(lost);
    watching.prompt("say news");
    watching.wait_for_text("news");
    watching.wait_for_idle();
    let mut again = browser.connect();
    again.send(&json!({ "do": "show", "session": session, "epoch": epoch, "revision": revision }));
    again.wait_for_text("news");
    assert!(again.patches.iter().all(|(kind, _)| kind != "tail"), "{:?}", again.patches);
    assert_eq!(again.revision, watching.revision);
    // Nothing is left to send now.
    let mut same = browser.connect();
    same.send(&json!({ "do": "show", "session": session, "epoch": epoch, "revision": again.revision }));
    same.wait_for("replace", |patch| patch["id"] == "details-body");
    assert!(same.patches.iter().all(|(kind, _)| kind != "put" && kind != "tail"), "{:?}", same.patches);
}

#[test]
fn after_a_restart_of_the_server_entries_have_the_same_elements() {
    let mut server = start_server();
    let session = new_session(&server, "say hello\ntool Edit it\nplan A;B");
    let browser = Browser::sign_in(&server, false);
    let (status, _, page) = browser.get(&format!("/s/{session}"));
    assert_eq!(status, 200);
    let before = entry_ids(&page);
    assert!(before.len() >= 4, "{before:?}");
    let mut tab = browser.show(&session);
    server.restart();
    tab.wait_for_close();
    let mut tab = browser.at(&server).connect();
    let (epoch, revision) = ("another".to_owned(), 9_u64);
    tab.send(&json!({ "do": "show", "session": session, "epoch": epoch, "revision": revision }));
    let tail = tab.wait_for("tail", |_| true);
    assert_eq!(entry_ids(tail["html"].as_str().unwrap()), before);
}

#[test]
fn older_entries_are_read_page_by_page_and_found_by_their_elements() {
    let server = start_server();
    let prompts: Vec<String> = (0..130).map(|number| format!("two number {number}")).collect();
    let session = new_session(&server, &prompts.join("\n"));
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.connect();
    tab.send(&json!({ "do": "show", "session": session }));
    let tail = tab.wait_for("tail", |_| true);
    let mut all = entry_ids(tail["html"].as_str().unwrap());
    let mut before = tail["before"].as_str().map(str::to_owned);
    let mut pages = 0;
    while let Some(cursor) = before {
        tab.send(&json!({ "do": "older", "before": cursor }));
        let page = tab.wait_for("page", |page| page["key"] == cursor);
        let mut ids = entry_ids(page["html"].as_str().unwrap());
        ids.extend(all);
        all = ids;
        before = page["before"].as_str().map(str::to_owned);
        pages += 1;
    }
    // The prompt and two messages of each line.
    assert_eq!(all.len(), 261);
    assert!(pages >= 2, "{pages}");
    let mut unique = all.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), all.len(), "no entry is sent twice");
    // The first entry is in the last page; the pages between it and the latest entries have keys.
    tab.send(&json!({ "do": "find", "message": all[0] }));
    let found = tab.wait_for("page", |page| page["below"].is_array());
    assert_eq!(found["below"].as_array().unwrap().len(), pages - 1);
    assert_eq!(entry_ids(found["html"].as_str().unwrap())[0], all[0]);
    // Entries that the tab removed at the end are read again.
    tab.send(&json!({ "do": "newer", "after": all[200] }));
    let newer = tab.wait_for("page", |page| page["key"].as_str().unwrap().starts_with("after:"));
    assert_eq!(entry_ids(newer["html"].as_str().unwrap()), all[201..]);
    assert_eq!(newer["is_last"], true);
    // What answers a request for a page has its key, also if there is none.
    tab.send(&json!({ "do": "older", "before": "c:x:y" }));
    tab.wait_for("no_page", |none| none["key"] == "c:x:y" && none["text"] == "The cursor is unknown.");
    tab.send(&json!({ "do": "find", "message": "m-missing" }));
    tab.wait_for("no_page", |none| none["key"] == "find");
}

#[test]
fn a_tab_that_does_not_read_gets_the_difference_later() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut slow = browser.show(&session);
    let mut fast = browser.show(&session);
    // Each message of the stream changes a long block, so that many bytes wait for the slow tab.
    fast.prompt("stream 2000 400 400\nsay the end");
    fast.wait_for_text("the end");
    fast.wait_for_idle();
    slow.wait_for_text("the end");
    slow.wait_for_idle();
    assert_eq!(slow.revision, fast.revision);
}

#[test]
fn bad_messages_are_answered_and_the_tab_stays() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    for text in ["", "[]", r#"{"do":"fly"}"#, r#"{"do":"older"}"#, r#"{"do":"fork","message":"x"}"#] {
        tab.send_text(text);
        tab.wait_for("error", |_| true);
    }
    let long = "x".repeat(5 << 20);
    tab.send(&json!({ "do": "prompt", "key": "k", "text": long }));
    let error = tab.wait_for("error", |_| true);
    assert_eq!(error, "The text is longer than 4 MB.");
    tab.prompt("say still here");
    tab.wait_for_text("still here");
}

#[test]
fn a_session_that_does_not_exist_leads_to_the_list() {
    let server = start_server();
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.connect();
    tab.send(&json!({ "do": "show", "session": "nothing" }));
    assert_eq!(tab.wait_for("go", |_| true), "/");
    assert_eq!(browser.get("/s/nothing").0, 404);
}
