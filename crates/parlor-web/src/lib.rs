//! The web page of parlor.
//!
//! [`render`] turns entries of a transcript into HTML. Everything that an agent sends is untrusted: see
//! [`render::markdown`] and [`render::text`].

pub mod assets;
pub mod render;
