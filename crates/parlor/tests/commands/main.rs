//! The commands, as a person or a script uses them: with a server, without one, and with what is broken.

mod forking;
mod help;
mod looking;
mod place;
mod prompting;
mod repairing;
mod serving;
mod terminal;
