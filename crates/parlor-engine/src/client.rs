//! Clients, as sessions see them.

use parlor_dialect::Dialect;
use parlor_dialect::event::wants_events;
use parlor_json::Object;
use parlor_session::Decider;
use parlor_session::session::ClientId;

/// A connected client, as far as sessions have to know it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each of them holds or not by itself")]
pub struct ClientInfo {
    /// Names it among all clients of the server.
    pub id: ClientId,
    /// The dialect that it speaks.
    pub dialect: Dialect,
    /// The params of its `initialize`.
    pub initialize: Object,
    /// Whether it may act, and not only watch.
    pub is_driver: bool,
    /// Whether its files are those of the server's machine.
    pub is_local: bool,
    /// Whether it wants the number of each change.
    pub wants_seq: bool,
    /// Whether it wants to be sent events.
    pub wants_events: bool,
    /// Whether it wants to know which clients are attached.
    pub wants_clients: bool,
    /// Whether it wants to know when the entries that it is sent again were created. Only version 2 has a place for that.
    pub wants_times: bool,
    /// Whether it is sent the sessions of subagents without attaching to them. Every client of version 2 is, unless it says
    /// otherwise; one of version 1 has to declare it.
    pub follows_subagents: bool,
    /// Which elicitations it can show.
    elicitation: Option<Object>,
}

impl ClientInfo {
    /// Reads what a client says of itself in `initialize`.
    pub fn new(id: ClientId, dialect: Dialect, initialize: Object, is_driver: bool, is_local: bool) -> Self {
        let wants = |key: &str| {
            initialize.get_nested("_meta", key).is_some_and(|wants| wants.as_bool() == Some(true))
        };
        let (wants_seq, wants_clients) = (wants("parlor/seq"), wants("parlor/clients"));
        let wants_times = dialect != Dialect::V1 && wants("parlor/times");
        let wants_events = wants_events(&initialize);
        let capabilities = capabilities(dialect, &initialize);
        let elicitation = capabilities.get_object("elicitation");
        let follows_subagents = match dialect {
            Dialect::V1 => capabilities.get_object("subagents").is_some(),
            Dialect::V2 | Dialect::Draft => {
                let follows = initialize.get_nested("_meta", "parlor/subagents");
                follows.is_none_or(|follows| follows.as_bool() != Some(false))
            }
        };
        Self {
            id,
            dialect,
            initialize,
            is_driver,
            is_local,
            wants_seq,
            wants_events,
            wants_clients,
            wants_times,
            follows_subagents,
            elicitation,
        }
    }

    /// What it can do.
    pub fn capabilities(&self) -> Object {
        capabilities(self.dialect, &self.initialize)
    }

    /// Who it is, for the record.
    pub fn decider(&self) -> Decider {
        let name = if self.dialect == Dialect::V1 { "clientInfo" } else { "info" };
        let info = self.initialize.get_object(name);
        let name = info.and_then(|info| info.get_json_str("title").or_else(|| info.get_json_str("name")));
        Decider { client: self.id, name }
    }

    /// Whether it can show elicitations of a mode (a form, a link), or of any.
    pub fn elicits(&self, mode: Option<&str>) -> bool {
        let has =
            |mode: &str| self.elicitation.as_ref().is_some_and(|modes| modes.get_object(mode).is_some());
        match mode {
            Some(mode) => has(mode),
            None => has("form") || has("url"),
        }
    }

    /// Whether it serves this method of `fs/*` or `terminal/*`. Only version 1 has these capabilities.
    pub fn serves(&self, method: &str) -> bool {
        let Some(capabilities) = self.initialize.get_object("clientCapabilities") else { return false };
        let (holder, capability) = match method {
            "fs/read_text_file" => (capabilities.get_object("fs"), "readTextFile"),
            "fs/write_text_file" => (capabilities.get_object("fs"), "writeTextFile"),
            _ if method.starts_with("terminal/") => (Some(capabilities), "terminal"),
            _ => return false,
        };
        holder.is_some_and(|holder| holder.get_bool(capability) == Some(true))
    }
}

/// The capabilities in the params of `initialize`.
fn capabilities(dialect: Dialect, initialize: &Object) -> Object {
    let name = match dialect {
        Dialect::V1 => "clientCapabilities",
        Dialect::V2 | Dialect::Draft => "capabilities",
    };
    initialize.get_object(name).unwrap_or_default()
}
