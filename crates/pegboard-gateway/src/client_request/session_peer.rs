//! Clients with sessions, outside of their calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use pegboard_core::client::{AskError, ClientSession, InputRequest, Notice};
use pegboard_json::RawJson;
use pegboard_runtime::event::{EventBus, NotificationDropReason, RuntimeEvent};
use pegboard_wire::era::LogLevel;
use pegboard_wire::server::{ClientDescription, ClientSessionId, Peer};
use tokio::sync::watch;
use tokio::time;

use super::bridge::{ask_error, forward_log};
use super::notice_queue::NoticeQueue;

/// Time limit for an answer of a client that makes no call.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A client with a session. Requests go with the call that it was created for while that is in progress, and to the
/// stream of the session afterwards.
pub(super) struct SessionPeer {
    pub(super) peer: Peer,
    pub(super) client: Arc<ClientDescription>,
    /// Capabilities that servers may know of.
    pub(super) capabilities: RawJson,
    pub(super) watch: SessionWatch,
    /// Events of the runtime, which a server that holds the client must not keep alive.
    pub(super) events: EventBus,
    pub(super) outbox: Arc<Mutex<NoticeOutbox>>,
}

/// Notices that a client has not received yet.
#[derive(Default)]
pub(super) struct NoticeOutbox {
    notices: NoticeQueue,
    /// A task sends the notices.
    is_sending: bool,
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

    fn notify(&self, notice: Notice) {
        let (n_dropped, was_sending) = {
            let mut outbox = self.outbox.lock();
            (outbox.notices.push(notice, true), std::mem::replace(&mut outbox.is_sending, true))
        };
        if !was_sending {
            let (peer, level) = (self.peer.clone(), self.watch.log_level.clone());
            // The task ends when all notices are sent, which does not wait for a client that is gone.
            tokio::spawn(send_notices(peer, level, Arc::clone(&self.outbox)));
        }
        if n_dropped > 0 {
            let reason = NotificationDropReason::SlowReader;
            self.events.emit(|| RuntimeEvent::NotificationsDropped { n_notifications: n_dropped, reason });
        }
    }

    fn roots_changes(&self) -> watch::Receiver<u64> {
        self.watch.roots_changes.clone()
    }
}

/// Sends the notices of an outbox in order, log messages of the level that the client wants at the moment.
async fn send_notices(
    peer: Peer,
    level: watch::Receiver<Option<LogLevel>>,
    outbox: Arc<Mutex<NoticeOutbox>>,
) {
    let next = || {
        let mut outbox = outbox.lock();
        let next = outbox.notices.pop_front();
        outbox.is_sending = next.is_some();
        next
    };
    while let Some(notice) = next() {
        match notice {
            Notice::Log(params) => {
                let level = level.borrow().or(peer.log_level());
                forward_log(&peer.clone().with_log_level(level), params).await;
            }
            Notice::Custom { method, params } => {
                peer.notify(&method, params.unwrap_or_else(RawJson::empty_object)).await;
            }
            // They belong to calls.
            Notice::Progress(_) | Notice::Task(_) => {}
        }
    }
}

/// Changes of a session, for servers with an instance of its own.
pub(super) struct SessionWatch {
    /// Number of changes to the roots.
    roots_changes: watch::Receiver<u64>,
    /// Minimum level of log messages, if the client has set one since.
    log_level: watch::Receiver<Option<LogLevel>>,
}

/// Sessions that servers follow.
#[derive(Default)]
pub(crate) struct WatchedSessions(Mutex<HashMap<ClientSessionId, WatchedSession>>);

#[derive(Default)]
struct WatchedSession {
    roots_changes: watch::Sender<u64>,
    log_level: watch::Sender<Option<LogLevel>>,
}

impl WatchedSessions {
    /// Returns receivers of the changes of a session.
    pub(super) fn watch(&self, session: &ClientSessionId) -> SessionWatch {
        let mut sessions = self.0.lock();
        let watched = sessions.entry(session.clone()).or_default();
        SessionWatch {
            roots_changes: watched.roots_changes.subscribe(),
            log_level: watched.log_level.subscribe(),
        }
    }

    /// Records a change to the roots of a session.
    pub(crate) fn record_roots_change(&self, session: &ClientSessionId) {
        if let Some(watched) = self.0.lock().get(session) {
            watched.roots_changes.send_modify(|n_changes| *n_changes += 1);
        }
    }

    /// Records the log level of a session.
    pub(crate) fn set_log_level(&self, session: &ClientSessionId, level: LogLevel) {
        if let Some(watched) = self.0.lock().get(session) {
            watched.log_level.send_replace(Some(level));
        }
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&self, session: &ClientSessionId) {
        self.0.lock().remove(session);
    }
}
