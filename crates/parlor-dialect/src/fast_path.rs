//! Reads `session/update` lines in one pass.
//!
//! Nearly all lines of a session are updates of a few hundred bytes. Read layer by layer, each byte would be scanned
//! four times. A line of any other form, or an invalid one, is left to the general parser, which reports problems.

use std::fmt;

use parlor_json::{JsonRef, Members};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A `session/update` notification, read in one pass.
pub(crate) struct UpdateLine<'a> {
    pub(crate) session: JsonRef<'a>,
    pub(crate) update: Members<'a>,
    /// The other members of the params.
    pub(crate) rest: Vec<(&'a str, JsonRef<'a>)>,
}

impl<'a> UpdateLine<'a> {
    /// Reads a line; `None` if it needs the general parser.
    pub(crate) fn read(line: &'a str) -> Option<Self> {
        // The method of an update is near the start of its line.
        let start = line.get(..64)?;
        if !start.contains("\"session/update\"") {
            return None;
        }
        serde_json::from_str::<Envelope<'a>>(line).ok().map(|envelope| envelope.0)
    }
}

/// Maximum number of other members of the params.
const MAX_REST: usize = 8;

struct Envelope<'a>(UpdateLine<'a>);

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;

        impl<'de> Visitor<'de> for Known {
            type Value = Envelope<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the envelope of an update")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut version, mut method, mut params) = (false, false, None);
                while let Some(key) = map.next_key::<&str>()? {
                    match key {
                        "jsonrpc" if !version => version = map.next_value::<&str>()? == "2.0",
                        "method" if !method => method = map.next_value::<&str>()? == "session/update",
                        "params" if params.is_none() => {
                            params = Some(map.next_value::<Params<'de>>()?);
                        }
                        _ => return Err(A::Error::custom("not this shape")),
                    }
                }
                match params {
                    Some(params) if version && method => Ok(Envelope(params.0)),
                    Some(_) | None => Err(A::Error::custom("not this shape")),
                }
            }
        }

        deserializer.deserialize_map(Known)
    }
}

struct Params<'a>(UpdateLine<'a>);

impl<'de> Deserialize<'de> for Params<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;

        impl<'de> Visitor<'de> for Known {
            type Value = Params<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the params of an update")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut session, mut update, mut rest) = (None, None, Vec::new());
                while let Some(key) = map.next_key::<&str>()? {
                    match key {
                        "sessionId" if session.is_none() => session = Some(map.next_value()?),
                        "update" if update.is_none() => update = Some(map.next_value()?),
                        "sessionId" | "update" => return Err(A::Error::custom("not this shape")),
                        _ if rest.len() < MAX_REST => rest.push((key, map.next_value()?)),
                        _ => return Err(A::Error::custom("not this shape")),
                    }
                }
                match (session, update) {
                    (Some(session), Some(update)) => Ok(Params(UpdateLine { session, update, rest })),
                    (Some(_), None) | (None, _) => Err(A::Error::custom("not this shape")),
                }
            }
        }

        deserializer.deserialize_map(Known)
    }
}
