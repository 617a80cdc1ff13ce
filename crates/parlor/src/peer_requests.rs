//! Answers requests of the agent: permission requests and forms, by flags or by the user at the terminal.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::select_all;
use parlor_client::PermissionOptionKind::{self, AllowAlways, AllowOnce, RejectAlways, RejectOnce};
use parlor_client::{Object, PeerRequest, PermissionOption};
use parlor_session::Transcript;
use tokio::sync::mpsc;

use crate::form::{Form, FormStatus};
use crate::output::{DIM, RED};
use crate::permission_request::PermissionRequest;
use crate::tty::{self, Tty};

/// How many typed lines are queued. More stay in the terminal's buffer.
const MAX_TYPED: usize = 16;

/// How permission requests are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalPolicy {
    /// Allow every request.
    AllowAll,
    /// Reject every request.
    RejectAll,
    /// Ask the user at the terminal.
    AskUser,
    /// There is no terminal: leave requests to other clients.
    LeaveToOthers,
}

/// The open requests; the first one is shown on the terminal.
pub(crate) struct RequestQueue {
    policy: ApprovalPolicy,
    /// The terminal, on which forms are filled in whatever the policy.
    tty: Option<Tty>,
    /// Whether the user may leave a request open, for `parlor answer`.
    has_later: bool,
    open: VecDeque<OpenRequest>,
    typed: Option<TypedLines>,
}

/// The lines that the user types.
struct TypedLines {
    /// Each line with the number of the request that was shown when it was read.
    lines: mpsc::Receiver<(u64, String)>,
    /// The number of the request that is shown.
    shown: Arc<AtomicU64>,
}

/// A request that the user has to answer.
struct OpenRequest {
    request: PeerRequest,
    details: Details,
}

enum Details {
    Permission(PermissionRequest, Vec<PermissionOption>),
    Form(Form),
}

/// A request and the reply to it.
pub(crate) struct Decision {
    request: PeerRequest,
    reply: Reply,
    /// The notice to print.
    pub(crate) notice: Option<String>,
}

enum Reply {
    Select(PermissionOption),
    Respond(Object),
    /// No option is selected. Most agents end the turn then.
    Cancel,
    /// This client does not answer; the request waits for other clients and in the inbox.
    LeaveOpen,
    /// This client does not support the request.
    Decline,
}

/// What happens while requests are open.
enum QueueEvent {
    /// A line, or the end of the input.
    Line(Option<String>),
    /// The request at this index was cancelled or answered by another client.
    Cancelled(usize),
    Disconnected,
}

impl ApprovalPolicy {
    /// The policy for the flags `--yes` and `--no`.
    fn new(yes: bool, no: bool, has_terminal: bool) -> Self {
        match (yes, no) {
            (true, _) => Self::AllowAll,
            (_, true) => Self::RejectAll,
            _ if has_terminal => Self::AskUser,
            _ => Self::LeaveToOthers,
        }
    }

    /// The option that the policy selects without the user.
    fn select(self, options: &[PermissionOption]) -> Option<&PermissionOption> {
        match self {
            Self::AllowAll => first_of_kinds(options, &[AllowOnce, AllowAlways]),
            Self::RejectAll => first_of_kinds(options, &[RejectOnce, RejectAlways]),
            Self::AskUser | Self::LeaveToOthers => None,
        }
    }

    /// The notice about a request that was decided without the user.
    fn notice(self, title: &str, selected: Option<&PermissionOption>) -> String {
        match (self, selected) {
            (_, Some(option)) => format!("{title}: {}", option.name),
            (Self::LeaveToOthers, None) => {
                format!(
                    "{title}: left to other clients, because there is no terminal to ask (use --yes or --no)"
                )
            }
            (Self::AllowAll | Self::RejectAll | Self::AskUser, None) => {
                format!("{title}: cancelled, because the agent offers no such option")
            }
        }
    }
}

impl Decision {
    fn new(request: PeerRequest, reply: Reply, notice: Option<String>) -> Self {
        Self { request, reply, notice }
    }

    /// The request, if this client does not support it.
    pub(crate) fn declined(&self) -> Option<&PeerRequest> {
        matches!(self.reply, Reply::Decline).then_some(&self.request)
    }

    /// Whether a person has to decide, and cannot do it here.
    pub(crate) fn is_left_open(&self) -> bool {
        matches!(self.reply, Reply::LeaveOpen)
    }

