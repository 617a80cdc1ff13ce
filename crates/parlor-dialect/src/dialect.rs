use std::fmt;
use std::str::FromStr;

use parlor_wire::Batches;

/// How a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Protocol version 1.
    V1,
    /// Protocol version 2 as published.
    V2,
    /// Protocol version 2 as the proposals spell it.
    Draft,
}

/// The name of no dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDialect(String);

impl Dialect {
    /// The metadata key by which a v2 peer asks for the draft.
    pub const MARK: &str = "parlor/dialect";

    /// All of them.
    pub const ALL: [Self; 3] = [Self::V1, Self::V2, Self::Draft];

    /// The name by which people choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Draft => "draft",
        }
    }
}

impl Dialect {
    /// Whether batches of messages are taken in this dialect.
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
