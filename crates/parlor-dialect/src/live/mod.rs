//! The dialects for a server with one agent and many clients.
//!
//! A [`Translator`](crate::Translator) forwards lines between one agent and one client. A server owns the session: it
//! answers most requests itself, and sends each client the changes in its dialect.

mod requests;
mod session_state;
mod update_encoder;
mod update_line;

pub use crate::broadcast::{AgentLine, Broadcast, ParamsExtra, drop_reserved, is_notice, map_sessions};
pub use requests::{
    BEGUN, CLIENT_GONE, CLIENT_SERVICE, LEFT_OPEN, SETTLED, agent_info, answer_to_agent, cancelled_answer,
    check_prompt, commands_for, prompt_to_agent, request_to_agent, request_to_client, speaks_v2,
};
pub use session_state::{
    HOOKS, MESSAGE, counts_session, diff, drop_generated_title, failed_state, is_idle, state_after,
    state_name, state_snapshot, turn_result, updates_from_response,
};
pub use update_encoder::{EncodeContext, UpdateEncoder};
pub(crate) use update_line::update_line_with;
pub use update_line::{
    AgentUpdate, ChunkTemplate, Spans, push_update_line, update_kind, update_line, update_of,
};
