use std::collections::BTreeMap;
use std::mem;

use parlor_json::{JsonRef, Members, Object};

use crate::{RequestId, write};

/// The method with which either side cancels a request that it sent.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The requests that were sent to the peer and have no response yet, each with a value of the caller.
///
/// ```
/// use parlor_wire::OutgoingRequests;
///
/// let mut requests = OutgoingRequests::new(100);
/// let id = requests.register("initialize").unwrap();
/// assert_eq!(requests.complete(&id), Some("initialize"));
/// assert_eq!(requests.complete(&id), None);
/// ```
#[derive(Debug)]
pub struct OutgoingRequests<T> {
    limit: usize,
    next_id: u64,
    in_flight: BTreeMap<u64, T>,
}

/// The requests that were received from the peer and have no response yet, each with a value of the caller.
#[derive(Debug)]
pub struct IncomingRequests<T> {
    limit: usize,
    next_number: u64,
    /// Each request with its number in the order of arrival.
    in_flight: BTreeMap<RequestId, (u64, T)>,
}

/// The error for a request beyond the limit; it returns the caller's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit} requests are already in flight")]
pub struct TooManyRequests<T> {
    /// The most requests that may be in flight.
    pub limit: usize,
    /// The value of the rejected request.
    pub rejected: T,
}

/// The error for a received request that was not registered; it returns the caller's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError<T> {
    /// A request with the same id is in flight, so that the peer could not tell the responses apart.
    #[error("a request with this id is already in flight")]
    Duplicate(T),
    /// Too many requests are in flight.
    #[error(transparent)]
    TooMany(TooManyRequests<T>),
}

impl<T> OutgoingRequests<T> {
    /// Creates an empty map for at most `limit` requests.
    pub fn new(limit: usize) -> Self {
        Self { limit, next_id: 0, in_flight: BTreeMap::new() }
    }

    /// Returns the id for a request to send; ids count up from 0 and are not reused.
    pub fn register(&mut self, value: T) -> Result<RequestId, TooManyRequests<T>> {
        if self.in_flight.len() >= self.limit {
            return Err(TooManyRequests { limit: self.limit, rejected: value });
        }
        let id = self.next_id;
        self.next_id += 1;
        self.in_flight.insert(id, value);
        Ok(id.into())
    }

    /// Removes the request of a response; returns `None` for a second response or an unknown id.
    pub fn complete(&mut self, id: &RequestId) -> Option<T> {
        self.in_flight.remove(&id.as_u64()?)
    }

    /// Returns the value of a request in flight.
    pub fn get(&self, id: &RequestId) -> Option<&T> {
        self.in_flight.get(&id.as_u64()?)
    }

    /// Returns the line that cancels a request in flight; the request stays registered, because the peer still
    /// responds to it.
    pub fn cancel(&self, id: &RequestId) -> Option<String> {
        self.in_flight.contains_key(&id.as_u64()?).then(|| cancel_line(id))
    }

    /// Iterates over the requests in the order of registration.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut T)> {
        self.in_flight.iter_mut().map(|(id, value)| ((*id).into(), value))
    }

    /// Removes all requests in the order of registration, after the peer disconnected.
    pub fn drain(&mut self) -> impl Iterator<Item = (RequestId, T)> + use<T> {
        mem::take(&mut self.in_flight).into_iter().map(|(id, value)| (id.into(), value))
    }

    /// Returns the number of requests in flight.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }
}

impl<T> IncomingRequests<T> {
    /// Creates an empty map for at most `limit` requests.
    pub fn new(limit: usize) -> Self {
        Self { limit, next_number: 0, in_flight: BTreeMap::new() }
    }

    /// Registers a received request.
    pub fn register(&mut self, id: RequestId, value: T) -> Result<(), RegisterError<T>> {
        if self.in_flight.contains_key(&id) {
            return Err(RegisterError::Duplicate(value));
        }
        if self.in_flight.len() >= self.limit {
            return Err(RegisterError::TooMany(TooManyRequests { limit: self.limit, rejected: value }));
        }
        self.in_flight.insert(id, (self.next_number, value));
        self.next_number += 1;
        Ok(())
    }

    /// Returns whether a request is in flight.
    pub fn contains(&self, id: &RequestId) -> bool {
        self.in_flight.contains_key(id)
    }

    /// Removes a request whose response is about to be sent, and returns its id as the peer wrote it; returns
    /// `None` if it is not in flight, so that no second response is sent.
    pub fn complete(&mut self, id: &RequestId) -> Option<(RequestId, T)> {
        let (id, (_, value)) = self.in_flight.remove_entry(id)?;
        Some((id, value))
    }

    /// Returns the value of a request in flight, for example one that the peer cancels.
    pub fn get_mut(&mut self, id: &RequestId) -> Option<&mut T> {
        self.in_flight.get_mut(id).map(|(_, value)| value)
    }

