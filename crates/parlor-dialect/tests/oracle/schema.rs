//! What the schema crate says: its methods, the types of their messages, and the JSON Schema of each type.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use agent_client_protocol_schema::{v1, v2};
use jsonschema::Validator;
use parlor_dialect::{Dialect, Side};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::compare;

/// One type of the schema crate.
pub(crate) struct Shape {
    /// The JSON Schema that the crate generates for it.
    pub(crate) schema: Value,
    validator: Validator,
    round_trip: fn(&str) -> serde_json::Result<Value>,
}

/// What is said under the name of one method.
pub(crate) struct Method {
    pub(crate) name: &'static str,
    /// Who may send it.
    pub(crate) by: Side,
    pub(crate) call: Call,
}

/// How a method is called.
pub(crate) enum Call {
    Request { params: Shape, result: Shape },
    Notification { params: Shape },
}

/// One version of the protocol.
pub(crate) struct Version {
    pub(crate) methods: Vec<Method>,
    /// Every method that the crate's tables name.
    pub(crate) names: BTreeSet<String>,
    pub(crate) error: Shape,
}

impl Shape {
    fn of<T: DeserializeOwned + Serialize + JsonSchema>() -> Self {
        let schema = schemars::schema_for!(T).to_value();
        let validator = jsonschema::draft202012::new(&schema).expect("the crate's schemas are schemas");
        Self { schema, validator, round_trip: |text| serde_json::to_value(serde_json::from_str::<T>(text)?) }
    }

    /// What is wrong with a value of this type: it does not parse, something that the type knows is lost when
    /// it does, or its schema refuses it.
    pub(crate) fn problems(&self, value: &Value) -> Vec<String> {
        let mut problems = match (self.round_trip)(&value.to_string()) {
            Ok(typed) => compare::losses(&self.schema, value, &typed),
            // Where it stopped is of no use: the value was written for the type just now.
            Err(error) => {
                let error = error.to_string();
                vec![format!("does not parse: {}", error.split(" at line").next().unwrap_or_default())]
            }
        };
        let refused = self.validator.iter_errors(value);
        problems
            .extend(refused.map(|error| format!("schema, {}: {}", error.instance_path(), error.masked())));
        problems
    }

    /// The method that the schema says this type belongs to.
    pub(crate) fn method(&self) -> Option<&str> {
        self.schema.get("x-method")?.as_str()
    }
}

impl Version {
    /// The version whose types a dialect's messages are.
    pub(crate) fn of(dialect: Dialect) -> &'static Self {
        static V1: OnceLock<Version> = OnceLock::new();
        static V2: OnceLock<Version> = OnceLock::new();
        match dialect {
            Dialect::V1 => V1.get_or_init(version_1),
            Dialect::V2 | Dialect::Draft => V2.get_or_init(version_2),
        }
    }

    /// The version that a dialect is not of.
    pub(crate) fn other(dialect: Dialect) -> &'static Self {
        Self::of(if dialect == Dialect::V1 { Dialect::V2 } else { Dialect::V1 })
    }

    pub(crate) fn request(&self, by: Side, name: &str) -> Option<(&Shape, &Shape)> {
        self.named(by, name).find_map(|method| match &method.call {
            Call::Request { params, result } => Some((params, result)),
            Call::Notification { .. } => None,
        })
    }

    pub(crate) fn notification(&self, by: Side, name: &str) -> Option<&Shape> {
        self.named(by, name).find_map(|method| match &method.call {
            Call::Notification { params } => Some(params),
            Call::Request { .. } => None,
        })
    }

    fn named(&self, by: Side, name: &str) -> impl Iterator<Item = &Method> {
        self.methods.iter().filter(move |method| method.name == name && method.by == by)
    }

    /// The type that carries updates.
    pub(crate) fn update(&self) -> &Shape {
        self.notification(Side::Agent, "session/update").expect("updates are notifications")
    }

    /// The names of all updates.
    pub(crate) fn updates(&self) -> Vec<&str> {
        self.update_branches().iter().filter_map(update_name).collect()
    }

    /// The schemas of all kinds of updates. One without a name takes those that are not known.
    pub(crate) fn update_branches(&self) -> &[Value] {
        let update = &self.update().schema["$defs"]["SessionUpdate"];
        let branches = update.get("oneOf").or_else(|| update.get("anyOf")).and_then(Value::as_array);
        branches.expect("updates are distinguished by name")
    }
}

