//! What was said, found by its words.

use std::sync::Arc;

use parlor_json::Object;
use parlor_wire::{RequestId, RpcError, code};
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::hub::Shared;
use crate::session::now;
use crate::{json, search};

/// How many searches run at a time. Who asks for more waits, and is not read meanwhile.
static SEARCHES: Semaphore = Semaphore::const_new(4);

pub(super) async fn search(
    hub: &Arc<Shared>,
    client: &Arc<Client>,
    id: &RequestId,
    params: Object,
) -> Result<(), RpcError> {
    let Ok(permit) = SEARCHES.acquire().await else {
        return Err(RpcError::new(code::INTERNAL_ERROR, "nothing is searched for any more"));
    };
    let (hub, client, id) = (Arc::clone(hub), Arc::clone(client), id.clone());
    tokio::spawn(async move {
        let answer = hub.read(move |store| Ok(search::answer(store, &params, now()))).await;
        drop(permit);
        let line = match answer.and_then(|answer| answer) {
            Ok(result) => json::response(&id, &result),
            Err(error) => json::error(&id, &error),
        };
        client.outbox.push(line.into());
    });
    Ok(())
}
