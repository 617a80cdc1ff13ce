//! Prompts that are rejected, and the results of turns.

use parlor_dialect::Dialect;
use serde_json::json;

use crate::agent::Server;
use crate::pairs;

#[tokio::test]
async fn a_prompt_that_is_not_valid_is_refused_and_changes_nothing() {
    for (agents, clients) in pairs() {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        for prompt in [
            json!("Hi"),
            json!(null),
            json!([]),
            json!(["str"]),
            json!([{}]),
            json!([{ "text": "Hi" }]),
            json!([{ "type": 1, "text": "Hi" }]),
            json!([{ "type": "text" }]),
            json!([{ "type": "text", "text": null }]),
            json!([{ "type": "text", "text": "Hi" }, { "type": "image", "data": "AA==" }]),
            json!([{ "type": "audio", "mimeType": "audio/wav" }]),
            json!([{ "type": "resource_link", "uri": "file:///a" }]),
            json!([{ "type": "resource" }]),
            json!([{ "type": "resource", "resource": { "uri": "file:///a" } }]),
        ] {
            let request = client.prompt(&session, prompt.clone());
            let error = client.response(request).await.unwrap_err();
            assert_eq!(error["code"], -32602, "{prompt}: {error}");
        }
        for (method, params) in
            [("_parlor/edit", json!({ "sessionId": session, "messageId": "m", "prompt": [] }))]
        {
            assert_eq!(client.call(method, params).await.unwrap_err()["code"], -32602);
        }
        // The first prompt that the agent receives.
        client.prompt(&session, json!([{ "type": "text", "text": "Hi", "x": 1 }]));
        assert_eq!(agent.asked("session/prompt").await["params"]["prompt"][0]["text"], "Hi");
    }
}

#[tokio::test]
async fn a_prompt_that_would_reach_a_v1_agent_empty_is_refused_with_the_loss() {
    for clients in [Dialect::V1, Dialect::V2, Dialect::Draft] {
        let server = Server::start(Dialect::V1).await;
        let (mut client, mut agent) = server.both(clients, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        let request = client.prompt(&session, json!([{ "type": "_hologram", "x": 1 }]));
        let error = client.response(request).await.unwrap_err();
        assert_eq!(
            (&error["code"], &error["data"]["losses"]),
            (&json!(-32602), &json!(["content_block_type"]))
        );
        // A prompt that is only translated in part is sent.
        client.prompt(&session, json!([{ "type": "_hologram" }, { "type": "text", "text": "Hi" }]));
        let prompt = agent.asked("session/prompt").await;
        assert_eq!(prompt["params"]["prompt"], json!([{ "type": "text", "text": "Hi" }]));
    }
}

#[tokio::test]
async fn a_prompt_with_unknown_blocks_reaches_an_agent_that_may_know_them() {
    for agents in [Dialect::V2, Dialect::Draft] {
        let server = Server::start(agents).await;
        let (mut client, mut agent) = server.both(Dialect::V2, json!({})).await;
        let session = agent.begins(&mut client, "s", json!([])).await;
        client.prompt(&session, json!([{ "type": "_hologram", "x": 1 }]));
        let prompt = agent.asked("session/prompt").await;
        assert_eq!(prompt["params"]["prompt"], json!([{ "type": "_hologram", "x": 1 }]));
    }
}

#[tokio::test]
async fn the_result_of_a_turn_of_a_v1_agent_reaches_a_v1_client_unchanged() {
    let server = Server::start(Dialect::V1).await;
    let (mut client, mut agent) = server.both(Dialect::V1, json!({})).await;
    let session = agent.begins(&mut client, "s", json!([])).await;
    let usage = json!({ "totalTokens": 12_345_678_901_234_567_890_u64, "inputTokens": 1, "outputTokens": 2, "vendor": null });
    let request = client.prompt(&session, json!([{ "type": "text", "text": "Hi" }]));
    let prompt = agent.asked("session/prompt").await;
    let said = json!({ "stopReason": "end_turn", "usage": usage, "vendorField": [1.5, null], "_meta": { "vendor/x": 1 } });
    agent.answer(&prompt, said.clone()).await;
    let answer = client.response(request).await.unwrap();
    for field in ["stopReason", "usage", "vendorField"] {
        assert_eq!(answer[field], said[field], "{answer}");
    }
    assert_eq!(answer["_meta"]["vendor/x"], 1, "{answer}");
    assert!(answer["_meta"].get("parlor/turn").is_none(), "{answer}");
}
