//! What people do in tabs.

use parlor_dialect::Dialect;
use parlor_testkit::server::TestDir;
use parlor_testkit::transport::TransportKind;
use parlor_testkit::wait::wait_until;
use serde_json::json;

use super::tab::{Browser, attribute, entry_ids};
use super::{PARLOR, new_session, start_server};

#[test]
fn a_prompt_during_a_turn_is_queued_in_all_tabs_and_can_be_withdrawn() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let (mut one, mut two) = (browser.show(&session), browser.show(&session));
    one.prompt("sleep 60000");
    one.wait_for_region("composer-bar", |html| html.contains("data-do=\"stop\""));
    two.prompt("say later");
    let queue = one.wait_for_region("queue", |html| html.contains("say later"));
    two.wait_for_region("queue", |html| html.contains("say later"));
    one.send(&json!({ "do": "withdraw", "id": attribute(&queue, "data-id") }));
    two.wait_for_region("queue", |html| !html.contains("say later"));
    // The tab that sent it gets the text back.
    two.wait_for("unsent", |_| true);
    one.send(&json!({ "do": "stop" }));
    one.wait_for_text("Turn cancelled");
    one.wait_for_idle();
}

#[test]
fn a_prompt_that_is_sent_again_is_accepted_once() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    for _ in 0..2 {
        tab.send(&json!({ "do": "prompt", "key": "same", "text": "say only once" }));
        tab.wait_for("sent", |sent| sent["key"] == "same");
    }
    tab.wait_for_text("<p>only once");
    tab.wait_for_idle();
    let (_, _, page) = browser.get(&format!("/s/{session}"));
    assert_eq!(page.matches("say only once").count(), 1);
}

#[test]
fn a_request_that_is_answered_in_one_tab_disappears_in_the_other() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let (mut one, mut two) = (browser.show(&session), browser.show(&session));
    one.prompt("ask Delete the build");
    let card = one.wait_for_region("request", |html| html.contains("Delete the build"));
    two.wait_for_region("request", |html| html.contains("Delete the build"));
    let answer = json!({
        "do": "answer", "request": attribute(&card, "data-request"), "opened": attribute(&card, "data-opened"),
        "option": attribute(&card, "data-option"),
    });
    two.send(&answer);
    for tab in [&mut one, &mut two] {
        tab.wait_for_region("request", |html| !html.contains("Delete the build"));
        tab.wait_for_idle();
    }
    one.send(&answer);
    one.wait_for("note", |note| note.as_str().unwrap().contains("already"));
}

#[test]
fn a_form_is_answered_with_its_values() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    tab.prompt("elicit");
    let card = tab.wait_for_region("request", |html| html.contains("<form"));
    let mut answer = json!({
        "do": "answer", "request": attribute(&card, "data-request"), "opened": attribute(&card, "data-opened"),
    });
    tab.send(&answer);
    let error = tab.wait_for("error", |_| true);
    assert!(error.as_str().unwrap().contains("required"), "{error}");
    let (_, field) = card.split_once("<input").unwrap();
    answer[attribute(field, "name")] = json!("Ada");
    tab.send(&answer);
    tab.wait_for_text("Ada");
    tab.wait_for_idle();
}

