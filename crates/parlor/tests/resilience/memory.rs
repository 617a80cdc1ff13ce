//! The number of sessions in memory, and the memory that they use.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use parlor_client::{Error, SessionId};
use parlor_testkit::server::Server;
use parlor_testkit::wait::wait_until;

use crate::client::{Client, reason};
use crate::server::{PARLOR, connect, figures, file_memory, memory, peak_memory, with_test_agent};

/// Creates a session, sends a prompt and disconnects.
fn leave_behind(server: &Server, prompt: &str) -> SessionId {
    let mut client = connect(server);
    let session = client.new_session().unwrap();
    assert_eq!(reason(&client.turn(prompt)), "end_turn");
    session
}

#[test]
fn the_number_of_sessions_in_memory_is_limited() {
    let dir = with_test_agent("").argument("--live-sessions=3");
    let server = dir.serve();
    let mut clients: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    let sessions: Vec<_> = clients.iter_mut().map(|client| client.new_session().unwrap()).collect();
    let mut fourth = connect(&server);
    let refused = fourth.new_session().unwrap_err();
    assert!(
        matches!(&refused, Error::Rpc(error) if error.message().starts_with("all 3 sessions")),
        "{refused}"
    );
    assert_eq!(reason(&clients[0].turn("say Those that are there go on.")), "end_turn");

    // An idle session is evicted at once, before its idle timeout.
    drop(clients.remove(2));
    wait_until("there is room", || fourth.new_session().is_ok());
    assert_eq!(fourth.live_sessions(), "3");
    assert!(fourth.try_join(&sessions[2]).is_err());
    drop(clients);
    wait_until("there is room", || fourth.try_join(&sessions[2]).is_ok());
    assert_eq!(reason(&fourth.turn("say It was taken out of the store.")), "end_turn");
}

#[test]
fn large_idle_sessions_are_evicted_early() {
    const SESSIONS: usize = 12;
    // The number of sessions that use less than 32 MiB.
    const STAY: usize = 4;
    let dir = with_test_agent("");
    let server = dir.serve();
    let sessions: Vec<_> = (0..SESSIONS).map(|_| leave_behind(&server, "big 8000000")).collect();
    let mut client = connect(&server);
    // Without memory pressure they stay for ten minutes.
    wait_until("some have left", || client.live_sessions().parse::<usize>().unwrap() <= STAY);
    client.join(&sessions[0]);
    assert_eq!(client.agent_text().len(), 8_000_000);
}

/// A mixed load: clients create sessions, fork a long one, stream, resume, search and disconnect.
fn mixed_load(server: &Server, long: &SessionId, until: Instant, number: usize) -> usize {
    let mut rounds = 0;
    while Instant::now() < until {
        let mut client = connect(server);
        client.new_session().unwrap();
        client.turn("stream 2000 40\ntool\nbig 200000");
        client.join(long);
        client.fork();
        client.turn(&format!("say Fork {number} {rounds} says something."));
        client.search("something");
        rounds += 1;
    }
    rounds
}

#[test]
fn a_mixed_load_stays_below_150_mb() {
    let seconds = std::env::var("PARLOR_LOAD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let program = std::env::var("PARLOR_LOAD_PROGRAM").unwrap_or_else(|_| PARLOR.to_owned());
    let dir = with_test_agent("");
    let server = dir.serve_with(Command::new(program));
    let mut client = connect(&server);
    let long = client.new_session().unwrap();
    for _ in 0..20 {
        let lines: Vec<_> = (0..100).map(|n| format!("say Line {n} of a long conversation.")).collect();
        assert_eq!(reason(&client.turn(&lines.join("\ntool\n"))), "end_turn");
    }
    drop(client);
    let until = Instant::now() + Duration::from_secs(seconds);
    let rounds: usize = thread::scope(|scope| {
        let (server, long) = (&server, &long);
        let clients: Vec<_> =
            (0..4).map(|number| scope.spawn(move || mixed_load(server, long, until, number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let (peak, after) = (peak_memory(&server).unwrap(), memory(&server).unwrap());
    let program = file_memory(&server).unwrap();
    let [peak_mb, after_mb, program_mb] = [peak, after, program].map(|bytes| bytes / 1_000_000);
    figures(&format!(
        "{rounds} rounds in {seconds} s: peak {peak_mb} MB, {after_mb} MB at the end, {program_mb} MB of it for the program"
    ));
    // An optimised program takes 20 MB of the 150; this one may take twice as much.
    assert!(peak - program < 130_000_000, "{peak} bytes, {program} of the program");
}
