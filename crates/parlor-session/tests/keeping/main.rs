//! Telling a session at somebody's own pace, and keeping it as rows.

mod conversations;
mod reading;
mod stored;
