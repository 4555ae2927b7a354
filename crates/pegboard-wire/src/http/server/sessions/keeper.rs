//! The task that the sessions of an endpoint share: it passes on changes of the service and ends idle sessions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{Session, SessionTable, Sessions};
use crate::server::ServiceChange;

/// Part of the idle timeout by which a session may end too late, so that many sessions are checked at once.
const MAX_DELAY: u32 = 64;

/// The task of an endpoint, from its first session on. It ends with the endpoint.
#[derive(Default)]
pub(super) struct SessionKeeper(Mutex<Option<AbortOnDropHandle<()>>>);

impl SessionKeeper {
    /// Starts the task, unless it runs: it may have ended with the runtime that it was started in.
    pub(super) fn start(&self, sessions: &Sessions) {
        let mut task = self.0.lock();
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        // From here on no change is missed.
        let changes = sessions.server.service.changes();
        let keeping = keep(Arc::downgrade(&sessions.table), sessions.options.session_idle, changes);
        *task = Some(AbortOnDropHandle::new(tokio::spawn(keeping)));
    }
}

async fn keep(table: Weak<SessionTable>, idle: Duration, mut changes: Option<Receiver<ServiceChange>>) {
    let mut next_check = Instant::now() + idle;
    loop {
        let received = tokio::select! {
            received = next_change(&mut changes) => Some(received),
            () = time::sleep_until(next_check) => None,
        };
        let Some(table) = table.upgrade() else { return };
        match received {
            Some(Err(RecvError::Closed)) => changes = None,
            Some(received) => {
                let sessions: Vec<Arc<Session>> = table.lock().values().cloned().collect();
                for session in sessions {
                    // Thousands of sessions must not keep other tasks of the thread waiting.
                    coop::consume_budget().await;
                    session.served.forward(&received, &session.connection).await;
                }
            }
            None => next_check = end_idle(&table, idle),
        }
    }
}

async fn next_change(changes: &mut Option<Receiver<ServiceChange>>) -> Result<ServiceChange, RecvError> {
    match changes {
        Some(changes) => changes.recv().await,
        None => std::future::pending().await,
    }
}

/// Ends the sessions that were idle for too long, and returns the time of the next check.
fn end_idle(table: &SessionTable, idle: Duration) -> Instant {
    let now = Instant::now();
    let mut next_end = now + idle;
    let mut expired = Vec::new();
    table.lock().retain(|_, session| {
        let end = session.last_seen() + idle;
        if end <= now {
            expired.push(Arc::clone(session));
            return false;
        }
        next_end = next_end.min(end);
        true
    });
    // Outside the lock: it drops the requests of the session.
    for session in &expired {
        session.end();
    }
    next_end.max(now + idle / MAX_DELAY)
}
