use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use parlor_json::{JsonRef, Members, Type};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::{Malformed, Reason, RequestId, span_of, splice};

/// The most messages of a batch.
pub const MAX_BATCH: usize = 1000;

/// Whether a connection accepts batches: protocol version 2 does, version 1 does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batches {
    /// A batch is parsed into its messages.
    Accept,
    /// A batch is malformed.
    Refuse,
}

/// The messages of one line.
#[derive(Debug, Clone)]
pub enum Incoming<'a> {
    /// One message.
    One(Message<'a>),
    /// The messages of a batch in order, each parsed on its own.
    Batch(Vec<Result<Message<'a>, Malformed>>),
}

/// A message borrowed from its text; only the envelope is parsed.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// The request, notification or response.
    pub body: Body<'a>,
    /// The names and values of the envelope's unknown members in order, which a rewritten message should keep.
    pub extra: Vec<(JsonRef<'a>, JsonRef<'a>)>,
    text: &'a str,
    id_span: Option<Range<usize>>,
}

/// The three kinds of messages.
#[derive(Debug, Clone)]
pub enum Body<'a> {
    /// A call that gets a response.
    Request {
        /// The id that the response must have.
        id: RequestId,
        /// The name of the method, with U+FFFD for unpaired surrogates.
        method: Cow<'a, str>,
        /// The params, of any type.
        params: Option<JsonRef<'a>>,
    },
    /// A call that gets no response.
    Notification {
        /// The name of the method, with U+FFFD for unpaired surrogates.
        method: Cow<'a, str>,
        /// The params, of any type.
        params: Option<JsonRef<'a>>,
    },
    /// The response to a request.
    Response {
        /// The id of the request; null if the peer could not read it.
        id: RequestId,
        /// The result or the error.
        outcome: Outcome<'a>,
    },
}

/// The result or the error of a request.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// The request succeeded with this result.
    Result(JsonRef<'a>),
    /// The request failed with this error; see [`RpcError::from_raw`](crate::RpcError::from_raw).
    Error(JsonRef<'a>),
}

/// Parses a line in one pass.
pub fn parse(line: &str, batches: Batches) -> Result<Incoming<'_>, Malformed> {
    let not_json = |error: serde_json::Error| Malformed::without_id(Reason::NotJson(error.to_string()), line);
    match line.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next() {
        None => Err(Malformed::blank()),
        Some(b'{') => {
            let members = serde_json::from_str(line).map_err(|error| {
                // If the line is valid JSON, only the number of its members can be wrong.
                match serde_json::from_str::<JsonRef<'_>>(line) {
                    Ok(_) => Malformed::without_id(Reason::TooManyMembers, line),
                    Err(_) => not_json(error),
                }
            })?;
            Message::from_members(line, &members).map(Incoming::One)
        }
        Some(b'[') => {
            let items: Items<'_> = serde_json::from_str(line).map_err(not_json)?;
            let reason = match (batches, items.count) {
                (Batches::Refuse, _) => Reason::BatchRefused,
                (Batches::Accept, 0) => Reason::BatchEmpty,
                (Batches::Accept, 1..=MAX_BATCH) => return Ok(Incoming::Batch(items.messages())),
                (Batches::Accept, items) => Reason::BatchTooLong { items, limit: MAX_BATCH },
            };
            Err(Malformed::without_id(reason, line))
        }
        Some(_) => {
            let raw: JsonRef<'_> = serde_json::from_str(line).map_err(not_json)?;
            Err(Malformed::without_id(Reason::NotAMessage(raw.type_of()), line))
        }
    }
}

impl<'a> Message<'a> {
    /// Returns the text of the message as it was received; for an item of a batch, the text of the item.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the id of a request or a response.
    pub fn id(&self) -> Option<&RequestId> {
        match &self.body {
            Body::Request { id, .. } | Body::Response { id, .. } => Some(id),
            Body::Notification { .. } => None,
        }
    }

    /// Returns the method of a request or a notification.
    pub fn method(&self) -> Option<&str> {
        match &self.body {
            Body::Request { method, .. } | Body::Notification { method, .. } => Some(method),
            Body::Response { .. } => None,
        }
    }

    /// Returns the params of a request or a notification.
    pub fn params(&self) -> Option<JsonRef<'a>> {
        match &self.body {
            Body::Request { params, .. } | Body::Notification { params, .. } => *params,
            Body::Response { .. } => None,
        }
    }

    /// Returns the text with another id and every other byte unchanged; a notification has no id and is unchanged.
    ///
    /// ```
    /// use parlor_wire::{Batches, Incoming, RequestId, parse};
    ///
    /// let line = r#"{"x-trace": 7.0, "method":"a", "id" : "b", "jsonrpc":"2.0"}"#;
    /// let Ok(Incoming::One(message)) = parse(line, Batches::Refuse) else { panic!() };
    /// let relayed = message.with_id(&RequestId::from(3));
    /// assert_eq!(relayed, r#"{"x-trace": 7.0, "method":"a", "id" : 3, "jsonrpc":"2.0"}"#);
    /// ```
    pub fn with_id(&self, id: &RequestId) -> String {
        let replacement = self.id_span.clone().map(|span| (span, id.as_literal()));
        // The span is within this text, so that splicing cannot fail.
        splice(self.text, replacement.as_slice()).unwrap_or_else(|| self.text.to_owned())
    }

    fn from_item(item: JsonRef<'a>) -> Result<Self, Malformed> {
        let members =
            Members::of(item).map_err(|reason| Malformed::without_id(Reason::from(reason), item.as_str()))?;
        Self::from_members(item.as_str(), &members)
    }

    fn from_members(text: &'a str, members: &Members<'a>) -> Result<Self, Malformed> {
        let envelope = Envelope::of(members);
        match envelope.read() {
            Ok(body) => Ok(Self {
                body,
                extra: envelope.extra,
                text,
                id_span: envelope.id.and_then(|id| span_of(text, id)),
            }),
            Err(reason) => Err(envelope.malformed(reason, text)),
        }
    }
}