#[test]
fn an_observer_sees_everything_and_changes_nothing() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let driver = Browser::sign_in(&server, false);
    let observer = Browser::sign_in(&server, true);
    let (status, _, page) = observer.get(&format!("/s/{session}"));
    assert_eq!(status, 200);
    assert!(!page.contains("data-do=\"prompt\"") && page.contains("You watch this session"));
    let (mut watching, mut acting) = (observer.show(&session), driver.show(&session));
    for action in [
        json!({ "do": "prompt", "key": "k", "text": "say no" }),
        json!({ "do": "stop" }),
        json!({ "do": "fork" }),
        json!({ "do": "delete" }),
        json!({ "do": "rename", "title": "x" }),
        json!({ "do": "answer", "request": "r1" }),
        json!({ "do": "new", "agent": "demo", "directory": "/", "text": "" }),
        json!({ "do": "complete", "word": "@" }),
    ] {
        watching.send(&action);
        let error = watching.wait_for("error", |_| true);
        assert!(error.as_str().unwrap().contains("only watch"), "{action}: {error}");
    }
    acting.prompt("ask Really");
    acting.wait_for_region("request", |html| html.contains("Really"));
    watching.wait_for_text("ask Really");
    acting.prompt("say queued");
    acting.wait_for_region("queue", |html| html.contains("say queued"));
    acting.send(&json!({ "do": "stop" }));
    // What is sent to drivers only was sent before this.
    watching.wait_for_text("Turn cancelled");
    watching.wait_for_idle();
    for hidden in ["request", "queue", "composer-bar", "inbox", "inbox-count"] {
        assert!(!watching.regions.contains_key(hidden), "{hidden}");
    }
}

#[test]
fn messages_are_forked_edited_regenerated_and_copied() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.connect();
    tab.send(&json!({ "do": "show", "session": session }));
    let tail = tab.wait_for("tail", |_| true);
    let ids = entry_ids(tail["html"].as_str().unwrap());
    tab.send(&json!({ "do": "source", "message": ids[1], "to": "copy" }));
    assert_eq!(tab.wait_for("source", |_| true)["text"], "hello");
    for (action, text) in [
        (json!({ "do": "fork", "message": ids[1] }), "hello"),
        (json!({ "do": "edit", "message": ids[0], "text": "say goodbye" }), "goodbye"),
        (json!({ "do": "regenerate", "message": ids[0] }), "hello"),
    ] {
        tab.send(&action);
        let address = tab.wait_for("go", |_| true);
        let fork = address.as_str().unwrap().strip_prefix("/s/").unwrap();
        assert_ne!(fork, session);
        let mut forked = browser.connect();
        forked.send(&json!({ "do": "show", "session": fork }));
        forked.wait_for_text(text);
    }
}

#[test]
fn only_agents_that_are_installed_continue_a_session() {
    let server = TestDir::new(PARLOR)
        .agent("demo", &format!("{PARLOR} demo-agent"))
        .agent("twin", &format!("{PARLOR} demo-agent"))
        .agent("gone", "/nonexistent/agent")
        .serve();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let (_, _, page) = browser.get(&format!("/s/{session}"));
    assert!(page.contains("data-agent=\"twin\"") && !page.contains("data-agent=\"gone\""));
    let mut tab = browser.show(&session);
    tab.send(&json!({ "do": "fork", "agent": "gone" }));
    let error = tab.wait_for("error", |_| true);
    assert_eq!(error, "Gone is not installed.");
    tab.send(&json!({ "do": "fork", "agent": "twin" }));
    tab.wait_for("go", |_| true);
}

#[test]
fn the_details_have_the_plan_of_the_last_turn_only() {
    let server = start_server();
    let session = new_session(&server, "plan One;Two");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    tab.wait_for_region("details-body", |html| html.contains("<h3>Plan"));
    tab.prompt("say another turn");
    tab.wait_for_region("details-body", |html| !html.contains("<h3>Plan"));
}

#[test]
fn a_session_is_renamed_and_its_deletion_can_be_undone() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    tab.send(&json!({ "do": "rename", "title": "A <new> title" }));
    tab.wait_for_region("head", |html| html.contains("A &lt;new&gt; title"));
    tab.send(&json!({ "do": "delete" }));
    let notice = tab.wait_for_region("notices", |html| html.contains("undelete"));
    // The script counts down to this time.
    assert!(attribute(&notice, "datetime").parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());
    tab.send(&json!({ "do": "undelete" }));
    tab.wait_for_region("notices", |html| !html.contains("undelete"));
    assert_eq!(browser.get(&format!("/s/{session}")).0, 200);
    // Without that, it is deleted for everybody.
    tab.send(&json!({ "do": "delete" }));
    tab.wait_for_close();
    let mut again = browser.connect();
    again.send(&json!({ "do": "show", "session": session }));
    assert_eq!(again.wait_for("go", |_| true), "/");
}

