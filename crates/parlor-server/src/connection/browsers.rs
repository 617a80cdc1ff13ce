//! Browsers that are signed in to the page: links for new ones, the list, and signing out.

use std::sync::Arc;

use parlor_engine::Frame;
use parlor_json::{Json, Object};
use parlor_wire::{RequestId, RpcError, code};

use crate::client::Client;
use crate::hub::{ClientRole, HubState};

/// Responds with the code of a link that signs one browser in.
pub(super) fn link(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
) -> Result<(), RpcError> {
    let role = match params.get_bool("observer") {
        Some(true) => ClientRole::Observer,
        Some(false) | None => ClientRole::Driver,
    };
    let link = hub.browsers().new_link(role, now());
    let link = link.map_err(|error| {
        RpcError::new(code::INTERNAL_ERROR, format!("cannot create a link for a browser: {error}"))
    })?;
    client.queue.push(Frame::response(id, &Object::new().with("code", link.as_str())));
    Ok(())
}

/// Responds with the browsers that are signed in.
pub(super) fn list(hub: &Arc<HubState>, client: &Arc<Client>, id: &RequestId) {
    let browsers = hub.browsers().list(now()).into_iter().map(|browser| {
        let role = match browser.role {
            ClientRole::Driver => "driver",
            ClientRole::Observer => "observer",
        };
        let listed = Object::new()
            .with("id", browser.id.as_str())
            .with("name", browser.name.as_str())
            .with("role", role);
        let time = |at: i64| crate::stored::time(at).unwrap_or_else(Json::null);
        listed.with("signedInAt", time(browser.signed_in_at)).with("lastUsedAt", time(browser.last_used_at))
    });
    client.queue.push(Frame::response(id, &Object::new().with("browsers", Json::array(browsers))));
}

/// Signs a browser out.
pub(super) async fn sign_out(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Object,
) -> Result<(), RpcError> {
    let browser = params.get_string("id");
    let browser = browser.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`id` must be a string"))?;
    let (shared, id_of_browser) = (Arc::clone(hub), browser.clone());
    let signed_out = tokio::task::spawn_blocking(move || shared.browsers().sign_out(&id_of_browser)).await;
    let signed_out = signed_out.map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string()))?;
    match signed_out {
        Ok(true) => {
            client.queue.push(Frame::response(id, &Object::default()));
            Ok(())
        }
        Ok(false) => {
            Err(RpcError::new(code::INVALID_PARAMS, format!("no browser with the id {browser} is signed in")))
        }
        Err(error) => {
            let message = format!("the browser is signed out until the server restarts: {error}");
            Err(RpcError::new(code::INTERNAL_ERROR, message))
        }
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
