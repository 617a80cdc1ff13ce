//! The terminal client of parlor.
//!
//! [`App`] is the state: [`App::update`] turns an [`Event`] into changes and [`Effect`]s without I/O, [`App::render`] draws it.
//! [`shell::run`] owns the terminal and the connections, runs the effects and sends the events.
//!
//! [`clean`] makes foreign text safe to draw, [`theme`] has the colour roles and marks, [`entry`] renders one entry of a
//! transcript into lines, [`keys`] has all keys.
//!
//! **Invariant:** text of an agent or of another client is drawn only as [`clean::Clean`].
//!
//! **Invariant:** nothing but [`shell`] does I/O or reads a clock.

pub mod ansi;
pub mod app;
pub mod clean;
pub mod conversation;
pub mod entry;
pub mod event;
pub mod field;
pub mod form;
pub mod fuzzy;
pub mod input;
pub mod keys;
pub mod overlay;
pub mod request;
pub mod sessions;
pub mod shell;
pub mod text;
pub mod theme;
pub mod time;

pub use app::{App, Detached, Start, TerminalOptions};
pub use event::{Call, Effect, Event};