    /// Iterates over the values of the requests in the order of arrival.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let mut all: Vec<_> = self.in_flight.values_mut().collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, value)| value)
    }

    /// Removes all requests in the order of arrival.
    pub fn drain(&mut self) -> impl Iterator<Item = (RequestId, T)> + use<T> {
        let mut all: Vec<_> = mem::take(&mut self.in_flight).into_iter().collect();
        all.sort_by_key(|(_, (number, _))| *number);
        all.into_iter().map(|(id, (_, value))| (id, value))
    }

    /// Returns the number of requests in flight.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }
}

/// Returns the line that cancels the request `id`.
pub fn cancel_line(id: &RequestId) -> String {
    let params = Object::new().with("requestId", id.to_json()).to_json();
    write::notification(CANCEL_REQUEST, Some(params.raw()))
}

/// Returns the id in the params of a `$/cancel_request`; the caller ignores the notification if there is none.
pub fn cancel_target(params: Option<JsonRef<'_>>) -> Option<RequestId> {
    RequestId::from_raw(Members::of(params?).ok()?.get("requestId")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(literal: &str) -> RequestId {
        serde_json::from_str(literal).unwrap()
    }

    #[test]
    fn an_outgoing_request_is_completed_once_and_by_its_id() {
        let mut outgoing = OutgoingRequests::new(10);
        assert_eq!(outgoing.register("a").unwrap().as_literal(), "0");
        assert_eq!(outgoing.register("b").unwrap().as_literal(), "1");
        for (literal, expected) in
            [("7", None), ("null", None), (r#""1""#, None), ("-1", None), ("1", Some("b")), ("1", None)]
        {
            assert_eq!(outgoing.complete(&id(literal)), expected, "{literal}");
        }
        assert_eq!(outgoing.register("c").unwrap().as_literal(), "2");
        assert_eq!(outgoing.len(), 2);
    }

    #[test]
    fn a_cancelled_request_stays_in_flight_until_its_response() {
        let mut outgoing = OutgoingRequests::new(10);
        let a = outgoing.register("a").unwrap();
        let line = outgoing.cancel(&a).unwrap();
        assert_eq!(line, r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}"#);
        assert_eq!(outgoing.complete(&a), Some("a"));
        assert_eq!(outgoing.cancel(&a), None);
    }

    #[test]
    fn both_maps_are_bounded_and_return_the_rejected_value() {
        let mut outgoing = OutgoingRequests::new(1);
        let a = outgoing.register("a").unwrap();
        assert_eq!(outgoing.register("b"), Err(TooManyRequests { limit: 1, rejected: "b" }));
        outgoing.complete(&a);
        assert_eq!(outgoing.register("b").unwrap().as_literal(), "1");

        let mut incoming = IncomingRequests::new(1);
        incoming.register(id("0"), "a").unwrap();
        assert_eq!(
            incoming.register(id("1"), "b"),
            Err(RegisterError::TooMany(TooManyRequests { limit: 1, rejected: "b" }))
        );
        assert_eq!(incoming.register(id("-0"), "b"), Err(RegisterError::Duplicate("b")));
        incoming.complete(&id("0"));
        incoming.register(id("1"), "b").unwrap();
    }

    #[test]
    fn incoming_requests_are_found_by_value_and_completed_with_their_literal() {
        let mut incoming = IncomingRequests::new(10);
        incoming.register(id(r#""\u0061""#), 1).unwrap();
        assert_eq!(incoming.register(id(r#""a""#), 2), Err(RegisterError::Duplicate(2)));
        *incoming.get_mut(&id(r#""a""#)).unwrap() = 3;
        assert_eq!(incoming.get_mut(&id(r#""b""#)), None);
        let (literal, value) = incoming.complete(&id(r#""a""#)).unwrap();
        assert_eq!((literal.as_literal(), value), (r#""\u0061""#, 3));
        assert_eq!(incoming.complete(&id(r#""a""#)), None);
    }

    #[test]
    fn drain_returns_all_requests_in_order() {
        let mut outgoing = OutgoingRequests::new(100);
        let mut incoming = IncomingRequests::new(100);
        for number in 0..20 {
            outgoing.register(number).unwrap();
            // Descending, so that the order of the ids is not the order of arrival.
            incoming.register((100 - number).into(), number).unwrap();
        }
        outgoing.complete(&3.into());
        incoming.complete(&97.into());
        let expected: Vec<u64> = (0..20).filter(|number| *number != 3).collect();
        assert_eq!(outgoing.drain().map(|(_, number)| number).collect::<Vec<_>>(), expected);
        let drained: Vec<_> = incoming.drain().collect();
        assert!(drained.iter().all(|(id, number)| id.as_u64() == Some(100 - number)));
        assert_eq!(drained.iter().map(|(_, number)| *number).collect::<Vec<_>>(), expected);
        assert!(outgoing.is_empty() && incoming.is_empty());
        // A late response to a drained request must not complete a new one.
        assert_eq!(outgoing.register(20).unwrap().as_literal(), "20");
    }

    #[test]
    fn the_target_of_a_cancellation_is_read() {
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
