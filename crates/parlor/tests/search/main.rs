//! Searching what was said: by clients of all dialects, and by the command.

#[path = "../live/client.rs"]
#[allow(dead_code, reason = "others do more with it")]
mod client;
mod commands;
#[path = "../live/doors.rs"]
#[allow(dead_code, reason = "others do more with it")]
mod doors;
mod finding;
#[path = "../live/known.rs"]
#[allow(dead_code, reason = "others do more with it")]
mod known;
mod lasting;
mod limits;
#[path = "../commands/place.rs"]
#[allow(dead_code, reason = "others do more with it")]
mod place;
#[path = "../live/server.rs"]
#[allow(dead_code, reason = "others do more with it")]
mod server;

use serde_json::{Value, json};

use self::client::Client;

impl Client {
    /// What a query finds.
    fn hits(&mut self, query: &str) -> Vec<Value> {
        self.hits_with(json!({ "query": query }))
    }

    fn hits_with(&mut self, params: Value) -> Vec<Value> {
        let answer = self.call("_parlor/search", params).unwrap();
        answer["hits"].as_array().unwrap().clone()
    }

    /// Where a query finds something: sessions and roles, in their order.
    fn places(&mut self, query: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut places: Vec<_> =
            self.hits(query).iter().map(|hit| (text(&hit["sessionId"]), text(&hit["role"]))).collect();
        places.sort_unstable();
        places
    }
}

/// The parts of a snippet that were looked for.
fn matches(hit: &Value) -> Vec<String> {
    let snippet: Vec<char> = hit["snippet"].as_str().unwrap().chars().collect();
    let place = |place: &Value| {
        let at = |n: usize| usize::try_from(place[n].as_u64().unwrap()).unwrap();
        snippet[at(0)..at(1)].iter().collect()
    };
    hit["matches"].as_array().unwrap().iter().map(place).collect()
}
