//! One file per command; the doc comment of its arguments is its help.

pub(crate) mod acp;
pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod archive;
pub(crate) mod cancel;
pub(crate) mod demo_agent;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod export;
pub(crate) mod fold;
pub(crate) mod fork;
pub(crate) mod inbox;
pub(crate) mod ls;
pub(crate) mod prompt;
pub(crate) mod regenerate;
pub(crate) mod rm;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod title;
pub(crate) mod translate;
pub(crate) mod watch;
pub(crate) mod watch_agents;
