//! The requests that wait for a person, over all sessions of a parlor server.

use parlor_json::{JsonRef, Object};
use parlor_session::SessionId;
use parlor_wire::code;

use crate::peer_request::title_in;
use crate::{Client, Connection, Error, Notification, PermissionOption};

/// A request of an agent that any client of the server may answer, attached to the session or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRequest {
    /// The id with which it is answered, such as `r3`.
    pub id: String,
    /// Its session.
    pub session: SessionId,
    /// The method: `session/request_permission` or `elicitation/create`.
    pub method: String,
    /// The params, with all that the session knows of the tool call.
    pub params: Object,
    /// The title of the session.
    pub session_title: Option<String>,
    /// The agent of the session.
    pub agent: String,
    /// The working directory of the session.
    pub cwd: String,
    /// When the agent sent it, as RFC 3339.
    pub opened_at: Option<String>,
    /// All members, as the server sent them.
    pub fields: Object,
}

impl OpenRequest {
    fn decode(raw: JsonRef<'_>) -> Option<Self> {
        let fields = raw.to_object()?;
        let mut params = fields.get_object("params").unwrap_or_default();
        if let Some(call) = fields.get_object("toolCall") {
            params.set("toolCall", call.to_json());
        }
        let text = |name: &str| fields.get_string(name);
        Some(Self {
            id: text("requestId")?,
            session: fields.get_json_str("sessionId")?.into(),
            method: text("method").unwrap_or_default(),
            params,
            session_title: text("title"),
            agent: text("agent").unwrap_or_default(),
            cwd: text("cwd").unwrap_or_default(),
            opened_at: text("openedAt"),
            fields,
        })
    }

    /// The title of the request, or else of the tool call or other subject that it is about.
    pub fn title(&self) -> Option<String> {
        title_in(&self.params)
    }

    /// The options of a permission request.
    pub fn options(&self) -> Vec<PermissionOption> {
        PermissionOption::all_in(&self.params)
    }
}

/// A change of the open requests, after [`Client::subscribe_requests`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestsUpdate {
    /// The requests that were opened.
    pub opened: Vec<OpenRequest>,
    /// The ids of those that were answered or cancelled.
    pub closed: Vec<String>,
}

impl RequestsUpdate {
    /// The change that a notification reports; `None` if it is another one.
    ///
    /// ```
    /// use parlor_client::{Json, Notification, RequestsUpdate};
    ///
    /// let params = Json::parse(r#"{"opened":[{"requestId":"r1","sessionId":"s"}],"closed":["r0"]}"#).unwrap();
    /// let notification = Notification::new("_parlor/requests/update", Some(params));
    /// let update = RequestsUpdate::of(&notification).unwrap();
    /// assert_eq!((update.opened[0].id.as_str(), &*update.closed), ("r1", &["r0".to_owned()][..]));
    /// ```
    pub fn of(notification: &Notification) -> Option<Self> {
        if notification.method != "_parlor/requests/update" {
            return None;
        }
        let params = notification.params.as_ref()?.to_object()?;
        let opened = params.get_array("opened").unwrap_or_default();
        let closed = params.get_array("closed").unwrap_or_default();
        Some(Self {
            opened: opened.into_iter().filter_map(OpenRequest::decode).collect(),
            closed: closed.into_iter().filter_map(|id| Some(id.to_text()?.into_owned())).collect(),
        })
    }
}

impl Client {
    /// Subscribes to the open requests of all sessions: a parlor server sends all of them and later changes as
    /// [notifications](Self::notifications), which [`RequestsUpdate::of`] decodes.
    pub async fn subscribe_requests(&self) -> Result<(), Error> {
        self.call("_parlor/requests/subscribe", &Object::default()).await.map(drop)
    }

    /// The requests that wait for a person, in all sessions of the server, the oldest first.
    pub async fn open_requests(&self) -> Result<Vec<OpenRequest>, Error> {
        self.connection().open_requests().await
    }

    /// Answers an open request with a result, as a client that was sent the request would. Returns false if it is not open
    /// any more.
    pub async fn answer(&self, request: &str, result: Object) -> Result<bool, Error> {
        self.connection().answer(request, result).await
    }
}

impl Connection {
    /// The requests that wait for a person, the oldest first.
    pub async fn open_requests(&self) -> Result<Vec<OpenRequest>, Error> {
        let result = self.call("_parlor/requests", &Object::default()).await?;
        let requests = result.get_array("requests");
        let requests = requests.ok_or(Error::Protocol("the response has no requests"))?;
        Ok(requests.into_iter().filter_map(OpenRequest::decode).collect())
    }

    /// Answers an open request with a result, as a client that was sent the request would. Returns false if it is not open
    /// any more.
    pub async fn answer(&self, request: &str, result: Object) -> Result<bool, Error> {
        let params = Object::new().with("requestId", request).with("result", result.to_json());
        match self.call("_parlor/answer", &params).await {
            Ok(_) => Ok(true),
            Err(Error::Rpc(error)) if error.code() == code::INVALID_PARAMS && is_not_open(&error) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn is_not_open(error: &parlor_wire::RpcError) -> bool {
    let reason = error.data().and_then(|data| data.to_object()?.get_string("reason"));
    reason.as_deref() == Some("not_open")
}