#[test]
fn a_session_is_exported_as_a_whole() {
    let server = start_server();
    let prompts: Vec<String> = (0..130).map(|number| format!("two number {number}")).collect();
    let session = new_session(&server, &prompts.join("\n"));
    let observer = Browser::sign_in(&server, true);
    let (status, head, body) = observer.get(&format!("/s/{session}/export"));
    assert_eq!(status, 200);
    assert!(head.contains("content-disposition: attachment"), "{head}");
    assert_eq!(entry_ids(&body).len(), 261);
    assert!(!body.contains("<script"));
    assert_eq!(observer.get("/s/nothing/export").0, 404);
}

#[test]
fn modes_are_set_and_commands_and_files_completed() {
    let server = start_server();
    std::fs::write(server.dir().work().join("notes.txt"), "x").unwrap();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    let bar = tab.wait_for_region("composer-bar", |html| html.contains("<select"));
    let (_, select) = bar.split_once("<select").unwrap();
    let option = attribute(select, "data-option").replace("&quot;", "\"");
    let is_selected = |html: &str| html.contains(r#"value="&quot;code&quot;" selected"#);
    assert!(!is_selected(&bar), "{bar}");
    tab.send(&json!({ "do": "set_option", "option": option, "value": "\"code\"" }));
    tab.wait_for_region("composer-bar", is_selected);
    tab.send(&json!({ "do": "complete", "word": "@note" }));
    let found = tab.wait_for("completions", |_| true);
    assert_eq!(found["items"][0]["text"], "@notes.txt");
}

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0";

#[test]
fn stop_withdraws_the_queued_prompts_of_the_own_browser_and_keeps_those_of_others() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let (chrome, firefox) = (Browser::sign_in(&server, false), Browser::sign_in_as(&server, false, FIREFOX));
    let (mut own, mut other_tab) = (chrome.show(&session), chrome.show(&session));
    let mut other = firefox.show(&session);
    own.prompt("sleep 60000");
    own.wait_for_region("composer-bar", |html| html.contains("data-do=\"stop\""));
    own.prompt("say first of mine");
    other.prompt("say of another browser");
    other_tab.prompt("say second of mine");
    let is_whole = |html: &str| html.matches("data-do=\"withdraw\"").count() == 3;
    let queue = own.wait_for_region("queue", is_whole);
    assert!(queue.contains("Queued by Firefox on Linux") && queue.contains("Queued by Chrome on Linux"));
    own.send(&json!({ "do": "stop" }));
    for (tab, text) in [(&mut own, "say first of mine"), (&mut other_tab, "say second of mine")] {
        tab.wait_for("unsent", |unsent| unsent["key"].as_str().unwrap().starts_with(text));
    }
    own.wait_for_text("Turn cancelled by Chrome on Linux");
    // The prompt of the other browser is the next turn.
    other.wait_for("sent", |_| true);
    own.wait_for_text("of another browser</p>");
    own.wait_for_idle();
    assert!(!server.dir().run(&["show", &session]).success().stdout.contains("of mine"));
}

#[test]
fn what_people_do_is_recorded_under_the_name_of_their_browser() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in_as(&server, false, FIREFOX);
    let mut tab = browser.show(&session);
    tab.prompt("ask Delete the build");
    let card = tab.wait_for_region("request", |html| html.contains("Delete the build"));
    tab.send(&json!({
        "do": "answer", "request": attribute(&card, "data-request"), "opened": attribute(&card, "data-opened"),
        "option": attribute(&card, "data-option"),
    }));
    tab.wait_for_text("by Firefox on Linux");
    let listed = server.dir().run(&["open", "--browsers"]).success().stdout;
    assert!(listed.contains("Firefox on Linux"), "{listed}");
}

