//! Sessions, updates and requests as a server sends them.

pub(super) const SESSIONS: &[&str] = &[
    r#"{"sessionId":"s1","cwd":"/home/dev/src/parlor","title":"Fix flaky port test","updatedAt":"2026-11-17T14:03:00Z","_meta":{"parlor/agent":"claude","parlor/row":{"state":"running","mode":"ask","model":"opus","lastPromptAt":"2026-11-17T14:03:32Z","usage":{"used":124000,"size":200000,"cost":{"amount":1.84,"currency":"USD"}}}}}"#,
    r#"{"sessionId":"s2","cwd":"/home/dev/src/parlor","title":"Axum upgrade","updatedAt":"2026-11-17T14:00:20Z","_meta":{"parlor/agent":"codex","parlor/row":{"state":"needs_you","openRequests":1}}}"#,
    r#"{"sessionId":"s3","cwd":"/home/dev/src/parlor","title":"Document the token","updatedAt":"2026-11-17T13:00:00Z","_meta":{"parlor/agent":"gemini","parlor/row":{"state":"idle","unread":true}}}"#,
    r#"{"sessionId":"s4","cwd":"/home/dev/src/parlor","title":"shorter","updatedAt":"2026-11-17T13:00:00Z","_meta":{"parlor/agent":"claude","parlor/parent":"s3","parlor/forkedAt":"a1","parlor/row":{"forkedFrom":{"sessionId":"s3","messageId":"a1","messages":2},"state":"idle"}}}"#,
    r#"{"sessionId":"s5","cwd":"/home/dev/src/parlor","title":"for operators","updatedAt":"2026-11-17T12:00:00Z","_meta":{"parlor/agent":"gemini","parlor/parent":"s3","parlor/forkedAt":"a1","parlor/row":{"forkedFrom":{"sessionId":"s3","messageId":"a1","messages":2},"state":"idle"}}}"#,
    r#"{"sessionId":"s6","cwd":"/home/dev/src/shop","title":"Invoice rounding","updatedAt":"2026-11-17T11:00:00Z","_meta":{"parlor/agent":"claude","parlor/row":{"state":"failed"}}}"#,
    r#"{"sessionId":"s7","cwd":"/home/dev/src/shop","title":"請求書の丸め誤差を直す","updatedAt":"2026-11-15T11:00:00Z","_meta":{"parlor/agent":"codex","parlor/row":{"state":"idle","unread":true}}}"#,
];

pub(super) const RUNNING: &str = r#"{"sessionUpdate":"state_update","state":"running"}"#;
pub(super) const IDLE: &str = r#"{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}"#;
pub(super) const PROMPT: &str = r#"{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"The port test fails about once in twenty runs. Find out why and make it stable. Do not raise the timeout."}]}"#;
pub(super) const ANSWER: &str = r#"{"sessionUpdate":"agent_message","messageId":"a1","content":[{"type":"text","text":"free_port() closes its listener before the server binds, so two tests can get the same port. I keep the listener open and pass it on:"}]}"#;
pub(super) const TOOL: &str = r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Run cargo test -p parlor-server port","kind":"execute","status":"in_progress","rawInput":{"command":"cargo test -p parlor-server port"}}"#;
pub(super) const QUEUE: &str = r#"{"sessionUpdate":"session_info_update","_meta":{"parlor/queue":[{"id":7,"text":"Then add an entry to CHANGELOG.md.","from":3}]}}"#;
pub(super) const OPTIONS: &str = r#"{"sessionUpdate":"config_option_update","configOptions":[
    {"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"ask","options":[
        {"value":"ask","name":"ask","description":"asks before edits and commands"},
        {"value":"bypass","name":"bypass","description":"asks nothing"}]},
    {"configId":"model","name":"Model","category":"model","type":"select","currentValue":"opus","options":[
        {"value":"opus","name":"opus","description":"200k context"},{"value":"haiku","name":"haiku","description":"fastest"}]},
    {"configId":"thinking","name":"thinking","type":"select","currentValue":"medium","options":[
        {"value":"low","name":"low"},{"value":"medium","name":"medium"}]},
    {"configId":"web","name":"web search","type":"boolean","currentValue":false}]}"#;

pub(super) const COMMAND_REQUEST: &str = r#"{"requestId":"r1","sessionId":"s1","title":"Fix flaky port test","agent":"claude","cwd":"/home/dev/src/parlor","openedAt":"2026-11-17T14:05:22Z","method":"session/request_permission","params":{"description":"Remove generated port files","options":[{"optionId":"y","name":"Allow once","kind":"allow_once"},{"optionId":"a","name":"Allow always: git clean","kind":"allow_always"},{"optionId":"n","name":"Reject","kind":"reject_once"},{"optionId":"N","name":"Reject always: git clean","kind":"reject_always"}]},"toolCall":{"toolCallId":"t9","title":"Run rm","kind":"execute","rawInput":{"command":"rm -rf target/ports &&\ngit clean -fd crates/parlor-server/tests"},"_meta":{"claudeCode":{"toolName":"Bash"}}}}"#;
pub(super) const EDIT_REQUEST: &str = r#"{"requestId":"r2","sessionId":"s2","title":"Axum upgrade","agent":"codex","cwd":"/home/dev/src/parlor","openedAt":"2026-11-17T14:00:20Z","method":"session/request_permission","params":{"options":[{"optionId":"y","name":"Yes","kind":"allow_once"},{"optionId":"n","name":"No","kind":"reject_once"}]},"toolCall":{"toolCallId":"t8","title":"Edit http.rs","kind":"edit","locations":[{"path":"src/http.rs"},{"path":"src/ws.rs"}]}}"#;
pub(super) const FORM_REQUEST: &str = r#"{"requestId":"r3","sessionId":"s1","title":"Postgres","agent":"opencode","cwd":"/home/dev/src/shop","openedAt":"2026-11-17T13:52:50Z","method":"elicitation/create","params":{"mode":"form","message":"How should the database be set up?","requestedSchema":{"type":"object","required":["name","schema"],"properties":{"name":{"type":"string","title":"Database name","description":"letters, digits and _","maxLength":63,"default":"shop"},"schema":{"type":"string","title":"Schema","oneOf":[{"const":"one","title":"one schema for all tenants"},{"const":"many","title":"one schema per tenant"}]},"pool":{"type":"integer","title":"Pool size","minimum":1,"maximum":100,"default":20},"extensions":{"type":"array","title":"Extensions","items":{"enum":["pg_trgm","postgis","citext"]}}}}}}"#;
