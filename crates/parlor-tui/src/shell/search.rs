//! The search: its request and its hits.

use parlor_client::{JsonRef, MessageId, Object, SessionId};

use super::backend::{Context, reason};
use crate::clean::Clean;
use crate::event::{Event, Hit};

/// How many hits a search returns.
pub(crate) const MAX_HITS: usize = 50;

impl Context {
    /// Searches and reports the hits.
    pub(super) async fn search(
        &self,
        generation: u64,
        query: String,
        cwd: Option<String>,
        session: Option<SessionId>,
    ) {
        let started = std::time::Instant::now();
        let mut params = Object::new().with("query", query).with("limit", MAX_HITS as u64);
        if let Some(cwd) = cwd {
            params.set("cwd", cwd);
        }
        if let Some(session) = session {
            params.set("sessionId", session.as_json());
        }
        let found = match self.control() {
            Ok(client) => client.call("_parlor/search", &params).await,
            Err(error) => Err(error),
        };
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let hits = found.map(|result| {
            let hits = result.get_array("hits").unwrap_or_default();
            let mut hits: Vec<_> = hits.into_iter().filter_map(hit).collect();
            group_by_session(&mut hits);
            hits
        });
        self.event(Event::Hits { generation, hits: hits.map_err(|error| reason(&error)), millis }).await;
    }
}

/// Orders hits so that those of one session follow each other, the session with the best hit first.
fn group_by_session(hits: &mut [Hit]) {
    let mut order: Vec<SessionId> = Vec::new();
    for hit in hits.iter() {
        if !order.contains(&hit.session) {
            order.push(hit.session.clone());
        }
    }
    hits.sort_by_key(|hit| order.iter().position(|session| *session == hit.session));
}

fn hit(raw: JsonRef<'_>) -> Option<Hit> {
    let hit = raw.to_object()?;
    let text = |name: &str| Clean::line(&hit.get_string(name).unwrap_or_default());
    let raw_snippet = hit.get_string("snippet").unwrap_or_default();
    let snippet = Clean::line(&raw_snippet.replace('\n', " "));
    let pairs = hit.get_array("matches").unwrap_or_default();
    let pair = |raw: JsonRef<'_>| {
        let ends: Vec<usize> =
            raw.elements()?.into_iter().filter_map(|end| usize::try_from(end.as_u64()?).ok()).collect();
        Some((*ends.first()?, *ends.get(1)?))
    };
    // Positions count the characters of the original text.
    let is_same = snippet.as_str().chars().count() == raw_snippet.chars().count();
    let matches = if is_same { pairs.into_iter().filter_map(pair).collect() } else { Vec::new() };
    Some(Hit {
        session: hit.get_json_str("sessionId")?.into(),
        title: text("title"),
        agent: text("agent"),
        cwd: hit.get_string("cwd").unwrap_or_default(),
        message: hit.get_json_str("messageId").map(MessageId::from),
        tool_call: hit.get_string("toolCallId"),
        role: text("role"),
        at: hit.get_string("at").and_then(|at| at.parse().ok()),
        snippet,
        matches,
    })
}

#[cfg(test)]
mod tests {
    use parlor_client::Json;

    use super::*;

    #[test]
    fn hits_of_a_session_follow_each_other() {
        let json = |session: &str| {
            format!(r#"{{"sessionId":"{session}","snippet":"a b","matches":[[2,3]],"role":"agent"}}"#)
        };
        let read = |text: String| hit(Json::parse(text).unwrap().raw()).unwrap();
        let mut hits = vec![read(json("one")), read(json("two")), read(json("one"))];
        group_by_session(&mut hits);
        let order: Vec<_> = hits.iter().map(|hit| hit.session.to_string()).collect();
        assert_eq!(order, ["one", "one", "two"]);
        assert_eq!(hits[0].matches, [(2, 3)]);
    }
}
