use std::collections::BTreeMap;
use std::fmt;
use std::mem;

use parlor_json::{Json, JsonRef, Members};

use crate::{RequestId, write};

/// The method with which either side takes back a request that it sent.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The requests that we sent and that have no answer yet, each with what its answer is for.
///
/// ```
/// use parlor_wire::Asked;
///
/// let mut asked = Asked::new(100);
/// let id = asked.ask("initialize").unwrap();
/// assert_eq!(asked.answered(&id), Some("initialize"));
/// assert_eq!(asked.answered(&id), None);
/// ```
#[derive(Debug)]
pub struct Asked<T> {
    limit: usize,
    next: u64,
    waiting: BTreeMap<u64, T>,
}

/// The requests that the peer sent and that we owe an answer, each with what it is about.
#[derive(Debug)]
pub struct Open<T> {
    limit: usize,
    next: u64,
    /// With the place in the order of arrival.
    waiting: BTreeMap<RequestId, (u64, T)>,
}

/// Too many requests are open. What was to be asked comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full<T> {
    /// How many may be open.
    pub limit: usize,
    /// What was not asked.
    pub refused: T,
}

/// Why a request of the peer was not begun. What it is about comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBegun<T> {
    /// A request with the same id is open: the peer could not tell the answers apart.
    Duplicate(T),
    /// Too many requests are open.
    Full(Full<T>),
}

impl<T> Asked<T> {
    /// No requests yet, and at most `limit` at the same time.
    pub fn new(limit: usize) -> Self {
        Self { limit, next: 0, waiting: BTreeMap::new() }
    }

    /// Gives the id for a request that is about to be sent. Ids count up from 0 and are not used again.
    pub fn ask(&mut self, what: T) -> Result<RequestId, Full<T>> {
        if self.waiting.len() >= self.limit {
            return Err(Full { limit: self.limit, refused: what });
        }
        let id = self.next;
        self.next += 1;
        self.waiting.insert(id, what);
        Ok(id.into())
    }

    /// Takes the request that an answer belongs to. `None` if there is none: the answer is a second one, or
    /// to something that was never asked.
    pub fn answered(&mut self, id: &RequestId) -> Option<T> {
        self.waiting.remove(&id.as_u64()?)
    }

    /// What the answer to an open request is for.
    pub fn get(&self, id: &RequestId) -> Option<&T> {
        self.waiting.get(&id.as_u64()?)
    }

    /// The line that takes back an open request. The request stays open, because the peer still answers it.
    pub fn cancel(&self, id: &RequestId) -> Option<String> {
        self.waiting.contains_key(&id.as_u64()?).then(|| cancel_line(id))
    }

    /// The open requests, in the order they were asked.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut T)> {
        self.waiting.iter_mut().map(|(id, what)| ((*id).into(), what))
    }

    /// Takes all open requests, in the order they were asked: the peer is gone and will answer none.
    pub fn drain(&mut self) -> impl Iterator<Item = (RequestId, T)> + use<T> {
        mem::take(&mut self.waiting).into_iter().map(|(id, what)| (id.into(), what))
    }

    /// How many requests are open.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request is open.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl<T> Open<T> {
    /// No requests yet, and at most `limit` at the same time.
    pub fn new(limit: usize) -> Self {
        Self { limit, next: 0, waiting: BTreeMap::new() }
    }

    /// Notes a request that came.
    pub fn begin(&mut self, id: RequestId, what: T) -> Result<(), NotBegun<T>> {
        if self.waiting.contains_key(&id) {
            return Err(NotBegun::Duplicate(what));
        }
        if self.waiting.len() >= self.limit {
            return Err(NotBegun::Full(Full { limit: self.limit, refused: what }));
        }
        self.waiting.insert(id, (self.next, what));
        self.next += 1;
        Ok(())
    }

    /// Whether a request with this id has no answer yet.
    pub fn is_open(&self, id: &RequestId) -> bool {
        self.waiting.contains_key(id)
    }

    /// Takes a request that is about to be answered, with the id as the peer spelled it. `None` if it is not
    /// open, and so must not be answered (again).
    pub fn finish(&mut self, id: &RequestId) -> Option<(RequestId, T)> {
        let (id, (_, what)) = self.waiting.remove_entry(id)?;
        Some((id, what))
    }

    /// The request that the peer takes back; see [`cancel_target`]. It stays open until it is answered.
    pub fn cancel(&mut self, id: &RequestId) -> Option<&mut T> {
        self.waiting.get_mut(id).map(|(_, what)| what)
    }

    /// Takes all open requests, in the order they came.
    pub fn drain(&mut self) -> impl Iterator<Item = (RequestId, T)> + use<T> {
        let mut all: Vec<_> = mem::take(&mut self.waiting).into_iter().collect();
        all.sort_by_key(|(_, (place, _))| *place);
        all.into_iter().map(|(id, (_, what))| (id, what))
    }

    /// How many requests are open.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no request is open.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The line that takes back the request `id`.
