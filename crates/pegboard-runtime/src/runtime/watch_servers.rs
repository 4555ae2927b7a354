//! Watches servers: their listings, states and notifications.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::provider::ProviderUpdate;
use pegboard_core::settings::StartRule;
use tokio::sync::broadcast::error::RecvError;
use tokio::time;

use super::RuntimeShared;
use crate::call::requests::{ServerId, ServerUpdate};
use crate::event::{RuntimeEvent, ServerStart};
use crate::toolbox::ToolboxServer;

/// Debounce interval between two catalogue builds caused by one server.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Watches a server until it is replaced or the runtime shuts down.
pub(super) fn watch_server(shared: &Arc<RuntimeShared>, id: &ServerId, server: &ToolboxServer) {
    watch_state(shared, id, server);
    forward_updates(shared, id, server);
}

/// Forwards the notifications of a server.
fn forward_updates(shared: &Arc<RuntimeShared>, id: &ServerId, server: &ToolboxServer) {
    let (mut updates, forwarded, from) = (server.provider.updates(), shared.updates.clone(), id.clone());
    let principals = shared.principals.clone();
    let (closing, replaced) = (shared.closing.clone(), server.replaced.clone());
    shared.tasks.spawn(async move {
        let forwarding = async {
            loop {
                match updates.recv().await {
                    // A message that belongs to no call may be about any principal.
                    Ok(ProviderUpdate::Log(_) | ProviderUpdate::Custom { .. })
                        if principals.are_several() => {}
                    // Sending fails only if there is no subscriber.
                    Ok(update) => drop(forwarded.send(ServerUpdate { from: from.clone(), update })),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        };
        closing.run_until_cancelled(replaced.run_until_cancelled(forwarding)).await;
    });
}

/// Watches the listing and the state of a server.
fn watch_state(shared: &Arc<RuntimeShared>, id: &ServerId, server: &ToolboxServer) {
    let (mut offer, mut state) = (server.offer.clone(), server.state.clone());
    let (toolbox, name) = (id.toolbox.to_string(), id.server.to_string());
    let (closing, replaced) = (shared.closing.clone(), server.replaced.clone());
    let weak = Arc::downgrade(shared);
    shared.tasks.spawn(async move {
        loop {
            let is_offer = tokio::select! {
                () = closing.cancelled() => return,
                () = replaced.cancelled() => return,
                changed = offer.changed() => changed.map(|()| true),
                changed = state.changed() => changed.map(|()| false),
            };
            let (Ok(is_offer), Some(shared)) = (is_offer, weak.upgrade()) else { return };
            if is_offer {
                shared.refresh();
                drop(shared);
                // A server that changes its listing continuously causes one build per interval.
                time::sleep(DEBOUNCE).await;
            } else {
                let state = shared.without_secrets(&state.borrow_and_update());
                let (toolbox, server) = (toolbox.clone(), name.clone());
                shared.events.emit_server(toolbox, server, state);
                // A server without tools is known once it is ready.
                shared.refresh();
            }
        }
    });
}

/// Opens the servers that are configured to start eagerly, in the background.
pub(super) fn start_eager(
    shared: &Arc<RuntimeShared>,
    servers: impl IntoIterator<Item = (ServerId, ToolboxServer)>,
) {
    let usual = shared.settings().start;
    let is_eager = |server: &ToolboxServer| server.settings.start.unwrap_or(usual) == StartRule::Eager;
    let eager: Vec<_> = servers.into_iter().filter(|(_, server)| is_eager(server)).collect();
    if eager.is_empty() {
        return;
    }
    let (starting, closing) = (Arc::clone(shared), shared.closing.clone());
    shared.tasks.spawn(async move {
        let starts = eager.into_iter().map(|(id, server)| async move { server.open_timed(&id).await });
        let starts = stream::iter(starts).buffer_unordered(starting.max_concurrent_starts());
        if let Some(mut servers) = closing.run_until_cancelled(starts.collect::<Vec<ServerStart>>()).await {
            servers.sort_by_key(|start| Reverse(start.took));
            for error in servers.iter_mut().filter_map(|start| start.error.as_mut()) {
                *error = starting.redactor.load().text(error).into_owned();
            }
            starting.events.emit(|| RuntimeEvent::Started { servers });
        }
    });
}
