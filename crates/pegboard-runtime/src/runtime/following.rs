//! Servers that are followed: what they offer, how they are, and what they say.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::settings::StartRule;
use tokio::sync::broadcast::error::RecvError;
use tokio::time;

use super::Shared;
use crate::event::{Event, Start};
use crate::requests::{ServerId, ServerUpdate};
use crate::toolbox::Server;

/// How long a server's changes are gathered before the catalogue is made anew.
const GATHERING: Duration = Duration::from_millis(20);

/// Follows a server until something else takes its place or the runtime ends.
pub(super) fn follow(shared: &Arc<Shared>, place: &ServerId, server: &Server) {
    watch(shared, place, server);
    hear(shared, place, server);
}

/// Passes on what a server says.
fn hear(shared: &Arc<Shared>, place: &ServerId, server: &Server) {
    let (mut said, heard, from) = (server.provider.updates(), shared.updates.clone(), place.clone());
    let (closing, replaced) = (shared.closing.clone(), server.replaced.clone());
    shared.tasks.spawn(async move {
        let passing_on = async {
            loop {
                match said.recv().await {
                    // With nobody listening it is simply lost.
                    Ok(update) => drop(heard.send(ServerUpdate { from: from.clone(), update })),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        };
        closing.run_until_cancelled(replaced.run_until_cancelled(passing_on)).await;
    });
}

/// Follows what a server offers and how it is.
fn watch(shared: &Arc<Shared>, place: &ServerId, server: &Server) {
    let (mut offer, mut state) = (server.offer.clone(), server.state.clone());
    let (toolbox, name) = (place.toolbox.to_string(), place.server.to_string());
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
                // A server that changes its mind all the time costs one catalogue in a while.
                time::sleep(GATHERING).await;
            } else {
                let state = shared.without_secrets(&state.borrow_and_update());
                let (toolbox, server) = (toolbox.clone(), name.clone());
                shared.events.emit(|| Event::Server { toolbox, server, state });
            }
        }
    });
}

/// Starts those of these servers that start with everything else. Nobody waits for them.
pub(super) fn start_eager(shared: &Arc<Shared>, servers: impl IntoIterator<Item = (ServerId, Server)>) {
    let usual = shared.settings().start;
    let is_eager = |server: &Server| server.settings.start.unwrap_or(usual) == StartRule::Eager;
    let eager: Vec<_> = servers.into_iter().filter(|(_, server)| is_eager(server)).collect();
    if eager.is_empty() {
        return;
    }
    let (starting, closing) = (Arc::clone(shared), shared.closing.clone());
    shared.tasks.spawn(async move {
        let starts = eager.into_iter().map(|(place, server)| async move { server.started(&place).await });
        let starts = stream::iter(starts).buffer_unordered(starting.n_starts_at_once());
        if let Some(mut servers) = closing.run_until_cancelled(starts.collect::<Vec<Start>>()).await {
            servers.sort_by_key(|start| Reverse(start.took));
            for error in servers.iter_mut().filter_map(|start| start.error.as_mut()) {
                *error = starting.redactor.load().text(error).into_owned();
            }
            starting.events.emit(|| Event::Started { servers });
        }
    });
}
