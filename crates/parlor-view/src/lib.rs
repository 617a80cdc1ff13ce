//! What the entries of a transcript show, for any output: the terminal client and the web page.
//!
//! | to show | use |
//! |---|---|
//! | Markdown that grows | [`blocks`] |
//! | source code | [`highlight`] |
//! | tool calls | [`tool_call`] |
//! | changes of files | [`diff`] |
//! | output of programs | [`terminal`] |
//! | events, plans and unknown updates | [`event`] |
//! | images, files and links in one line | [`content_block`] |
//! | the address of an entry on the page | [`address`] |
//! | the name of a browser | [`browser`] |
//! | an amount of money | [`money`] |
//!
//! **Invariant:** this crate knows neither a terminal nor HTML. Its texts are untrusted: the output makes them safe.

pub mod address;
pub mod blocks;
pub mod browser;
pub mod content_block;
pub mod diff;
pub mod event;
pub mod highlight;
pub mod money;
pub mod terminal;
pub mod tool_call;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
