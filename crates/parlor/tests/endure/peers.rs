//! Peers that die, hang or were never what they claimed to be; and a server that is asked to end.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::{Place, eventually};

/// A build that is not optimized needs half a minute for more.
const CHUNKS: usize = if cfg!(debug_assertions) { 50_000 } else { 200_000 };
const CHUNK: usize = 40;

#[test]
fn a_server_that_is_stopped_after_a_long_turn_has_all_of_it() {
    let place = Place::new().test_agent("");
    let server = place.serve();
    let mut client = server.client();
    let session = client.new_session().unwrap();
    let prompt = client.prompt(&session, &format!("stream {CHUNKS} {CHUNK}"));
    client.answer(prompt).unwrap();
    client.until(|shown| shown.state["state"] == "running");
    assert_eq!(client.until_idle(), "end_turn");
    server.stop();
    place.wait_for_no_agent();

    let server = place.serve();
    let mut again = server.client();
    again.resume(&session).unwrap();
    assert_eq!(again.shown.said().len(), CHUNKS * CHUNK);
    assert_eq!(again.shown.messages, client.shown.messages);
    assert_eq!(again.shown.state["stopReason"], "end_turn", "it ended before the server did");
}

#[test]
fn a_server_that_is_stopped_in_a_turn_has_what_it_showed() {
    let place = Place::new().test_agent("");
    let server = place.serve();
    let mut client = server.client();
    let session = client.new_session().unwrap();
    let prompt = client.prompt(&session, "stream 1000000 40 20000");
    client.answer(prompt).unwrap();
    client.until(|shown| shown.updates > 500);
    server.stop();
    client.read_rest();
    place.wait_for_no_agent();

    let server = place.serve();
    let mut again = server.client();
    again.resume(&session).unwrap();
    assert!(again.shown.said().starts_with(&client.shown.said()));
    assert_eq!(again.shown.state["state"], "idle");
    assert_eq!(again.shown.state["stopReason"], "error");
}

#[test]
fn a_turn_goes_on_without_the_client_that_began_it() {
    let place = Place::new().test_agent("");
    let server = place.serve();
    let mut dying = server.client();
    let session = dying.new_session().unwrap();
    let prompt = dying.prompt(&session, "stream 2000 40 2000");
    dying.answer(prompt).unwrap();
    dying.until(|shown| shown.updates > 20);
    drop(dying);

    let mut other = server.client();
    eventually("the dead client is gone", || {
        other.call("_parlor/status", &json!({})).unwrap()["clients"] == 1
    });
    other.resume(&session).unwrap();
    assert_eq!(other.until_idle(), "end_turn");
    assert_eq!(other.shown.said().len(), 2000 * 40);
}

#[test]
fn an_agent_that_dies_in_a_turn_ends_it_and_comes_back() {
    for options in ["", "--version 1"] {
        let place = Place::new().test_agent(options);
        let server = place.serve();
        let mut client = server.client();
        let session = client.new_session().unwrap();
        client.prompt(&session, "say before\nstderr the last words\ncrash");
        client.until(|shown| shown.state["state"] == "running");
        assert_eq!(client.until_idle(), "error");
        let error = &client.shown.state["error"];
        assert!(error["data"]["stderr"].as_str().unwrap_or_default().contains("the last words"), "{error}");

        let prompt = client.prompt(&session, "say after");
        client.answer(prompt).unwrap();
        client.until(|shown| shown.said() == "beforeafter");
        assert_eq!(client.until_idle(), "end_turn");
    }
}

/// What is no agent is refused with a reason, soon, and harms nobody else.
#[test]
fn what_is_no_agent_is_refused() {
    let place = Place::new()
        .test_agent("")
        .agent("silent", "true")
        .agent("complaining", "sh -c 'echo no such model >&2; exit 3'")
        .agent("chatty", "cat /etc/passwd")
        .agent("missing", "/nowhere/to/be/found --acp")
        .agent("hanging-up", "sh -c 'exec <&- >&-; sleep 1000'");
    let server = place.serve();
    let mut bystander = server.client();
    let session = bystander.new_session().unwrap();
    for (agent, why) in [
        ("silent", "ended before it said who it is (exit status: 0)"),
        ("complaining", "no such model"),
        ("chatty", "ended before it said who it is"),
        ("missing", "/nowhere/to/be/found"),
        ("hanging-up", "ended before it said who it is"),
    ] {
        let begun = Instant::now();
        let mut client = server.client_of(agent);
        let error = client.new_session().unwrap_err();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(agent) && message.contains(why), "{agent}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{agent} takes {:?}", begun.elapsed());
        if agent == "complaining" {
            assert_eq!(error["data"]["stderr"], "no such model\n");
        }
        // The connection is as good as before: it can look at what there is.
        client.call("session/list", &json!({})).unwrap();
    }
    let prompt = bystander.prompt(&session, "say nothing happened");
    bystander.answer(prompt).unwrap();
    bystander.until(|shown| shown.said() == "nothing happened");
    server.stop();
    place.wait_for_no_agent();
}

/// An agent that never says who it is keeps those waiting who want it, and nobody else; it is ended with the server.
#[test]
fn an_agent_that_hangs_keeps_only_those_waiting_who_want_it() {
    let place = Place::new().test_agent("");
    // It names the directory of this test, so that it can be found.
    let hanging = format!("sh -c 'sleep 1000; : test-agent {}'", place.path().join("agent-state").display());
    let place = place.agent("hanging", &hanging);
    let server = place.serve();
    let waiting = server.greet("hanging");
    let mut other = server.client();
    let session = other.new_session().unwrap();
    let prompt = other.prompt(&session, "say hello");
    other.answer(prompt).unwrap();
    other.until(|shown| shown.said() == "hello");
    drop(waiting);
    server.stop();
    place.wait_for_no_agent();
}
