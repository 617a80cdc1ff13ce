//! Unusual queries and texts.

use parlor_dialect::Dialect;
use parlor_testkit::client::Client;
use parlor_testkit::transport::TransportKind;
use serde_json::json;

use crate::Search;
use crate::matches;
use crate::start_server;

#[test]
fn every_query_gets_a_result() {
    let server = start_server("");
    for (dialect, transport) in Dialect::ALL.into_iter().zip(TransportKind::ALL) {
        let mut client = server.client(transport, dialect, "v2");
        let session = client.new_session();
        client.turn(&session, "say A needle.");
        let many: String = (0..10_000).map(|n| format!("w{n} ")).collect();
        for query in [
            "",
            " ",
            "\"",
            "-",
            "*",
            "!?.,;()[]{}",
            "' OR 1=1 --",
            "NEAR(",
            "AND OR NOT",
            "\u{0}",
            "needle*\u{0}\"",
            &"x".repeat(1 << 20),
            &"\"".repeat(100_001),
            &"(".repeat(100_000),
            &"needle -".repeat(100_000),
            &many,
        ] {
            let answer = client.call("_parlor/search", json!({ "query": query })).unwrap();
            assert!(answer["hits"].as_array().unwrap().len() <= 20, "{query:.20}");
        }
        let answer = client.call("_parlor/search", json!({ "query": many })).unwrap();
        assert_eq!(answer["ignoredWords"], 10_000 - 64);
        // Lone surrogates and other characters that only JSON can express.
        for query in [r"\ud83d", r"\ude00\ud83d needle \u0000"] {
            let id = client.send_raw("_parlor/search", &format!(r#"{{"query":"{query}"}}"#));
            client.response(id).unwrap();
        }
    }
}

#[test]
fn text_with_lone_surrogates_is_found_and_printed() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V1, "v2");
    let session = client.new_session();
    let prompt = r#"say a \ud83d needle\u0000 in \ude00 東京タワー and \ud83d\ude00"#;
    let content = format!(r#"[{{"type":"text","text":"{prompt}"}}]"#);
    let params = format!(r#"{{"sessionId":"{session}","prompt":{content}}}"#);
    let prompt_id = client.send_raw("session/prompt", &params);
    client.response(prompt_id).unwrap();
    let found = |client: &mut Client, query: &str| -> Vec<String> {
        client.hits_with(json!({ "query": query, "role": "user" })).iter().flat_map(matches).collect()
    };
    assert_eq!(found(&mut client, "needle"), ["needle"]);
    assert_eq!(found(&mut client, "京タワ"), ["京タワ"]);
    let hits = client.hits("needle role:user");
    assert_eq!(hits[0]["snippet"], "say a \u{fffd} needle\u{0} in \u{fffd} 東京タワー and 😀");
}

#[test]
fn the_snippet_of_a_long_message_is_around_the_match() {
    let server = start_server("");
    let mut client = server.client(TransportKind::Unix, Dialect::V2, "v2");
    let session = client.new_session();
    let long = "some words ".repeat(2000);
    client.turn(&session, &format!("say {long}with a needle and {long}"));
    let hits = client.hits("needle role:agent");
    let snippet = hits[0]["snippet"].as_str().unwrap();
    assert!(snippet.chars().count() < 170 && snippet.starts_with('…') && snippet.ends_with('…'), "{snippet}");
    assert!(snippet.contains("words with a needle and some"), "{snippet}");
    assert_eq!(matches(&hits[0]), ["needle"]);
}