    /// Sends the reply to the server.
    pub(crate) async fn send(self) {
        match self.reply {
            Reply::Select(option) => self.request.select(&option).await,
            Reply::Respond(result) => self.request.respond(result).await,
            Reply::Cancel => self.request.cancel().await,
            Reply::LeaveOpen => self.request.leave_open().await,
            Reply::Decline => self.request.decline().await,
        }
    }
}

impl RequestQueue {
    /// Creates a queue for the flags `--yes` and `--no`.
    pub(crate) fn new(yes: bool, no: bool) -> Self {
        let tty = Tty::open();
        let policy = ApprovalPolicy::new(yes, no, tty.is_some());
        Self { policy, tty, has_later: false, open: VecDeque::new(), typed: None }
    }

    /// Offers to leave requests open.
    pub(crate) fn with_later(self) -> Self {
        Self { has_later: true, ..self }
    }

    /// Whether a request is shown on the terminal.
    pub(crate) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// Handles a request of the agent: returns the decision, or queues the request for the user.
    pub(crate) fn on_request(
        &mut self,
        request: PeerRequest,
        transcript: &Transcript,
        cwd: &str,
    ) -> io::Result<Option<Decision>> {
        match request.method() {
            "session/request_permission" => self.on_permission_request(request, transcript, cwd),
            "elicitation/create" => self.on_form(request),
            method => {
                let notice =
                    format!("the agent sent the request {method}, which this client does not support");
                Ok(Some(Decision::new(request, Reply::Decline, Some(notice))))
            }
        }
    }

    fn on_permission_request(
        &mut self,
        request: PeerRequest,
        transcript: &Transcript,
        cwd: &str,
    ) -> io::Result<Option<Decision>> {
        let permission = PermissionRequest::of(&request, transcript, cwd);
        let options = request.options();
        if self.policy == ApprovalPolicy::AskUser {
            return self.enqueue(request, Details::Permission(permission, options)).map(|()| None);
        }
        let selected = self.policy.select(&options);
        let notice = self.policy.notice(&permission.summary(), selected);
        let reply = match (self.policy, selected) {
            (_, Some(option)) => Reply::Select(option.clone()),
            (ApprovalPolicy::LeaveToOthers, None) => Reply::LeaveOpen,
            (ApprovalPolicy::AllowAll | ApprovalPolicy::RejectAll | ApprovalPolicy::AskUser, None) => {
                Reply::Cancel
            }
        };
        Ok(Some(Decision::new(request, reply, Some(notice))))
    }

    fn on_form(&mut self, request: PeerRequest) -> io::Result<Option<Decision>> {
        let form = Form::parse(request.params());
        let (message, reason) = match form {
            Some(form) if self.tty.is_some() && self.policy != ApprovalPolicy::RejectAll => {
                let form = if self.has_later { form.with_later() } else { form };
                return self.enqueue(request, Details::Form(form)).map(|()| None);
            }
            Some(form) => (
                form.message().to_owned(),
                "left to other clients, because there is no terminal to fill it in",
            ),
            None => ("form".to_owned(), "left to other clients, because this client cannot fill it in"),
        };
        if self.policy == ApprovalPolicy::RejectAll {
            let notice = format!("{message}: declined (--no)");
            return Ok(Some(Decision::new(request, Reply::Respond(decline_response()), Some(notice))));
        }
        Ok(Some(Decision::new(request, Reply::LeaveOpen, Some(format!("{message}: {reason}")))))
    }

    /// Queues a request for the user, and shows it if it is the only one.
    fn enqueue(&mut self, request: PeerRequest, details: Details) -> io::Result<()> {
        self.open.push_back(OpenRequest { request, details });
        if self.open.len() == 1 { self.show_next() } else { Ok(()) }
    }