pub fn cancel_line(id: &RequestId) -> String {
    let params = Json::parse(format!("{{\"requestId\":{id}}}")).ok();
    write::notification(CANCEL_REQUEST, params.as_ref().map(Json::raw))
}

/// The id of the request that a `$/cancel_request` with these params takes back. `None` if they name none:
/// then there is nothing to do, as a notification gets no answer.
pub fn cancel_target(params: Option<JsonRef<'_>>) -> Option<RequestId> {
    RequestId::from_raw(Members::of(params?).ok()?.get("requestId")?).ok()
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests are open already", self.limit)
    }
}

impl<T: fmt::Debug> std::error::Error for Full<T> {}

impl<T> fmt::Display for NotBegun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(_) => f.write_str("a request with this id is open already"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for NotBegun<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(literal: &str) -> RequestId {
        serde_json::from_str(literal).unwrap()
    }

    #[test]
    fn asked_requests_are_answered_once_and_by_the_right_id() {
        let mut asked = Asked::new(10);
        assert_eq!(asked.ask("a").unwrap().as_literal(), "0");
        assert_eq!(asked.ask("b").unwrap().as_literal(), "1");
        for (literal, expected) in
            [("7", None), ("null", None), (r#""1""#, None), ("-1", None), ("1", Some("b")), ("1", None)]
        {
            assert_eq!(asked.answered(&id(literal)), expected, "{literal}");
        }
        assert_eq!(asked.ask("c").unwrap().as_literal(), "2");
        assert_eq!(asked.len(), 2);
    }

    #[test]
    fn a_cancelled_request_stays_until_its_answer() {
        let mut asked = Asked::new(10);
        let a = asked.ask("a").unwrap();
        let line = asked.cancel(&a).unwrap();
        assert_eq!(line, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}"#);
        assert_eq!(asked.answered(&a), Some("a"));
        assert_eq!(asked.cancel(&a), None);
    }

    #[test]
    fn both_maps_are_bounded_and_give_back_what_they_refuse() {
        let mut asked = Asked::new(1);
        let a = asked.ask("a").unwrap();
        assert_eq!(asked.ask("b"), Err(Full { limit: 1, refused: "b" }));
        asked.answered(&a);
        assert_eq!(asked.ask("b").unwrap().as_literal(), "1");

        let mut open = Open::new(1);
        open.begin(id("0"), "a").unwrap();
        assert_eq!(open.begin(id("1"), "b"), Err(NotBegun::Full(Full { limit: 1, refused: "b" })));
        assert_eq!(open.begin(id("-0"), "b"), Err(NotBegun::Duplicate("b")));
        open.finish(&id("0"));
        open.begin(id("1"), "b").unwrap();
    }

    #[test]
    fn open_requests_are_found_by_value_and_answered_as_spelled() {
        let mut open = Open::new(10);
        open.begin(id(r#""\u0061""#), 1).unwrap();
        assert_eq!(open.begin(id(r#""a""#), 2), Err(NotBegun::Duplicate(2)));
        *open.cancel(&id(r#""a""#)).unwrap() = 3;
        assert_eq!(open.cancel(&id(r#""b""#)), None);
        let (spelled, what) = open.finish(&id(r#""a""#)).unwrap();
        assert_eq!((spelled.as_literal(), what), (r#""\u0061""#, 3));
        assert_eq!(open.finish(&id(r#""a""#)), None);
    }

    #[test]
    fn when_the_peer_goes_all_come_out_in_order() {
        let mut asked = Asked::new(100);
        let mut open = Open::new(100);
        for number in 0..20 {
            asked.ask(number).unwrap();
            // Down, so that the order of the ids is not the order of arrival.
            open.begin((100 - number).into(), number).unwrap();
        }
        asked.answered(&3.into());
        open.finish(&97.into());
        let expected: Vec<u64> = (0..20).filter(|number| *number != 3).collect();
        assert_eq!(asked.drain().map(|(_, number)| number).collect::<Vec<_>>(), expected);
        let drained: Vec<_> = open.drain().collect();
        assert!(drained.iter().all(|(id, number)| id.as_u64() == Some(100 - number)));
        assert_eq!(drained.iter().map(|(_, number)| *number).collect::<Vec<_>>(), expected);
        assert!(asked.is_empty() && open.is_empty());
        // Late answers to what is gone must not meet a new request.
        assert_eq!(asked.ask(20).unwrap().as_literal(), "20");
    }

    #[test]
    fn the_target_of_a_cancellation_is_read_or_there_is_none() {
        for (params, expected) in [
            (Some(r#"{"requestId":5}"#), Some("5")),
            (Some(r#"{"_meta":{},"request\u0049d":"\u0061"}"#), Some(r#""\u0061""#)),
            (Some(r#"{"requestId":null}"#), Some("null")),
            (Some(r#"{"requestId":1.5}"#), None),
            (Some(r#"{"id":5}"#), None),
            (Some("[5]"), None),
            (None, None),
        ] {
            let raw = params.map(|text| serde_json::from_str(text).unwrap());
            let target = cancel_target(raw);
            assert_eq!(target.as_ref().map(RequestId::as_literal), expected, "{params:?}");
        }
    }
}