/// The name of a kind of update.
pub(crate) fn update_name(branch: &Value) -> Option<&str> {
    branch["properties"]["sessionUpdate"]["const"].as_str()
}

/// The methods of one version: who calls them, with what, and what comes back.
macro_rules! methods {
    ($version:ident: $($by:ident $name:literal $params:ident $(-> $result:ident)?,)*) => {
        vec![$(Method {
            name: $name,
            by: Side::$by,
            call: methods!(@call $version $params $($result)?),
        },)*]
    };
    (@call $version:ident $params:ident $result:ident) => {
        Call::Request { params: Shape::of::<$version::$params>(), result: Shape::of::<$version::$result>() }
    };
    (@call $version:ident $params:ident) => {
        Call::Notification { params: Shape::of::<$version::$params>() }
    };
}

fn version_1() -> Version {
    let methods = methods! { v1:
        Client "initialize" InitializeRequest -> InitializeResponse,
        Client "authenticate" AuthenticateRequest -> AuthenticateResponse,
        Client "logout" LogoutRequest -> LogoutResponse,
        Client "auth/status" AuthStatusRequest -> AuthStatusResponse,
        Client "providers/list" ListProvidersRequest -> ListProvidersResponse,
        Client "providers/set" SetProviderRequest -> SetProviderResponse,
        Client "providers/disable" DisableProviderRequest -> DisableProviderResponse,
        Client "session/new" NewSessionRequest -> NewSessionResponse,
        Client "session/load" LoadSessionRequest -> LoadSessionResponse,
        Client "session/resume" ResumeSessionRequest -> ResumeSessionResponse,
        Client "session/fork" ForkSessionRequest -> ForkSessionResponse,
        Client "session/list" ListSessionsRequest -> ListSessionsResponse,
        Client "session/close" CloseSessionRequest -> CloseSessionResponse,
        Client "session/delete" DeleteSessionRequest -> DeleteSessionResponse,
        Client "session/archive" ArchiveSessionRequest -> ArchiveSessionResponse,
        Client "session/unarchive" UnarchiveSessionRequest -> UnarchiveSessionResponse,
        Client "session/status" SessionStatusRequest -> SessionStatusResponse,
        Client "session/set_title" SetSessionTitleRequest -> SetSessionTitleResponse,
        Client "session/set_mode" SetSessionModeRequest -> SetSessionModeResponse,
        Client "session/set_config_option" SetSessionConfigOptionRequest -> SetSessionConfigOptionResponse,
        Client "session/prompt" PromptRequest -> PromptResponse,
        Client "session/cancel" CancelNotification,
        Client "mcp/message" MessageMcpNotification,
        Agent "mcp/message" MessageMcpRequest -> MessageMcpResponse,
        Agent "session/update" SessionNotification,
        Agent "session/request_permission" RequestPermissionRequest -> RequestPermissionResponse,
        Agent "fs/write_text_file" WriteTextFileRequest -> WriteTextFileResponse,
        Agent "fs/read_text_file" ReadTextFileRequest -> ReadTextFileResponse,
        Agent "terminal/create" CreateTerminalRequest -> CreateTerminalResponse,
        Agent "terminal/output" TerminalOutputRequest -> TerminalOutputResponse,
        Agent "terminal/release" ReleaseTerminalRequest -> ReleaseTerminalResponse,
        Agent "terminal/wait_for_exit" WaitForTerminalExitRequest -> WaitForTerminalExitResponse,
        Agent "terminal/kill" KillTerminalRequest -> KillTerminalResponse,
        Agent "elicitation/create" CreateElicitationRequest -> CreateElicitationResponse,
        Agent "elicitation/complete" CompleteElicitationNotification,
        Agent "auth/status_update" AuthStatusUpdateNotification,
        Client "$/cancel_request" CancelRequestNotification,
        Agent "$/cancel_request" CancelRequestNotification,
        Client "proxy/initialize" InitializeProxyRequest -> InitializeProxyResponse,
        Client "proxy/successor" ProxySuccessorRequest -> ProxySuccessorResponse,
        Agent "proxy/successor" ProxySuccessorRequest -> ProxySuccessorResponse,
        Client "proxy/successor" ProxySuccessorNotification,
        Agent "proxy/successor" ProxySuccessorNotification,
    };
    let names = [
        names_in(&v1::AGENT_METHOD_NAMES),
        names_in(&v1::CLIENT_METHOD_NAMES),
        names_in(&v1::PROTOCOL_LEVEL_METHOD_NAMES),
        names_in(&v1::PROXY_METHOD_NAMES),
    ];
    Version { methods, names: names.into_iter().flatten().collect(), error: Shape::of::<v1::Error>() }
}

