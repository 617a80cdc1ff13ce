use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use parlor_json::{JsonRef, JsonStr, Members, Type};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::{Malformed, Reason, RequestId, span_of, splice};

/// How many messages one batch may hold.
pub const MAX_BATCH: usize = 1000;

/// Whether a connection takes batches: protocol version 2 does, version 1 does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batches {
    /// A batch is taken apart.
    Accept,
    /// A batch is malformed.
    Refuse,
}

/// What one line holds.
#[derive(Debug, Clone)]
pub enum Incoming<'a> {
    /// One message, as nearly always.
    One(Message<'a>),
    /// Several messages, in order; a broken one does not spoil the others.
    Batch(Vec<Result<Message<'a>, Malformed>>),
}

/// One message, borrowed from its text.
///
/// The envelope is understood; what it carries is not looked into.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    /// What the message says.
    pub body: Body<'a>,
    /// The names and values of the envelope's other members, in order. Nobody here knows them, so whoever
    /// builds the message anew has to carry them over.
    pub extra: Vec<(JsonRef<'a>, JsonRef<'a>)>,
    text: &'a str,
    id_span: Option<Range<usize>>,
}

/// The three kinds of messages.
#[derive(Debug, Clone)]
pub enum Body<'a> {
    /// Wants an answer.
    Request {
        /// What the answer must carry.
        id: RequestId,
        /// What is asked for. Half a surrogate pair shows as U+FFFD here and is kept in the text.
        method: Cow<'a, str>,
        /// With what; any JSON.
        params: Option<JsonRef<'a>>,
    },
    /// Wants no answer.
    Notification {
        /// What is told, spelled as in a request.
        method: Cow<'a, str>,
        /// With what; any JSON.
        params: Option<JsonRef<'a>>,
    },
    /// Is an answer.
    Response {
        /// The id of the request; null where the peer could not read it.
        id: RequestId,
        /// How the request went.
        outcome: Outcome<'a>,
    },
}

/// How a request went.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// It went well.
    Result(JsonRef<'a>),
    /// It failed; see [`RpcError::from_raw`](crate::RpcError::from_raw).
    Error(JsonRef<'a>),
}

/// Reads one line in one pass.
pub fn parse(line: &str, batches: Batches) -> Result<Incoming<'_>, Malformed> {
    let not_json = |error: serde_json::Error| Malformed::unclear(Reason::NotJson(error.to_string()), line);
    match line.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next() {
        None => Err(Malformed::blank()),
        Some(b'{') => {
            let members = serde_json::from_str(line).map_err(|error| {
                // An object that is valid as a whole can only have had too many members.
                match serde_json::from_str::<JsonRef<'_>>(line) {
                    Ok(_) => Malformed::unclear(Reason::TooManyMembers, line),
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
            Err(Malformed::unclear(reason, line))
        }
        Some(_) => {
            let raw: JsonRef<'_> = serde_json::from_str(line).map_err(not_json)?;
            Err(Malformed::unclear(Reason::NotAMessage(raw.type_of()), line))
        }
    }
}

impl<'a> Message<'a> {
    /// The text of the message, as it came. For an item of a batch it is the text of that item.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The id of a request or a response.
    pub fn id(&self) -> Option<&RequestId> {
        match &self.body {
            Body::Request { id, .. } | Body::Response { id, .. } => Some(id),
            Body::Notification { .. } => None,
        }
    }

    /// The method of a request or a notification.
    pub fn method(&self) -> Option<&str> {
        match &self.body {
            Body::Request { method, .. } | Body::Notification { method, .. } => Some(method),
            Body::Response { .. } => None,
        }
    }

    /// The params of a request or a notification, if it has any.
    pub fn params(&self) -> Option<JsonRef<'a>> {
        match &self.body {
            Body::Request { params, .. } | Body::Notification { params, .. } => *params,
            Body::Response { .. } => None,
        }
    }

    /// The text with another id and every other byte as it was. A notification has none and stays the same.
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
        // The span is of this text, so there is always a spliced one.
        splice(self.text, replacement.as_slice()).unwrap_or_else(|| self.text.to_owned())
    }

    fn from_item(item: JsonRef<'a>) -> Result<Self, Malformed> {
        let members =
            Members::of(item).map_err(|reason| Malformed::unclear(Reason::from(reason), item.as_str()))?;
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

/// The members of a message, sorted into those with a meaning and the others.
#[derive(Default)]
struct Envelope<'a> {
    version: Option<JsonRef<'a>>,
    id: Option<JsonRef<'a>>,
    method: Option<JsonRef<'a>>,
    params: Option<JsonRef<'a>>,
    result: Option<JsonRef<'a>>,
    error: Option<JsonRef<'a>>,
    extra: Vec<(JsonRef<'a>, JsonRef<'a>)>,
    repeated: Option<&'static str>,
}

impl<'a> Envelope<'a> {
    fn of(members: &Members<'a>) -> Self {
        let mut envelope = Self::default();
        for &(key, value) in members.raw() {
            match envelope.slot(&plain(key)) {
                Some((_, slot @ None)) => *slot = Some(value),
                Some((name, Some(_))) => envelope.repeated = envelope.repeated.or(Some(name)),
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
        if let Some(name) = self.repeated {
            return Err(Reason::Repeated(name));
        }
        if self.version.is_none_or(|version| plain(version) != "2.0") {
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
        if is_there(self.result) || is_there(self.error) {
            return Err(Reason::MethodAndOutcome);
        }
        let (method, params) = (plain(method), self.params);
        Ok(match id {
            Some(id) => Body::Request { id, method, params },
            None => Body::Notification { method, params },
        })
    }

    /// Some peers write both members and null into the one that does not apply; a null alone is a result.
    fn outcome(&self) -> Result<Outcome<'a>, Reason> {
        match (self.result, self.error) {
            (result, Some(error)) if is_there(Some(error)) => {
                if is_there(result) {
                    Err(Reason::ResultAndError)
                } else {
                    Ok(Outcome::Error(error))
                }
            }
            (Some(result), _) => Ok(Outcome::Result(result)),
            (None, _) => Err(Reason::Shapeless),
        }
    }

    fn malformed(&self, reason: Reason, text: &str) -> Malformed {
        let id = match self.repeated {
            Some("id") => None,
            Some(_) | None => self.id.and_then(|id| RequestId::from_raw(id).ok()),
        };
        let answers = self.result.is_some() || self.error.is_some();
        let answer_to = match (self.method, answers) {
            (None, true) => None,
            // Without params it may as well be the response of a peer that leaves out an undefined result.
            (None, false) if self.params.is_none() => Some(RequestId::null()),
            (Some(_), true) => Some(RequestId::null()),
            (Some(_) | None, false) => Some(id.clone().unwrap_or_else(RequestId::null)),
        };
        Malformed { id, answer_to, ..Malformed::unclear(reason, text) }
    }
}

fn is_there(member: Option<JsonRef<'_>>) -> bool {
    member.is_some_and(|raw| raw.type_of() != Type::Null)
}

/// The text of a string literal, borrowed where it has no escapes; empty for any other value.
fn plain(literal: JsonRef<'_>) -> Cow<'_, str> {
    let inner = literal.as_str().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(_) | None => {
            Cow::Owned(JsonStr::from_raw(literal).map_or_else(String::new, |s| s.to_text().into()))
        }
    }
}

/// The items of a batch. Those beyond the limit are counted and not kept: they can be many and tiny.
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
        struct Limited;

        impl<'de> Visitor<'de> for Limited {
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

        deserializer.deserialize_seq(Limited)
    }
}
