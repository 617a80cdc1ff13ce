//! Full-text search over all sessions.

use std::sync::Arc;

use parlor_engine::Frame;
use parlor_json::Object;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::Semaphore;

use super::list;
use crate::client::Client;
use crate::hub::HubState;
use crate::search;
use crate::session::now;

/// How many searches run at a time. A client that starts one more is not read until it starts.
static SEARCHES: Semaphore = Semaphore::const_new(4);

pub(super) async fn search(
    hub: &Arc<HubState>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
) -> Result<(), RpcError> {
    let Ok(permit) = SEARCHES.acquire().await else {
        return Err(RpcError::new(code::INTERNAL_ERROR, "the server is stopping"));
    };
    let (hub, client, id) = (Arc::clone(hub), Arc::clone(client), id.clone());
    tokio::spawn(async move {
        let shown = list::agent_names(&hub, &client);
        let answer = hub.read(move |store| Ok(search::answer(store, &params, now(), shown))).await;
        drop(permit);
        let response = match answer.and_then(|answer| answer) {
            Ok(result) => Frame::response(&id, &result),
            Err(error) => Frame::error(&id, &error),
        };
        client.queue.push(response);
    });
    Ok(())
}