/// The members of a message: those that JSON-RPC defines, and the others.
#[derive(Default)]
struct Envelope<'a> {
    version: Option<JsonRef<'a>>,
    id: Option<JsonRef<'a>>,
    method: Option<JsonRef<'a>>,
    params: Option<JsonRef<'a>>,
    result: Option<JsonRef<'a>>,
    error: Option<JsonRef<'a>>,
    extra: Vec<(JsonRef<'a>, JsonRef<'a>)>,
    duplicate: Option<&'static str>,
}

impl<'a> Envelope<'a> {
    fn of(members: &Members<'a>) -> Self {
        let mut envelope = Self::default();
        for &(key, value) in members.raw() {
            match envelope.slot(&text_or_empty(key)) {
                Some((_, slot @ None)) => *slot = Some(value),
                Some((name, Some(_))) => envelope.duplicate = envelope.duplicate.or(Some(name)),
                None => envelope.extra.push((key, value)),
            }
        }
        envelope
    }

    fn slot(&mut self, name: &str) -> Option<(&'static str, &mut Option<JsonRef<'a>>)> {
        match name {
            "jsonrpc" => Some(("jsonrpc", &mut self.version)),
            "id" => Some(("id", &mut self.id)),
            "method" => Some(("method", &mut self.method)),
            "params" => Some(("params", &mut self.params)),
            "result" => Some(("result", &mut self.result)),
            "error" => Some(("error", &mut self.error)),
            _ => None,
        }
    }

    fn read(&self) -> Result<Body<'a>, Reason> {
        if let Some(name) = self.duplicate {
            return Err(Reason::DuplicateMember(name));
        }
        if self.version.is_none_or(|version| text_or_empty(version) != "2.0") {
            return Err(Reason::Version);
        }
        let id = self.id.map(RequestId::from_raw).transpose().map_err(Reason::Id)?;
        let Some(method) = self.method else {
            let outcome = self.outcome()?;
            return Ok(Body::Response { id: id.ok_or(Reason::NoId)?, outcome });
        };
        if method.type_of() != Type::String {
            return Err(Reason::Method(method.type_of()));
        }
        if is_set(self.result) || is_set(self.error) {
            return Err(Reason::MethodAndOutcome);
        }
        let (method, params) = (text_or_empty(method), self.params);
        Ok(match id {
            Some(id) => Body::Request { id, method, params },
            None => Body::Notification { method, params },
        })
    }

    /// Returns the outcome of a response.
    ///
    /// Some peers write both members and set the one that does not apply to null; a null alone is a result.
    fn outcome(&self) -> Result<Outcome<'a>, Reason> {
        match (self.result, self.error) {
            (result, Some(error)) if is_set(Some(error)) => {
                if is_set(result) {
                    Err(Reason::ResultAndError)
                } else {
                    Ok(Outcome::Error(error))
                }
            }
            (Some(result), _) => Ok(Outcome::Result(result)),
            (None, _) => Err(Reason::NoMethodOrOutcome),
        }
    }

    fn malformed(&self, reason: Reason, text: &str) -> Malformed {
        let id = match self.duplicate {
            Some("id") => None,
            Some(_) | None => self.id.and_then(|id| RequestId::from_raw(id).ok()),
        };
        let has_outcome = self.result.is_some() || self.error.is_some();
        let respond_to = match (self.method, has_outcome) {
            (None, true) => None,
            // Without params it may also be a response of a peer that leaves out an undefined result.
            (None, false) if self.params.is_none() => Some(RequestId::null()),
            (Some(_), true) => Some(RequestId::null()),
            (Some(_) | None, false) => Some(id.clone().unwrap_or_else(RequestId::null)),
        };
        Malformed { id, respond_to, ..Malformed::without_id(reason, text) }
    }
}

/// Returns whether a member is there and not null.
fn is_set(member: Option<JsonRef<'_>>) -> bool {
    member.is_some_and(|raw| raw.type_of() != Type::Null)
}

/// Returns the text of a string, or an empty one for any other value.
fn text_or_empty(literal: JsonRef<'_>) -> Cow<'_, str> {
    literal.to_text().unwrap_or_default()
}

/// The items of a batch; those beyond the limit are only counted, because many tiny ones would take much memory.
struct Items<'a> {
    kept: Vec<JsonRef<'a>>,
    count: usize,
}

impl<'a> Items<'a> {
    fn messages(self) -> Vec<Result<Message<'a>, Malformed>> {
        self.kept.into_iter().map(Message::from_item).collect()
    }
}

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor;

        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < MAX_BATCH {
                    match seq.next_element()? {
                        Some(item) => kept.push(item),
                        None => return Ok(Items { count: kept.len(), kept }),
                    }
                }
                let mut count = kept.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Items { kept, count })
            }
        }

        deserializer.deserialize_seq(ItemsVisitor)
    }
}
