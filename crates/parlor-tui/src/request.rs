//! Requests that wait for a person: permissions and forms.

use jiff::Timestamp;
use parlor_client::{
    Object, OpenRequest, PeerRequest, PermissionOption, PermissionOptionKind, SessionId, ToolCallId,
    Transcript,
};

use crate::clean::Clean;
use crate::entry::request::RequestDetails;
use crate::form::Form;

/// A request that waits for a person.
#[derive(Debug, Clone)]
pub struct Request {
    /// The id with which it is answered.
    pub id: String,
    /// Its session.
    pub session: SessionId,
    /// The title of its session.
    pub session_title: Clean,
    /// The agent that sent it.
    pub agent: Clean,
    /// The working directory of its session.
    pub cwd: String,
    /// When the agent sent it.
    pub opened: Option<Timestamp>,
    /// A permission, or values.
    pub subject: Subject,
}

/// The kind of a request with its content.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A permission.
    Permission(Box<Permission>),
    /// A form, or a link to open.
    Form(Box<Form>),
    /// Something that this client cannot show but as JSON. It can be declined.
    Unknown(Clean),
}

/// A permission request.
#[derive(Debug, Clone)]
pub struct Permission {
    /// Everything that it permits.
    pub details: RequestDetails,
    /// The options.
    pub options: Vec<PermissionOption>,
    /// The tool call that it is about.
    pub tool_call: Option<ToolCallId>,
}

impl Request {
    /// Reads a request of a server.
    pub fn of_open(open: &OpenRequest) -> Self {
        // The params have all that the session knows of the tool call.
        let subject = Subject::of(&open.method, &open.params, &Transcript::default(), &open.cwd);
        let title = open.session_title.clone().unwrap_or_else(|| open.session.to_string());
        Self {
            id: open.id.clone(),
            session: open.session.clone(),
            session_title: Clean::line(&title),
            agent: Clean::line(&open.agent),
            cwd: open.cwd.clone(),
            opened: open.opened_at.as_deref().and_then(|text| text.parse().ok()),
            subject,
        }
    }

    /// Reads a request that an agent sent directly to this client, under an id that this client assigns.
    pub fn of_peer(
        id: String,
        request: &PeerRequest,
        transcript: &Transcript,
        (agent, cwd): (&str, &str),
        now: Timestamp,
    ) -> Self {
        let subject = Subject::of(request.method(), request.params(), transcript, cwd);
        Self {
            id,
            session: request.session().unwrap_or_else(|| SessionId::from("")),
            session_title: Clean::default(),
            agent: Clean::line(agent),
            cwd: cwd.to_owned(),
            opened: Some(now),
            subject,
        }
    }

    /// The request in a few words: `run a command`, `edit 2 files`.
    pub fn summary(&self) -> String {
        match &self.subject {
            Subject::Permission(permission) => permission.details.headline.to_string(),
            Subject::Form(form) if form.url().is_some() => "open a link".to_owned(),
            Subject::Form(form) => format!("fill in {}", crate::text::count(form.fields.len(), "field")),
            Subject::Unknown(_) => "something that this client does not know".to_owned(),
        }
    }

    /// The request in the fewest words: `run a command`, `edit 2 files`.
    pub fn short_summary(&self) -> String {
        match &self.subject {
            Subject::Permission(permission) => permission.details.short_headline().to_string(),
            Subject::Form(_) | Subject::Unknown(_) => self.summary(),
        }
    }

    /// The summary for a list: with the command, the paths or the message.
    pub fn details(&self) -> Clean {
        match &self.subject {
            Subject::Permission(permission) => permission.details.summary(),
            Subject::Form(form) if form.url().is_some() => Clean::line(&format!("link: {}", form.message())),
            Subject::Form(form) => {
                let fields = crate::text::count(form.fields.len(), "field");
                Clean::line(&format!("form with {fields}: {}", form.message()))
            }
            Subject::Unknown(text) => text.clone(),
        }
    }

    /// The options of a permission request.
    pub fn options(&self) -> &[PermissionOption] {
        match &self.subject {
            Subject::Permission(permission) => &permission.options,
            Subject::Form(_) | Subject::Unknown(_) => &[],
        }
    }
}

impl Subject {
    fn of(method: &str, params: &Object, transcript: &Transcript, cwd: &str) -> Self {
        if method == "session/request_permission" {
            return Self::Permission(Box::new(Permission::of(params, transcript, cwd)));
        }
        match Form::of(params) {
            Some(form) => Self::Form(Box::new(form)),
            None => Self::Unknown(Clean::line(params.to_json().as_str())),
        }
    }
}

impl Permission {
    /// Reads the params of a request; what they leave out is in the transcript.
    fn of(params: &Object, transcript: &Transcript, cwd: &str) -> Self {
        let subject = params.get_object("subject").unwrap_or_default();
        let call = params.get_object("toolCall").or_else(|| subject.get_object("toolCall"));
        Self {
            details: RequestDetails::new(params, transcript, cwd),
            options: PermissionOption::all_in(params),
            tool_call: call.unwrap_or(subject).get_json_str("toolCallId").map(ToolCallId::from),
        }
    }

    /// The option of a kind, if there is exactly one: a key never chooses between several.
    pub fn only_option(&self, kind: &PermissionOptionKind) -> Option<&PermissionOption> {
        let mut of_kind = self.options.iter().filter(|option| option.kind == *kind);
        of_kind.next().filter(|_| of_kind.next().is_none())
    }
}

/// The result that selects an option.
pub fn selection(option: &PermissionOption) -> Object {
    let outcome = Object::new().with("outcome", "selected").with("optionId", &option.id);
    Object::new().with("outcome", outcome.to_json())
}

#[cfg(test)]
pub(crate) mod tests {
    use parlor_client::Json;

    use super::*;

    pub(crate) fn object(text: &str) -> Object {
        Json::parse(text).unwrap().to_object().unwrap()
    }

    fn permission(params: &str) -> Permission {
        Permission::of(&object(params), &Transcript::default(), "/work")
    }

    #[test]
    fn a_permission_has_its_options_and_its_tool_call() {
        let read = permission(
            r#"{"toolCall":{"toolCallId":"t","kind":"execute","rawInput":{"command":"ls"}},
                "options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}"#,
        );
        assert_eq!(read.tool_call, Some("t".into()));
        assert_eq!(read.details.headline.as_str(), "run a command (execute)");
        assert_eq!(read.only_option(&PermissionOptionKind::AllowOnce).unwrap().name, "Yes");
        assert!(read.only_option(&PermissionOptionKind::AllowAlways).is_none());
    }

    #[test]
    fn a_key_does_not_choose_between_two_options_of_its_kind() {
        let read = permission(
            r#"{"options":[{"optionId":"a","name":"A","kind":"allow_once"},{"optionId":"b","name":"B","kind":"allow_once"}]}"#,
        );
        assert!(read.only_option(&PermissionOptionKind::AllowOnce).is_none());
    }
}