#[test]
fn other_clients_are_listed_beside_the_tabs() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    let own = tab.wait_for_region("details-body", |html| html.contains("Chrome on Linux"));
    assert!(own.contains("Attached<span class=\"num\">1</span>") && !own.contains("parlor page"), "{own}");
    let mut editor = server.client(TransportKind::Unix, Dialect::V2, "demo");
    editor.call("session/resume", json!({ "sessionId": session, "cwd": server.dir().work() })).unwrap();
    tab.wait_for_region("details-body", |html| html.contains("Attached<span class=\"num\">2</span>"));
    drop(editor);
    tab.wait_for_region("details-body", |html| html.contains("Attached<span class=\"num\">1</span>"));
}

#[test]
fn an_archived_session_is_found_read_and_restored() {
    let server = start_server();
    let session = new_session(&server, "title Last year\nsay the needle");
    let browser = Browser::sign_in(&server, false);
    let (mut tab, mut other) = (browser.show(&session), browser.show(&session));
    tab.send(&json!({ "do": "archive" }));
    assert_eq!(tab.wait_for("go", |_| true), "/");
    // A tab that shows it says so, and stays.
    other.wait_for_region("notices", |html| html.contains("data-do=\"restore\""));
    other.wait_for_region("sessions", |html| html.contains("/archived") && !html.contains("Last year"));
    let (status, _, list) = browser.get("/archived");
    assert!(status == 200 && list.contains(&format!("href=\"/s/{session}\"")), "{list}");
    let (status, _, page) = browser.get(&format!("/s/{session}"));
    assert!(status == 200 && page.contains("the needle") && page.contains("data-do=\"restore\""));
    let (_, _, hits) = browser.get("/search?q=needle&part=hits");
    assert!(hits.contains(&format!("href=\"/s/{session}#")), "{hits}");
    let (_, _, hits) = browser.get("/search?q=Last+year&part=hits");
    assert!(hits.contains("archived"), "{hits}");
    assert_eq!(browser.get(&format!("/s/{session}/export")).0, 200);
    let mut again = browser.show(&session);
    again.send(&json!({ "do": "restore" }));
    for tab in [&mut again, &mut other] {
        tab.wait_for_region("notices", |html| !html.contains("restore"));
        tab.wait_for_region("sessions", |html| html.contains("Last year"));
    }
    // A prompt restores it, too.
    again.send(&json!({ "do": "archive" }));
    again.wait_for_region("notices", |html| html.contains("restore"));
    again.prompt("say back");
    again.wait_for_region("notices", |html| !html.contains("restore"));
}

#[test]
fn files_can_be_attached_to_the_first_prompt() {
    let server = start_server();
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.connect();
    let file = json!({ "name": "notes.txt", "type": "text/plain", "data": "aGVsbG8=" });
    let new = |files: serde_json::Value| json!({ "do": "new", "agent": "demo", "directory": server.dir().work(), "text": "say hi", "files": files });
    tab.send(&new(json!([{ "name": "broken", "type": "", "data": "?" }])));
    let error = tab.wait_for("new_error", |_| true);
    assert!(error.as_str().unwrap().contains("broken"), "{error}");
    tab.send(&new(json!([file])));
    let address = tab.wait_for("go", |_| true);
    let (status, _, page) = browser.get(address.as_str().unwrap());
    assert!(status == 200 && page.contains("notes.txt"), "{page}");
    tab.send(&new(json!(vec![file; 21])));
    assert_eq!(tab.wait_for("error", |_| true), "A prompt can have 20 files.");
    let sessions = server.dir().run(&["ls", "--json"]).success().stdout;
    assert_eq!(
        sessions.matches("sessionId").count(),
        1,
        "a prompt that cannot be sent makes no session: {sessions}"
    );
}

