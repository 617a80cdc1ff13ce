//! Its process: crashes, children, and the end of its input.

use std::time::{Duration, Instant};

use parlor_dialect::Dialect::{self, V1, V2};
use serde_json::json;

use crate::{answer, each, open};

#[test]
fn garbage_is_written_and_the_turn_goes_on() {
    each("garbage\nsay on", |_, turn| {
        assert_eq!(turn.garbage.len(), 2);
        assert_eq!(answer(turn), "on");
    });
}

#[test]
fn the_process_says_things_about_itself() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        assert_eq!(answer(&agent.turn(&session, "pid")), agent.pid().to_string());
        assert_eq!(answer(&agent.turn(&session, "env AGENT_TEST")), "AGENT_TEST=yes");
        assert_eq!(answer(&agent.turn(&session, "env NO_SUCH_NAME")), "NO_SUCH_NAME is not set");
        assert_eq!(agent.turn(&session, "stderr oh dear").stop, "end_turn");
        agent.prompt(&session, "ext _test/x");
        let asked = agent.peer_request("_test/x");
        agent.respond(&asked, &json!([1, 2]));
        assert_eq!(answer(&agent.end_of_turn()), "The answer: [1,2]");
        let (code, stderr) = agent.close();
        assert_eq!((code, stderr.as_str()), (Some(0), "oh dear\n"));
    }
}

/// The process group of a process.
#[cfg(target_os = "linux")]
fn group(process: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_stays_in_the_group_unless_it_shall_not() {
    let (mut agent, session) = open(V1, &[]);
    let near = answer(&agent.turn(&session, "child"));
    let far = answer(&agent.turn(&session, "child setsid"));
    assert_eq!(group(&near), group(&agent.pid().to_string()));
    let start = Instant::now();
    // The program has to be loaded before it can leave.
    while group(&far) != far {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not leave the group");
        std::thread::yield_now();
    }
    assert_eq!(agent.close().0, Some(0), "the output ends although they live");
    for child in [near, far] {
        assert!(std::process::Command::new("kill").arg(child).status().unwrap().success());
    }
}

#[test]
fn it_crashes_as_asked() {
    for dialect in Dialect::ALL {
        for (script, code, stderr) in [
            ("say first\ncrash 7", 7, "parlor-test: crashing as asked\n"),
            ("say first\ncrash", 1, "parlor-test: crashing as asked\n"),
            ("say first\ncrash-silently", 1, ""),
        ] {
            let (mut agent, session) = open(dialect, &[]);
            agent.prompt(&session, script);
            assert!(agent.rest().iter().any(|line| line.to_string().contains("\"first\"")), "flushed before");
            assert_eq!(agent.close(), (Some(code), stderr.to_owned()));
        }
    }
}

#[test]
fn the_end_of_the_input_ends_turns_and_the_process() {
    for dialect in Dialect::ALL {
        let (mut agent, session) = open(dialect, &[]);
        agent.prompt(&session, "say go\nsleep 100000");
        agent.until(|line| line.to_string().contains("\"go\""));
        agent.end_input();
        let rest = agent.rest();
        assert!(rest.last().unwrap().to_string().contains("cancelled"), "{rest:?}");
        assert_eq!(agent.close().0, Some(0));
    }
}

#[test]
fn malformed_lines_are_answered_and_the_next_is_read() {
    let (mut agent, session) = open(V1, &[]);
    agent.write("nonsense");
    assert_eq!(agent.receive()["error"]["code"], -32700);
    agent.write(r#"{"jsonrpc":"2.0","id":"q","method":3}"#);
    let answer = agent.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("q"), &json!(-32600)));
    let wrong = agent.call("session/prompt", json!({ "sessionId": session, "prompt": "hi" })).unwrap_err();
    assert_eq!(wrong["code"], -32602);
    agent.write(r#"[{"jsonrpc":"2.0","id":7,"method":"session/list"}]"#);
    assert_eq!(agent.receive()["error"]["code"], -32600, "v1 has no batches");
    let (mut agent, _) = open(V2, &[]);
    agent.write(r#"[{"jsonrpc":"2.0","id":7,"method":"x"},{"jsonrpc":"2.0","id":8,"method":"y"}]"#);
    assert_eq!((&agent.receive()["id"], &agent.receive()["id"]), (&json!(7), &json!(8)));
}
