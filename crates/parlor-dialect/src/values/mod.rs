//! JSON that the versions spell differently inside a message, converted value by value.
//!
//! Each conversion looks at the shape of what it gets, changes only what the other version spells
//! differently, and passes on every field it does not know. A value that is already in the wanted shape comes
//! out as it went in. What cannot be said is added to the losses.

pub(crate) mod blocks;
pub(crate) mod capabilities;
#[cfg(test)]
pub(crate) mod check;
pub(crate) mod commands;
pub(crate) mod mcp;
pub(crate) mod options;
pub(crate) mod permission;
pub(crate) mod plan;
pub(crate) mod tool_content;
pub(crate) mod turn_end;