#[test]
fn a_prompt_is_sent_into_a_running_turn_if_the_agent_takes_it() {
    let agents =
        "[agents.steered]\ncommand = [\"TEST_AGENT\", \"--version\", \"2\", \"--offers\", \"steering\"]\n";
    let server =
        TestDir::new(PARLOR).agent("demo", &format!("{PARLOR} demo-agent")).with_test_agents(agents).serve();
    let browser = Browser::sign_in(&server, false);
    let new = |agent: &str| {
        let output =
            server.dir().run(&["prompt", "--new", "--agent", agent, "--json", "say hello"]).success();
        output.last_json()["sessionId"].as_str().expect("the id of the session").to_owned()
    };
    let mut tab = browser.show(&new("steered"));
    tab.prompt("say Busy.\nawait-steering\nsay Over.");
    tab.wait_for_text("Busy.");
    tab.wait_for_region("composer-bar", |html| html.contains("data-do=\"send_now\""));
    tab.send(&json!({ "do": "prompt", "key": "k", "text": "Hurry.", "now": true }));
    tab.wait_for("sent", |sent| sent["key"] == "k");
    tab.wait_for_text("Over.");
    tab.wait_for_idle();
    tab.wait_for_region("composer-bar", |html| !html.contains("send_now"));
    // Another agent does not offer it, and a prompt that is sent nevertheless comes back.
    let mut tab = browser.show(&new("demo"));
    tab.prompt("sleep 60000");
    let bar = tab.wait_for_region("composer-bar", |html| html.contains("data-do=\"stop\""));
    assert!(!bar.contains("send_now"), "{bar}");
    tab.send(&json!({ "do": "prompt", "key": "k", "text": "Hurry.", "now": true }));
    tab.wait_for("unsent", |unsent| unsent["key"] == "k");
    tab.wait_for("error", |_| true);
    tab.send(&json!({ "do": "stop" }));
    tab.wait_for_idle();
}

#[test]
fn a_tool_call_waits_for_a_person_also_if_its_request_is_put_off() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let browser = Browser::sign_in(&server, false);
    let mut tab = browser.show(&session);
    tab.prompt("ask Delete the build");
    let card = tab.wait_for_region("request", |html| html.contains("Delete the build"));
    let (request, opened) = (attribute(&card, "data-request"), attribute(&card, "data-opened"));
    tab.wait_for_text("waits for you");
    tab.send(&json!({ "do": "not_now", "request": request, "opened": opened }));
    tab.wait_for_region("request", |html| html.contains("waits in the inbox"));
    let (_, _, page) = browser.get(&format!("/s/{session}"));
    assert!(page.contains("data-s=\"you\""), "the card says what it waits for");
    // It stays put off while other requests come and go.
    let other = new_session(&server, "say hello");
    let mut tab = browser.show(&other);
    tab.prompt("ask Something else");
    let card = tab.wait_for_region("request", |html| html.contains("Something else"));
    tab.send(&json!({
        "do": "answer", "request": attribute(&card, "data-request"), "opened": attribute(&card, "data-opened"),
        "option": attribute(&card, "data-option"),
    }));
    tab.wait_for_idle();
    let inbox = tab.wait_for_region("inbox", |html| !html.contains("Something else"));
    assert!(inbox.contains("No requests wait for you") && inbox.contains("Not now"), "{inbox}");
}

#[test]
fn a_browser_detaches_from_a_session_that_it_does_not_show_any_more() {
    let server = start_server();
    let session = new_session(&server, "say hello");
    let clients = || {
        let status = server.dir().run(&["status", "--json"]).success();
        status.last_json()["clients"].as_u64().expect("the number of clients")
    };
    let mut stays = Browser::sign_in(&server, false).show(&session);
    stays.wait_for_region("composer-bar", |html| html.contains("<select"));
    wait_until("the browser is attached", || clients() >= 3);
    let before = clients();
    let mut leaves = Browser::sign_in_as(&server, false, FIREFOX).show(&session);
    leaves.wait_for_region("details-body", |html| html.contains("Attached<span class=\"num\">2</span>"));
    wait_until("the other browser is attached, too", || clients() == before + 1);
    drop(leaves);
    wait_until("it is detached", || clients() == before);
    stays.prompt("say still here");
    stays.wait_for_text("still here</p>");
}
