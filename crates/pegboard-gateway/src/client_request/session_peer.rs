//! Clients with sessions, outside of their calls.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::client::{AskError, ClientSession, InputRequest};
use pegboard_json::RawJson;
use pegboard_wire::server::{ClientDescription, ClientSessionId, Peer};
use tokio::sync::watch;
use tokio::time;

use super::bridge::ask_error;

/// Time limit for an answer of a client that makes no call.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A client with a session. Requests go with the call that it was created for while that is in progress, and to the
/// stream of the session afterwards.
pub(super) struct SessionPeer {
    pub(super) peer: Peer,
    pub(super) client: ClientDescription,
    /// Capabilities that servers may know of.
    pub(super) capabilities: RawJson,
    pub(super) roots_changes: watch::Receiver<u64>,
}

impl ClientSession for SessionPeer {
    fn capabilities(&self) -> RawJson {
        self.capabilities.clone()
    }

    fn ask(&self, InputRequest { method, params }: InputRequest) -> BoxFuture<'_, Result<RawJson, AskError>> {
        async move {
            if self.client.missing_capability(&method, Some(&params)).is_some() {
                return Err(AskError::Unsupported);
            }
            let answer = time::timeout(ANSWER_TIMEOUT, self.peer.request(&method, Some(params))).await;
            answer.map_err(|_elapsed| AskError::TimedOut(ANSWER_TIMEOUT))?.map_err(ask_error)
        }
        .boxed()
    }

    fn roots_changes(&self) -> watch::Receiver<u64> {
        self.roots_changes.clone()
    }
}

/// Changes to the roots of sessions, for those that a server watches.
#[derive(Default)]
pub(crate) struct SessionRoots(Mutex<HashMap<ClientSessionId, watch::Sender<u64>>>);

impl SessionRoots {
    /// Returns a receiver of the number of changes to the roots of a session.
    pub(crate) fn watch(&self, session: &ClientSessionId) -> watch::Receiver<u64> {
        self.0.lock().entry(session.clone()).or_default().subscribe()
    }

    /// Records a change.
    pub(crate) fn record_change(&self, session: &ClientSessionId) {
        if let Some(changes) = self.0.lock().get(session) {
            changes.send_modify(|n_changes| *n_changes += 1);
        }
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&self, session: &ClientSessionId) {
        self.0.lock().remove(session);
    }
}
