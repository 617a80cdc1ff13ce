//! Requests that wait for a person, over all sessions, and answers to them by id.

use std::sync::Arc;

use parlor_engine::{ClientCall, Frame};
use parlor_json::{Json, Object};
use parlor_wire::{RequestId, RpcError, code};

use crate::client::Client;
use crate::feed;
use crate::hub::HubState;
use crate::session::SessionMessage;

/// Responds with the open requests; a subscriber is sent them, and later changes, as notifications instead.
pub(super) async fn list(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    method: &str,
) -> Result<(), RpcError> {
    let mut result = Object::default();
    if method == "_parlor/requests" {
        let requests = hub.feed().requests();
        result.set("requests", feed::requests_to_json(hub, client, requests).await?);
    }
    client.queue.push(Frame::response(id, &result));
    if method == "_parlor/requests/subscribe" {
        hub.feed().subscribe_requests(client);
    }
    Ok(())
}

/// Answers an open request with a result. The client need not be attached to the session.
pub(super) async fn answer(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
) -> Result<(), RpcError> {
    let name = params.get_string("requestId");
    let name = name.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`requestId` must be a string"))?;
    let result = params.get("result").filter(|result| result.to_object().is_some());
    let result = result.ok_or_else(|| {
        RpcError::new(
            code::INVALID_PARAMS,
            "`result` must be an object, as a client would answer the request",
        )
    })?;
    let open = feed::request_of_name(&name).and_then(|request| hub.feed().request(request));
    let Some(open) = open else {
        let data = Object::new().with("reason", "not_open").with("requestId", name.as_str());
        let message = format!("the request {name} is not open: it was answered or cancelled");
        return Err(RpcError::new(code::INVALID_PARAMS, message).with_data(data.to_json()));
    };
    let peer_request = open.request.request;
    let call = ClientCall::AnswerRequest { id: id.clone(), peer_request, result: Json::from(result) };
    hub.send(&open.session, SessionMessage::Call(Arc::clone(client), call)).await
}
