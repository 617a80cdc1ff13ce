use std::fmt;
use std::str::FromStr;

use parlor_json::{Json, JsonRef, Object};
use parlor_wire::{Batches, RpcError, code};

/// The variant of the protocol that a peer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Protocol version 1.
    V1,
    /// Protocol version 2 as published.
    V2,
    /// Protocol version 2 with its proposals.
    Draft,
}

/// A dialect name that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDialect(String);

impl Dialect {
    /// The metadata key with which a v2 peer selects the draft.
    pub const MARK: &str = "parlor/dialect";

    /// All dialects.
    pub const ALL: [Self; 3] = [Self::V1, Self::V2, Self::Draft];

    /// The name for configuration and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Draft => "draft",
        }
    }
}

/// A client requested a protocol version that was never published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedVersion;

impl Dialect {
    /// The version of the protocol that the dialect belongs to.
    pub const fn version(self) -> u16 {
        match self {
            Self::V1 => 1,
            Self::V2 | Self::Draft => 2,
        }
    }

    /// The dialect of a connection, by the params of its `initialize`.
    ///
    /// Version 1 is v1 and version 2 is v2, or its draft if the metadata selects it. A request for a later version gets the latest supported one. Version 0 was never published.
    ///
    /// ```
    /// use parlor_dialect::Dialect;
    ///
    /// let dialect = |params: &str| Dialect::negotiate(serde_json::from_str(params).unwrap());
    /// assert_eq!(dialect(r#"{"protocolVersion":1}"#), Ok(Dialect::V1));
    /// assert_eq!(dialect(r#"{"protocolVersion":2}"#), Ok(Dialect::V2));
    /// let draft = r#"{"protocolVersion":2,"_meta":{"parlor/dialect":"draft"}}"#;
    /// assert_eq!(dialect(draft), Ok(Dialect::Draft));
    /// assert_eq!(dialect(r#"{"protocolVersion":7}"#), Ok(Dialect::V2));
    /// assert!(dialect(r#"{"protocolVersion":0}"#).is_err());
    /// ```
    pub fn negotiate(params: JsonRef<'_>) -> Result<Self, UnsupportedVersion> {
        let params = Object::parse(params).map_err(|_| UnsupportedVersion)?;
        let version = params.get("protocolVersion").ok_or(UnsupportedVersion)?.as_str();
        let mark = params.get_object("_meta").and_then(|meta| meta.get_string(Self::MARK));
        match version.parse::<u64>().map_err(|_| UnsupportedVersion)? {
            0 => Err(UnsupportedVersion),
            1 => Ok(Self::V1),
            2.. if mark.as_deref() == Some(Self::Draft.name()) => Ok(Self::Draft),
            2.. => Ok(Self::V2),
        }
    }

    /// Whether the dialect allows batches of messages.
    pub const fn batches(self) -> Batches {
        match self {
            Self::V1 => Batches::Refuse,
            Self::V2 | Self::Draft => Batches::Accept,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        Self::ALL
            .into_iter()
            .find(|dialect| dialect.name() == name)
            .ok_or_else(|| UnknownDialect(name.to_owned()))
    }
}

impl fmt::Display for UnknownDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown dialect '{}': it is one of v1, v2, draft", self.0)
    }
}

impl std::error::Error for UnknownDialect {}

impl UnsupportedVersion {
    /// The error response to such an `initialize`.
    pub fn to_error(self) -> RpcError {
        let data =
            Object::new().with("supported", Json::array([Json::from(1_u64), Json::from(2_u64)])).to_json();
        RpcError::new(code::UNSUPPORTED_VERSION, self.to_string()).with_data(data)
    }
}

impl fmt::Display for UnsupportedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unsupported protocol version: 1 and 2 are supported")
    }
}

impl std::error::Error for UnsupportedVersion {}
