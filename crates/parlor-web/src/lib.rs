//! The web page of parlor.
//!
//! [`render`] turns entries of a transcript into HTML. Everything that an agent sends is untrusted: see
//! [`render::markdown`] and [`render::text`]. [`page`] serves the page, [`export`] is a session as one file.

pub mod assets;
pub mod export;
pub mod page;
pub mod render;
