//! Full-text search by clients of all dialects, and by the command.

mod commands;
mod index;
mod limits;
mod queries;

use parlor_testkit::client::Client;
use parlor_testkit::server::{Server, TestDir};
use serde_json::{Value, json};

/// The program under test.
const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A server with the test agents and these lines in its configuration.
fn start_server(config: &str) -> Server {
    TestDir::new(PARLOR).with_test_agents(config).serve()
}

/// Requests of these tests.
trait Search {
    /// The hits of a query with these params.
    fn hits_with(&mut self, params: Value) -> Vec<Value>;

    /// The hits of a query.
    fn hits(&mut self, query: &str) -> Vec<Value> {
        self.hits_with(json!({ "query": query }))
    }

    /// The sessions and roles of the hits, sorted.
    fn roles_of_hits(&mut self, query: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut roles_of_hits: Vec<_> =
            self.hits(query).iter().map(|hit| (text(&hit["sessionId"]), text(&hit["role"]))).collect();
        roles_of_hits.sort_unstable();
        roles_of_hits
    }
}

impl Search for Client {
    fn hits_with(&mut self, params: Value) -> Vec<Value> {
        let response = self.call("_parlor/search", params).unwrap();
        response["hits"].as_array().unwrap().clone()
    }
}

/// The matched parts of a snippet.
fn matches(hit: &Value) -> Vec<String> {
    let snippet: Vec<char> = hit["snippet"].as_str().unwrap().chars().collect();
    let range = |range: &Value| {
        let at = |n: usize| usize::try_from(range[n].as_u64().unwrap()).unwrap();
        snippet[at(0)..at(1)].iter().collect()
    };
    hit["matches"].as_array().unwrap().iter().map(range).collect()
}