    /// Waits for the next decision of the user; forever if no request is open. Cancel safe.
    pub(crate) async fn next_decision(&mut self) -> io::Result<Decision> {
        loop {
            match self.next_event().await {
                QueueEvent::Line(line) => {
                    let Some(open) = self.open.front_mut() else { continue };
                    let reply = match open.details.on_line(line, self.has_later) {
                        Ok(reply) => reply,
                        Err(problem) => {
                            if let Some(problem) = problem {
                                self.write(|out| writeln!(out, "  {RED}{problem}{RED:#}"))?;
                            }
                            self.show()?;
                            continue;
                        }
                    };
                    let Some(open) = self.open.pop_front() else { continue };
                    self.show_next()?;
                    return Ok(Decision::new(open.request, reply, None));
                }
                QueueEvent::Cancelled(index) => {
                    self.open.remove(index);
                    if index == 0 {
                        self.write(|out| {
                            writeln!(out, "{DIM}answered by another client, or cancelled{DIM:#}")
                        })?;
                        self.show_next()?;
                    }
                }
                // The caller reports the lost connection.
                QueueEvent::Disconnected => self.open.clear(),
            }
        }
    }

    async fn next_event(&mut self) -> QueueEvent {
        if self.open.is_empty() {
            return std::future::pending().await;
        }
        let typed = self.typed.get_or_insert_with(|| TypedLines::spawn(self.tty.as_ref()));
        let cancelled = self.open.iter_mut().map(|open| Box::pin(open.request.cancelled()));
        tokio::select! {
            line = typed.next() => QueueEvent::Line(line),
            (is_cancelled, index, _) = select_all(cancelled) => {
                if is_cancelled { QueueEvent::Cancelled(index) } else { QueueEvent::Disconnected }
            }
        }
    }

    /// Shows the request that is now the first one, and discards what was typed before.
    fn show_next(&self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        if let Some(tty) = &self.tty {
            tty.discard_input();
        }
        if let Some(typed) = &self.typed {
            typed.shown.fetch_add(1, Ordering::SeqCst);
        }
        self.show()
    }

    fn show(&self) -> io::Result<()> {
        let Some(open) = self.open.front() else { return Ok(()) };
        self.write(|mut out| match &open.details {
            Details::Permission(permission, options) => {
                permission.write(&mut out)?;
                for (index, option) in options.iter().enumerate() {
                    let key = key_of(options, index).unwrap_or(' ');
                    writeln!(out, "  {} {key}  {}", index + 1, crate::render::safe(&option.name))?;
                }
                let later = if self.has_later { ", l later" } else { "" };
                write!(out, "Answer (1-{}{later}): ", options.len())
            }
            Details::Form(form) => form.show(&mut out),
        })
    }

    /// Writes to the terminal on which the user is asked.
    fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match &self.tty {
            Some(tty) => tty.write(write),
            None => Ok(()),
        }
    }
}

impl Details {
    /// The reply for a typed line. `Err` if another line is needed, with the reason unless the form shows it. The end of the input
    /// cancels the request.
    fn on_line(&mut self, line: Option<String>, has_later: bool) -> Result<Reply, Option<String>> {
        let Some(line) = line else { return Ok(Reply::Cancel) };
        match self {
            Self::Permission(..) if has_later && line.trim() == "l" => Ok(Reply::LeaveOpen),
            Self::Form(form) if form.is_left_by(&line) => Ok(Reply::LeaveOpen),
            Self::Permission(_, options) => match parse_choice(options, &line) {
                Some(option) => Ok(Reply::Select(option.clone())),
                None => Err(Some(choice_problem(options, &line))),
            },
            Self::Form(form) => match form.on_line(&line) {
                FormStatus::Complete(result) => Ok(Reply::Respond(result)),
                FormStatus::Incomplete => Err(None),
            },
        }
    }
}

/// The keys for the kinds of options.
const KEYS: [(char, PermissionOptionKind); 4] =
    [('y', AllowOnce), ('a', AllowAlways), ('n', RejectOnce), ('N', RejectAlways)];

/// The key of an option, if it is the first one of its kind.
pub(crate) fn key_of(options: &[PermissionOption], index: usize) -> Option<char> {
    let kind = &options.get(index)?.kind;
    let is_first = options.iter().position(|option| option.kind == *kind) == Some(index);
    KEYS.iter().find(|(_, of)| of == kind).filter(|_| is_first).map(|(key, _)| *key)
}

/// The option that a typed number or key selects.
pub(crate) fn parse_choice<'a>(options: &'a [PermissionOption], typed: &str) -> Option<&'a PermissionOption> {
    let typed = typed.trim();
    if let Some((_, kind)) = KEYS.iter().find(|(key, _)| typed.chars().eq([*key])) {
        return options.iter().find(|option| option.kind == *kind);
    }
    options.get(typed.parse::<usize>().ok()?.checked_sub(1)?)
}

