//! Agents of the official SDK that stream: it has one kind for each version.

pub(crate) mod v1;
pub(crate) mod v2;
