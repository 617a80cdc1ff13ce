//! Agents that send too much metadata, or too fast.

use parlor_dialect::Dialect;
use serde_json::{Value, json};

use crate::Titles;
use crate::start_server;
use crate::{each, joiner, three};

#[test]
fn metadata_that_is_too_large_is_rejected_as_a_whole_and_other_updates_are_applied() {
    let server = start_server("");
    // Agents with their own prompt queue repeat prompts in notes, which would be as large.
    for agent in ["v1", "anonymous"] {
        let (mut clients, session) = three(&server, agent);
        let big = format!("meta {{\"kept\":2,\"big\":\"{}\"}}", "x".repeat(65 << 10));
        clients[0].turn(&session, &format!("title Before\nmeta {{\"kept\":1}}\n{big}\ntitle After"));
        for client in &mut clients {
            client.wait_for_title(&session, "After", &Value::Null);
            assert_eq!(client.info(&session)["_meta"]["kept"], 1, "{agent}");
            assert_eq!(client.info(&session)["_meta"].get("big"), None, "{agent}");
        }
        let info = joiner(&server, Dialect::V2, agent, &session);
        assert_eq!((&info["title"], &info["_meta"]["kept"]), (&json!("After"), &json!(1)));
    }
}

#[test]
fn a_burst_is_coalesced_and_its_last_update_precedes_the_end_of_the_turn() {
    each(|_, agent, clients, session| {
        let script: Vec<_> = (0..400).map(|n| format!("meta {{\"n\":{n}}}")).collect();
        let marks = [0, 1, 2].map(|n| clients[n].mark());
        let started = std::time::Instant::now();
        clients[0].turn(session, &script.join("\n"));
        for (client, mark) in clients.iter_mut().zip(marks) {
            client.wait_for_idle(session, mark);
            let updates: Vec<_> = client.updates(session, mark).cloned().collect();
            let sent: Vec<_> = updates.iter().filter_map(|update| update["_meta"]["n"].as_i64()).collect();
            // 20 at once, then 20 per second; the last ones before the turn ends.
            let most = 22 + started.elapsed().as_millis() / 50;
            assert!((sent.len() as u128) <= most, "{agent}: {} updates were sent", sent.len());
            let last = updates.iter().position(|update| update["_meta"]["n"] == 399).expect("it is sent");
            let idle = updates
                .iter()
                .rposition(|update| update["state"] == "idle" || update["_meta"]["parlor/state"] == "idle");
            assert!(last < idle.unwrap(), "{agent}");
        }
    });
}

#[test]
fn the_last_update_of_a_burst_during_a_turn_is_sent() {
    each(|_, agent, clients, session| {
        let script: Vec<_> = (0..100).map(|n| format!("meta {{\"n\":{n}}}")).collect();
        let prompt = clients[0].prompt(session, &format!("{}\nsleep 30000", script.join("\n")));
        for client in clients.iter_mut() {
            client.wait_for("the last of the burst", |client| {
                (client.info(session)["_meta"]["n"] == 99).then_some(())
            });
        }
        let listed = clients[1].listed(session);
        assert_eq!(
            (&listed["_meta"]["n"], &listed["_meta"]["parlor/busy"]),
            (&json!(99), &json!(true)),
            "{agent}"
        );
        clients[0].cancel(session);
        clients[0].end_of_turn(session, prompt);
    });
}