/// Why a typed line selects no option.
pub(crate) fn choice_problem(options: &[PermissionOption], typed: &str) -> String {
    let keys = (0..options.len()).filter_map(|index| key_of(options, index)).map(String::from);
    tty::number_problem(typed, options.len(), &keys.collect::<Vec<_>>())
}

pub(crate) fn decline_response() -> Object {
    let mut response = Object::default();
    response.set("action", "decline");
    response
}

/// The first option of the first kind that the agent offers.
fn first_of_kinds<'a>(
    options: &'a [PermissionOption],
    kinds: &[PermissionOptionKind],
) -> Option<&'a PermissionOption> {
    kinds.iter().find_map(|kind| options.iter().find(|option| option.kind == *kind))
}

impl TypedLines {
    /// Reads lines in a thread that ends with the process, because reading cannot be interrupted.
    fn spawn(tty: Option<&Tty>) -> Self {
        let (sender, lines) = mpsc::channel(MAX_TYPED);
        let shown = Arc::new(AtomicU64::new(0));
        let current = Arc::clone(&shown);
        // Without a terminal no request is shown, so nothing is typed.
        let reader = tty.and_then(|tty| tty.reader().ok());
        std::thread::spawn(move || {
            for line in reader.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.blocking_send((current.load(Ordering::SeqCst), line)).is_err() {
                    return;
                }
            }
        });
        Self { lines, shown }
    }

    /// The next line that was typed for the request that is shown; `None` at the end of the input.
    async fn next(&mut self) -> Option<String> {
        loop {
            let (request, line) = self.lines.recv().await?;
            if request == self.shown.load(Ordering::SeqCst) {
                return Some(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_json::Json;

    use super::*;

    fn decide(policy: ApprovalPolicy, options: &str) -> (Option<String>, String) {
        let params = Json::parse(format!(r#"{{"options":{options}}}"#)).unwrap();
        let options = PermissionOption::all_in(&Object::parse(params.raw()).unwrap());
        let selected = policy.select(&options);
        (selected.map(|option| option.id.to_string()), policy.notice("Delete it", selected))
    }

    #[test]
    fn flags_select_an_option_for_once_rather_than_for_always() {
        let options = r#"[
            {"optionId":"aa","name":"Always","kind":"allow_always"},
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"}]"#;
        assert_eq!(
            decide(ApprovalPolicy::AllowAll, options),
            (Some("a".to_owned()), "Delete it: Allow".to_owned())
        );
        assert_eq!(
            decide(ApprovalPolicy::RejectAll, options),
            (Some("r".to_owned()), "Delete it: Reject".to_owned())
        );
        let (selected, notice) = decide(ApprovalPolicy::LeaveToOthers, options);
        assert_eq!(selected, None);
        assert!(notice.contains("--yes"), "{notice}");
    }

    #[test]
    fn an_option_is_selected_by_number_or_by_key() {
        let options = r#"{"options":[
            {"optionId":"a","name":"Allow","kind":"allow_once"},
            {"optionId":"b","name":"Allow this too","kind":"allow_once"},
            {"optionId":"r","name":"Reject","kind":"reject_once"},
            {"optionId":"rr","name":"Never","kind":"reject_always"}]}"#;
        let options = PermissionOption::all_in(&Object::parse(Json::parse(options).unwrap().raw()).unwrap());
        for (typed, id) in [("1", "a"), ("2", "b"), (" y ", "a"), ("n", "r"), ("N", "rr"), ("4", "rr")] {
            assert_eq!(parse_choice(&options, typed).unwrap().id.inner(), id);
        }
        // An empty line selects nothing, and neither does an option that does not exist.
        for typed in ["", "0", "5", "a", "yes", "-1"] {
            assert_eq!(parse_choice(&options, typed), None, "{typed}");
        }
        let keys: Vec<_> = (0..4).map(|index| key_of(&options, index)).collect();
        assert_eq!(keys, [Some('y'), None, Some('n'), Some('N')]);
    }

    #[test]
    fn an_option_that_the_agent_does_not_offer_is_not_selected() {
        let options = r#"[{"optionId":"x","name":"Own","kind":"own"},{"name":"no id"},7]"#;
        let (selected, notice) = decide(ApprovalPolicy::AllowAll, options);
        assert_eq!(selected, None);
        assert!(notice.contains("no such option"), "{notice}");
    }
}
