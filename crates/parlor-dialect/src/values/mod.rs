//! Conversions of JSON values that differ between the versions.
//!
//! Each conversion changes only what differs and keeps unknown fields. A value that is in the target form already is
//! unchanged. Values that cannot be expressed are added to the losses.

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
