//! Peers that die, hang or do not speak the protocol; and a server that is stopped.

use std::thread;
use std::time::{Duration, Instant};

use parlor_client::{Activity, Error};
use parlor_json::Members;
use parlor_testkit::wait::wait_until;

use crate::client::{Client, reason};
use crate::server::{agent_state, connect, connect_to, wait_for_no_agent, with_test_agent};

/// A debug build is too slow for more.
const CHUNKS: usize = if cfg!(debug_assertions) { 50_000 } else { 200_000 };
const CHUNK: usize = 40;

#[test]
fn a_server_that_is_stopped_after_a_long_turn_has_stored_all_of_it() {
    let dir = with_test_agent("");
    let mut server = dir.serve();
    let mut client = connect(&server);
    let session = client.new_session().unwrap();
    assert_eq!(reason(&client.turn(&format!("stream {CHUNKS} {CHUNK}"))), "end_turn");
    assert!(server.stop().success());
    wait_for_no_agent(&dir);

    let server = dir.serve();
    let mut again = connect(&server);
    again.join(&session);
    assert_eq!(again.agent_text().len(), CHUNKS * CHUNK);
    assert_eq!(again.snapshot().messages, client.snapshot().messages);
    assert_eq!(reason(&again.snapshot().state.unwrap()), "end_turn", "it ended before the server did");
}

#[test]
fn a_server_that_is_stopped_during_a_turn_has_stored_what_clients_received() {
    let dir = with_test_agent("");
    let mut server = dir.serve();
    let mut client = connect(&server);
    let session = client.new_session().unwrap();
    client.prompt("stream 1000000 40 20000").unwrap();
    client.until(|transcript| transcript.seq() > 500);
    assert!(server.stop().success());
    client.read_rest();
    wait_for_no_agent(&dir);

    let server = dir.serve();
    let mut again = connect(&server);
    again.join(&session);
    assert!(again.agent_text().starts_with(&client.agent_text()));
    assert!(again.snapshot().is(&Activity::Idle));
    assert_eq!(reason(&again.snapshot().state.unwrap()), "error");
}

#[test]
fn a_turn_continues_without_the_client_that_started_it() {
    let dir = with_test_agent("");
    let server = dir.serve();
    let mut dying = connect(&server);
    let session = dying.new_session().unwrap();
    dying.prompt("stream 2000 40 2000").unwrap();
    dying.until(|transcript| transcript.seq() > 20);
    drop(dying);

    let mut other = connect(&server);
    wait_until("the dead client is disconnected", || other.count() == "1");
    other.join(&session);
    assert_eq!(reason(&other.until_idle()), "end_turn");
    assert_eq!(other.agent_text().len(), 2000 * 40);
}

#[test]
fn a_crash_of_the_agent_ends_the_turn_and_the_next_prompt_restarts_it() {
    for options in ["", "--version 1"] {
        let dir = with_test_agent(options);
        let server = dir.serve();
        let mut client = connect(&server);
        client.new_session().unwrap();
        let end = client.turn("say before\nstderr the last words\ncrash");
        assert_eq!(reason(&end), "error");
        let error = Members::of(end.fields.get("error").unwrap().raw()).unwrap();
        assert!(error.get("data").unwrap().as_str().contains("the last words"), "{error:?}");

        assert_eq!(reason(&client.turn("say after")), "end_turn");
        assert_eq!(client.agent_text(), "beforeafter");
    }
}

/// A program that is not an agent causes an error with a reason, and does not affect other clients.
#[test]
fn a_program_that_is_not_an_agent_is_reported() {
    let dir = with_test_agent("")
        .agent("silent", "true")
        .agent("complaining", "sh -c 'echo no such model >&2; exit 3'")
        .agent("chatty", "cat /etc/passwd")
        .agent("missing", "/nowhere/to/be/found --acp")
        .agent("hanging-up", "sh -c 'exec <&- >&-; sleep 1000'");
    let mut server = dir.serve();
    let mut bystander = connect(&server);
    bystander.new_session().unwrap();
    for (agent, why) in [
        ("silent", "ended before it answered initialize (exit status: 0)"),
        ("complaining", "no such model"),
        ("chatty", "ended before it answered initialize"),
        ("missing", "/nowhere/to/be/found"),
        ("hanging-up", "ended before it answered initialize"),
    ] {
        let started = Instant::now();
        let mut client = connect_to(&server, agent);
        let Err(Error::Rpc(error)) = client.new_session() else { panic!("{agent} is accepted as an agent") };
        let message = error.message();
        assert!(message.contains(agent) && message.contains(why), "{agent}: {message}");
        assert!(started.elapsed() < Duration::from_secs(30), "{agent} took {:?}", started.elapsed());
        if agent == "complaining" {
            let data = r#"{"stderr":"no such model\n","reason":"agent_unavailable"}"#;
            assert_eq!(error.data().unwrap().as_str(), data);
        }
        // The connection still works: the client can list sessions.
        client.list();
    }
    bystander.turn("say nothing happened");
    assert_eq!(bystander.agent_text(), "nothing happened");
    assert!(server.stop().success());
    wait_for_no_agent(&dir);
}

/// An agent that never answers `initialize` delays only its own clients, and is killed with the server.
#[test]
fn an_unresponsive_agent_delays_only_its_own_clients() {
    let dir = with_test_agent("");
    // Its arguments contain the directory of this test, so that it can be identified.
    let hanging = format!("sh -c 'sleep 1000; : test-agent {}'", agent_state(&dir));
    let dir = dir.agent("hanging", &hanging);
    let mut server = dir.serve();
    let mut other = connect(&server);
    let socket = server.socket();
    let waiting = thread::spawn(move || Client::connect(&socket, Some("hanging")).err());
    wait_until("both are there", || other.count() == "2");
    other.new_session().unwrap();
    other.turn("say hello");
    assert_eq!(other.agent_text(), "hello");
    assert!(server.stop().success());
    assert!(matches!(waiting.join().unwrap(), Some(Error::Disconnected)), "the client is disconnected");
    wait_for_no_agent(&dir);
}