fn version_2() -> Version {
    let methods = methods! { v2:
        Client "initialize" InitializeRequest -> InitializeResponse,
        Client "auth/login" LoginAuthRequest -> LoginAuthResponse,
        Client "auth/logout" LogoutAuthRequest -> LogoutAuthResponse,
        Client "auth/status" AuthStatusRequest -> AuthStatusResponse,
        Client "providers/list" ListProvidersRequest -> ListProvidersResponse,
        Client "providers/set" SetProviderRequest -> SetProviderResponse,
        Client "providers/disable" DisableProviderRequest -> DisableProviderResponse,
        Client "session/new" NewSessionRequest -> NewSessionResponse,
        Client "session/resume" ResumeSessionRequest -> ResumeSessionResponse,
        Client "session/fork" ForkSessionRequest -> ForkSessionResponse,
        Client "session/list" ListSessionsRequest -> ListSessionsResponse,
        Client "session/close" CloseSessionRequest -> CloseSessionResponse,
        Client "session/delete" DeleteSessionRequest -> DeleteSessionResponse,
        Client "session/archive" ArchiveSessionRequest -> ArchiveSessionResponse,
        Client "session/unarchive" UnarchiveSessionRequest -> UnarchiveSessionResponse,
        Client "session/status" SessionStatusRequest -> SessionStatusResponse,
        Client "session/set_title" SetSessionTitleRequest -> SetSessionTitleResponse,
        Client "session/set_config_option" SetSessionConfigOptionRequest -> SetSessionConfigOptionResponse,
        Client "session/prompt" PromptRequest -> PromptResponse,
        Client "session/cancel" CancelSessionNotification,
        Client "tool_call/cancel" CancelToolCallRequest -> CancelToolCallResponse,
        Client "terminal/cancel" CancelTerminalRequest -> CancelTerminalResponse,
        Client "mcp/message" MessageMcpNotification,
        Agent "mcp/message" MessageMcpRequest -> MessageMcpResponse,
        Agent "session/update" UpdateSessionNotification,
        Agent "session/request_permission" RequestPermissionRequest -> RequestPermissionResponse,
        Agent "elicitation/create" CreateElicitationRequest -> CreateElicitationResponse,
        Agent "elicitation/complete" CompleteElicitationNotification,
        Agent "auth/status_update" AuthStatusUpdateNotification,
        Client "$/cancel_request" CancelRequestNotification,
        Agent "$/cancel_request" CancelRequestNotification,
        Client "proxy/initialize" InitializeProxyRequest -> InitializeProxyResponse,
        Client "proxy/successor" ProxySuccessorRequest -> ProxySuccessorResponse,
        Agent "proxy/successor" ProxySuccessorRequest -> ProxySuccessorResponse,
        Client "proxy/successor" ProxySuccessorNotification,
        Agent "proxy/successor" ProxySuccessorNotification,
    };
    let names = [
        names_in(&v2::AGENT_METHOD_NAMES),
        names_in(&v2::CLIENT_METHOD_NAMES),
        names_in(&v2::PROTOCOL_LEVEL_METHOD_NAMES),
        names_in(&v2::PROXY_METHOD_NAMES),
    ];
    Version { methods, names: names.into_iter().flatten().collect(), error: Shape::of::<v2::Error>() }
}

/// The names in one of the crate's tables.
fn names_in(table: &impl Serialize) -> Vec<String> {
    let table = serde_json::to_value(table).expect("a table of names is JSON");
    let names = table.as_object().expect("a table of names is an object").values();
    names.map(|name| name.as_str().expect("a name is a string").to_owned()).collect()
}

#[test]
fn every_method_of_the_schema_has_its_types_here() {
    for dialect in [Dialect::V1, Dialect::V2] {
        let version = Version::of(dialect);
        let here: BTreeSet<_> = version.methods.iter().map(|method| method.name.to_owned()).collect();
        assert_eq!(here, version.names, "{dialect}");
        for method in &version.methods {
            let shapes = match &method.call {
                Call::Request { params, result } => vec![params, result],
                Call::Notification { params } => vec![params],
            };
            for json_ext in shapes {
                assert_eq!(json_ext.method(), Some(method.name), "{dialect}: {}", json_ext.schema["title"]);
            }
        }
    }
}
