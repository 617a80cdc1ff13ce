//! The terminal client of parlor.
//!
//! [`clean`] makes foreign text safe to draw, [`theme`] has the colour roles and marks, [`entry`] renders one entry of a
//! transcript into lines.
//!
//! **Invariant:** text of an agent or of another client is drawn only as [`clean::Clean`].

pub mod clean;
pub mod entry;
pub mod theme;
